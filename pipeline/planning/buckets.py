"""Length classes: which rows may share a batch, and how wide their batches are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqprep.types import Int64


@dataclass(frozen=True)
class LengthClasses:
    """Rows of about equal length; class c holds those longer than boundary c − 1, up to and with boundary c."""

    boundaries: Int64
    """int64 [classes], ascending: the longest row of each class in the input key, context included."""
    widths: Mapping[str, Int64]
    """For each key, int64 [classes]: what rows are padded to with `pad_to: bucket`."""

    def __len__(self) -> int:
        return len(self.boundaries)

    def of(self, frames: Int64) -> Int64:
        """The class of each row.

        Args:
            frames: int64 [rows]: in the input key, context included; none beyond the last boundary.
        """
        return np.searchsorted(self.boundaries, frames, side="left")


class Histogram:
    """Counts lengths, block by block; as many entries as there are different lengths."""

    def __init__(self) -> None:
        self.lengths: Int64 = np.zeros(0, np.int64)
        """Ascending."""
        self.counts: Int64 = np.zeros(0, np.int64)

    def add(self, lengths: Int64) -> None:
        """Counts some more."""
        found, counts = np.unique(lengths, return_counts=True)
        merged, place = np.unique(np.concatenate([self.lengths, found]), return_inverse=True)
        total = np.bincount(place, np.concatenate([self.counts, counts]), len(merged))
        self.lengths, self.counts = merged, total.astype(np.int64)


def given_boundaries(boundaries: Sequence[int], lengths: Int64) -> Int64:
    """The user's boundaries, and the longest row as one more if they end before it.

    Args:
        boundaries: ascending.
        lengths: int64: the different lengths of rows, ascending.
    """
    longest = int(lengths[-1])
    return np.array([*boundaries, *([longest] if longest > boundaries[-1] else [])], np.int64)


def equal_mass_boundaries(lengths: Int64, counts: Int64, classes: int) -> Int64:
    """Cuts rows into classes of equal padded mass: the largest rows · boundary is as small as it can be.

    A mass is enough if classes, each filled from the shortest length left as far as the mass goes, are enough for all
    rows; the least such mass is found by bisection.

    Args:
        lengths: int64 [n]: the different lengths of rows, ascending.
        counts: int64 [n]: rows of each.
        classes: the most classes.

    Returns:
        int64 [≤ classes]: the longest length of each class.
    """
    before = [0, *np.cumsum(counts).tolist()]
    heights = lengths.tolist()
    low, high = -1, before[-1] * heights[-1]  # the least mass that is enough lies in (low, high]
    while high - low > 1:
        middle = (low + high) // 2
        if len(_filled(before, heights, middle, classes)) <= classes:
            high = middle
        else:
            low = middle
    return np.array([heights[last] for last in _filled(before, heights, high, classes)], np.int64)


def _filled(before: list[int], heights: list[int], mass: int, most: int) -> list[int]:
    """The last length of each class when classes are filled up to a mass; stops at more than `most` classes."""
    ends: list[int] = []
    first = 0
    while first < len(heights) and len(ends) <= most:
        low, high = (
            first,
            len(heights),
        )  # how far the class reaches: heights[first:low] fit, heights[first:high + 1] don't
        while low < high:
            middle = (low + high) // 2
            if (before[middle + 1] - before[first]) * heights[middle] <= mass:
                low = middle + 1
            else:
                high = middle
        if low == first:
            return [0] * (most + 1)  # not even one length fits
        ends.append(low - 1)
        first = low
    return ends


def class_widths(boundaries: Int64, names: Sequence[str], blocks: Iterable[Mapping[str, Int64]]) -> dict[str, Int64]:
    """How wide each class is in each key: its boundary in the input key, its longest row in any other.

    Args:
        boundaries: int64 [classes].
        names: the keys, the input key first.
        blocks: all rows, block by block: for each key, int64 [rows], frames with context.
    """
    widths = {name: np.zeros(len(boundaries), np.int64) for name in names}
    for block in blocks:
        of = np.searchsorted(boundaries, block[names[0]], side="left")
        for name in names[1:]:
            np.maximum.at(widths[name], of, block[name])
    widths[names[0]] = boundaries
    return widths
