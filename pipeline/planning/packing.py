"""Lays several chunks or sequences into one row, and finds them there again.

A packed row is filled with segments, one behind the other, each beginning at a multiple of L (the least common multiple
of the keys' rates), so that it begins at the same moment in every key. A segment is never split.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass
from math import lcm

import numpy as np

from seqprep.types import Array, Int32, Int64

OPEN_ROWS = 64
_PLACE_BITS, _PLACE = 6, OPEN_ROWS - 1


@dataclass(frozen=True)
class Packing:
    """Where segments lie in packed rows; all int64 [segments]."""

    order: Int64
    """Places among the given segments, row by row, and from a row's beginning to its end."""
    row: Int64
    """Row of each of these, ascending from 0; every row has one at least."""
    start: Int64
    """Where it begins in its row, in frames of the input key; a multiple of L."""


def assign_rows(sizes: Int64, row_frames: int) -> Int64:
    """Gives each segment a row: of 64 open ones the fullest that still has room for it.

    If none has, a new row is opened in place of the fullest. So rows fill up almost wholly, while segments stay near
    those that came with them, and what one costs doesn't grow with their number. A segment longer than a row gets one of
    its own.

    Segments depend on each other, so this is a loop; a list of 64 sorted numbers, each a row's free frames with the
    place of the row in the low 6 bits, makes it a short one (about 0.3 µs a segment).

    Args:
        sizes: int64 [segments], in frames.
        row_frames: of a row.

    Returns:
        int64 [segments]: rows are numbered as they are opened.
    """
    rows: list[int] = []
    row_at, count = [0] * OPEN_ROWS, 0
    free = list(range(-OPEN_ROWS, 0))  # less than nothing: not opened yet
    find, take, put, note = bisect_left, free.pop, insort, rows.append  # a quarter of the time is looking these up
    whole = row_frames << _PLACE_BITS
    for need in (sizes << _PLACE_BITS).tolist():
        place = find(free, need)
        if place < OPEN_ROWS:
            found = take(place)
            put(free, found - need)
            note(row_at[found & _PLACE])
            continue
        if need < whole:
            slot = take(0) & _PLACE
            row_at[slot] = count
            put(free, whole - need | slot)
        note(count)
        count += 1
    return np.array(rows, np.int64)


def segment_frames(frames: Mapping[str, Int64], rates: Mapping[str, int]) -> Int64:
    """What segments take of a row, in frames of the input key: as much as in the key where they last longest.

    Args:
        frames: for each key, int64 [segments], context included.
        rates: of each key.

    Returns:
        int64 [segments].
    """
    longest: Int64 = np.max([frames[name] * rate for name, rate in rates.items()], axis=0)
    return longest


def pack(frames: Mapping[str, Int64], rates: Mapping[str, int], row_frames: int) -> Packing:
    """Lays segments into rows.

    Args:
        frames: for each key, int64 [segments], context included; the input key first.
        rates: of each key.
        row_frames: longest row, in frames of the input key; a multiple of L.
    """
    grid = lcm(*rates.values())
    sizes = -(-segment_frames(frames, rates) // grid)  # in units of L, so that every beginning is a multiple of it
    row = assign_rows(sizes, row_frames // grid)
    order = np.argsort(row, kind="stable")
    row, sizes = row[order], sizes[order]
    before = np.cumsum(sizes) - sizes
    first = np.flatnonzero(np.diff(row, prepend=-1))
    return Packing(order, row, (before - before[first][row]) * grid)


def row_lengths(packing: Packing, frames: Int64, rate: int) -> Int64:
    """Frames of each packed row in one key: up to the end of the segment that ends last.

    Args:
        packing: of the segments.
        frames: int64 [segments]: of the given segments in this key.
        rate: of the key.

    Returns:
        int64 [rows].
    """
    ends = packing.start // rate + frames[packing.order]
    return np.maximum.reduceat(ends, np.flatnonzero(np.diff(packing.row, prepend=-1)))


def scatter(places: Int64, frames: Int64, row: Int64, start: Int64, shape: tuple[int, int], fill: int) -> Int64:
    """Lays the frames of segments into the rows of a batch.

    Args:
        places: int64 [segments, longest]: of each segment, what stands at its frames; anything behind them.
        frames: int64 [segments]: how many those are.
        row: int64 [segments]: row in the batch.
        start: int64 [segments]: first frame there, in this key's frames.
        shape: [B, T] of the batch.
        fill: what stands where no segment is.

    Returns:
        int64 [B, T].
    """
    laid = np.full(shape, fill, np.int64)
    within = np.arange(places.shape[1]) < frames[:, None]
    target = (row * shape[1] + start)[:, None] + np.arange(places.shape[1])
    laid.reshape(-1)[target[within]] = places[within]
    return laid


def segment_ids(frames: Array, row: Array, start: Array, out: Int32) -> Int32:
    """Says of each frame of a batch in which segment of its row it lies: 1, 2, …; 0 is padding.

    Args:
        frames: integers [segments]: of each segment in this key.
        row: integers [segments]: its row, ascending.
        start: integers [segments]: where it begins there, in this key's frames.
        out: int32 [B, T], to write to.
    """
    number = np.arange(len(row)) - np.searchsorted(row, row) + 1
    return _spread(number, *_flat_ranges(frames, row, start, out), out)


def positions(frames: Array, row: Array, start: Array, out: Int32) -> Int32:
    """Says of each frame of a batch at which place of its segment it stands, from 0; padding has 0, too.

    Args:
        frames: integers [segments]: of each segment in this key.
        row: integers [segments]: its row, ascending.
        start: integers [segments]: where it begins there, in this key's frames.
        out: int32 [B, T], to write to.
    """
    begin, end = _flat_ranges(frames, row, start, out)
    _spread(begin + 1, begin, end, out)  # 0 is padding
    flat, inside = out.reshape(-1), out.reshape(-1) != 0
    np.subtract(np.arange(1, len(flat) + 1, dtype=np.int32), flat, out=flat)
    flat *= inside
    return out


def _flat_ranges(frames: Array, row: Array, start: Array, out: Int32) -> tuple[Int64, Int64]:
    """Where segments begin and end in a batch laid out flat; both int64 [segments]."""
    begin = row.astype(np.int64) * out.shape[1] + start
    return begin, begin + frames


def _spread(values: Int64, begin: Int64, end: Int64, out: Int32) -> Int32:
    """Writes each segment's value to its frames, and 0 elsewhere, as a sum over what comes and goes at each frame."""
    real = end > begin  # so that no two begin, and no two end, at the same frame
    change = np.zeros(out.size + 1, np.int32)
    change[begin[real]] = values[real]
    change[end[real]] -= values[real].astype(np.int32)
    np.cumsum(change[:-1], out=out.reshape(-1))
    return out
