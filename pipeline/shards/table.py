"""What one shard holds, apart from the arrays of its keys: batches, fields of its rows, tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seqprep.types import Array, Int64, KeySpec, Tags


@dataclass(frozen=True)
class ShardTable:
    """The batches and rows of a shard, as arrays over all of it."""

    keys: Mapping[str, KeySpec]
    """Stored keys; one array of each belongs to each batch."""
    batch_rows: Int64
    """int64 [batches]: B of each batch."""
    batch_frames: Mapping[str, Int64]
    """For each key with time, int64 [batches]: T of each batch."""
    batch_sizes: Mapping[str, Int64]
    """For each key with ragged axes, int64 [batches, axes]: their sizes in each batch."""
    fields: Mapping[str, Array]
    """Small arrays that say what each row is: name to [rows] or [rows, n]."""
    tags: Tags
    """`seq_tag` of each row."""

    @cached_property
    def bounds(self) -> Int64:
        """int64 [batches + 1]: batch i holds rows bounds[i] up to bounds[i + 1]."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.batch_rows, dtype=np.int64)])

    def frames_before(self, key: str) -> Int64:
        """Frames (rows, for a key without time) of all earlier batches together, padding included.

        Returns:
            int64 [batches + 1]; the last entry is the shard's total.
        """
        spec = self.keys[key]
        each = self.batch_rows * self.batch_frames[key] if spec.has_time else self.batch_rows
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(each, dtype=np.int64)])

    def units_before(self, key: str) -> Int64:
        """Units of all earlier batches together, padding included: frames, but for a key with ragged axes.

        Returns:
            int64 [batches + 1]; the last entry is the shard's total.
        """
        frames = self.frames_before(key)
        if not self.keys[key].ragged:
            return frames
        each = np.diff(frames) * self.keys[key].units(self.batch_sizes[key])
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(each, dtype=np.int64)])

    def shapes(self, key: str) -> list[tuple[int, ...]]:
        """Shape of each batch's array: [B, T, …], or [B, …] for a key without time."""
        spec = self.keys[key]
        axes = [self.batch_rows, *([self.batch_frames[key]] if spec.has_time else [])]
        fronts = zip(*(axis.tolist() for axis in axes), strict=True)
        if not spec.ragged:
            return [(*front, *spec.unit_shape) for front in fronts]
        sizes = self.batch_sizes[key].tolist()
        return [(*front, *spec.shape_of(own)) for front, own in zip(fronts, sizes, strict=True)]

    def array_bytes(self, key: str) -> Int64:
        """Bytes of each batch's array; int64 [batches]."""
        return np.diff(self.units_before(key)) * self.keys[key].nbytes


def describe_keys(keys: Mapping[str, KeySpec]) -> dict[str, dict[str, object]]:
    """Writes keys for JSON."""
    described: dict[str, dict[str, object]] = {}
    for name, spec in keys.items():
        described[name] = {"dtype": spec.dtype, "shape": list(spec.shape), "has_time": spec.has_time}
        if spec.labels is not None:
            described[name]["labels"] = list(spec.labels)
    return described


def parse_keys(described: Mapping[str, Mapping[str, object]]) -> dict[str, KeySpec]:
    """Reads what `describe_keys` wrote.

    Raises:
        KeyError, TypeError, ValueError: it isn't that.
    """
    keys = {}
    for name, entry in described.items():
        labels, shape = entry.get("labels"), entry["shape"]
        if not isinstance(shape, list) or not (labels is None or isinstance(labels, list)):
            raise TypeError(f"key {name!r} is described wrongly")
        keys[name] = KeySpec(
            dtype=np.dtype(str(entry["dtype"])).name,
            shape=tuple(None if size is None else int(size) for size in shape),
            has_time=bool(entry["has_time"]),
            labels=None if labels is None else tuple(map(str, labels)),
        )
    return keys
