"""Old datasets stay readable; those of newer versions are refused, with what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqprep import Loader, repair, verify
from seqprep.errors import CorruptError, DatasetError
from seqprep.shards import Dataset, checksum, read_index, read_sidecar, rebuild_sidecar, sidecar_path
from seqprep.types import KeySpec
from tests.execution.small import content

from .shards import KINDS, make_content, write_dataset

VERSION_1 = Path(__file__).parents[1] / "data" / "version1"
NAMES = ["-".join([format, *([compression] if compression != "none" else [])]) for format, compression in KINDS]
SMALL = make_content({"data": KeySpec(dtype="float32", shape=(2,))}, [2, 1], [3, 2])


@pytest.mark.parametrize("name", NAMES)
def test_version_1_is_read(name: str, tmp_path: Path) -> None:
    if "zstd" in name:
        pytest.importorskip("zstandard")
    folder = tmp_path / name
    shutil.copytree(VERSION_1 / name, folder)
    assert verify(folder).faults == []
    expected = np.load(VERSION_1 / "expected.npz")
    with Loader(folder, rank=0, world_size=1) as loader:
        batches = list(loader)
    assert len(batches) == 2
    for number, batch in enumerate(batches):
        for field, array in batch.items():
            due = expected[f"{number}/{field}"]
            if field == "seq_tag":
                assert list(array) == due.tolist()
            else:
                assert array.shape == due.shape
                assert array.dtype.name == ("bfloat16" if field == "brain" else due.dtype.name)
                assert array.tobytes() == due.tobytes()
    whole = content(folder)
    for lost in (n for n in whole if n == "index.json" or n.endswith(".idx")):
        (folder / lost).unlink()
    repair(folder)
    assert verify(folder).faults == []


def write_index(path: Path, change: dict[str, Any]) -> None:
    index = json.loads(path.read_bytes()) | change
    del index["crc32c"]
    crc = checksum(json.dumps(index, sort_keys=True, separators=(",", ":")).encode())
    path.write_text(json.dumps(index | {"crc32c": crc}, indent=1) + "\n", encoding="utf-8")


def write_sidecar(path: Path, change: dict[str, Any]) -> None:
    data = path.read_bytes()
    size = int.from_bytes(data[8:16], "little")
    header = json.dumps(json.loads(data[16 : 16 + size]) | change).encode()
    body = (
        data[:8]
        + len(header).to_bytes(8, "little")
        + header
        + bytes(-len(header) % 8)
        + data[16 + size + -size % 8 : -4]
    )
    path.write_bytes(body + checksum(body).to_bytes(4, "little"))


@pytest.mark.parametrize(
    "change", [{"seqprep": 2}, {"format": "parquet"}, {"compression": "brotli", "codec": "brotli 1"}]
)
def test_a_newer_index_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    write_dataset(tmp_path, SMALL, "hdf5")
    write_index(tmp_path / "index.json", change)
    with pytest.raises(
        DatasetError, match=r"index\.json: version .* newer than this seqprep reads.*; update seqprep"
    ) as caught:
        Dataset(tmp_path)
    assert not isinstance(caught.value, CorruptError)
    with pytest.raises(DatasetError, match="update seqprep"):
        verify(tmp_path)
    with pytest.raises(DatasetError, match="update seqprep"):
        repair(tmp_path)


@pytest.mark.parametrize("change", [{"version": 2}, {"compression": "brotli"}])
def test_a_newer_sidecar_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = write_dataset(tmp_path, SMALL, "tfrecord")
    write_sidecar(sidecar_path(path), change)
    with pytest.raises(
        DatasetError, match=r"\.idx: version .* newer than this seqprep reads.*; update seqprep"
    ) as caught:
        read_sidecar(path)
    assert not isinstance(caught.value, CorruptError)


def test_what_a_reader_does_not_know_within_its_version_is_passed_over(tmp_path: Path) -> None:
    path = write_dataset(tmp_path, SMALL, "hdf5")
    write_index(tmp_path / "index.json", {"remark": "later"})
    write_sidecar(sidecar_path(path), {"remark": "later"})
    assert read_index(tmp_path).batches == 2
    assert read_sidecar(path).table.equals(SMALL.table)


@pytest.mark.parametrize("format", ["hdf5", "tfrecord"])
def test_a_shard_of_a_newer_version_is_refused(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from seqprep.shards import index

    with monkeypatch.context() as later:
        later.setattr(index, "VERSION", 2)
        path = write_dataset(tmp_path, SMALL, format)
    with pytest.raises(DatasetError, match=r"version 2.*update seqprep") as caught:
        rebuild_sidecar(path)
    assert not isinstance(caught.value, CorruptError)


@pytest.mark.parametrize("format", ["hdf5", "tfrecord"])
def test_what_a_later_release_adds_within_the_version_is_neither_a_fault_nor_lost(tmp_path: Path, format: str) -> None:
    path = write_dataset(tmp_path, SMALL, format)
    write_sidecar(sidecar_path(path), {"remark": "later"})
    crc = int.from_bytes(sidecar_path(path).read_bytes()[-4:], "little")
    written = json.loads((tmp_path / "index.json").read_bytes())
    record = written["shards"][0] | {"sidecar_crc32c": crc, "remark": "later"}
    statistics = written["statistics"] | {"remark": "later"}
    write_index(tmp_path / "index.json", {"shards": [record], "statistics": statistics, "remark": "later"})
    whole = content(tmp_path)
    assert verify(tmp_path).faults == []
    repair(tmp_path)
    assert content(tmp_path) == whole
    (tmp_path / "index.json").write_bytes(whole["index.json"] + b" ")
    assert [fault.file for fault in verify(tmp_path).faults] == ["index.json"]
    (tmp_path / "index.json").unlink()
    assert {fault.file for fault in verify(tmp_path).faults} == {"index.json"}
    repair(tmp_path)
    assert content(tmp_path)[sidecar_path(path).name] == whole[sidecar_path(path).name]
    assert verify(tmp_path).faults == []


def test_numbers_that_a_later_release_says_of_a_shard_are_passed_over(tmp_path: Path) -> None:
    from seqprep.shards.table import parse_numbers

    assert parse_numbers(b'{"shard": {"epoch": 2, "dropped_rows": 1, "later": 5}}') == {"epoch": 2, "dropped_rows": 1}
