"""The batches of a plan, made from the source as they are asked for: a stock without shards."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqprep.errors import ConfigError
from seqprep.planning import DatasetPlan
from seqprep.runtime import Batch, Even, GlobalOrder, LeaseOf, LoaderOptions
from seqprep.streaming.counting import CountedPass, count_pass
from seqprep.streaming.shard import LiveShard, Memory, Origin
from seqprep.types import Int64, KeySpec

_PASS_BITS = 40  # a batch's number is that of its pass, shifted by so many, and its own in the pass
_MOST_COUNTED = 2  # passes of which the plan is kept, where each epoch has its own


@dataclass(frozen=True, kw_only=True, eq=False)
class PassOrder:
    """The order of batches where passes are planned one by one, when they are asked for; see `GlobalOrder`."""

    of_pass: Callable[[int], GlobalOrder]
    """Gives the order of a pass alone."""
    passes: int | None
    seed: int
    rank: int
    world_size: int
    even: Even

    def _of(self, epoch: int) -> GlobalOrder:
        return self.of_pass(number_of_pass(epoch, self.passes))

    def steps(self, epoch: int, begin: int) -> int:
        """Batches that this rank still gets in an epoch, from a global position on."""
        return self._of(epoch).steps(epoch, begin)

    def ended(self, epoch: int, begin: int) -> bool:
        """Says whether no rank gets a batch of an epoch from a global position on."""
        return self._of(epoch).ended(epoch, begin)

    def of_epoch(self, epoch: int, begin: int) -> Int64:
        """Numbers of the batches that this rank gets in an epoch, from a global position on; int64 [steps]."""
        return self._of(epoch).of_epoch(epoch, begin) + first_number(number_of_pass(epoch, self.passes))

    def whole(self, epoch: int) -> Int64:
        """Numbers of the batches at all positions of an epoch; int64 [positions]."""
        return self._of(epoch).whole(epoch) + first_number(number_of_pass(epoch, self.passes))


def number_of_pass(epoch: int, passes: int | None) -> int:
    """The pass that an epoch gives."""
    return epoch if passes is None else epoch % passes


def first_number(number: int) -> int:
    """Number of the first batch of a pass."""
    return number << _PASS_BITS


class PlannedBatches:
    """A `Stock` over a source. Keeps the shards that are being read in memory, and one more; no file is written.

    Args:
        name: for messages.
        origin: what shards are made from.
        plan: of the dataset.
        fingerprint: equal where all batches are.
        fresh: each epoch has a pass of its own.
        packed: several sequences share a row.
        together: shards that are read at a time; None for all.
        most_bytes: what their sequences may take in memory.
        no_batch: the error to raise where a pass has no batch.

    Raises:
        ConfigError: the first pass has no batch, or its shards take too much memory.
    """

    def __init__(
        self,
        name: str,
        origin: Origin,
        plan: DatasetPlan,
        fingerprint: str,
        *,
        fresh: bool,
        packed: bool,
        together: int | None,
        most_bytes: int,
        no_batch: Callable[[], ConfigError],
    ) -> None:
        self.name, self.fingerprint, self.packed = name, fingerprint, packed
        self.passes = None if fresh else len(plan.passes)
        self.keys = tuple(origin.keys)
        self.shards_opened = 0
        self._origin, self._plan, self._together, self._no_batch = origin, plan, together, no_batch
        self._most_bytes, self._memory = most_bytes, Memory()
        self._counted: dict[int, CountedPass] = {}
        self._shards: dict[tuple[int, int], _Opening] = {}  # the one opened first comes first
        self.renew_locks()
        self._pass(0)

    @property
    def specs(self) -> Mapping[str, KeySpec]:
        """Of the keys that are read."""
        return {key: self._origin.stored[key] for key in self.keys}

    @property
    def pads(self) -> Mapping[str, float]:
        """What rows of each key hold beyond their valid frames."""
        return {key: self._origin.pad_values.get(key, 0.0) for key in self.keys}

    def order(self, options: LoaderOptions) -> PassOrder:
        """The order of the batches."""
        orders: dict[int, GlobalOrder] = {}

        def of_pass(number: int) -> GlobalOrder:
            counted = self._pass(number)
            if number not in orders:
                shapes = counted.shapes(self.keys) if options.same_shape else None
                _keep(orders, number, options.order([counted.bounds], shapes), self.passes)
            return orders[number]

        return PassOrder(
            of_pass=of_pass,
            passes=self.passes,
            seed=options.seed,
            rank=options.rank,
            world_size=options.world_size,
            even=options.even,
        )

    def rows_of(self, batches: Int64) -> Int64:
        """Rows of batches of one pass, those left out that only fill one up; int64 [batches]."""
        if not len(batches):
            return np.zeros(0, np.int64)
        number = int(batches[0]) >> _PASS_BITS
        return self._pass(number).rows[batches - first_number(number)]

    def numbers(self, epoch: int) -> range:
        """Those of the epoch's pass."""
        number = number_of_pass(epoch, self.passes)
        first = first_number(number)
        return range(first, first + int(self._pass(number).bounds[-1]))

    def _pass(self, number: int) -> CountedPass:
        counted = self._counted.get(number)
        if counted is None:
            with self._planning:
                counted = self._counted.get(number)
                if counted is None:
                    planned = self.passes is not None or number < len(self._plan.passes)
                    plan = self._plan.passes[number] if planned else self._plan.recipe.plan(number)
                    counted = count_pass(plan, {key: self._origin.stored[key] for key in self.keys})
                    if not counted.bounds[-1]:
                        raise self._no_batch()
                    self._check_memory(counted)
                    _keep(self._counted, number, counted, self.passes)
        return counted

    def _check_memory(self, counted: CountedPass) -> None:
        held = np.sort(counted.held_bytes)[::-1][: self._kept]
        if held.sum() > self._most_bytes:
            raise ConfigError(
                f"{self.name}: {len(held)} shards are held in memory at a time, whose sequences take {held.sum():,} bytes, "
                f"more than memory, which is {self._most_bytes:,}: lower output.shard_size, shuffle fewer shards "
                "together (shuffle='window:N'), or raise memory"
            )

    @property
    def _kept(self) -> int | None:
        """Shards that stay open: those of a window, and one that a thread has yet to finish."""
        return None if self._together is None else self._together + 1

    def _open(self, place: tuple[int, int]) -> LiveShard:
        with self._lock:
            opening = self._shards.get(place)
            if opening is None:
                opening = self._shards[place] = _Opening()
                self.shards_opened += 1
                while self._kept is not None and len(self._shards) > self._kept:
                    del self._shards[next(iter(self._shards))]
        with opening.lock:  # one thread plans the shard, while others read batches of those before it
            if opening.shard is None:
                number, shard = place
                task = self._pass(number).plan.task(shard)
                opening.shard = LiveShard(self._origin, task, self._shard_name(place), self._memory)
            return opening.shard

    def _shard_name(self, place: tuple[int, int]) -> str:
        return f"{self.name}, pass {place[0]}, shard {place[1]}"

    def _place(self, batch: int) -> tuple[tuple[int, int], int]:
        """Pass and shard of a batch, and its number in the shard."""
        number, own = batch >> _PASS_BITS, batch & ((1 << _PASS_BITS) - 1)
        before = self._pass(number).before
        shard = bisect_right(before, own) - 1
        return (number, shard), own - before[shard]

    def read(self, batch: int, lease_of: LeaseOf, verify: bool) -> Batch:
        """Makes one batch.

        Args:
            batch: its number.
            lease_of: gives the memory.
            verify: is of no matter, for nothing is stored.

        Raises:
            SourceError: a sequence can't be read, or holds a value that the stored dtype can't.
        """
        place, number = self._place(batch)
        return self._open(place).read(number, lease_of)

    def describe(self, batch: int) -> str:
        """Names a batch by pass, shard and its number there."""
        place, number = self._place(batch)
        return f"{self._shard_name(place)}, batch {number}"

    def renew_locks(self) -> None:
        """Starts anew in a forked child, where the parent's threads may have left anything half done."""
        self._lock, self._planning = threading.Lock(), threading.Lock()
        self._shards.clear()

    def close(self) -> None:
        """Lets go of what was read, and closes the source."""
        self._shards.clear()
        self._origin.source.close()


class _Opening:
    """A shard that is being opened, or open."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.shard: LiveShard | None = None


def _keep(known: dict[int, Any], number: int, value: Any, passes: int | None) -> None:
    """Remembers something of a pass; where passes have no end, only of the last ones."""
    known[number] = value
    while passes is None and len(known) > _MOST_COUNTED:
        del known[next(iter(known))]
