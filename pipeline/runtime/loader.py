"""`seqprep.Loader`: streams the batches of a dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seqprep.errors import ClosedError, ConfigError, MismatchError
from seqprep.runtime.ahead import Counters, Pool, ReadAhead, Work
from seqprep.runtime.order import Even, GlobalOrder
from seqprep.runtime.pool import lease_once
from seqprep.runtime.ranges import Batch, BatchReader, LeaseOf
from seqprep.shards import Dataset
from seqprep.types import KeySpec

Verify = Literal["always", "first", "never"]
_IN_HAND = 2  # buffers beyond those read ahead: the one the consumer works on, and the one it has just asked for


@dataclass
class Metrics(Counters):
    """What a loader has done since it was opened."""

    ready: int = 0
    """Batches read and waiting, at this moment."""


class Loader:
    """Streams a dataset's batches, read ahead by threads into recycled, aligned buffers.

    Iterating gives one epoch. A batch maps names to numpy arrays, batch first: for every key its array [B, T, …] and
    `<key>/size0` int32 [B], `<key>/start` int64 [B], `<key>/core` int32 [B, 2], `<key>/length` int64 [B]; and `seq_idx`
    int64 [B], `seq_tag` `Tags` [B]. Where rows are packed, all but the first have an entry per segment [S], and the batch
    holds `segment_row` and `segment_start` int32 [S], and for every key `<key>/segment_ids` and `<key>/positions` int32
    [B, T]; `seqprep.unpack` takes it apart. The arrays are the caller's: their memory is used again only when the last
    reference to them is gone.

    A dataset of several passes gives another one in each epoch: epoch e reads pass e modulo their number.

    Args:
        path: the folder of the dataset.
        keys: read only these.
        shuffle: order the batches anew in every epoch, by seed and epoch.
        seed: of the shuffle.
        rank: which of `world_size` equal readers this is; RANK and WORLD_SIZE of the environment if both are set.
        world_size: how many there are.
        even: what ranks do when the batches don't divide by them: `pad` (equal steps, up to world_size − 1 batches
            twice), `drop` (equal steps, the rest left out), `none` (every batch once, steps may differ by 1).
        prefetch: batches read ahead.
        threads: reading threads.
        verify: compare checksums `always`, in the `first` epoch, or `never`.

    Raises:
        ConfigError: an argument is impossible.
        DatasetError: the folder is no finished dataset, or damaged.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        keys: Sequence[str] | None = None,
        shuffle: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        even: Even = "pad",
        prefetch: int = 8,
        threads: int = 1,
        verify: Verify = "always",
    ) -> None:
        rank, world_size = _rank_of(rank, world_size)
        for name, value, least in (("prefetch", prefetch, 1), ("threads", threads, 1), ("world_size", world_size, 1)):
            if value < least:
                raise ConfigError(f"{name} is {value}: it has to be at least {least}")
        if not 0 <= rank < world_size:
            raise ConfigError(f"rank is {rank}: with world_size {world_size} it has to lie in [0, {world_size})")
        _check_choice("even", even, ("pad", "drop", "none"))
        _check_choice("verify", verify, ("always", "first", "never"))
        self._dataset = Dataset(path)
        self._reader = BatchReader(self._dataset, keys, verify=verify != "never")
        self._order = GlobalOrder(
            pass_bounds=self._reader.pass_bounds,
            shuffle=shuffle,
            seed=seed,
            rank=rank,
            world_size=world_size,
            even=even,
        )
        self._prefetch, self._threads, self._verify = prefetch, threads, verify
        self._counters = Counters()
        self._pool, self._pool_process = Pool(prefetch + _IN_HAND), os.getpid()
        self._epoch = self._begin = 0  # where the next iteration starts
        self._started = self._epoch, self._begin  # where the current one did
        self._work: Work | None = None  # not the iterator: an abandoned one has to be collected
        self._closed = False

    # -- what it is --

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """The keys that are read, the input key first if it is among them."""
        return {name: self._dataset.index.keys[name] for name in self._reader.keys}

    @property
    def epoch(self) -> int:
        """Number of the epoch that is being read or comes next."""
        return self._epoch

    def __len__(self) -> int:
        """Batches of the whole epoch that is being read or comes next, for this rank.

        Epochs differ in this only where the dataset holds several passes.
        """
        return self._order.steps(self._epoch, 0)

    @property
    def lengths(self) -> tuple[int, ...]:
        """For each pass that the dataset holds, batches of an epoch that reads it, for this rank."""
        return tuple(self._order.steps(epoch, 0) for epoch in range(self._dataset.index.epochs))

    # -- reading --

    def __iter__(self) -> ReadAhead:
        """Starts at the loaded position, else at the epoch's start; an iteration under way is ended.

        Raises:
            ClosedError: the loader is closed.
        """
        self._check_open()
        self._end_iteration()
        if self._pool_process != os.getpid():  # a forked child: the parent's queue may be locked for good
            self._pool, self._pool_process = Pool(self._prefetch + _IN_HAND), os.getpid()
        self._started = self._epoch, self._begin
        verify = self._verify == "always" or (self._verify == "first" and self._epoch == 0)
        reader = self._reader

        def read(batch: int, lease_of: LeaseOf) -> Batch:
            return reader.read(batch, lease_of, verify)

        iterator = ReadAhead(
            self._order.of_epoch(self._epoch, self._begin),
            read,
            self._pool,
            self._threads,
            self._counters,
            self._finish_epoch,
        )
        self._work = iterator.work
        return iterator

    def _finish_epoch(self) -> None:
        self._epoch, self._begin = self._started[0] + 1, 0

    def batch(self, number: int) -> Batch:
        """Reads any batch, by its number in the dataset (all passes together, whatever the shuffle and rank).

        Raises:
            IndexError: there is no such batch.
            DatasetError: it can't be read, or is damaged.
        """
        self._check_open()
        count = len(self._reader)
        if not -count <= number < count:
            raise IndexError(f"batch {number} of {count}")
        return self._reader.read(number % count, lease_once, self._verify != "never")

    # -- state --

    def state_dict(self) -> dict[str, Any]:
        """The position behind the last batch handed out; small, plain, and the same on every rank.

        Returns:
            `epoch`, `position` in the global order, and what it belongs to: `fingerprint`, `seed`, `shuffle`.
        """
        if self._epoch != self._started[0]:  # the iteration has ended
            return self._state(self._epoch, self._begin)
        return self.state_at(self._work.delivered if self._work else 0)

    def state_at(self, consumed: int) -> dict[str, Any]:
        """The position behind `consumed` batches of the current iteration, whatever was read ahead of them; in O(1).

        For pipelines that pull batches ahead of who consumes them. The current iteration is the one begun last, also
        when it has ended; a loaded state begins one, too. All of an epoch's batches give the start of the next.

        Args:
            consumed: how many, from 0 up to the batches of the iteration.

        Raises:
            ConfigError: the iteration has fewer batches.
        """
        epoch, begin = self._started
        steps = self._order.steps(epoch, begin)
        if not 0 <= consumed <= steps:
            raise ConfigError(f"consumed is {consumed}: this iteration has {steps} batches, so it lies in [0, {steps}]")
        position = begin + consumed * self._order.world_size
        if consumed and self._order.ended(epoch, position):
            return self._state(epoch + 1, 0)
        return self._state(epoch, position)

    def _state(self, epoch: int, position: int) -> dict[str, Any]:
        return {
            "epoch": epoch,
            "position": position,
            "fingerprint": self._dataset.index.fingerprint,
            "seed": self._order.seed,
            "shuffle": self._order.shuffle,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved position, of this or another world size; the next `iter` starts there.

        Raises:
            MismatchError: the state belongs to another dataset or order; shows both sides.
            ConfigError: it is no state of a loader.
        """
        self._check_open()
        own = self._state(0, 0)
        missing = own.keys() - state.keys()
        if missing:
            raise ConfigError(f"not the state of a loader: {', '.join(sorted(missing))} missing")
        for name in ("fingerprint", "seed", "shuffle"):
            if state[name] != own[name]:
                raise MismatchError(
                    f"{self._dataset.path}: the saved state is of another {'dataset' if name == 'fingerprint' else 'order'}:\n"
                    f"  {name}  saved: {state[name]}  now: {own[name]}\n"
                    "  open the loader as it was when the state was saved, or start afresh"
                )
        self._end_iteration()
        self._work = None
        self._epoch, self._begin = int(state["epoch"]), int(state["position"])
        self._started = self._epoch, self._begin

    # -- ends --

    def metrics(self) -> Metrics:
        """What was read and waited for since the loader was opened."""
        if self._work is not None:
            self._work.count()
        return Metrics(**vars(self._counters), ready=len(self._work.results) if self._work else 0)

    def close(self) -> None:
        """Ends threads and closes files; batches handed out stay valid. Always returns."""
        self._closed = True
        self._end_iteration()
        self._reader.close()

    def _end_iteration(self) -> None:
        if self._work is not None:
            self._work.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self._dataset.path}: the loader is closed; open another")

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rank_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The given rank, else that of the environment, else the only one."""
    if rank is None and world_size is None:
        told = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
        if told[0] is None or told[1] is None:
            return 0, 1
        try:
            return int(told[0]), int(told[1])
        except ValueError as error:
            raise ConfigError(
                f"RANK and WORLD_SIZE are {told[0]!r} and {told[1]!r}: they have to be whole numbers"
            ) from error
    if rank is None or world_size is None:
        raise ConfigError(f"rank is {rank} and world_size is {world_size}: give both or none")
    return rank, world_size


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}: it has to be {', '.join(choices[:-1])} or {choices[-1]}")
