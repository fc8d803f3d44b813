"""Context: the frames of a sequence around a chunk's core, and what stands in for those outside the sequence."""

from __future__ import annotations

import numpy as np

from seqprep.planning.key_rules import KeyRule
from seqprep.types import Int64


def context_frames(start: Int64, core: Int64, length: Int64, rule: KeyRule) -> tuple[Int64, Int64]:
    """Counts the frames of context of rows in one key.

    Args:
        start: int64 [rows]: first frame of each core in its sequence.
        core: int64 [rows]: frames of each core; an empty one has no context.
        length: int64 [rows]: frames of its sequence.
        rule: the key's rule.

    Returns:
        Frames in front and behind, both int64 [rows].
    """
    behind = length - start - core  # real frames
    if rule.pad == "clip":
        left, right = np.minimum(start, rule.left_frames), np.minimum(behind, rule.right_frames)
    else:
        initial = rule.left_frames if rule.left_initial_frames is None else rule.left_initial_frames
        final = rule.right_frames if rule.right_final_frames is None else rule.right_final_frames
        left = np.where(start == 0, initial, rule.left_frames)
        right = np.where(behind == 0, final, rule.right_frames)
    return left * (core > 0), right * (core > 0)


def mirrored(frame: Int64, length: Int64) -> Int64:
    """Brings frames outside sequences into them, as a mirror at the first and at the last frame does, time and again.

    This is numpy's `np.pad(mode="reflect")` repeated: 2 1 [0 1 2] 1 0 1 2 …; the one frame of a sequence of length 1
    repeats.

    Args:
        frame: int64, any shape.
        length: int64, frames of the sequence; broadcast to `frame`; at least 1.

    Returns:
        int64 in [0, length).
    """
    period = np.maximum(2 * (length - 1), 1)
    folded = frame % period
    return np.minimum(folded, period - folded) * (length > 1)
