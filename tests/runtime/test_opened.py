"""What a reader holds in memory gives the same batches as what it reads from the file at each batch."""

import os

import numpy as np
import pytest

from seqprep.errors import CorruptError
from seqprep.runtime import opened, ranges
from seqprep.runtime.pool import lease_once
from seqprep.runtime.ranges import BatchReader
from seqprep.shards import Dataset

from .conftest import MakeDataset


def read_all(reader: BatchReader) -> list[dict[str, object]]:
    return [dict(reader.read(number, lease_once, True)) for number in range(len(reader))]


@pytest.mark.parametrize("output_format", ["hdf5", "tfrecord"])
@pytest.mark.parametrize("limit", ["none small", "one key", "some shards"])
def test_held_keys_change_nothing(
    make_dataset: MakeDataset, monkeypatch: pytest.MonkeyPatch, output_format: str, limit: str
) -> None:
    path = make_dataset(output_format)
    whole = BatchReader(Dataset(path))
    held = read_all(whole)
    assert all(not shard.read for shard in whole._shards.values())  # everything is small here
    if limit == "none small":
        monkeypatch.setattr(opened, "SMALL_BYTES", 0)
    elif limit == "one key":
        monkeypatch.setattr(opened, "SMALL_BYTES", 800)
    else:
        monkeypatch.setattr(ranges, "_MOST_HELD_BYTES", 10_000)
    partly = BatchReader(Dataset(path))
    again = read_all(partly)
    assert any(shard.read for shard in partly._shards.values())
    for one, other in zip(held, again, strict=True):
        assert list(one) == list(other)
        for name in one:
            np.testing.assert_array_equal(np.asarray(one[name]), np.asarray(other[name]))
            if isinstance(one[name], np.ndarray):
                assert other[name].ctypes.data % 64 == 0  # type: ignore[attr-defined]


def test_what_is_held_is_bounded(make_dataset: MakeDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_MOST_HELD_BYTES", 10_000)
    reader = BatchReader(Dataset(make_dataset()))
    read_all(reader)
    assert 0 < sum(shard.held_bytes for shard in reader._shards.values()) <= 10_000


@pytest.mark.parametrize("output_format", ["hdf5", "tfrecord"])
def test_damage_to_a_small_key_is_told_at_its_batch(make_dataset: MakeDataset, output_format: str) -> None:
    dataset = Dataset(make_dataset(output_format))
    offset = int(dataset.sidecar(0).offsets["classes"][1])
    shard = dataset.shard_path(0)
    with open(shard, "r+b") as file:
        file.seek(offset)
        value = file.read(1)
        file.seek(offset)
        file.write(bytes([value[0] ^ 1]))
    reader = BatchReader(dataset)
    for number in (0, 2, 3):
        reader.read(number, lease_once, True)
    with pytest.raises(CorruptError, match=rf"{shard.name}: batch 1, key 'classes': bytes {offset} to \d+ differ"):
        reader.read(1, lease_once, True)
    os.truncate(shard, offset)
    with pytest.raises(
        CorruptError, match=r"batch 1, key '(data|classes)': bytes \d+ to \d+: the shard ends before them"
    ):
        BatchReader(dataset).read(1, lease_once, True)
