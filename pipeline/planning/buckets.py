"""Length classes: which rows may share a batch, and how wide their batches are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

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

    A length that weighs this much by itself (the full chunks do) is a class of its own, and what is shorter and longer
    shares the classes that are left, by the same rule.

    Args:
        lengths: int64 [n]: the different lengths of rows, ascending.
        counts: int64 [n]: rows of each.
        classes: the most classes.

    Returns:
        int64 [≤ classes]: the longest length of each class.
    """
    alone: list[int] = []
    classes = min(classes, len(lengths))
    masses = lengths * counts
    before, heights = [0, *np.cumsum(counts).tolist()], lengths.tolist()
    while True:
        pieces = [piece for piece in pairwise([-1, *sorted(alone), len(heights)]) if piece[1] - piece[0] > 1]
        left = classes - len(alone)
        mass = _least_mass(before, heights, pieces, left)
        inner = [np.arange(low + 1, high) for low, high in pieces]
        heavy = [place for some in inner for place in some[masses[some] == mass].tolist()]
        if not heavy:
            ends = [end for piece in pieces for end in _filled(before, heights, piece, mass, left)]
            return lengths[np.sort(np.array([*alone, *ends], np.int64))]
        alone += heavy


def _least_mass(before: list[int], heights: list[int], pieces: list[tuple[int, int]], classes: int) -> int:
    """The least mass up to which classes can be filled without becoming too many; by bisection."""
    low, high = -1, before[-1] * heights[-1]  # it lies in (low, high]
    while high - low > 1:
        middle = (low + high) // 2
        if sum(len(_filled(before, heights, piece, middle, classes)) for piece in pieces) <= classes:
            high = middle
        else:
            low = middle
    return high


def _filled(before: list[int], heights: list[int], piece: tuple[int, int], mass: int, most: int) -> list[int]:
    """The last length of each class when classes are filled up to a mass, each from the shortest length left on.

    Args:
        before: rows of all shorter lengths together.
        heights: the lengths.
        piece: the places between these two are filled into classes.
        mass: of a class, at the most.
        most: where there are more classes than these, some more classes than that are given.
    """
    ends: list[int] = []
    first, stop = piece[0] + 1, piece[1]
    while first < stop and len(ends) <= most:
        fits = bisect_right(range(first, stop), mass, key=partial(_mass, before, heights, first))
        if not fits:
            return [0] * (most + 1)  # not even one length fits
        first += fits
        ends.append(first - 1)
    return ends


def _mass(before: list[int], heights: list[int], first: int, last: int) -> int:
    """The padded mass of a class from one length to another."""
    return (before[last + 1] - before[first]) * heights[last]


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
