"""Lays the rows of a shard out: into batches, and into shared rows where they are packed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seqprep.planning.batching import NO_ROW, Batches, Budget, make_batches
from seqprep.planning.buckets import LengthClasses
from seqprep.planning.packing import pack, row_lengths
from seqprep.planning.rules import Rules
from seqprep.types import Int64


@dataclass(frozen=True)
class Segments:
    """Where each entry lies in the packed rows of its batch; both int64 [entries]."""

    row: Int64
    start: Int64
    """First frame there, in frames of the input key."""


@dataclass(frozen=True)
class Layout:
    """The entries of a shard (rows, or segments of packed rows), batch by batch."""

    entries: Int64
    """int64 [entries]: places among the given rows; NO_ROW for an empty row."""
    bounds: Int64
    """int64 [batches + 1]: batch i holds entries bounds[i] up to bounds[i + 1]."""
    batch_rows: Int64
    """int64 [batches]: B of each batch."""
    batch_frames: Mapping[str, Int64]
    """For each key, int64 [batches]: T of each batch."""
    segments: Segments | None
    """None unless rows are packed."""
    dropped: Int64
    """int64: places of the rows that no batch holds, because of `drop_last`."""


def padded_lengths(frames: Mapping[str, Int64], rules: Rules, classes: LengthClasses | None) -> dict[str, Int64]:
    """Frames of rows as they are padded if no longer one stands beside them.

    Args:
        frames: for each key, int64 [rows], context included.
        rules: the rules.
        classes: the length classes, if rows are told apart by length.
    """
    if rules.batch.pad_to_class and classes is not None:
        of = classes.of(frames[rules.input.name])
        return {rule.name: classes.widths[rule.name][of] for rule in rules.keys}
    return {rule.name: _up(frames[rule.name], rule.pad_multiple) for rule in rules.keys}


def _up(frames: Int64, multiple: int) -> Int64:
    return frames if multiple == 1 else -(-frames // multiple) * multiple


def lay_out(frames: Mapping[str, Int64], rules: Rules, classes: LengthClasses | None) -> Layout:
    """Lays out the rows of a shard.

    Args:
        frames: for each key, int64 [rows], context included; rows in their order.
        rules: the rules.
        classes: the length classes, if rows are told apart by length.
    """
    if rules.batch.row_frames is not None:
        return _packed(frames, rules, rules.batch.row_frames)
    order = np.arange(len(frames[rules.input.name]))
    if rules.batch.sort_rows:
        order = np.argsort(frames[rules.input.name], kind="stable")
        frames = {name: some[order] for name, some in frames.items()}
    padded = padded_lengths(frames, rules, classes)
    of = None if classes is None else classes.of(frames[rules.input.name])
    batches = _batches(padded, of, rules)
    rows = batches.rows
    return Layout(
        entries=np.where(rows == NO_ROW, NO_ROW, order[rows]),
        bounds=batches.bounds,
        batch_rows=np.diff(batches.bounds),
        batch_frames=_longest(padded, batches),
        segments=None,
        dropped=order[batches.dropped],
    )


def _packed(frames: Mapping[str, Int64], rules: Rules, row_frames: int) -> Layout:
    """Packs rows, and lays the packed rows out; these stay in the order in which they were opened."""
    rates = {rule.name: rule.rate or 1 for rule in rules.keys}
    packing = pack(frames, rates, row_frames)
    padded = {
        rule.name: _up(row_lengths(packing, frames[rule.name], rates[rule.name]), rule.pad_multiple)
        for rule in rules.keys
    }
    batches = _batches(padded, None, rules)
    bounds = np.searchsorted(
        packing.row, np.minimum(batches.bounds, len(batches.rows) - (batches.rows == NO_ROW).sum())
    )
    kept = int(bounds[-1])
    first_row = np.repeat(batches.bounds[:-1], np.diff(bounds))
    return Layout(
        entries=packing.order[:kept],
        bounds=bounds,
        batch_rows=np.diff(batches.bounds),
        batch_frames=_longest(padded, batches),
        segments=Segments(packing.row[:kept] - first_row, packing.start[:kept]),
        dropped=packing.order[kept:],
    )


def _batches(padded: Mapping[str, Int64], classes: Int64 | None, rules: Rules) -> Batches:
    budget = Budget(max_frames=[rule.max_frames for rule in rules.keys], max_sequences=rules.max_sequences)
    lengths = [padded[rule.name] for rule in rules.keys]
    return make_batches(lengths, classes, budget, drop_last=rules.batch.drop_last, pad_rows=rules.batch.pad_rows)


def _longest(padded: Mapping[str, Int64], batches: Batches) -> dict[str, Int64]:
    """For each key, the longest padded row of each batch; int64 [batches]."""
    if len(batches.bounds) == 1:
        return {name: np.zeros(0, np.int64) for name in padded}
    real = batches.rows != NO_ROW
    return {
        name: np.maximum.reduceat(np.where(real, frames[batches.rows], 0), batches.bounds[:-1])
        for name, frames in padded.items()
    }
