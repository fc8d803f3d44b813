"""Turns rows into frame numbers: which frame of a sequence, or of the padding, stands where in a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqprep.planning.chunking import cut
from seqprep.planning.plan import KeyRows, ShardTask
from seqprep.planning.rules import KeyRule
from seqprep.types import Int64

PAD_PLACE, ZERO_PLACE = 0, 1
"""Places in a flat buffer of the frame that fills rows up, and of the frame that stands outside sequences."""
FIRST_PLACE = 2
"""Where the sequences' own frames begin in a flat buffer."""


@dataclass(frozen=True)
class NeededFrames:
    """The stretch of each sequence that a shard's rows touch in one key; all int64 [sequences]."""

    start: Int64
    stop: Int64
    offset: Int64
    """Where frame 0 of the sequence would lie in a flat buffer of all stretches, the padding frames in front."""

    @property
    def total(self) -> int:
        """Frames of the flat buffer."""
        return FIRST_PLACE + int((self.stop - self.start).sum())


def needed_frames(task: ShardTask, rule: KeyRule) -> NeededFrames:
    """Finds what a shard needs of each of its sequences in one key, context included."""
    length = task.lengths[rule.name]
    first = cut(length, task.first, rule.chunk)
    last = cut(length, task.stop - 1, rule.chunk)
    start = np.maximum(first.start - rule.left_frames, 0)
    stop = np.minimum(last.start + last.size + rule.right_frames, length)
    stop = np.where(task.stop > task.first, np.maximum(stop, start), start)
    sizes = stop - start
    return NeededFrames(start, stop, FIRST_PLACE + np.cumsum(sizes) - sizes - start)


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
    length = rows.length[which, None]
    frame = (rows.start[which] - rows.left[which])[:, None] + np.arange(padded_frames)
    places: Int64
    if rule.pad == "edge":
        places = np.clip(frame, 0, np.maximum(length - 1, 0)) + offset[:, None]
    else:
        places = np.where((frame < 0) | (frame >= length), ZERO_PLACE, frame + offset[:, None])
    places[np.arange(padded_frames) >= rows.frames[which, None]] = PAD_PLACE
    return places
