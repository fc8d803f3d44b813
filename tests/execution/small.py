"""A dataset of a few shards that is made in milliseconds, and what a folder may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqprep import verify
from seqprep.errors import DatasetError, UnfinishedError
from seqprep.shards import Dataset

FORMATS = ("hdf5", "tfrecord")


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
