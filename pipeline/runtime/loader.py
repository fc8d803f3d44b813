"""`seqprep.Loader`: streams the batches of a dataset."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqprep.errors import ClosedError, ConfigError, SeqprepError
from seqprep.runtime.ahead import Counters, Pool, ReadAhead, Work
from seqprep.runtime.options import LoaderOptions, Verify
from seqprep.runtime.order import Even, GlobalOrder, Shuffle, shards_together
from seqprep.runtime.pool import lease_once
from seqprep.runtime.positions import Iteration, parse_state
from seqprep.runtime.ranges import Batch, BatchReader, LeaseOf
from seqprep.runtime.rebatching import Progress, Rebatched
from seqprep.runtime.reporting import OnMetrics, Reporter
from seqprep.runtime.row_order import RebatchOptions, RowOrder
from seqprep.runtime.tables import batch_rows, batch_setting, batch_shapes, pad_values
from seqprep.shards import Dataset
from seqprep.types import Int64, KeySpec

_IN_HAND = 2  # buffers beyond those read ahead: the one the consumer works on, and the one it has just asked for


@dataclass
class Metrics(Counters):
    """What a loader has done since it was opened."""

    ready: int = 0
    """Batches read and waiting, at this moment; with `rebatch`, of those that are stored."""
    shards_opened: int = 0
    """How often a shard's tables were read; more often than there are shards if memory doesn't hold all at a time."""


class Loader:
    """Streams a dataset's batches, read ahead by threads into recycled, aligned buffers.

    Iterating gives one epoch. A batch maps names to numpy arrays, batch first: for every key its array [B, T, …] and
    `<key>/size0` int32 [B], `<key>/start` int64 [B], `<key>/core` int32 [B, 2], `<key>/length` int64 [B]; and `seq_idx`
    int64 [B], `seq_tag` `Tags` [B]. Where rows are packed, all but the first have an entry per segment [S], and the batch
    holds `segment_row` and `segment_start` int32 [S], and for every key `<key>/segment_ids` and `<key>/positions` int32
    [B, T]; `seqprep.unpack` takes it apart. The arrays are the caller's: their memory is used again only when the last
    reference to them is gone.

    A dataset of several passes gives another one in each epoch: epoch e reads pass e modulo their number.

    A loader can be pickled: the copy opens the dataset anew, with the same options, at the same position. One that was
    opened before a fork can be iterated in the child; its iterators belong to the process that made them.

    Args:
        path: the folder of the dataset.
        keys: read only these.
        shuffle: order the batches anew in every epoch, by seed and epoch: True or "global" all of them; "shards" shard by
            shard; "window:N" N shards together, so that no more of them are open at a time.
        seed: of the shuffle and of `rebatch`.
        rank: which of `world_size` equal readers this is; RANK and WORLD_SIZE of the environment if both are set.
        world_size: how many there are.
        even: what ranks do when the batches don't divide by them: `pad` (equal steps, up to world_size − 1 batches
            twice), `drop` (equal steps, the rest left out), `none` (every batch once, steps may differ by 1).
        same_shape: in each step, all ranks get batches of one shape; `even` then holds for the batches of each shape.
        rebatch: {"rows": R, "window": W} mixes the rows of W batches, and makes batches of R rows of them.
        prefetch: batches read ahead.
        threads: reading threads.
        verify: compare checksums `always`, in the `first` epoch, or `never`.
        on_metrics: a function, and seconds: it is called with the `Metrics` so often, in the thread that takes batches,
            and at the end of each epoch.

    Raises:
        ConfigError: an argument is impossible.
        DatasetError: the folder is no finished dataset, or damaged.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        keys: Sequence[str] | None = None,
        shuffle: Shuffle = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        even: Even = "pad",
        same_shape: bool = False,
        rebatch: Mapping[str, int] | RebatchOptions | None = None,
        prefetch: int = 8,
        threads: int = 1,
        verify: Verify = "always",
        on_metrics: OnMetrics | None = None,
    ) -> None:
        self._path = path
        self._options = LoaderOptions.parse(
            rank, world_size, shuffle, rebatch, keys=keys, seed=seed, even=even, same_shape=same_shape,
            prefetch=prefetch, threads=threads, verify=verify, on_metrics=on_metrics,
        )  # fmt: skip
        self._dataset = Dataset(path)
        together = shards_together(self._options.shuffle) or 1
        self._reader = BatchReader(self._dataset, keys, verify=verify != "never", least_opened=together)
        self._order = _order(self._dataset, self._options, self._reader.keys)
        self._rows = _row_order(self._dataset, self._options, self._order)
        self._counters, self._reading = Counters(), Counters()
        own = weakref.ref(self)
        self._reporter = Reporter(
            str(path), lambda: None if (loader := own()) is None else loader.metrics(), self._options.on_metrics
        )
        self._make_pools()
        self._epoch = self._begin = 0  # where the next iteration starts
        self._iteration = self._next_iteration()  # the current one
        self._work: Work | Progress | None = None  # not the iterator: an abandoned one has to be collected
        self._closed = False

    # -- what it is --

    @property
    def path(self) -> Path:
        """The folder of the dataset."""
        return self._dataset.path

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """The keys that are read, the input key first if it is among them."""
        return {name: self._dataset.index.keys[name] for name in self._reader.keys}

    @property
    def epoch(self) -> int:
        """Number of the epoch that is being read or comes next."""
        return self._epoch

    def __len__(self) -> int:
        """Batches of the whole epoch that is being read or comes next, for this rank; others may have more or fewer, see
        `same_length`.
        """
        return (self._rows or self._order).steps(self._epoch, 0)

    @property
    def lengths(self) -> tuple[int, ...]:
        """For each pass that the dataset holds, batches of an epoch that reads it, for this rank."""
        order = self._rows or self._order
        return tuple(order.steps(epoch, 0) for epoch in range(self._dataset.index.epochs))

    @property
    def same_length(self) -> bool:
        """Whether every epoch has the same number of batches; not where ranks share the rows that `rebatch` mixes."""
        order, passes = self._rows or self._order, len(self._order.passes)
        fixed = self._rows is None or self._options.world_size == 1 or not self._options.shuffle
        return fixed and len({order.steps(epoch, 0) for epoch in range(passes)}) == 1

    # -- reading --

    def __iter__(self) -> ReadAhead | Rebatched:
        """Starts at the loaded position, else at the epoch's start; an iteration under way is ended.

        Raises:
            ClosedError: the loader is closed.
        """
        self._check_open()
        self._end_iteration()
        self._iteration = iteration = self._next_iteration()
        self._reporter.begin(iteration.epoch)
        if self._rows is None:
            batches = self._order.of_epoch(iteration.epoch, iteration.begin)
            ahead = self._read_ahead(batches, self._counters, self._finish_epoch)
            ahead.iteration, self._work = iteration, ahead.work
            return ahead
        rebatched = self._rebatch(self._rows, iteration)
        rebatched.iteration, self._work = iteration, rebatched.progress
        return rebatched

    def _read_ahead(self, batches: Int64, counters: Counters, exhausted: Callable[[], None]) -> ReadAhead:
        options, reader = self._options, self._reader
        verify = options.verify == "always" or (options.verify == "first" and self._epoch == 0)

        def read(batch: int, lease_of: LeaseOf) -> Batch:
            try:
                return reader.read(batch, lease_of, verify)
            except SeqprepError:
                raise
            except BaseException as error:
                error.add_note(f"while {reader.describe(batch)} was read")
                raise

        return ReadAhead(batches, read, self._pool, options.threads, counters, self._reporter, exhausted)

    def _rebatch(self, order: RowOrder, iteration: Iteration) -> Rebatched:
        pads, stretch = pad_values(self._dataset), order.stretch(iteration.epoch, iteration.begin)
        return Rebatched(
            self._read_ahead(stretch.batches, self._reading, lambda: None),
            stretch,
            mixed=lambda window, rows: order.mixed(iteration.epoch, window, rows),
            options=order.options,
            pads={key: pads[key] for key in self._reader.keys},
            pool=self._mixed,
            counters=self._counters,
            exhausted=self._finish_epoch,
        )

    def _make_pools(self) -> None:
        """Makes the buffers; those of stored batches, and with `rebatch` those of new ones."""
        window = self._options.rebatch.window if self._options.rebatch else 0
        self._pool = Pool(max(self._options.prefetch, window) + window + _IN_HAND)
        self._mixed = Pool(self._options.prefetch + _IN_HAND if window else 0)
        self._process = os.getpid()

    def _finish_epoch(self) -> None:
        self._epoch, self._begin = self._iteration.epoch + 1, 0
        self._reporter.finish()

    def batch(self, number: int) -> Batch:
        """Reads any stored batch, by its number in the dataset (all passes together, whatever shuffle, rank, rebatch).

        Raises:
            IndexError: there is no such batch.
            DatasetError: it can't be read, or is damaged.
        """
        self._check_open()
        count = len(self._reader)
        if not -count <= number < count:
            raise IndexError(f"batch {number} of {count}")
        return self._reader.read(number % count, lease_once, self._options.verify != "never")

    # -- state --

    def _next_iteration(self) -> Iteration:
        identity = self._options.identity(self._dataset.index.fingerprint, self._reader.keys)
        return Iteration(self._rows or self._order, identity, self._epoch, self._begin)

    def state_dict(self) -> dict[str, Any]:
        """The position behind the last batch handed out; small, plain, and the same on every rank.

        Returns:
            `epoch`, `position` in the global order, and what it belongs to: `fingerprint`, `seed`, `shuffle`,
            `same_shape`, `rebatch`.
        """
        if self._epoch != self._iteration.epoch:  # the iteration has ended
            return self._next_iteration().state_at(0)
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
        return self._iteration.state_at(consumed)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved position at the next `iter`; of this or, without same_shape and rebatch, another world size.

        Raises:
            MismatchError: the state belongs to another dataset or order; shows both sides.
            ConfigError: it is no state of a loader.
        """
        self._check_open()
        epoch, begin = parse_state(state, self._iteration.identity, str(self.path))
        if begin and self._iteration.order.ended(epoch, begin):  # of another world size, and no rank gets more
            epoch, begin = epoch + 1, 0
        self._end_iteration()
        self._work = None
        self._epoch, self._begin = epoch, begin
        self._iteration = self._next_iteration()

    def __getstate__(self) -> dict[str, Any]:
        self._check_open()
        return {"path": self._path, "options": self._options, "state": self.state_dict()}

    def __setstate__(self, saved: Mapping[str, Any]) -> None:
        self.__init__(saved["path"], **vars(saved["options"]))  # type: ignore[misc]
        self.load_state_dict(saved["state"])

    # -- ends --

    def metrics(self) -> Metrics:
        """What was read and waited for since the loader was opened."""
        if self._work is not None:
            self._work.count()
        values = vars(self._counters).copy()
        for name in ("consumer_wait_seconds", "reader_wait_seconds", "unpooled_buffers"):
            values[name] += getattr(self._reading, name)
        ready = self._work.ready if self._work else 0
        return Metrics(**values, ready=ready, shards_opened=self._reader.shards_opened)

    def close(self) -> None:
        """Ends threads and closes files; batches handed out stay valid. Always returns."""
        self._closed = True
        self._adopt()
        self._end_iteration()
        self._reader.close()

    def _end_iteration(self) -> None:
        if self._work is not None:
            self._work.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self.path}: the loader is closed; open another")
        self._adopt()

    def _adopt(self) -> None:
        """Makes the loader this process' own: in a forked child, locks and queues of the parent may be held for good."""
        if self._process != os.getpid():
            self._reader.renew_locks()
            self._make_pools()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _order(dataset: Dataset, options: LoaderOptions, keys: Sequence[str]) -> GlobalOrder:
    """The order of the stored batches."""
    return GlobalOrder(
        passes=dataset.shard_bounds(),
        shuffle=options.shuffle,
        seed=options.seed,
        rank=options.rank,
        world_size=options.world_size,
        even=options.even,
        shapes=batch_shapes(dataset, keys) if options.same_shape else None,
    )


def _row_order(dataset: Dataset, options: LoaderOptions, order: GlobalOrder) -> RowOrder | None:
    """The order of the batches that mixing makes, if it is wanted.

    Raises:
        ConfigError: the dataset's rows are packed.
    """
    if options.rebatch is None:
        return None
    if batch_setting(dataset, "pack"):
        raise ConfigError(
            f"{dataset.path}: rebatch is set, but the rows of this dataset are packed, each with several sequences: "
            'remove rebatch, and mix batches by shuffle; or make the dataset without "pack"'
        )
    return RowOrder(order, batch_rows(dataset), options.rebatch)
