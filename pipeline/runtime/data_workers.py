"""`seqprep.DataWorkers`: batches from a function of the user's that runs in threads."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence

from seqprep.config import shown
from seqprep.errors import ConfigError
from seqprep.runtime.data_exchange import Consumer
from seqprep.runtime.data_fetch import Columns, Fetch, Inputs
from seqprep.runtime.data_metrics import DataWorkersMetrics, Logger, checked_loggers
from seqprep.runtime.data_rows import Memory, join
from seqprep.runtime.data_run import STOP_SECONDS, Job, Run, check_functions, running, stop_runs, waiting_time
from seqprep.runtime.data_source import Source
from seqprep.runtime.options import whole_number
from seqprep.types import Array

_POOLED_BUFFERS = 8


class DataWorkers:
    """Runs a function that fetches data in threads, and gives what it fetches as batches.

    Iterating gives one epoch, which ends when `fetch` has returned None to every worker; a function that never does
    gives one endless epoch. The last batch of an epoch has the rows that are left. A batch is a dict from the names of
    the inputs to arrays, which are the caller's own. Leaving an iteration loses nothing: the next one goes on where it
    was left. Rows of one worker stay in their order.

    A function that raises stops the workers. The batches that were whole come out, then the consumer gets a WorkerError
    that names the worker, with what was raised as its `__cause__`; `start` begins anew.

    Args:
        fetch: `fetch(worker_id, batch_size)` returns any number of rows: one numpy array per input, as a list in the
            order of `inputs` or as a mapping from their names. It gives the arrays away, and may not write into them any
            more. Empty arrays, or an empty list, say that there is nothing at the moment, and None that the worker's
            epoch is over; the next call is of the next epoch. `batch_size` is a hint. It runs in several threads.
        inputs: names of the inputs. Not needed if `fetch` returns mappings.
        batch_size: rows of a batch.
        num_workers: threads. 0 fetches in the consumer's thread, for debugging.
        source: what the data is, such as "train" or "test"; for messages, logs, and `stop_all`.
        max_buffered_batches: workers wait while this many batches, or a call's rows more, are ready.
        rebatch: False gives what each call returned as one batch, as it is; inputs may then differ in rows.
        batch_columns: the axis along which rows lie: of all inputs, or a list of each input's, or by name (others 0).
        init: called with these workers in the thread that starts them, once before each start.
        worker_init: called with the worker's id in the worker's thread, once before its first fetch.
        shutdown: called once when the workers are being stopped, before their threads are waited for: the place to
            wake up a fetch that waits.
        loggers: called with a dict of numbers after every interval and at the end, or their method `log` is; see
            `seqprep.runtime.data_metrics.Reporter`.
        log_seconds: the interval.
        timeout_seconds: how long a consumer waits for a batch before it raises; None waits for ever.

    Raises:
        ConfigError: an argument is impossible.
    """

    def __init__(
        self,
        fetch: Fetch,
        inputs: Sequence[str] | None = None,
        *,
        batch_size: int,
        num_workers: int = 2,
        source: str = "train",
        max_buffered_batches: int = 16,
        rebatch: bool = True,
        batch_columns: Columns = 0,
        init: Callable[[DataWorkers], object] | None = None,
        worker_init: Callable[[int], object] | None = None,
        shutdown: Callable[[], object] | None = None,
        loggers: Sequence[Logger] = (),
        log_seconds: float = 60.0,
        timeout_seconds: float | None = 600.0,
    ) -> None:
        if not isinstance(source, str):
            raise ConfigError(f"source is {shown(source)}: it has to be a name")
        check_functions(fetch=fetch, init=init, worker_init=worker_init, shutdown=shutdown)
        job = Job(
            source=source,
            fetch=fetch,
            worker_init=worker_init,
            shutdown=shutdown,
            num_workers=whole_number("num_workers", num_workers, 0),
            max_buffered_batches=whole_number("max_buffered_batches", max_buffered_batches, 1),
            rebatch=rebatch,
            loggers=checked_loggers(loggers),
            log_seconds=waiting_time("log_seconds", log_seconds),
            timeout_seconds=None if timeout_seconds is None else waiting_time("timeout_seconds", timeout_seconds),
        )
        self._source = Source(job, Inputs(inputs, batch_columns, rebatch), init)
        self._enter("", batch_size)

    def _enter(self, scope: str, batch_size: int) -> None:
        """Makes this an instance of the source."""
        self._counters = self._source.add(scope, batch_size)
        self._scope = scope
        self._run = self._source.run
        self._epoch = self._run.exchange.epoch - 1 if self._run else -1  # the one it comes from
        self._batches: BatchIterator | None = None
        self._memory = Memory(_POOLED_BUFFERS)

    # -- what it is --

    @property
    def dataset_name(self) -> str:
        """The source: "train", "test", …"""
        return self._source.job.source

    @property
    def scope(self) -> str:
        """The name of this instance among those of its source; empty for the first."""
        return self._scope

    @property
    def batch_size(self) -> int:
        """Rows of a batch of this instance."""
        return self._source.sizes.of[self._scope]

    @property
    def worker_ids(self) -> tuple[int, ...]:
        """What the workers of this source are called; no worker of another source in this process has these."""
        return tuple(self._source.worker_ids)

    @property
    def epoch(self) -> int:
        """Number of the epoch that is iterated, from 0 at each start."""
        return max(self._epoch, 0)

    @property
    def running(self) -> bool:
        """Whether the workers run and are wanted; a fetch that waits in a loop gives up when they aren't any more."""
        run = self._source.run
        return run is not None and run.is_current(after_failure=True)

    def set_batch_size(self, batch_size: int) -> None:
        """Sets the rows of this instance's next batches, at any time and from any thread; no row is lost.

        Raises:
            ConfigError: it is less than 1.
        """
        self._source.resize(self._scope, batch_size)

    def scoped(self, scope: str, batch_size: int | None = None) -> DataWorkers:
        """Gives one more instance of the same source, for another device.

        Instances share the workers and their buffer: each batch goes to the one that asks first, and to no other. Each
        has its own batch size, iteration and metrics; starting or stopping one does so for all.

        Args:
            scope: its name, such as "gpu_1".
            batch_size: rows of its batches; as this instance's unless told.

        Raises:
            ConfigError: there is an instance of that name, or the size is less than 1.
        """
        other = copy.copy(self)
        other._enter(scope, self.batch_size if batch_size is None else batch_size)
        return other

    # -- batches --

    def __iter__(self) -> BatchIterator:
        """Goes on with the epoch, or begins the next if it is exhausted; starts the workers if they don't run.

        Raises:
            ClosedError: these workers are closed.
        """
        run = self._source.prepare(self)
        run.launch()
        if run is not self._run:
            self._run, self._epoch = run, -1
        self._epoch = run.exchange.enter(self._epoch)
        sizes, scope = self._source.sizes, self._scope
        wanted = (lambda: sizes.of[scope]) if self._source.job.rebatch else (lambda: 1)
        self._batches = BatchIterator(self, run, Consumer(wanted, self._epoch, self._counters), self._memory)
        return self._batches

    def have_more(self) -> bool:
        """Waits until it is known whether another batch comes in this epoch.

        It is about the iteration begun last, and begins the first one. Where several instances take from a source,
        another one may be faster.

        Raises:
            SeqprepError: what `next` would raise.
        """
        batches = self._batches
        if batches is None or batches.closed or batches.run is not self._source.run:
            batches = iter(self)
        return batches.have_more()

    # -- start and stop --

    def start(self) -> None:
        """Starts the workers, unless they run, and the first epoch, so that batches are ready when they are asked for.

        Raises:
            ClosedError: these workers are closed.
        """
        self.start_all(self)

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> bool:
        """Stops the workers of this source, for all its instances; what is in the buffer is given up.

        A consumer that waits gets a ClosedError. The next `start` or `iter` begins anew, with `init`.

        Args:
            timeout_seconds: how long to wait for the workers to leave `fetch`.

        Returns:
            Whether all threads have ended. One that hasn't is reported and left alone: it ends with the process, or
            when `fetch` returns, and what it fetched goes nowhere.

        Raises:
            WorkerError: `shutdown` raised.
        """
        run = self._source.run
        return run is None or run.stop(time.monotonic() + timeout_seconds)

    def close(self) -> None:
        """Stops the workers for good; batches handed out stay valid. Always returns."""
        self._source.closed = True
        self.stop()

    @staticmethod
    def start_all(*workers: DataWorkers) -> None:
        """Starts several sources: first calls `init` of all, one after the other, and then lets their threads begin."""
        for run in [each._source.prepare(each, after_failure=True) for each in workers]:
            run.launch()

    @staticmethod
    def stop_all(source: str | None = None, timeout_seconds: float = STOP_SECONDS) -> bool:
        """Stops all data workers of this process, or those of one source; this happens at the interpreter's exit, too.

        Args:
            source: which to stop.
            timeout_seconds: how long to wait, for all together.

        Returns:
            Whether all threads have ended.
        """
        return stop_runs(running(source), timeout_seconds)

    def metrics(self) -> DataWorkersMetrics:
        """What this instance has handed out and its source has done, since they were made."""
        run = self._source.run
        return self._source.ledger.metrics(self._scope, run.ready() if run else 0)

    def __enter__(self) -> DataWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BatchIterator(Iterator[dict[str, Array]]):
    """One epoch of batches, for one thread at a time; made by `iter` of `DataWorkers`."""

    def __init__(self, workers: DataWorkers, run: Run, consumer: Consumer, memory: Memory) -> None:
        self.run = run
        self._workers = workers  # so that the workers live as long as somebody takes from them
        self._consumer, self._memory = consumer, memory

    def __next__(self) -> dict[str, Array]:
        """Gives the next batch.

        Raises:
            WorkerError: a worker failed, or no batch has come for `timeout_seconds`.
            ClosedError: the workers were stopped, or this iterator was closed.
        """
        pieces = self.run.take(self._consumer)
        if not pieces:
            raise StopIteration
        started = time.perf_counter()
        inputs = self.run.inputs
        if inputs.rebatch:
            arrays = join(pieces, inputs.columns, self._memory)
            rows = sum([piece.end - piece.begin for piece in pieces])
        else:
            arrays, rows = pieces[0].chunk.arrays, pieces[0].chunk.rows
        counters = self._consumer.counters
        counters.batches += 1
        counters.rows += rows
        counters.bytes += sum([array.nbytes for array in arrays])
        counters.unpooled_buffers = self._memory.unpooled
        counters.join_seconds += time.perf_counter() - started
        self.run.exchange.refill()
        return dict(zip(inputs.names, arrays, strict=True))

    def have_more(self) -> bool:
        """Waits until it is known whether another batch comes in this epoch; raises what `next` would."""
        return self.run.have_more(self._consumer)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._consumer.closed

    def close(self) -> None:
        """Ends this iteration, and nothing else; a `next` that waits in another thread raises."""
        self._consumer.close()
