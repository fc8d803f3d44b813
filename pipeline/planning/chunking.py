"""Cuts sequences into chunks, from their lengths alone.

Chunks start at 0, step, 2·step, …; one starts only where, in every key, more than `min_size` frames are left, the
first excepted. So every frame is covered if step ≤ size and min_size is 0, and a tail may lie inside the chunk before
it. These are the rules of RETURNN's `Dataset.iterate_seqs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seqprep.planning.rules import ChunkRule, KeyRule, Rules
from seqprep.types import Int64


@dataclass(frozen=True)
class Extent:
    """Where the cores of many chunks lie in one key, in its frames."""

    start: Int64
    """int64 [chunks]: first frame."""
    size: Int64
    """int64 [chunks]: frames."""


def count_chunks(lengths: Mapping[str, Int64], rules: Rules) -> Int64:
    """Counts the chunks of each sequence, in closed form.

    Args:
        lengths: for each key with time, int64 [sequences].

    Returns:
        int64 [sequences]: 0 for a sequence of no frames, at least 1 for any other; whole sequences always count 1.
    """
    inputs = lengths[rules.input.name]
    if rules.input.chunk is None:
        return np.ones(len(inputs), np.int64)
    count = np.full(len(inputs), np.iinfo(np.int64).max)
    for rule in rules.keys:
        if rule.chunk is not None:
            left = np.maximum(lengths[rule.name] - rule.chunk.min_size_frames, 1)  # chunks start in [0, left)
            count = np.minimum(count, -(-left // rule.chunk.step_frames))
    return count * (inputs > 0)


def cut(lengths: Int64, number: Int64, chunk: ChunkRule | None) -> Extent:
    """Gives the cores of chunks in one key.

    Args:
        lengths: int64 [chunks]: frames of each chunk's sequence in this key.
        number: int64 [chunks]: the chunk's number in its sequence, below `count_chunks`.
        chunk: the key's rule; None for whole sequences.
    """
    if chunk is None:
        return Extent(np.zeros(len(lengths), np.int64), lengths)
    start = number * chunk.step_frames
    return Extent(start, np.minimum(chunk.size_frames, lengths - start))


def core_frames(lengths: Int64, counts: Int64, chunk: ChunkRule | None) -> Int64:
    """Sums the frames of all chunks of each sequence in one key, without context, in closed form.

    Args:
        lengths: int64 [sequences]: frames in this key.
        counts: int64 [sequences]: from `count_chunks`.

    Returns:
        int64 [sequences].
    """
    if chunk is None:
        return lengths * counts
    full = np.clip((lengths - chunk.size_frames) // chunk.step_frames + 1, 0, counts)
    short = counts - full
    starts = chunk.step_frames * ((full + counts - 1) * short // 2)  # of the short chunks, summed
    total: Int64 = full * chunk.size_frames + short * lengths - starts
    return total


def row_frames(core: Int64, rule: KeyRule) -> Int64:
    """Frames of rows with their context: that of an empty core is empty too.

    Args:
        core: int64 [rows]: frames of the cores.
    """
    return np.where(core > 0, core + (rule.left_frames + rule.right_frames), 0)
