"""Puts the rows of a dataset back together to whole sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqprep.errors import DatasetError
from seqprep.execution.stored import MERGED
from seqprep.shards import Dataset, ShardReader, ShardTable
from seqprep.types import Array, Int64, KeySpec, numpy_dtype

Gaps = Literal["error", "nan"]


@dataclass(frozen=True)
class Sequence:
    """One sequence, whole."""

    place: int
    """Its place in the source; of a merged dataset, in all sources one behind the other."""
    tag: str
    arrays: Mapping[str, Array]
    """For each key, its frames [length, …], or its value […] without time."""


class _Growing:
    """A sequence of which some rows have been seen."""

    def __init__(self, rows: int, lengths: Mapping[str, int], keys: Mapping[str, KeySpec]) -> None:
        self.rows_left = rows
        self.arrays = {
            key: np.empty(
                (lengths[key], *spec.unit_shape) if spec.has_time else spec.unit_shape, numpy_dtype(spec.dtype)
            )
            for key, spec in keys.items()
        }
        self.seen = {key: np.zeros(length, np.bool_) for key, length in lengths.items()}
        self.valued: set[str] = set()

    def place(self, key: str, start: int, frames: Array) -> int | None:
        """Puts frames where they belong; gives the first that is there with other values."""
        stop = start + len(frames)
        before, array = self.seen[key][start:stop], self.arrays[key][start:stop]
        if before.any():
            differ = np.flatnonzero(before & ~_equal_frames(array, frames))
            if len(differ):
                return start + int(differ[0])
        array[...] = frames
        before[...] = True
        return None

    def set_value(self, key: str, value: Array) -> bool:
        """Sets the value of a key without time; says whether it is the same as in other rows."""
        same = key not in self.valued or value.tobytes() == self.arrays[key].tobytes()
        self.arrays[key][...] = value
        self.valued.add(key)
        return same


def _equal_frames(one: Array, other: Array) -> Array:
    """Which frames are equal to the last bit, so that NaN equals NaN; bool [frames]."""
    if not one.size:
        return np.ones(len(one), np.bool_)
    left, right = (np.ascontiguousarray(frames).reshape(len(frames), -1).view(np.uint8) for frames in (one, other))
    return np.asarray((left == right).all(axis=1))


class Stitcher:
    """Reads a dataset once, and gives every sequence when its last row has been seen.

    Memory holds the sequences of which some rows have been seen and some not: with rows shuffled inside shards, at most
    about one shard's; with rows shuffled over all shards, everything.

    Args:
        dataset: the dataset.
        keys: which keys to read.
        gaps: what becomes of frames that no row's core holds: an error, or NaN (of floats).
    """

    def __init__(self, dataset: Dataset, keys: Mapping[str, KeySpec], gaps: Gaps) -> None:
        self._dataset, self.keys, self._gaps = dataset, keys, gaps
        self._base = _first_places(dataset)
        self._before = dataset.batches_before()
        self._rows_of = np.zeros(dataset.index.sequences, np.int64)
        self.lengths = {key: np.zeros(dataset.index.sequences, np.int64) for key, spec in keys.items() if spec.has_time}
        """For each key with time, int64 [sequences]: frames of every sequence; 0 of those without a row."""
        self._shards = [number for number, shard in enumerate(dataset.index.shards) if shard.epoch == 0]
        for shard in self._shards:
            table, places = dataset.sidecar(shard).table, self._places(shard)
            real = places >= 0
            self._rows_of += np.bincount(places[real], minlength=len(self._rows_of))
            for key, lengths in self.lengths.items():
                lengths[places[real]] = table.fields[f"{key}/length"][real]
        self.present = np.flatnonzero(self._rows_of)
        """int64 [n]: places of the sequences that have rows, ascending."""

    def _places(self, shard: int) -> Int64:
        """Place of the sequence of each row, or segment where rows are packed; −1 of an empty row; int64 [entries]."""
        table = self._dataset.sidecar(shard).table
        base = self._base[self._before[shard] : self._before[shard + 1]]
        own: Int64 = table.fields["seq_idx"]
        return np.where(own < 0, -1, own + np.repeat(base, table.batch_entries))

    def sequences(self) -> Iterator[Sequence]:
        """Gives all sequences that have rows, each when it is complete.

        Raises:
            DatasetError: rows contradict each other where they overlap, or leave a gap; names sequence, key and frame.
            CorruptError: a shard is damaged.
        """
        growing: dict[int, _Growing] = {}
        for shard in self._shards:
            sidecar, places = self._dataset.sidecar(shard), self._places(shard)
            reader = ShardReader(self._dataset.shard_path(shard), sidecar)
            for batch in range(len(sidecar.table.batch_rows)):
                arrays = reader.batch(batch, list(self.keys))
                first = int(sidecar.table.bounds[batch])
                for entry in range(int(sidecar.table.batch_entries[batch])):
                    place = int(places[first + entry])
                    if place < 0:
                        continue
                    if place not in growing:
                        lengths = {key: int(of[place]) for key, of in self.lengths.items()}
                        growing[place] = _Growing(int(self._rows_of[place]), lengths, self.keys)
                    sequence = growing[place]
                    self._add(sequence, sidecar.table, first + entry, self._values(sidecar.table, first, entry, arrays))
                    sequence.rows_left -= 1
                    if not sequence.rows_left:
                        yield self._finish(place, growing.pop(place), sidecar.table.tags[first + entry])

    def _values(self, table: ShardTable, first: int, entry: int, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """What a batch holds of one of its rows or, where rows are packed, segments.

        Args:
            table: of the shard.
            first: the batch's first entry in it.
            entry: number of the row or segment in the batch.
            arrays: of the batch.
        """
        if table.batch_segments is None:
            return {key: array[entry] for key, array in arrays.items()}
        values, fields = {}, table.fields
        row = int(fields["segment_row"][first + entry])
        for key, array in arrays.items():
            if not self.keys[key].has_time:
                values[key] = array[entry]
                continue
            starts = fields.get(f"{key}/segment_start", fields["segment_start"])
            start, size = int(starts[first + entry]), int(fields[f"{key}/size0"][first + entry])
            values[key] = array[row, start : start + size]
        return values

    def _add(self, sequence: _Growing, table: ShardTable, row: int, values: Mapping[str, Array]) -> None:
        for key, value in values.items():
            if not self.keys[key].has_time:
                if not sequence.set_value(key, value):
                    raise self._contradiction(table, row, f"key {key!r}")
                continue
            left, core = table.fields[f"{key}/core"][row].tolist()
            wrong = sequence.place(key, int(table.fields[f"{key}/start"][row]), value[left : left + core])
            if wrong is not None:
                raise self._contradiction(table, row, f"key {key!r}, frame {wrong}")

    def _contradiction(self, table: ShardTable, row: int, where: str) -> DatasetError:
        return DatasetError(
            f"{self._dataset.path}: sequence {table.tags[row]!r}, {where}: rows hold different values; were they made "
            "from another source? seqprep verify --against-source compares with it"
        )

    def _finish(self, place: int, sequence: _Growing, tag: str) -> Sequence:
        for key, seen in sequence.seen.items():
            missing = np.flatnonzero(~seen)
            if not len(missing):
                continue
            gap = f"{self._dataset.path}: sequence {tag!r}, key {key!r}: {len(missing)} frames are in no row, the first is {missing[0]}"
            if self._gaps == "error":
                raise DatasetError(f"{gap}; with gaps as NaN, they are exported as such")
            if not np.can_cast(np.float16, sequence.arrays[key].dtype) and self.keys[key].dtype != "bfloat16":
                raise DatasetError(f"{gap}; {self.keys[key].dtype} knows no NaN; leave the key out")
            sequence.arrays[key][missing] = np.nan
        return Sequence(place, tag, sequence.arrays)


def _first_places(dataset: Dataset) -> Int64:
    """For each batch, how many sequences the sources of runs before its own have; int64 [batches]."""
    runs = dataset.index.configuration.get(MERGED)
    if runs is None:
        return np.zeros(dataset.index.batches, np.int64)
    sequences = np.array([run["sequences"] for run in runs], np.int64)
    return np.repeat(np.cumsum(sequences) - sequences, [run["batches"] for run in runs])
