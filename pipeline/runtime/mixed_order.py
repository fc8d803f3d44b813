"""Which source each batch of a mix comes from, and what its positions are.

The source of an epoch's n-th batch is a hash of seed, epoch and n, so a position is a number of draws and the sources'
own positions, and all ranks that mix the same datasets draw the same source in each step.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seqprep import hashing
from seqprep.errors import ConfigError
from seqprep.types import Int64

State = dict[str, Any] | None
"""Of a source; None for one that keeps none."""

_PURPOSE = 6  # of the draw; part of its key
_BLOCK = 1024  # draws made at a time


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Draws of sources by weight."""

    weights: Sequence[float]
    seed: int

    def of(self, epoch: int, begin: int, count: int) -> Int64:
        """Numbers of the sources that draws begin … begin + count − 1 of an epoch take."""
        key = hashing.key_of(self.seed, epoch, _PURPOSE)
        drawn = (hashing.keyed(key, np.arange(begin, begin + count)) >> np.uint64(11)) * 2.0**-53  # in [0, 1)
        bounds = np.cumsum(self.weights) / math.fsum(self.weights)
        return np.minimum(np.searchsorted(bounds, drawn, side="right"), len(bounds) - 1)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where an iteration of a mix begins; the lists have an entry for each source."""

    epoch: int
    draws: int
    """Made before in this epoch."""
    states: Sequence[State]
    starts: Sequence[State]
    """Where the source's epoch that is being read begins."""
    through: Sequence[bool]
    """The source has been read through in this epoch of the mix."""


@dataclass
class Part:
    """A source's part in an iteration, counted in its batches."""

    ends: list[int] = field(default_factory=list)
    """Where each of its epochs ended, as far as they were read."""
    begins: list[Callable[[int], dict[str, Any]] | None] = field(default_factory=list)
    """For each of its epochs, what gives the positions in it."""
    starts: list[State] = field(default_factory=list)
    """Where each of them begins."""

    def at(self, count: int) -> tuple[State, State]:
        """Its position behind so many batches, and the start of the epoch that this is in."""
        number = bisect_left(self.ends, count)
        state_at = self.begins[number]
        if state_at is None:
            return None, None
        state = state_at(count - (self.ends[number - 1] if number else 0))
        return state, state if number < len(self.ends) and self.ends[number] == count else self.starts[number]

    def through(self, count: int) -> bool:
        """Whether it had come to an end by then."""
        return bisect_right(self.ends, count) > 0


class MixIteration:
    """What an iteration has drawn. Knows nothing of the iterator, so that this can be collected."""

    def __init__(self, origin: Origin, draws: Draws, repeat: bool, identity: Mapping[str, Any]) -> None:
        self.origin, self._draws, self._repeat, self._identity = origin, draws, repeat, identity
        self.parts = [Part() for _ in draws.weights]
        self.delivered = 0
        self.counts = [0 for _ in draws.weights]
        self._before: list[Int64] = []  # counts before each block of draws
        self._block: list[int] = []

    def next_source(self) -> int:
        """The source of the next batch."""
        number, place = divmod(self.delivered, _BLOCK)
        if place == 0 and number == len(self._before):
            self._before.append(np.array(self.counts))
            self._block = self._drawn(number).tolist()
        return self._block[place]

    def _drawn(self, block: int) -> Int64:
        return self._draws.of(self.origin.epoch, self.origin.draws + block * _BLOCK, _BLOCK)

    def note(self, source: int) -> None:
        """Notes that a batch was handed out."""
        self.counts[source] += 1
        self.delivered += 1

    @property
    def complete(self) -> bool:
        """Whether the epoch has come to its end."""
        counts = zip(self.parts, self.counts, self.origin.through, strict=True)
        through = [already or part.through(count) for part, count, already in counts]
        return all(through) if self._repeat else any(through)

    def at(self, consumed: int) -> Origin:
        """Where another iteration would begin behind so many batches."""
        if not 0 <= consumed <= self.delivered:
            raise ConfigError(f"consumed is {consumed}: this iteration has given {self.delivered} batches so far")
        counts = self.counts
        if consumed < self.delivered:
            number, place = divmod(consumed, _BLOCK)
            taken = np.bincount(self._drawn(number)[:place], minlength=len(counts))
            counts = (self._before[number] + taken).tolist()
        places = [part.at(count) for part, count in zip(self.parts, counts, strict=True)]
        states, starts = [state for state, _ in places], [start for _, start in places]
        origin = self.origin
        if consumed == self.delivered and consumed and self.complete:
            states = starts if self._repeat else states
            return Origin(
                epoch=origin.epoch + 1, draws=0, states=states, starts=starts, through=[False for _ in states]
            )
        through = [
            already or part.through(count)
            for part, count, already in zip(self.parts, counts, origin.through, strict=True)
        ]
        return Origin(epoch=origin.epoch, draws=origin.draws + consumed, states=states, starts=starts, through=through)

    def state_at(self, consumed: int) -> dict[str, Any]:
        """The position behind `consumed` batches."""
        return encode(self.at(consumed), self._identity)


def encode(origin: Origin, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Writes a position as plain values.

    Args:
        origin: the position.
        identity: what it belongs to.
    """
    sources = [
        {"state": state, "start": start, "through": through}
        for state, start, through in zip(origin.states, origin.starts, origin.through, strict=True)
    ]
    return {"epoch": origin.epoch, "position": origin.draws, **identity, "sources": sources}
