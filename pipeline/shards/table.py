"""What one shard holds, apart from the arrays of its keys: batches, fields of its rows, tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seqprep.types import Array, Int64, KeySpec, Tags, numpy_dtype


@dataclass(frozen=True)
class ShardTable:
    """The batches and rows of a shard, as arrays over all of it."""

    keys: Mapping[str, KeySpec]
    """Stored keys; one array of each belongs to each batch."""
    batch_rows: Int64
    """int64 [batches]: B of each batch."""
    batch_frames: Mapping[str, Int64]
    """For each key with time, int64 [batches]: T of each batch."""
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

    def shape(self, key: str, batch: int) -> tuple[int, ...]:
        """Shape of one batch's array: [B, T, …], or [B, …] for a key without time."""
        spec = self.keys[key]
        rows = int(self.batch_rows[batch])
        return (rows, int(self.batch_frames[key][batch]), *spec.shape) if spec.has_time else (rows, *spec.shape)

    def part(self, begin: int, end: int) -> ShardTable:
        """The batches from `begin` up to `end`."""
        batches, rows = slice(begin, end), slice(int(self.bounds[begin]), int(self.bounds[end]))
        return ShardTable(
            keys=self.keys,
            batch_rows=self.batch_rows[batches],
            batch_frames={key: frames[batches] for key, frames in self.batch_frames.items()},
            fields={name: values[rows] for name, values in self.fields.items()},
            tags=self.tags.take(np.arange(rows.start, rows.stop)),
        )

    @classmethod
    def joined(cls, parts: Sequence[ShardTable]) -> ShardTable:
        """Tables of equal keys and fields, one behind the other.

        Args:
            parts: at least one.
        """
        first = parts[0]
        tags = [part.tags for part in parts]
        shift = np.cumsum([0, *(len(of.data) for of in tags)])
        return cls(
            keys=first.keys,
            batch_rows=np.concatenate([part.batch_rows for part in parts]),
            batch_frames={
                key: np.concatenate([part.batch_frames[key] for part in parts]) for key in first.batch_frames
            },
            fields={name: np.concatenate([part.fields[name] for part in parts]) for name in first.fields},
            tags=Tags(
                np.concatenate([of.data for of in tags]),
                np.concatenate([of.ends + before for of, before in zip(tags, shift, strict=False)]),
            ),
        )

    def equals(self, other: ShardTable) -> bool:
        """Whether another table says the same."""
        return (
            dict(self.keys) == dict(other.keys)
            and np.array_equal(self.batch_rows, other.batch_rows)
            and _equal_arrays(self.batch_frames, other.batch_frames)
            and _equal_arrays(self.fields, other.fields)
            and self.tags == other.tags
        )

    def array_bytes(self, key: str) -> Int64:
        """Bytes of each batch's array; int64 [batches]."""
        return np.diff(self.frames_before(key)) * self.keys[key].nbytes


def _equal_arrays(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(values, other[name]) for name, values in one.items())


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
            dtype=numpy_dtype(str(entry["dtype"])).name,
            shape=tuple(int(size) for size in shape),
            has_time=bool(entry["has_time"]),
            labels=None if labels is None else tuple(map(str, labels)),
        )
    return keys
