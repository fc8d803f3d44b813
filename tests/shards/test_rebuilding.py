"""A shard whose tables are damaged is said to be so, whatever they have become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from seqprep.errors import CorruptError
from seqprep.shards import rebuild_sidecar
from seqprep.types import KeySpec

from .shards import make_content, write_dataset

CONTENT = make_content({"data": KeySpec(dtype="float32", shape=(2,))}, [4, 4], [3, 2])


def replace(file: Any, name: str, values: Any) -> None:
    del file[name]
    file[name] = values


def overflow(file: Any) -> None:
    file["batches/data.frames"][1] += 1 << 62  # times 4 rows: the old number, in 64 bits


def list_of_numbers(file: Any) -> None:
    size = file["rows/fields"].shape[0]
    file["rows/fields"][...] = np.frombuffer(b"[" + b"1" * (size - 2) + b"]", np.uint8)


def nested(file: Any) -> None:
    replace(file, "rows/fields", np.frombuffer(b"[" * 200_000, np.uint8))


def one_batch_of_frames(file: Any) -> None:
    file["batches/rows"][...] = 4
    file["batches/data.frames"][...] = 5
    replace(file, "batches/data.frames", np.array([5]))
    replace(file, "data", np.zeros((40, 2), np.float32))
    replace(file, "batches/data.offset", np.array([0, 20]))


@pytest.mark.parametrize("damage", [overflow, list_of_numbers, nested, one_batch_of_frames])
def test_damaged_tables_are_told(tmp_path: Path, damage: Any) -> None:
    path = write_dataset(tmp_path, CONTENT, "hdf5")
    with h5py.File(path, "r+") as file:
        damage(file)
    with pytest.raises(CorruptError, match=r"isn't a whole .*; seqprep repair makes it again"):
        rebuild_sidecar(path)
