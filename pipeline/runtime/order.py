"""Which batch stands at which position of an epoch, and which positions are a rank's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from seqprep import hashing
from seqprep.config import shown
from seqprep.errors import ConfigError
from seqprep.lazy import cached_property
from seqprep.runtime.positions import Steps
from seqprep.types import Int64

Even = Literal["pad", "drop", "none"]
Shuffle = bool | str
"""False, True or "global", "shards", or "window:N"."""

_MOST_DIGITS = 18  # of window:N
_BATCHES, _SHARDS = 3, 4  # what a draw is for; part of its key


def parse_shuffle(shuffle: Any) -> Shuffle:
    """Brings a shuffle to its one name: False, "global", "shards" or "window:N" with N of at least 2.

    Raises:
        ConfigError: there is no such shuffle.
    """
    if isinstance(shuffle, bool | np.bool_):
        return "global" if shuffle else False
    if shuffle in ("global", "shards"):
        return str(shuffle)
    kind, _, count = str(shuffle).partition(":")
    if kind != "window" or not count.isdecimal() or len(count) > _MOST_DIGITS or int(count) < 1:
        raise ConfigError(
            f"shuffle is {shown(shuffle)}: it has to be False, True, 'global', 'shards', or 'window:N' for N shards shuffled "
            "together, such as 'window:8'"
        )
    return "shards" if int(count) == 1 else f"window:{int(count)}"


def shards_together(shuffle: Shuffle) -> int | None:
    """How many shards are read at a time; None for all of them."""
    if shuffle == "global":
        return None
    return int(str(shuffle).partition(":")[2]) if str(shuffle).startswith("window") else 1


class Order(Steps, Protocol):
    """Which batch stands at which position of an epoch."""

    @property
    def seed(self) -> int:
        """Of the shuffle."""

    @property
    def rank(self) -> int:
        """Which of the equal readers this is."""

    @property
    def even(self) -> Even:
        """What ranks do when the batches don't divide by them."""

    def of_epoch(self, epoch: int, begin: int) -> Int64:
        """Numbers of the batches that this rank gets in an epoch, from a global position on; int64 [steps]."""

    def whole(self, epoch: int) -> Int64:
        """Numbers of the batches at all positions of an epoch; int64 [positions]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GlobalOrder:
    """One order of all batches in each epoch, the same for every rank; rank r of w takes positions r, r + w, …."""

    passes: Sequence[Int64]
    """Epoch e reads pass e modulo their number. Of each pass, int64 [shards + 1]: where its shards begin among the
    batches of the dataset."""
    shuffle: Shuffle
    """As `parse_shuffle` gives it."""
    seed: int
    rank: int
    world_size: int
    even: Even
    shapes: Int64 | None = None
    """int64 [batches of the dataset]: a number for the shape of each. Given, all ranks get one shape in a step."""

    def batches(self, epoch: int) -> int:
        """Different batches that an epoch can give, all ranks together."""
        bounds = self._bounds(epoch)
        return int(bounds[-1] - bounds[0])

    def _bounds(self, epoch: int) -> Int64:
        return self.passes[epoch % len(self.passes)]

    @cached_property
    def _positions(self) -> tuple[int, ...]:
        """Of each pass."""
        if self.shapes is None:
            return tuple(self.batches(number) for number in range(len(self.passes)))
        counts = [np.bincount(self.shapes[bounds[0] : bounds[-1]]) for bounds in self.passes]
        return tuple(int(_groups(of, self.world_size, self.even).sum()) * self.world_size for of in counts)

    def positions(self, epoch: int) -> int:
        """Positions of an epoch's order: its batches; with `shapes`, what is left and repeated of them."""
        return self._positions[epoch % len(self.passes)]

    def steps(self, epoch: int, begin: int) -> int:
        """Batches that this rank still gets in an epoch, from a global position on.

        Args:
            epoch: the epoch.
            begin: the position, from 0; a rank's own is begin + rank.
        """
        left = max(self.positions(epoch) - begin, 0)
        if self.even == "pad":
            return -(-left // self.world_size)
        if self.even == "drop":
            return left // self.world_size
        return -(-max(left - self.rank, 0) // self.world_size)

    def ended(self, epoch: int, begin: int) -> bool:
        """Says whether no rank gets a batch of an epoch from a global position on."""
        left = self.positions(epoch) - begin
        return left < self.world_size if self.even == "drop" else left <= 0

    def of_epoch(self, epoch: int, begin: int) -> Int64:
        """Numbers of the batches that this rank gets in an epoch, from a global position on.

        Returns:
            int64 [steps].
        """
        positions = begin + self.rank + self.world_size * np.arange(self.steps(epoch, begin))
        positions %= max(self.positions(epoch), 1)  # "pad": the last step wraps around
        return self.whole(epoch)[positions]

    def whole(self, epoch: int) -> Int64:
        """Numbers of the batches at all positions of an epoch.

        Returns:
            int64 [positions].
        """
        bounds = self._bounds(epoch)
        order: Int64 = self._drawn(epoch, bounds) + bounds[0]
        if self.shapes is None:
            return order
        return group_by_shape(order, self.shapes[order], self.world_size, self.even)

    def _drawn(self, epoch: int, bounds: Int64) -> Int64:
        """The batches of a pass, counted within it, in the order of an epoch."""
        numbers = np.arange(bounds[-1] - bounds[0])
        if not self.shuffle:
            return numbers
        together = shards_together(self.shuffle)
        key = hashing.key_of(self.seed, epoch, _BATCHES)
        if together is None:
            return hashing.permutation(key, len(numbers))
        sizes = np.diff(bounds)
        place = np.argsort(hashing.permutation(hashing.key_of(self.seed, epoch, _SHARDS), len(sizes)))
        order: Int64 = np.lexsort((hashing.keyed(key, numbers), np.repeat(place // together, sizes)))
        return order


def _groups(counts: Int64, size: int, even: Even) -> Int64:
    """How many groups of `size` the batches of each shape make."""
    return -(-counts // size) if even == "pad" else counts // size


def group_by_shape(order: Int64, shapes: Int64, size: int, even: Even) -> Int64:
    """Brings batches of one shape together in groups; each stands where its first batch stood.

    Args:
        order: int64 [batches].
        shapes: int64 [batches]: a number for the shape of each, in this order.
        size: batches of a group, one for each rank.
        even: `pad` fills the last group of a shape up with the shape's first batches, `drop` leaves it out.

    Returns:
        int64 [groups · size].
    """
    counts = np.bincount(shapes)
    slots = _groups(counts, size, even) * size
    first = np.cumsum(counts) - counts
    within = np.arange(slots.sum()) - np.repeat(np.cumsum(slots) - slots, slots)
    places = np.repeat(first, slots) + within % np.repeat(np.maximum(counts, 1), slots)
    groups = np.argsort(shapes, kind="stable")[places].reshape(-1, size)
    grouped: Int64 = order[groups[np.argsort(groups[:, 0])].reshape(-1)]
    return grouped
