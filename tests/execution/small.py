"""A dataset of a few shards that is made in milliseconds, and what a folder may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

import seqprep
from seqprep import Loader, verify
from seqprep.errors import DatasetError, UnfinishedError
from seqprep.shards import Dataset

from .systems import QuickStorage

FORMATS = ("hdf5", "tfrecord")
QUICK = QuickStorage()


def small(output: Path, format: str = "hdf5", **changes: Any) -> dict[str, Any]:
    """A configuration; `changes` go into its sections by names such as order__seed."""
    config: dict[str, Any] = {
        "source": {"type": "synthetic", "sequences": 6, "features": 2, "min_frames": 5, "mean_frames": 20, "max_frames": 40},
        "chunk": {"size": 10, "step": 5},
        "context": 2,
        "batch": {"max_frames": 60},
        "order": {"by": "random", "seed": 1},
        "output": {"path": str(output), "format": format, "shard_size": 2500},
    }  # fmt: skip
    for name, value in changes.items():
        section, _, setting = name.partition("__")
        if setting:
            config[section] = {**config[section], setting: value}
        else:
            config[section] = value
    return config


def content(folder: Path) -> dict[str, bytes]:
    """Every file with its bytes."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())} if folder.is_dir() else {}


def assert_none_or_whole(folder: Path, *whole: dict[str, bytes]) -> bool:
    """A reader finds no dataset, or one of these to the last byte; says whether it finds one."""
    try:
        Dataset(folder)
    except UnfinishedError:
        return False
    except DatasetError:
        if folder.exists():
            raise
        return False
    assert verify(folder, workers=1).faults == []
    found = content(folder)
    assert any(expected.items() <= found.items() for expected in whole)
    return True


def make(folder: Path, format: str = "hdf5", compression: str = "none", **changes: Any) -> Path:
    seqprep.chunk(small(folder, format, output__compression=compression, **changes), storage=QUICK)
    return folder


def corpus(path: Path, frames: tuple[int, ...] = (23, 0, 7, 40), seed: int = 0) -> dict[str, Any]:
    """An HDF5 file in RETURNN's layout, and the section that names it."""
    random = np.random.default_rng(seed)
    with h5py.File(path, "w") as file:
        file["inputs"] = random.standard_normal((sum(frames), 3)).astype(np.float32)
        file["targets/data/classes"] = random.integers(0, 9, sum(frames)).astype(np.int32)
        file["seqLengths"] = np.array([[length, length] for length in frames], np.int32)
        file["seqTags"] = [f"a/b größe-{number}".encode() for number in range(len(frames))]
    return {"type": "hdf5", "path": str(path)}


def arrays(folder: Path) -> list[dict[str, bytes]]:
    with Loader(folder, rank=0, world_size=1) as loader:
        return [{name: b"|".join(value.tobytes() if name != "seq_tag" else str(list(value)).encode() for value in [np.asarray(array)])
                 for name, array in batch.items()} for batch in loader]  # fmt: skip
