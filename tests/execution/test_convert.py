"""The same batches in another wrapping."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from seqprep import convert, repair, verify
from seqprep.errors import ConfigError, CorruptError, DatasetError, MismatchError
from seqprep.shards import Dataset
from tests.shards.shards import KINDS

from .small import QUICK, arrays, content, make
from .systems import QuickStorage


@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_converted_equals_chunked(tmp_path: Path, format: str, compression: str) -> None:
    for target_format, target_compression in KINDS:
        source, out = tmp_path / f"{format}-{compression}", tmp_path / "out"
        direct = tmp_path / f"{target_format}-{target_compression}"
        for folder, kind in ((source, (format, compression)), (direct, (target_format, target_compression))):
            if not folder.exists():
                make(folder, *kind)
        summary = convert(source, out, format=target_format, compression=target_compression, storage=QUICK)
        assert not summary.already_complete
        assert content(out) == content(direct)
        assert convert(source, out, format=target_format, compression=target_compression).already_complete
        shutil.rmtree(out)


@pytest.mark.parametrize("size", [1, 700, 1500, 10**9])
@pytest.mark.parametrize("workers", [1, 3])
def test_batches_go_into_other_shards_in_their_order(tmp_path: Path, size: int, workers: int) -> None:
    source = make(tmp_path / "in")
    seen: list[int] = []
    summary = convert(source, tmp_path / "out", compression="gzip", shard_bytes=size, workers=workers,
                      progress=lambda told: seen.append(told.rows), storage=QUICK)  # fmt: skip
    assert arrays(tmp_path / "out") == arrays(source)
    assert seen[-1] == summary.rows
    assert verify(tmp_path / "out", against_source=True).faults == []
    out = Dataset(tmp_path / "out")
    sizes = [[int(sum(table.array_bytes(key)[batch] for key in table.keys)) for batch in range(len(table.batch_rows))]
             for table in (out.sidecar(shard).table for shard in range(len(out.index.shards)))]  # fmt: skip
    assert all(sum(shard) <= size or len(shard) == 1 for shard in sizes)
    assert all(sum(shard) + following[0] > size for shard, following in pairwise(sizes))
    assert out.index.fingerprint != Dataset(source).index.fingerprint
    again = convert(tmp_path / "out", tmp_path / "back", format="tfrecord", compression="none", storage=QUICK)
    assert again.shards == summary.shards
    assert arrays(tmp_path / "back") == arrays(source)


def test_a_conversion_goes_on_where_it_stopped(tmp_path: Path) -> None:
    source, model = (
        make(tmp_path / "in", output__shard_size=800),
        make(tmp_path / "model", "tfrecord", output__shard_size=800),
    )
    whole = content(model)
    assert len(whole) > 8

    class Stopping(QuickStorage):
        left = 3

        def commit(self, descriptor: int, partial: Path, path: Path) -> None:
            if path.suffix == ".tfrecord":
                self.left -= 1
                if self.left < 0:
                    raise KeyboardInterrupt
            super().commit(descriptor, partial, path)

    with pytest.raises(KeyboardInterrupt):
        convert(source, tmp_path / "out", format="tfrecord", workers=1, storage=Stopping())
    kept = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in content(tmp_path / "out") if name in whole}
    assert len(kept) >= 6
    convert(source, tmp_path / "out", format="tfrecord", workers=2, storage=QUICK)
    assert content(tmp_path / "out") == whole
    assert all((tmp_path / "out" / name).stat().st_mtime_ns == time for name, time in kept.items())


def test_a_damaged_dataset_is_not_converted(tmp_path: Path) -> None:
    source = make(tmp_path / "in")
    path = source / "shard-00000-of-00002.h5"
    data = bytearray(path.read_bytes())
    data[int(Dataset(source).sidecar(0).offsets["data"][1])] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match=r"shard-00000-of-00002\.h5: batch 1, key 'data'"):
        convert(source, tmp_path / "out", format="tfrecord")
    assert not (tmp_path / "out" / "index.json").exists()


def test_impossible_conversions(tmp_path: Path) -> None:
    source = make(tmp_path / "in", compression="zstd")
    with pytest.raises(ConfigError, match="which no reader of TFRecord knows"):
        convert(source, tmp_path / "out", format="tfrecord")
    with pytest.raises(ConfigError, match="is the input and the output"):
        convert(source, tmp_path / "in", compression="none")
    make(tmp_path / "other")
    with pytest.raises(MismatchError, match="--overwrite"):
        convert(source, tmp_path / "other", compression="gzip")
    convert(source, tmp_path / "other", compression="gzip", overwrite=True, storage=QUICK)
    assert arrays(tmp_path / "other") == arrays(source)


def test_damaged_shards_of_other_sizes_are_converted_again(tmp_path: Path) -> None:
    source = make(tmp_path / "in")
    convert(source, tmp_path / "out", shard_bytes=700, storage=QUICK)
    (tmp_path / "out" / "index.json").unlink()
    assert repair(tmp_path / "out").index
    Dataset(tmp_path / "out").shard_path(0).unlink()
    with pytest.raises(DatasetError, match="seqprep convert; convert again"):
        repair(tmp_path / "out")
