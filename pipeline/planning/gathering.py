"""Turns rows into frame numbers: which frame of a sequence, or of the padding, stands where in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqprep.planning.context import mirrored
from seqprep.planning.key_rules import KeyRule
from seqprep.planning.plan import KeyRows
from seqprep.types import Int64

PAD_PLACE, OUTSIDE_PLACE = 0, 1
"""Places in a flat buffer of the frame that fills rows up, and of the frame that stands outside sequences."""
FIRST_PLACE = 2
"""Where the sequences' own frames begin in a flat buffer."""


@dataclass(frozen=True)
class NeededFrames:
    """The stretch of each sequence that a shard's rows touch in one key; all int64 [sequences]."""

    start: Int64
    stop: Int64
    units: Int64
    """Units of one frame of the sequence; 1, unless an axis is ragged."""

    @property
    def total(self) -> int:
        """Units of a flat buffer of all stretches, the two that aren't of a sequence in front."""
        return FIRST_PLACE + int(((self.stop - self.start) * self.units).sum())

    @property
    def offset(self) -> Int64:
        """Where frame 0 of each sequence would lie in the flat buffer; int64 [sequences]."""
        sizes = (self.stop - self.start) * self.units
        offset: Int64 = FIRST_PLACE + np.cumsum(sizes) - sizes - self.start * self.units
        return offset


def needed_frames(rows: KeyRows, owner: Int64, units: Int64, rule: KeyRule) -> NeededFrames:
    """Finds what rows need of each of their sequences in one key, context included.

    Args:
        rows: the shard's rows in this key.
        owner: int64 [rows]: place of each row's sequence among those of the shard.
        units: int64 [sequences]: units of a frame of each.
        rule: the key's rule.
    """
    first, last = rows.start - rows.left, rows.start - rows.left + rows.frames - 1
    begin, end = np.maximum(first, 0), np.minimum(last + 1, rows.length)
    if rule.pad == "reflect":  # what lies outside mirrors what may lie beyond the row's own frames
        end = np.maximum(end, np.where(first < 0, np.minimum(1 - first, rows.length), 0))
        begin = np.minimum(begin, np.where(last >= rows.length, np.maximum(2 * (rows.length - 1) - last, 0), begin))
    some = rows.frames > 0
    start = np.full(len(units), np.iinfo(np.int64).max)
    stop = np.zeros(len(units), np.int64)
    np.minimum.at(start, owner[some], begin[some])
    np.maximum.at(stop, owner[some], end[some])
    return NeededFrames(np.minimum(start, stop), stop, units)


def gather_places(rows: KeyRows, which: slice, offset: Int64, padded_frames: int, rule: KeyRule) -> Int64:
    """Gives the place in the flat buffer of every frame of a batch.

    Args:
        rows: the shard's rows in this key.
        which: the batch's rows among them.
        offset: int64 [rows of the batch]: `NeededFrames.offset` of each row's sequence.
        padded_frames: T, to which rows are filled up.
        rule: the key's rule.

    Returns:
        int64 [B, T].
    """
    frames, length = rows.frames[which], rows.length[which]
    first = rows.start[which] - rows.left[which]
    along = np.arange(padded_frames)
    places: Int64 = (first + offset)[:, None] + along
    edges = np.flatnonzero((first < 0) | (first + frames > length))  # few rows, as a rule; the others lie inside
    if len(edges):
        places[edges] = _edge_places(first[edges, None] + along, length[edges, None], offset[edges, None], rule)
    if (frames < padded_frames).any():
        places *= along < frames[:, None]  # PAD_PLACE is 0
    return places


def _edge_places(frame: Int64, length: Int64, offset: Int64, rule: KeyRule) -> Int64:
    """The places of frames of which some lie outside their sequences; int64 [rows, frames]."""
    if rule.pad == "edge":
        return np.clip(frame, 0, np.maximum(length - 1, 0)) + offset
    if rule.pad == "reflect":
        return mirrored(frame, np.maximum(length, 1)) + offset
    return np.where((frame < 0) | (frame >= length), OUTSIDE_PLACE, frame + offset)


def unit_places(
    frames: Int64, offset: Int64, shape: Sequence[int | None], sizes: Int64, padded: Sequence[int]
) -> Int64:
    """Gives the place in the flat buffer of every unit of a batch, for a key with ragged axes.

    Args:
        frames: int64 [B, T], from `gather_places` with FIRST_PLACE as every row's offset.
        offset: int64 [B]: `NeededFrames.offset` of each row's sequence, in units.
        shape: of a frame; None is a ragged axis.
        sizes: int64 [B, ragged axes]: their sizes in each row.
        padded: to which they are filled up.

    Returns:
        int64 [B, T, …]: an axis for each of `shape` up to the last ragged one.
    """
    behind = max(axis for axis, size in enumerate(shape) if size is None) + 1
    own, full = iter(sizes.T), iter(padded)
    extents = [(next(own), next(full)) if size is None else (np.int64(size), size) for size in shape[:behind]]
    within = np.zeros((len(frames), *(1 for _ in extents)), np.int64)  # unit of a frame, [B, …]
    valid = np.ones(within.shape, bool)
    for axis, (extent, most) in enumerate(extents):
        along = np.arange(most).reshape(-1, *(1 for _ in extents[axis + 1 :]))
        each = np.reshape(extent, (-1, *(1 for _ in extents)))
        within = within * each + along
        valid = valid & (along < each)
    each = np.prod(np.broadcast_arrays(*(extent for extent, _ in extents), offset)[:-1], axis=0)  # units of a frame
    begin = offset[:, None] + (frames - FIRST_PLACE) * each[:, None]
    spread = (..., *(None for _ in extents))
    inside = (frames >= FIRST_PLACE)[spread]
    places = np.where(inside, begin[spread] + within[:, None], frames[spread])
    return np.where(valid[:, None], places, PAD_PLACE)
