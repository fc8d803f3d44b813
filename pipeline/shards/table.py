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
    batch_segments: Int64 | None = None
    """int64 [batches]: segments of each batch, where rows are packed; fields, tags and keys without time then have an
    entry for every segment instead of every row."""
    epoch: int = 0
    """The pass over the input to which the shard belongs."""
    dropped_rows: int = 0
    """Rows (segments, where rows are packed) that `batch.drop_last` left out of the shard."""
    dropped_frames: int = 0
    """Their frames of the input key, without context."""

    @property
    def batch_entries(self) -> Int64:
        """int64 [batches]: entries of the fields in each batch, one per row or, where rows are packed, per segment."""
        return self.batch_rows if self.batch_segments is None else self.batch_segments

    @cached_property
    def bounds(self) -> Int64:
        """int64 [batches + 1]: batch i holds entries bounds[i] up to bounds[i + 1]."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.batch_entries, dtype=np.int64)])

    @property
    def rows(self) -> int:
        """Rows that hold something; those that only fill a batch up are none."""
        if self.batch_segments is None:
            return int((self.fields["seq_idx"] >= 0).sum())
        row = self.fields["segment_row"]
        begins = np.diff(row, prepend=-1) != 0
        begins[self.bounds[:-1]] = True
        return int(begins.sum())

    def padding(self, key: str) -> int:
        """Frames of all batches in one key that only fill rows up: the sum of padded length − length over all rows."""
        return int((self.batch_rows * self.batch_frames[key]).sum()) - int(
            self.fields[f"{key}/size0"].sum(dtype=np.int64)
        )

    def units_before(self, key: str) -> Int64:
        """Units of a key (frames, unless an axis is ragged; entries, without time) in all earlier batches, with padding.

        Returns:
            int64 [batches + 1]; the last entry is the shard's total.
        """
        spec = self.keys[key]
        each = self.batch_rows * self.batch_frames[key] if spec.has_time else self.batch_entries
        if spec.ragged:
            each = each * spec.units(self.batch_sizes[key])
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(each, dtype=np.int64)])

    def shapes(self, key: str) -> list[tuple[int, ...]]:
        """Shape of each batch's array: [B, T, …], or for a key without time [B, …] ([S, …] where rows are packed)."""
        spec = self.keys[key]
        axes = [self.batch_rows, self.batch_frames[key]] if spec.has_time else [self.batch_entries]
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
