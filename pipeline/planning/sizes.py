"""Frames and bytes of rows, context included and padding not: of single chunks, and of whole sequences in closed form."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seqprep.planning.chunking import Cuts, cut
from seqprep.planning.context import context_frames
from seqprep.planning.key_rules import ChunkRule, KeyRule
from seqprep.planning.rules import Rules
from seqprep.types import Int64


def row_frames(length: Int64, number: Int64, cuts: Cuts, rule: KeyRule, rules: Rules) -> Int64:
    """Frames of chunks' rows in one key, context included; arguments as of `cut`.

    Returns:
        int64 [chunks].
    """
    core = cut(length, number, cuts, rule, rules)
    left, right = context_frames(core.start, core.size, length, rule)
    return left + core.size + right


def sequence_frames(length: Int64, cuts: Cuts, rule: KeyRule, rules: Rules) -> Int64:
    """Frames of all rows of each sequence in one key, context included, in closed form.

    The first row and one that was shifted are taken as they are; all between begin on the grid, inside the sequence.

    Args:
        length: int64 [sequences]: frames in this key.
        cuts: how each is cut.
        rule: the key's rule.
        rules: all rules.

    Returns:
        int64 [sequences].
    """
    first = row_frames(length, np.zeros(len(length), np.int64), cuts, rule, rules) * (cuts.count > 0)
    if rule.chunk is None:
        return np.asarray(first)
    on_grid = np.maximum(cuts.count - (cuts.shifted >= 0), 1)
    total: Int64 = first + _between(length, cuts.origin // (rule.rate or 1), on_grid, rule, rule.chunk)
    if rules.tail != "shift":
        return total
    last = row_frames(length, cuts.count - 1, cuts, rule, rules)
    total += last * ((cuts.shifted >= 0) & (cuts.count > 1))
    return total


def _between(length: Int64, origin: Int64, end: Int64, rule: KeyRule, chunk: ChunkRule) -> Int64:
    """Sums the frames of rows 1 up to `end`, whose cores start at origin + number · step, above 0 and below `length`."""
    step, left, right = chunk.step_frames, rule.left_frames, rule.right_frames
    room = length - chunk.size_frames - origin

    def reaching(behind: int) -> Int64:
        """Numbers below this have, behind a full core, at least so many frames."""
        return np.asarray(np.clip((room - behind) // step + 1, 1, end))

    full = reaching(0)
    total: Int64 = (full - 1) * chunk.size_frames + (end - full) * length - _starts(origin, step, full, end)
    if rule.pad == "clip":
        clipped = np.clip(-((origin - left) // step), 1, end)  # numbers below this start where fewer are in front
        beside = reaching(right)
        total += _starts(origin, step, np.ones(1, np.int64), clipped) + (end - clipped) * left
        total += (beside - 1) * right
        total += (full - beside) * (length - chunk.size_frames) - _starts(origin, step, beside, full)
        return total
    total += (end - 1) * (left + right)
    if rule.right_final_frames is not None:
        total += (end - reaching(1)) * (rule.right_final_frames - right)
    return total


def _starts(origin: Int64, step: int, first: Int64, end: Int64) -> Int64:
    """Sums origin + number · step for numbers from `first` up to `end`."""
    numbers: Int64 = (end - first) * (first + end - 1) // 2
    total: Int64 = (end - first) * origin + step * numbers
    return total


def sequence_bytes(lengths: Mapping[str, Int64], cuts: Cuts, rules: Rules, units: Mapping[str, Int64]) -> Int64:
    """Bytes of each sequence's rows, in closed form.

    Args:
        lengths: for each key with time, int64 [sequences].
        cuts: how each is cut.
        rules: the rules.
        units: for keys with ragged axes, int64 [sequences]: the product of those axes' sizes.

    Returns:
        int64 [sequences].
    """
    total = cuts.count * rules.row_bytes
    for rule in rules.keys:
        frames = sequence_frames(lengths[rule.name], cuts, rule, rules) * rule.frame_bytes
        total = total + (frames * units[rule.name] if rule.name in units else frames)
    return total


def chunk_bytes(
    sequence: Int64,
    number: Int64,
    lengths: Mapping[str, Int64],
    cuts: Cuts,
    rules: Rules,
    units: Mapping[str, Int64],
) -> Int64:
    """Bytes of single chunks' rows.

    Args:
        sequence: int64 [chunks]: place of the chunk's sequence in the source.
        number: int64 [chunks]: number of the chunk in its sequence.
        lengths: as of `sequence_bytes`.
        cuts: as of `sequence_bytes`.
        rules: the rules.
        units: as of `sequence_bytes`.

    Returns:
        int64 [chunks].
    """
    total = np.full(len(number), rules.row_bytes, np.int64)
    own = cuts.take(sequence)
    for rule in rules.keys:
        frames = row_frames(lengths[rule.name][sequence], number, own, rule, rules) * rule.frame_bytes
        total += frames * units[rule.name][sequence] if rule.name in units else frames
    return total
