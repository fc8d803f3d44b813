"""Says what a dataset holds, and what one of its batches looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from seqprep.errors import DatasetError
from seqprep.runtime import Batch, Loader
from seqprep.shards import Dataset

_FIRST_VALUES = 4


def describe_dataset(path: str | Path) -> dict[str, Any]:
    """Reads what the index says of a dataset.

    Returns:
        Plain values: format, keys, counts, padding share of the input key, the configuration.

    Raises:
        DatasetError: it can't be read.
    """
    dataset = Dataset(path)
    index = dataset.index
    first = next(name for name, spec in index.keys.items() if spec.has_time)
    padded = index.frames + index.padding[first]
    return {
        "path": str(path),
        "format": index.format,
        "fingerprint": index.fingerprint,
        "keys": {
            name: {"dtype": spec.dtype, "shape": list(spec.shape), "has_time": spec.has_time}
            for name, spec in index.keys.items()
        },
        "sequences": index.sequences,
        "rows": index.rows,
        "batches": index.batches,
        "shards": len(index.shards),
        "bytes": index.shard_bytes,
        "frames": index.frames,
        "epochs": index.epochs,
        "padding": index.padding,
        "padding_share": index.padding[first] / padded if padded else 0.0,
        "configuration": dict(index.configuration),
    }


def describe_batch(path: str | Path, number: int) -> dict[str, dict[str, Any]]:
    """Reads one batch and describes its arrays.

    Returns:
        For each name: dtype, shape, and its first values; least and greatest where there are numbers.

    Raises:
        DatasetError: there is no such batch, or it can't be read.
    """
    with Loader(path, rank=0, world_size=1) as loader:
        batches = Dataset(path).index.batches
        if not 0 <= number < batches:
            raise DatasetError(f"{path}: has no batch {number}; its batches are 0 to {batches - 1}")
        batch: Batch = loader.batch(number)
    return {name: _describe(np.asarray(array)) for name, array in batch.items()}


def _describe(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "dtype": "str" if array.dtype == object else array.dtype.name,
        "shape": list(array.shape),
        "first": array.reshape(-1)[:_FIRST_VALUES].tolist(),
    }
    if array.dtype != object and array.size:
        described |= {"least": array.min().item(), "greatest": array.max().item()}
    return described
