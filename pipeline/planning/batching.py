"""Puts rows into batches, greedily and in order, under budgets of padded frames and of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqprep.types import Int64

_BLOCK_ROWS = 1 << 14  # so that the working arrays stay in the processor's cache


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
    budgets = [(frames, limit) for frames, limit in zip(lengths, max_frames, strict=True) if limit is not None]
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
