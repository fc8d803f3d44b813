"""Puts rows into batches, greedily and in order, under budgets of padded frames and of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqprep.types import Int64

_BLOCK_ROWS = 1 << 14  # so that the working arrays stay in the processor's cache

NO_ROW = -1
"""Stands for an empty row that fills a batch."""


@dataclass(frozen=True)
class Batches:
    """Rows, batch by batch."""

    rows: Int64
    """int64 [n]: places among the given rows; NO_ROW for an empty one."""
    bounds: Int64
    """int64 [batches + 1]: batch i holds rows bounds[i] up to bounds[i + 1] of these."""
    dropped: Int64
    """int64: places of the rows that `drop_last` left out."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a batch may hold."""

    max_frames: Sequence[int | None]
    """Per key, rows times longest row; None is no limit."""
    max_sequences: int | None
    """The most rows; None is no limit."""

    def room(self, rows: int, longest: Sequence[int]) -> int:
        """How many empty rows still fit beside some rows; 0 where nothing limits them.

        Args:
            rows: how many there are.
            longest: per key, frames of the longest.
        """
        limits = [limit // frames for limit, frames in zip(self.max_frames, longest, strict=True) if limit and frames]
        if self.max_sequences is not None:
            limits.append(self.max_sequences)
        return max(min(limits, default=0) - rows, 0)


def make_batches(
    lengths: Sequence[Int64], classes: Int64 | None, budget: Budget, *, drop_last: bool = False, pad_rows: bool = False
) -> Batches:
    """Puts rows into batches of one length class each, greedily and in row order among the rows of a class.

    A batch comes when the first row of its class that no longer fits does; what is left at the end comes class by
    class, the shortest first. The last batch of a class is full if not even an empty row would fit beside its rows.

    Args:
        lengths: per key, int64 [rows], as they will be padded, context included.
        classes: int64 [rows]: class of each; None if there is one alone.
        budget: of each batch.
        drop_last: leave out the last batch of each class unless it is full.
        pad_rows: fill it up with empty rows.
    """
    count = len(lengths[0])
    members, sizes, comes, dropped = _Growing(), _Growing(), _Growing(), _Growing()
    present = np.zeros(1, np.int64) if classes is None else np.unique(classes)
    for of_class in present.tolist() if count else []:
        own = np.arange(count) if classes is None else np.flatnonzero(classes == of_class)
        frames = [some[own] for some in lengths]
        bounds = greedy_batches(frames, budget.max_frames, budget.max_sequences)
        begin = int(bounds[-2])  # of the last batch
        room = budget.room(len(own) - begin, [int(some[begin:].max()) for some in frames])
        comes.add(own[bounds[1:-1]])
        if room and drop_last:
            dropped.add(own[begin:])
            members.add(own[:begin])
            sizes.add(np.diff(bounds[:-1]))
            continue
        fill = np.full(room if pad_rows else 0, NO_ROW)
        members.add(own, fill)
        sizes.add(np.diff(bounds[:-1]), np.array([len(own) - begin + len(fill)]))
        comes.add(np.array([count + of_class]))
    size = sizes.whole()
    order = np.argsort(comes.whole(), kind="stable")
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(size[order])])
    start = (np.cumsum(size) - size)[order]
    rows = members.whole()[np.arange(bounds[-1]) + np.repeat(start - bounds[:-1], size[order])]
    return Batches(rows, bounds, dropped.whole())


class _Growing:
    """An int64 array that grows at its end."""

    def __init__(self) -> None:
        self._parts: list[Int64] = [np.zeros(0, np.int64)]

    def add(self, *parts: Int64) -> None:
        self._parts += parts

    def whole(self) -> Int64:
        return np.concatenate(self._parts)


def greedy_batches(lengths: Sequence[Int64], max_frames: Sequence[int | None], max_sequences: int | None) -> Int64:
    """Cuts rows into batches: a batch is closed before the row that would break a budget.

    A batch of n rows keeps n · (its longest row) within each key's budget, and n within `max_sequences`. A row over a
    budget by itself makes a batch by itself.

    Args:
        lengths: per key, int64 [rows], context included.
        max_frames: per key, the budget; None is no limit.
        max_sequences: the most rows; None is no limit.

    Returns:
        int64 [batches + 1]: batch i holds rows bounds[i] up to bounds[i + 1]; no batch is empty.
    """
    rows = len(lengths[0])
    pairs = zip(lengths, max_frames, strict=True)
    budgets = _decisive([(frames, limit) for frames, limit in pairs if limit is not None])
    bounds, first, block = [0], 0, _BLOCK_ROWS
    while first < rows:
        stop = min(first + block, rows)
        within = [(frames[first:stop], limit) for frames, limit in budgets]
        ends = (np.arange(first, stop) + _longest_fits(stop - first, within, max_sequences)).tolist()
        begin = first
        while begin < stop:
            end = ends[begin - first]
            if end == stop and stop < rows:
                break  # it may go on beyond the block: the next block starts with it
            bounds.append(end)
            begin = end
        block = 2 * block if begin == first else _BLOCK_ROWS
        first = begin
    return np.array(bounds, np.int64)


def _decisive(budgets: Sequence[tuple[Int64, int]]) -> list[tuple[Int64, int]]:
    """Leaves budgets out that no batch can break without breaking another: of a key that is nowhere the longer and whose
    limit is no lower, as labels beside their features have it."""
    kept: list[tuple[Int64, int]] = []
    for frames, limit in sorted(budgets, key=lambda budget: (budget[1], -int(budget[0].sum()))):  # the tightest first
        if not any((frames <= longer).all() for longer, _ in kept):
            kept.append((frames, limit))
    return kept


def _longest_fits(rows: int, budgets: Sequence[tuple[Int64, int]], max_sequences: int | None) -> Int64:
    """For every row, how many rows from it on fit one batch, by doubling: all rows at once, log2(most) steps.

    Fitting is monotone (fewer rows from the same start always fit), so a binary descent finds the most: a stretch of
    2^j rows is added wherever it still fits, from the longest j down; `maxima[j]` holds the maxima of such stretches.
    """
    most = rows if max_sequences is None else min(rows, max_sequences)
    levels = max(most.bit_length(), 1)
    place = np.arange(rows)
    count = np.zeros(rows, np.int64)
    maxima = [_stretch_maxima(frames, levels) for frames, _ in budgets]
    longest = [np.zeros(rows, np.int64) for _ in budgets]
    for level in reversed(range(levels)):
        grown = count + (1 << level)
        fits = (grown <= most) & (place + grown <= rows)
        at = np.minimum(place + count, rows - 1)
        candidates = [np.maximum(longest[k], maxima[k][level][at]) for k in range(len(budgets))]
        for candidate, (_, limit) in zip(candidates, budgets, strict=True):
            fits &= candidate * grown <= limit
        count = np.where(fits, grown, count)
        longest = [np.where(fits, new, old) for new, old in zip(candidates, longest, strict=True)]
    return np.maximum(count, 1)


def _stretch_maxima(frames: Int64, levels: int) -> list[Int64]:
    """maxima[j][i]: the maximum of frames[i : i + 2^j]; entries whose stretch passes the end are not used."""
    maxima = [frames]
    for level in range(1, levels):
        half = 1 << (level - 1)
        wider = maxima[-1].copy()
        np.maximum(wider[:-half], maxima[-1][half:], out=wider[:-half])
        maxima.append(wider)
    return maxima
