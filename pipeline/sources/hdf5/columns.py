"""The ways in which the sequences of one key lie in one file; each reads any range of frames of any of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from seqprep.files import FileCache
from seqprep.lazy import cached_property
from seqprep.sources.hdf5.files import Handles
from seqprep.sources.hdf5.heap import find_object
from seqprep.sources.plain import read_plain
from seqprep.types import Array, Int64, KeySpec, Tags

THROUGH_H5PY = -1
"""In place of an offset: the bytes don't lie in the file as they are."""


@dataclass(frozen=True)
class Readers:
    """What a column reads with."""

    files: FileCache
    handles: Handles


class Column(Protocol):
    """One key of one file."""

    @property
    def spec(self) -> KeySpec:
        """What its frames look like."""

    def read(self, readers: Readers, sequence: int, start: int, out: Array) -> None:
        """Reads frames start, start + 1, … of a sequence of the file.

        Args:
            readers: open files.
            sequence: its place in the file.
            start: the first frame; 0 for a key without time.
            out: [frames, …], C-contiguous; filled. For a key without time, [1, …].

        Raises:
            OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError: the file is damaged.
        """


@dataclass(frozen=True, kw_only=True)
class Rows:
    """All sequences in one dataset: back to back, or each in a padded row."""

    path: str
    dataset: str
    """Its path in the file."""
    spec: KeySpec
    begin: Int64
    """Frame at which each sequence begins, counted over the whole dataset; int64 [sequences]."""
    offset: int
    """Where the dataset's bytes begin in the file, or THROUGH_H5PY."""
    row_frames: int | None = None
    """Frames of a padded row; None if there are no such rows."""
    units: Int64 | None = None
    """Of a key with ragged axes, of which all but the first lie flattened: pieces of equal size in each sequence's frames,
    of which then `begin` and the dataset's rows are; int64 [sequences]."""

    @cached_property
    def _frame_bytes(self) -> int:
        return self.spec.nbytes

    def read(self, readers: Readers, sequence: int, start: int, out: Array) -> None:
        """As `Column.read`."""
        first = self.begin.item(sequence) + start * (1 if self.units is None else self.units.item(sequence))
        if self.offset != THROUGH_H5PY:
            read_plain(readers.files, self.path, self.offset + first * self._frame_bytes, out)
        elif self.row_frames is None:
            flat = out if self.units is None else out.reshape(-1, *self.spec.unit_shape)
            readers.handles.read(self.path, self.dataset, np.s_[first : first + len(flat)], flat)
        else:
            row, frame = divmod(first, self.row_frames)
            readers.handles.read(self.path, self.dataset, np.s_[row, frame : frame + len(out)], out)

    def read_together(self, readers: Readers, first: int, lengths: Int64, out: Array) -> bool:
        """Reads sequences of these lengths from `first` on, if they lie one behind the other; else gives False.

        Raises:
            OSError: the file is damaged.
        """
        begin = self.begin[first : first + len(lengths)]
        if self.offset == THROUGH_H5PY or self.units is not None or (begin[1:] - begin[:-1] != lengths[:-1]).any():
            return False
        read_plain(readers.files, self.path, self.offset + int(begin[0]) * self._frame_bytes, out)
        return True


@dataclass(frozen=True, kw_only=True)
class PerSequence:
    """A dataset per sequence."""

    path: str
    tags: Tags
    pattern: str
    """Path of a sequence's dataset, with `{tag}` in place of its tag."""
    slash: str
    """What stands in the path for a slash of the tag: HDF5's names have none."""
    spec: KeySpec
    offsets: Int64
    """Where each dataset's bytes begin in the file, or THROUGH_H5PY; int64 [sequences]."""

    @cached_property
    def _frame_bytes(self) -> int:
        return self.spec.nbytes

    def name_of(self, tag: str) -> str:
        """The dataset of a sequence."""
        return self.pattern.replace("{tag}", tag.replace("/", self.slash))

    def read(self, readers: Readers, sequence: int, start: int, out: Array) -> None:
        """As `Column.read`."""
        offset = self.offsets.item(sequence)
        if offset != THROUGH_H5PY:
            read_plain(readers.files, self.path, offset + start * self._frame_bytes, out)
            return
        name = self.name_of(self.tags[sequence])
        if self.spec.has_time:
            readers.handles.read(self.path, name, np.s_[start : start + len(out)], out, keep=False)
        else:
            readers.handles.read(self.path, name, ..., out[0, ...], keep=False)


@dataclass(frozen=True, kw_only=True)
class Ragged:
    """A dataset of rows that have their own lengths each: all values of a sequence are one row."""

    path: str
    spec: KeySpec
    stored: str
    """The values' dtype in the file, byte order included."""
    references: Array
    """Where each row is in the file's heap; `heap.REFERENCE` [sequences]."""

    @cached_property
    def _frame_bytes(self) -> int:
        return self.spec.nbytes

    def read(self, readers: Readers, sequence: int, start: int, out: Array) -> None:
        """As `Column.read`."""
        count, address, number = self.references[sequence].tolist()
        offset, size = find_object(readers.files, self.path, address, number)
        if size < count * np.dtype(self.stored).itemsize:
            raise ValueError(f"the heap holds {size} bytes of it, where {count} values should be")
        offset += start * self._frame_bytes
        if np.dtype(self.stored) == out.dtype:
            read_plain(readers.files, self.path, offset, out)
            return
        swapped = np.empty(out.shape, self.stored)
        read_plain(readers.files, self.path, offset, swapped)
        out[...] = swapped


@dataclass(frozen=True, kw_only=True)
class Segments:
    """A dataset per sequence of segments, (class, frames) each; read as the class of every frame."""

    segments: PerSequence
    """The datasets, [segments, 2]."""
    spec: KeySpec
    counts: Int64
    """Segments of each sequence; int64 [sequences]."""

    def read(self, readers: Readers, sequence: int, start: int, out: Array) -> None:
        """As `Column.read`; reads all of the sequence's segments."""
        segments = np.empty((self.counts.item(sequence), 2), self.spec.dtype)
        self.segments.read(readers, sequence, 0, segments)
        stops = np.cumsum(segments[:, 1], dtype=np.int64)
        places = np.searchsorted(stops, np.arange(start, start + len(out)), side="right")
        out[...] = segments[places, 0]


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a file holds."""

    path: str
    tags: Tags
    columns: Mapping[str, Column]
    lengths: Mapping[str, Int64]
    """Frames of every sequence, for each key with time; int64 [sequences]."""
    sizes: Mapping[str, Int64] = field(default_factory=dict)
    """Sizes of the ragged axes of those keys that have some; int64 [sequences, axes]."""
