"""HDF5 shards, read with plain h5py (and hdf5plugin, for Zstandard)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from seqprep.shards.hdf5_chunks import chunk_frames
from seqprep.types import Array, KeySpec

from .shard_contract import MANY, ShardContract
from .shards import make_content, write


def array_of(dataset: Any, begin: int, end: int) -> Array:
    array: Array = dataset[begin:end]
    if "dtype" in dataset.attrs:
        import ml_dtypes

        return array.view(np.dtype(getattr(ml_dtypes, dataset.attrs["dtype"])))
    return array


class Hdf5Contract(ShardContract):
    format = "hdf5"

    def read(self, path: Path) -> list[dict[str, Array]]:
        batches = []
        with h5py.File(path, "r") as file:
            keys = [name for name in file if name not in ("batches", "rows")]
            fields = [name for name in file["rows"] if name not in ("seq_tag", "seq_tag.end", "fields")]
            for i, (rows, first) in enumerate(zip(file["batches/rows"], file["batches/first_row"], strict=True)):
                batch: dict[str, Array] = {}
                for key in keys:
                    timed = f"{key}.frames" in file["batches"]
                    shape = (rows, file[f"batches/{key}.frames"][i]) if timed else (rows,)
                    begin = file[f"batches/{key}.offset"][i]
                    array = array_of(file[key], begin, begin + int(np.prod(shape)))
                    batch[key] = array.reshape(*shape, *file[key].shape[1:])
                for name in fields:
                    key, dot, rest = name.rpartition(".")
                    batch[f"{key}/{rest}" if dot else name] = file[f"rows/{name}"][first : first + rows]
                end = np.append(0, file["rows/seq_tag.end"])
                tags = np.empty(rows, object)
                tags[:] = [
                    file["rows/seq_tag"][end[row] : end[row + 1]].tobytes() for row in range(first, first + rows)
                ]
                batch["seq_tag"] = tags
                batches.append(batch)
        return batches


class TestPlain(Hdf5Contract):
    def test_its_datasets_are_contiguous_and_carry_no_time(self, tmp_path: Path) -> None:
        write(tmp_path / "shard.x", MANY, self.format)
        with h5py.File(tmp_path / "shard.x", "r") as file:
            assert file.attrs["format"] == "seqprep"
            assert file.attrs["version"] == 1
            assert file["data"].chunks is None
            assert file["data"].id.get_offset() is not None
            assert h5py.h5g.get_objinfo(file["data"].id).mtime == 0

    def test_its_size_is_a_constant_and_its_payload(self, tmp_path: Path) -> None:
        keys = {"data": KeySpec(dtype="float32", shape=(3,))}
        sizes = [write(tmp_path / f"{n}.x", make_content(keys, [4], [n]), self.format).bytes for n in (10, 11)]
        assert sizes[1] - sizes[0] == 4 * 3 * 4


class TestGzip(Hdf5Contract):
    compression = "gzip"

    def test_the_filter_is_the_standard_one(self, tmp_path: Path) -> None:
        write(tmp_path / "shard.x", MANY, self.format, self.compression)
        with h5py.File(tmp_path / "shard.x", "r") as file:
            assert file["data"].compression == "gzip"


class TestZstd(Hdf5Contract):
    compression = "zstd"

    @pytest.fixture(autouse=True)
    def _packages(self) -> None:
        pytest.importorskip("backports.zstd")
        pytest.importorskip("hdf5plugin")  # importing it registers the filters

    def test_the_filter_is_the_registered_one_under_our_name(self, tmp_path: Path) -> None:
        write(tmp_path / "shard.x", MANY, self.format, self.compression)
        with h5py.File(tmp_path / "shard.x", "r") as file:
            number, _, values, name = file["data"].id.get_create_plist().get_filter(0)
        assert number == 32015
        assert values == (3,)
        assert name == b"zstd"  # and not what the plugin calls itself, whose presence must not change the bytes


def test_chunks_are_equal_parts_of_the_largest_batch() -> None:
    assert chunk_frames(np.array([100, 9600, 30]), 160) == 3200  # 1536 kB in three of 512 kB
    assert chunk_frames(np.array([100, 2400, 30]), 160) == 2400
    assert chunk_frames(np.array([10, 7]), 4) == 10
    assert chunk_frames(np.array([3]), 1 << 20) == 1
    assert chunk_frames(np.array([0, 0]), 4) == 0
    assert chunk_frames(np.array([5]), 0) == 0
