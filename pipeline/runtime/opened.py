"""A shard opened for reading: where each batch's parts are, laid out so that reading one takes few lines of Python.

Whatever is small is held in memory, a block of bytes per batch: the fields of its rows, and behind them the arrays of
small keys (labels, say), for a read of a few kilobytes costs nearly as much as one of a hundred.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqprep.errors import CorruptError
from seqprep.files import OpenFile, read_exactly
from seqprep.planning import positions, segment_ids
from seqprep.runtime.pool import aligned
from seqprep.shards import Decoder, ShardTable, Sidecar, crc32c
from seqprep.types import Array, Int64, Tags, UInt8, numpy_dtype

SMALL_BYTES = 1 << 15
"""Arrays of at most this many bytes are small; a checksum of so few isn't worth letting go of the interpreter lock."""


DERIVED = {"segment_ids": segment_ids, "positions": positions}
"""What a batch of packed rows holds of each key with time beside what is stored, made when it is asked for: int32 [B, T]."""


class Range(NamedTuple):
    """One array of one batch in the shard's file."""

    place: int
    """Where it goes in the batch's memory."""
    size: int
    offset: int
    """Where it is in the file."""
    crc: int


class Entry(NamedTuple):
    """One batch of a shard."""

    ranges: tuple[Range, ...]
    """Of each key that is read from the file."""
    array_bytes: int
    """Of those arrays in the batch's memory, each aligned; the batch's block comes behind them."""
    block: slice
    """The batch's block among those of the shard."""
    memory_bytes: int
    """Of all that: arrays, block, and behind it those that are made when they are asked for, each aligned."""
    arrays: tuple[tuple[int, tuple[int, ...]], ...]
    """Place in the batch's memory, and shape, of each key's array."""
    begin: int
    """The batch's first entry of the fields in the shard: a row, or a segment where rows are packed."""
    end: int
    """One past its last."""
    frames: int
    """Valid frames of the first key with time, context included."""
    nbytes: int
    """Of all keys' arrays, padding included."""


class Field(NamedTuple):
    """A field of the rows, or of the segments where rows are packed."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """Of one entry."""
    entry_bytes: int


Placed = tuple[int, tuple[int, ...], np.dtype[Any]]
"""Where a field begins in a batch's block, and what the array on it is."""


class OpenedShard:
    """A shard's tables, made ready for the reading loop.

    Args:
        path: of the shard.
        sidecar: what it holds.
        keys: those that are read.
        most_held_bytes: how much of small keys may be held in memory; with 0, the file isn't opened.
        verify: check what is held against its checksums; a key that differs is read at each batch instead.

    Raises:
        OSError: the shard can't be opened.
    """

    __slots__ = (
        "_placed", "blocks", "decoder", "derived", "dtypes", "entries", "fields", "held_bytes", "names", "nbytes", "path",
        "read", "tags",
    )  # fmt: skip

    def __init__(self, path: Path, sidecar: Sidecar, keys: Sequence[str], most_held_bytes: int, verify: bool) -> None:
        table = sidecar.table
        fields = {
            name: values for name, values in table.fields.items() if "/" not in name or name.split("/")[0] in keys
        }
        self.path = str(path)
        self.tags = Tags(table.tags.data.copy(), table.tags.ends.copy())  # else they would keep the whole sidecar
        self.dtypes = {key: (number, numpy_dtype(table.keys[key].dtype)) for number, key in enumerate(keys)}
        self.fields = {
            name: Field(values.dtype, values.shape[1:], values[:1].nbytes) for name, values in fields.items()
        }
        packed = [key for key in keys if table.batch_segments is not None and table.keys[key].has_time]
        self.derived = {f"{key}/{what}": (key, make) for key in packed for what, make in DERIVED.items()}
        self.names = (*keys, *fields, *self.derived, "seq_tag")
        self._placed: dict[int, dict[str, Placed]] = {}
        self.decoder = Decoder(path, sidecar, sidecar.pieces) if sidecar.pieces is not None else None
        apart = self.decoder is None or sidecar.format == "hdf5"  # else all of a batch is one compressed piece
        held = _hold(path, sidecar, keys, most_held_bytes, verify, self.decoder) if apart else {}
        self.held_bytes = sum(map(len, held.values()))
        self.read = [key for key in keys if key not in held]  # those of the entries' ranges
        blocks, bounds, places = _lay_out(table, list(fields.values()), held)
        self.blocks = blocks.data
        self.entries = _entries(sidecar, keys, bounds, places)
        self.nbytes = blocks.nbytes + self.tags.data.nbytes + self.tags.ends.nbytes + _object_bytes(self.entries)

    def placed(self, entries: int) -> dict[str, Placed]:
        """Where the fields of a batch of so many entries are in its block."""
        found = self._placed.get(entries)
        if found is None:
            place, found = 0, {}
            for name, field in self.fields.items():
                found[name] = place, (entries, *field.shape), field.dtype
                place += aligned(field.entry_bytes * entries)
            self._placed[entries] = found
        return found


def _hold(
    path: Path, sidecar: Sidecar, keys: Sequence[str], most_bytes: int, verify: bool, decoder: Decoder | None
) -> dict[str, UInt8]:
    """Reads small keys whole, batch behind batch, as long as they fit together and are what they should be."""
    held: dict[str, UInt8] = {}
    if not most_bytes:
        return held
    file = OpenFile(str(path))
    for key in keys:
        sizes = sidecar.table.array_bytes(key)
        total = int(sizes.sum())
        if int(sizes.max(initial=0)) > SMALL_BYTES or total > most_bytes:
            continue
        values = np.empty(total, np.uint8)
        if decoder is not None:
            good = _decode_arrays(decoder, file.descriptor, values, sidecar.offsets[key], sizes)
        else:
            good = _read_arrays(file.descriptor, values, sidecar.offsets[key], sizes)
        if good and (not verify or _checksums(values, sizes) == sidecar.crcs[key].tolist()):
            held[key] = values
            most_bytes -= total
    return held


def _read_arrays(descriptor: int, values: UInt8, offsets: Int64, sizes: Int64) -> bool:
    """Reads arrays of a file behind each other, those that are so in the file by one call; tells whether all is there."""
    begins = np.cumsum(sizes) - sizes
    runs = np.flatnonzero(np.diff(offsets - begins, prepend=-1))  # where arrays don't go on behind the last one
    stops = np.append(begins[runs[1:]], len(values))
    return all(
        read_exactly(descriptor, values[begin:stop].data, offset) == stop - begin
        for begin, stop, offset in zip(begins[runs].tolist(), stops.tolist(), offsets[runs].tolist(), strict=True)
    )


def _decode_arrays(decoder: Decoder, descriptor: int, values: UInt8, offsets: Int64, sizes: Int64) -> bool:
    """Decodes arrays of a compressed file behind each other; tells whether all could be."""
    ends = np.cumsum(sizes).tolist()
    bounds = zip(pairwise([0, *ends]), offsets.tolist(), strict=True)
    try:
        decoder.fill(descriptor, [(values.data[begin:end], offset, None) for (begin, end), offset in bounds])
    except CorruptError:
        return False
    return True


def _checksums(values: UInt8, sizes: Int64) -> list[int]:
    memory, ends = values.data, np.cumsum(sizes).tolist()
    return [crc32c(memory[begin:end]) for begin, end in pairwise([0, *ends])]


def _lay_out(
    table: ShardTable, fields: Sequence[Array], held: Mapping[str, UInt8]
) -> tuple[UInt8, Int64, dict[str, Int64]]:
    """Lays the parts of each batch side by side, each aligned, so that one copy brings all of them into a buffer.

    Args:
        table: of the shard.
        fields: each [entries, …].
        held: bytes of all batches' arrays of small keys.

    Returns:
        The blocks' bytes; where each begins in them, [batches + 1]; where each held key's array begins in its block,
        [batches].
    """
    widths = [values[:1].nbytes for values in fields]  # 4, 8 or 16, so that they divide the alignment
    sizes = [aligned(table.batch_entries * width) for width in widths]
    small = {key: table.array_bytes(key) for key in held}
    bounds = np.concatenate(
        [np.zeros(1, np.int64), np.cumsum(sum([*sizes, *map(aligned, small.values())]), dtype=np.int64)]
    )
    blocks = np.zeros(bounds[-1], np.uint8)
    place = bounds[:-1].copy()
    for values, width, size in zip(fields, widths, sizes, strict=True):
        rows = np.arange(len(values)) + np.repeat(place // width - table.bounds[:-1], table.batch_entries)
        blocks.view(f"V{width}")[rows] = np.ascontiguousarray(values).reshape(-1).view(f"V{width}")
        place += size
    places: dict[str, Int64] = {}
    for key, values in held.items():
        places[key] = place - bounds[:-1]
        begin, source, target = 0, values.data, blocks.data
        for to, length in zip(place.tolist(), small[key].tolist(), strict=True):
            target[to : to + length] = source[begin : begin + length]
            begin += length
        place += aligned(small[key])
    return blocks, bounds, places


def _entries(sidecar: Sidecar, keys: Sequence[str], bounds: Int64, places: Mapping[str, Int64]) -> list[Entry]:
    """Looks up what reading needs of each batch."""
    table = sidecar.table
    read = [key for key in keys if key not in places]
    sizes = {key: table.array_bytes(key) for key in keys}
    place = np.zeros(len(table.batch_rows), np.int64)
    ranges, where = [], {}
    for key in read:
        columns = (place, sizes[key], sidecar.offsets[key], sidecar.crcs[key])
        ranges.append(list(map(Range, *(column.tolist() for column in columns))))
        where[key] = place
        place = place + aligned(sizes[key])
    where |= {key: place + behind for key, behind in places.items()}
    arrays = [list(zip(where[key].tolist(), table.shapes(key), strict=True)) for key in keys]
    counted = next(f"{key}/size0" for key in (*keys, *table.keys) if table.keys[key].has_time)
    frames = np.add.reduceat(table.fields[counted], table.bounds[:-1], dtype=np.int64)
    return list(
        map(
            Entry,
            zip(*ranges, strict=True) if ranges else [()] * len(place),
            place.tolist(),
            map(slice, bounds[:-1].tolist(), bounds[1:].tolist()),
            (place + np.diff(bounds) + _derived_bytes(table, keys)).tolist(),
            zip(*arrays, strict=True),
            table.bounds[:-1].tolist(),
            table.bounds[1:].tolist(),
            frames.tolist(),
            sum(sizes.values()).tolist(),  # type: ignore[union-attr]
        )
    )


def _derived_bytes(table: ShardTable, keys: Sequence[str]) -> Int64:
    """Bytes of the arrays that each batch makes when they are asked for; int64 [batches]."""
    total = np.zeros(len(table.batch_rows), np.int64)
    for key in keys:
        if table.batch_segments is not None and table.keys[key].has_time:
            total += len(DERIVED) * aligned(4 * table.batch_rows * table.batch_frames[key])
    return total


def _object_bytes(entries: Sequence[Entry]) -> int:
    """Bytes of the entries' Python objects, reckoned from one of them, for all have the same parts."""

    def size(value: Any) -> int:
        inner = (value.start, value.stop) if isinstance(value, slice) else value if isinstance(value, tuple) else ()
        return sys.getsizeof(value) + sum(map(size, inner))

    return sys.getsizeof(entries) + len(entries) * max(map(size, entries[-1:]), default=0)
