"""What one shard holds, apart from the arrays of its keys: batches, fields of its rows, tags."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from seqprep.lazy import cached_property
from seqprep.types import Array, Int64, KeySpec, Tags, numpy_dtype

NUMBERS = ("epoch", "dropped_rows", "dropped_frames")


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
    batch_sizes: Mapping[str, Int64] = field(default_factory=dict)
    """For each key with ragged axes, int64 [batches, axes]: their sizes in each batch."""
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

    def shape(self, key: str, batch: int) -> tuple[int, ...]:
        """Shape of one batch's array, as in `shapes`."""
        spec = self.keys[key]
        sizes = self.batch_sizes[key][batch].tolist() if spec.ragged else ()
        own = spec.shape_of(sizes)
        if not spec.has_time:
            return (int(self.batch_entries[batch]), *own)
        return (int(self.batch_rows[batch]), int(self.batch_frames[key][batch]), *own)

    @property
    def numbers(self) -> dict[str, int]:
        """What is said of the shard as a whole, by the names of the fields above."""
        return {name: getattr(self, name) for name in NUMBERS}

    def part(self, begin: int, end: int) -> ShardTable:
        """The batches from `begin` up to `end`; what was dropped counts with the first."""
        batches, entries = slice(begin, end), slice(int(self.bounds[begin]), int(self.bounds[end]))
        return ShardTable(
            keys=self.keys,
            batch_rows=self.batch_rows[batches],
            batch_frames={key: frames[batches] for key, frames in self.batch_frames.items()},
            batch_sizes={key: sizes[batches] for key, sizes in self.batch_sizes.items()},
            fields={name: values[entries] for name, values in self.fields.items()},
            tags=self.tags.stretch(entries.start, entries.stop),
            batch_segments=None if self.batch_segments is None else self.batch_segments[batches],
            epoch=self.epoch,
            dropped_rows=0 if begin else self.dropped_rows,
            dropped_frames=0 if begin else self.dropped_frames,
        )

    @classmethod
    def joined(cls, parts: Sequence[ShardTable]) -> ShardTable:
        """Tables of equal keys and fields, and of one pass, one behind the other.

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
            batch_sizes={key: np.concatenate([part.batch_sizes[key] for part in parts]) for key in first.batch_sizes},
            fields={name: np.concatenate([part.fields[name] for part in parts]) for name in first.fields},
            tags=Tags(
                np.concatenate([of.data for of in tags]),
                np.concatenate([of.ends + before for of, before in zip(tags, shift, strict=False)]),
            ),
            batch_segments=None
            if first.batch_segments is None
            else np.concatenate([part.batch_entries for part in parts]),
            epoch=first.epoch,
            dropped_rows=sum(part.dropped_rows for part in parts),
            dropped_frames=sum(part.dropped_frames for part in parts),
        )

    def equals(self, other: ShardTable) -> bool:
        """Whether another table says the same."""
        return (
            dict(self.keys) == dict(other.keys)
            and np.array_equal(self.batch_rows, other.batch_rows)
            and _equal_arrays(self.batch_frames, other.batch_frames)
            and _equal_arrays(self.batch_sizes, other.batch_sizes)
            and np.array_equal(self.batch_entries, other.batch_entries)
            and (self.batch_segments is None) == (other.batch_segments is None)
            and self.numbers == other.numbers
            and _equal_arrays(self.fields, other.fields)
            and self.tags == other.tags
        )

    def array_bytes(self, key: str) -> Int64:
        """Bytes of each batch's array; int64 [batches]."""
        return np.diff(self.units_before(key)) * self.keys[key].nbytes


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
            shape=tuple(None if size is None else int(size) for size in shape),
            has_time=bool(entry["has_time"]),
            labels=None if labels is None else tuple(map(str, labels)),
        )
    return keys


def describe_shard_of(description: bytes, table: ShardTable) -> bytes:
    """Adds to what `Index.describe` gives what is said of one shard; `parse_numbers` reads that."""
    if not description:
        return description
    content = json.loads(description) | {"shard": table.numbers}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def parse_numbers(text: bytes) -> dict[str, int]:
    """Reads what `describe_shard_of` added."""
    return {name: int(value) for name, value in json.loads(text)["shard"].items() if name in NUMBERS}
