"""Which batch stands at which position of an epoch, and which positions are a rank's."""

from __future__ import annotations

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

    batches: int
    shuffle: bool
    seed: int
    rank: int
    world_size: int
    even: Even

    def steps(self, begin: int) -> int:
        """Batches that this rank still gets in an epoch, from a global position on.

        Args:
            begin: the position, from 0; a rank's own is begin + rank.
        """
        left = max(self.batches - begin, 0)
        if self.even == "pad":
            return -(-left // self.world_size)
        if self.even == "drop":
            return left // self.world_size
        return -(-max(left - self.rank, 0) // self.world_size)

    def ended(self, begin: int) -> bool:
        """Says whether no rank gets a batch of an epoch from a global position on."""
        left = self.batches - begin
        return left < self.world_size if self.even == "drop" else left <= 0

    def of_epoch(self, epoch: int, begin: int) -> Int64:
        """Numbers of the batches that this rank gets in an epoch, from a global position on.

        Returns:
            int64 [steps].
        """
        positions = begin + self.rank + self.world_size * np.arange(self.steps(begin))
        positions %= max(self.batches, 1)  # "pad": the last step wraps around
        if not self.shuffle:
            return positions
        return hashing.permutation(hashing.key_of(self.seed, epoch, _BATCHES), self.batches)[positions]
