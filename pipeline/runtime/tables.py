"""What has to be known of every batch of a dataset before any is read: its rows, and its shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqprep.shards import Dataset, read_sections
from seqprep.types import Array, Int64


def batch_shapes(dataset: Dataset, keys: Sequence[str]) -> Int64:
    """Gives batches whose arrays have equal shapes the same number, and others another.

    Args:
        dataset: the dataset.
        keys: those whose arrays count.

    Returns:
        int64 [batches].

    Raises:
        DatasetError: a sidecar is missing or damaged.
    """
    names = ["rows", *(f"{what}:{key}" for key in keys for what in ("frames", "sizes"))]
    if not all(dataset.index.keys[key].has_time for key in keys):
        names.append("segments")  # of packed rows; keys without time have an entry for each
    columns = _columns(dataset, names)
    if not columns["rows"].size:
        return np.zeros(0, np.int64)
    table = np.concatenate([column.reshape(len(column), -1) for column in columns.values()], axis=1)
    return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)


def batch_rows(dataset: Dataset) -> Int64:
    """Counts the rows of each batch, without those that only fill it up.

    Returns:
        int64 [batches].

    Raises:
        DatasetError: a sidecar is missing or damaged.
    """
    if not batch_setting(dataset, "pad_rows"):
        return _columns(dataset, ["rows"])["rows"]
    counts = [np.zeros(0, np.int64)]
    for number in range(len(dataset.index.shards)):
        sections = read_sections(dataset.shard_path(number), ["rows", "field:seq_idx"])
        before = np.cumsum(sections["rows"]) - sections["rows"]
        counts.append(np.add.reduceat(sections["field:seq_idx"] >= 0, before, dtype=np.int64))
    return np.concatenate(counts)


def _columns(dataset: Dataset, names: Sequence[str]) -> dict[str, Array]:
    """Sections of all shards' sidecars that have an entry for each batch, one shard behind the other."""
    parts: dict[str, list[Array]] = {"rows": [np.zeros(0, np.int64)]}
    for number in range(len(dataset.index.shards)):
        for name, values in read_sections(dataset.shard_path(number), names).items():
            parts.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}


def batch_setting(dataset: Dataset, name: str) -> Any:
    """What the dataset's configuration said under `batch`; None if nothing."""
    return dataset.index.configuration.get("batch", {}).get(name)


def pad_values(dataset: Dataset) -> Mapping[str, float]:
    """What rows of each key hold beyond their valid frames."""
    settings = dict(dataset.index.configuration.get("keys", ()))
    return {key: float(settings.get(key, {}).get("pad_value", 0.0)) for key in dataset.index.keys}
