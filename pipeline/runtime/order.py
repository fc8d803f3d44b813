"""Which batch stands at which position of an epoch, and which positions are a rank's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqprep import hashing
from seqprep.types import Int64

Even = Literal["pad", "drop", "none"]

_BATCHES = 3  # what the draw is for; part of its key


@dataclass(frozen=True, kw_only=True)
class GlobalOrder:
    """One order of all batches in each epoch, the same for every rank; rank r of w takes positions r, r + w, …."""

    pass_bounds: Sequence[int]
    """Epoch e reads batches bounds[p] up to bounds[p + 1] of the dataset, with p = e modulo the number of passes."""
    shuffle: bool
    seed: int
    rank: int
    world_size: int
    even: Even

    def batches(self, epoch: int) -> int:
        """Batches of an epoch, for all ranks together."""
        return len(self._numbers(epoch))

    def _numbers(self, epoch: int) -> range:
        """Numbers in the dataset of an epoch's batches."""
        number = epoch % (len(self.pass_bounds) - 1)
        return range(self.pass_bounds[number], self.pass_bounds[number + 1])

    def steps(self, epoch: int, begin: int) -> int:
        """Batches that this rank still gets in an epoch, from a global position on.

        Args:
            epoch: the epoch.
            begin: the position, from 0; a rank's own is begin + rank.
        """
        left = max(self.batches(epoch) - begin, 0)
        if self.even == "pad":
            return -(-left // self.world_size)
        if self.even == "drop":
            return left // self.world_size
        return -(-max(left - self.rank, 0) // self.world_size)

    def ended(self, epoch: int, begin: int) -> bool:
        """Says whether no rank gets a batch of an epoch from a global position on."""
        left = self.batches(epoch) - begin
        return left < self.world_size if self.even == "drop" else left <= 0

    def of_epoch(self, epoch: int, begin: int) -> Int64:
        """Numbers of the batches that this rank gets in an epoch, from a global position on.

        Returns:
            int64 [steps].
        """
        numbers = self._numbers(epoch)
        positions = begin + self.rank + self.world_size * np.arange(self.steps(epoch, begin))
        positions %= max(len(numbers), 1)  # "pad": the last step wraps around
        if self.shuffle:
            positions = hashing.permutation(hashing.key_of(self.seed, epoch, _BATCHES), len(numbers))[positions]
        return positions + numbers.start
