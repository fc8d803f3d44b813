"""What every source of a dataset's batches does: epochs in order, read ahead, resumable, dealt to ranks.

`seqprep.Loader` does it over shards, `seqprep.stream` over a source that it cuts as it goes; here is what they share.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from seqprep.errors import ClosedError, ConfigError, SeqprepError
from seqprep.runtime.ahead import Counters, Pool, ReadAhead, Work
from seqprep.runtime.options import LoaderOptions
from seqprep.runtime.order import Order
from seqprep.runtime.pool import lease_once
from seqprep.runtime.positions import Iteration, parse_state
from seqprep.runtime.ranges import Batch, LeaseOf
from seqprep.runtime.rebatching import Progress, Rebatched
from seqprep.runtime.reporting import Reporter
from seqprep.runtime.row_order import RowOrder
from seqprep.runtime.stock import Stock
from seqprep.types import Array, Int64, KeySpec

_IN_HAND = 2  # buffers beyond those read ahead: the one the consumer works on, and the one it has just asked for


@dataclass
class Metrics(Counters):
    """What a loader has done since it was opened."""

    ready: int = 0
    """Batches read and waiting, at this moment; with `rebatch`, of those that are stored."""
    shards_opened: int = 0
    """How often a shard's tables were read; more often than there are shards if memory doesn't hold all at a time."""


class Epochs:
    """Gives a stock's batches, epoch by epoch; see `seqprep.Loader`.

    Args:
        stock: the batches.
        options: how they are read.

    Raises:
        ConfigError: they don't go together.
    """

    def __init__(self, stock: Stock, options: LoaderOptions) -> None:
        self._stock, self._options = stock, options
        self._order = stock.order(options)
        self._rows = _row_order(stock, options, self._order)
        self._counters, self._reading = Counters(), Counters()
        own = weakref.ref(self)
        self._reporter = Reporter(
            stock.name, lambda: None if (epochs := own()) is None else epochs.metrics(), options.on_metrics
        )
        self._make_pools()
        self._epoch = self._begin = 0  # where the next iteration starts
        self._iteration = self._next_iteration()  # the current one
        self._work: Work | Progress | None = None  # not the iterator: an abandoned one has to be collected
        self._closed = False

    # -- what it is --

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """The keys that are read, the input key first if it is among them."""
        return self._stock.specs

    @property
    def epoch(self) -> int:
        """Number of the epoch that is being read or comes next."""
        return self._epoch

    @property
    def order(self) -> Order:
        """The order of the stored batches, and which of them are this rank's."""
        return self._order

    def __len__(self) -> int:
        """Batches of the whole epoch that is being read or comes next, for this rank; others may have more or fewer, see
        `same_length`.
        """
        return (self._rows or self._order).steps(self._epoch, 0)

    @property
    def lengths(self) -> tuple[int, ...]:
        """For each pass, batches of an epoch that reads it, for this rank; of the epoch that is being read or comes next
        alone, if each epoch has a pass of its own.
        """
        order, passes = self._rows or self._order, self._stock.passes
        epochs = [self._epoch] if passes is None else range(passes)
        return tuple(order.steps(epoch, 0) for epoch in epochs)

    @property
    def same_length(self) -> bool:
        """Whether every epoch has the same number of batches; not where ranks share the rows that `rebatch` mixes."""
        fixed = self._rows is None or self._options.world_size == 1 or not self._options.shuffle
        return self._stock.passes is not None and fixed and len(set(self.lengths)) == 1

    @property
    def dataset_name(self) -> str:
        """What the batches are of: `train`, say."""
        raise NotImplementedError

    @property
    def complete_fraction(self) -> float:
        """Share of its batches that the epoch has handed out, from 0 to 1; 1 from its end until the next begins."""
        done, total = self._progress()
        return done / total if total else 1.0

    def have_more(self) -> bool:
        """Whether the epoch has another batch; False from its end until the next begins."""
        done, total = self._progress()
        return done < total

    def _progress(self) -> tuple[int, int]:
        """Batches of this rank that the epoch has handed out, and all of them."""
        order, iteration = self._rows or self._order, self._iteration
        total = order.steps(iteration.epoch, 0)
        left = order.steps(iteration.epoch, iteration.begin) - (self._work.delivered if self._work else 0)
        return total - left, total

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
            self._work.start()
            return ahead
        rebatched = self._rebatch(self._rows, iteration)
        rebatched.iteration, self._work = iteration, rebatched.progress
        self._work.start()
        return rebatched

    def endless(self) -> Iterator[Batch]:
        """Gives epoch after epoch without an end.

        Raises:
            ConfigError: an epoch has no batch for this rank.
        """
        while True:
            if not len(self):
                raise ConfigError(
                    f"{self._stock.name}: epoch {self._epoch} has no batch for rank {self._options.rank}, so there is no "
                    "end of waiting for one; set even to 'pad', or use fewer ranks"
                )
            yield from self

    def feed(self) -> Iterator[dict[str, Any]]:
        """Gives one epoch as plain dictionaries of numpy arrays, for code that feeds them by hand.

        `seq_tag` is an array of str objects, [B].
        """
        for batch in self:
            yield {name: _plain(value) for name, value in batch.items()}

    def _read_ahead(self, batches: Int64, counters: Counters, exhausted: Callable[[], None]) -> ReadAhead:
        options, stock = self._options, self._stock
        verify = options.verify == "always" or (options.verify == "first" and self._epoch == 0)

        def read(batch: int, lease_of: LeaseOf) -> Batch:
            try:
                return stock.read(batch, lease_of, verify)
            except SeqprepError:
                raise
            except BaseException as error:
                error.add_note(f"while {stock.describe(batch)} was read")
                raise

        return ReadAhead(batches, read, self._pool, options.threads, counters, self._reporter, exhausted)

    def _rebatch(self, order: RowOrder, iteration: Iteration) -> Rebatched:
        pads, stretch = self._stock.pads, order.stretch(iteration.epoch, iteration.begin)
        return Rebatched(
            self._read_ahead(stretch.batches, self._reading, lambda: None),
            stretch,
            mixed=lambda window, rows: order.mixed(iteration.epoch, window, rows),
            options=order.options,
            pads={key: pads[key] for key in self._stock.keys},
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
        """Reads any batch of the plan by its number, whatever shuffle, rank and rebatch are.

        A loader counts all passes of its dataset together; a stream the pass of the epoch that is read or comes next.

        Raises:
            IndexError: there is no such batch.
            SeqprepError: it can't be read, or is damaged.
        """
        self._check_open()
        numbers = self._stock.numbers(self._epoch)
        if not -len(numbers) <= number < len(numbers):
            raise IndexError(f"batch {number} of {len(numbers)}")
        return self._stock.read(numbers[number], lease_once, self._options.verify != "never")

    # -- state --

    def _next_iteration(self) -> Iteration:
        identity = self._options.identity(self._stock.fingerprint, self._stock.keys)
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
        epoch, begin = parse_state(state, self._iteration.identity, self._stock.name)
        if begin and self._iteration.order.ended(epoch, begin):  # of another world size, and no rank gets more
            epoch, begin = epoch + 1, 0
        self._end_iteration()
        self._work = None
        self._epoch, self._begin = epoch, begin
        self._iteration = self._next_iteration()

    def _arguments(self) -> dict[str, Any]:
        """What the constructor has to be given for another one like this."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        self._check_open()
        return {"arguments": self._arguments(), "state": self.state_dict()}

    def __setstate__(self, saved: Mapping[str, Any]) -> None:
        self.__init__(**saved["arguments"])  # type: ignore[misc]
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
        return Metrics(**values, ready=ready, shards_opened=self._stock.shards_opened)

    def close(self) -> None:
        """Ends threads and closes files; batches handed out stay valid. Always returns."""
        self._closed = True
        self._adopt()
        self._end_iteration()
        self._stock.close()

    def _end_iteration(self) -> None:
        if self._work is not None:
            self._work.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self._stock.name}: the loader is closed; open another")
        self._adopt()

    def _adopt(self) -> None:
        """Makes the loader this process' own: in a forked child, locks and queues of the parent may be held for good."""
        if self._process != os.getpid():
            self._stock.renew_locks()
            self._make_pools()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _plain(value: Any) -> Array:
    """Of tags an array of str; other values as they are."""
    if isinstance(value, np.ndarray):
        return value
    array = np.empty(len(value), object)
    array[:] = list(value)
    return array


def _row_order(stock: Stock, options: LoaderOptions, order: Order) -> RowOrder | None:
    """The order of the batches that mixing makes, if it is wanted.

    Raises:
        ConfigError: the rows are packed.
    """
    if options.rebatch is None:
        return None
    if stock.packed:
        raise ConfigError(
            f"{stock.name}: rebatch is set, but the rows of this dataset are packed, each with several sequences: "
            'remove rebatch, and mix batches by shuffle; or make the dataset without "pack"'
        )
    return RowOrder(order, stock.rows_of, options.rebatch)
