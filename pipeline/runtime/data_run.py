"""The workers of a source, from a start to its stop."""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from seqprep.config import shown
from seqprep.errors import ClosedError, ConfigError, WorkerError
from seqprep.runtime.data_exchange import Consumer, Exchange, Producer
from seqprep.runtime.data_fetch import Fetch, Fetcher, Inputs
from seqprep.runtime.data_metrics import Ledger, Logger, Reporter, log
from seqprep.runtime.data_rows import Piece
from seqprep.runtime.starting import start_threads

STOP_SECONDS = 5.0
"""How long stopping waits for workers to leave `fetch`."""

_SLOW_SECONDS = 10.0  # a consumer that waits for a batch says so this often


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the workers of a source have to do."""

    source: str
    fetch: Fetch
    worker_init: Callable[[int], object] | None
    shutdown: Callable[[], object] | None
    num_workers: int
    """0: fetch in the consumer's thread."""
    max_buffered_batches: int
    rebatch: bool
    loggers: Sequence[Logger]
    log_seconds: float
    timeout_seconds: float | None


def check_functions(fetch: object, **others: object) -> None:
    """Refuses what can't be called; all but `fetch` may be None.

    Raises:
        ConfigError: it can't be called.
    """
    for name, function in (
        {"fetch": fetch} | {name: other for name, other in others.items() if other is not None}
    ).items():
        if not callable(function):
            raise ConfigError(f"{name} is {shown(function)}: it has to be a function")


def waiting_time(name: str, seconds: Any) -> float:
    """Checks a number of seconds.

    Raises:
        ConfigError: it is none above 0.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, Real):
        raise ConfigError(f"{name} is {shown(seconds)}: it has to be a number of seconds")
    number: Any = seconds
    if not number > 0:
        raise ConfigError(f"{name} is {seconds}: it has to be more than 0")
    return float(min(number, threading.TIMEOUT_MAX))


class Sizes:
    """The batch sizes of a source's instances, by scope."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        self.largest = 0

    def set(self, scope: str, size: int) -> None:
        """Sets one of them."""
        self.of[scope] = size
        self.largest = max(self.of.values())


class Run:
    """Threads that fetch, and the buffer that they fill.

    Knows nothing of those who take from it, so that these can be collected while it runs.

    Args:
        job: what to do.
        inputs: what is fetched.
        sizes: rows of a batch.
        ledger: what is counted.
        worker_ids: one for each worker.
    """

    def __init__(self, job: Job, inputs: Inputs, sizes: Sizes, ledger: Ledger, worker_ids: Sequence[int]) -> None:
        self.job, self.inputs, self.sizes = job, inputs, sizes
        self.exchange = Exchange(job.source, ledger, job.max_buffered_batches, self._largest_units())
        self.reporter = Reporter(job.source, ledger, self.ready, job.loggers, job.log_seconds)
        self.process = os.getpid()
        self._turn = threading.Lock()  # of consumers that fetch themselves
        self._lifecycle = threading.RLock()
        self._launched = self._finished = False
        self._fetchers = [
            Fetcher(number, job.fetch, job.worker_init, inputs, lambda: sizes.largest, job.source, counters)
            for number, counters in zip(worker_ids, ledger.workers, strict=True)
        ]
        workers = zip(self._fetchers, self.exchange.producers, strict=True)
        self._threads = [
            threading.Thread(target=self._work, args=worker, daemon=True, name=f"seqprep-{job.source}-{worker[0].id}")
            for worker in (workers if job.num_workers else ())
        ]

    def launch(self) -> None:
        """Lets the workers begin the first epoch, unless they have already."""
        with self._lifecycle:
            if self._launched or self.exchange.stopped:
                return
            self._launched = True
            _RUNS.add(self)
            # As the first of what is done at exit: threads inside a library that has shut down end the hard way.
            atexit.unregister(_stop_at_exit)
            atexit.register(_stop_at_exit)
            self.exchange.enter(-1)
            start_threads(self._threads)

    # -- workers --

    def _work(self, fetcher: Fetcher, producer: Producer) -> None:
        """A worker's thread."""
        exchange, epoch = self.exchange, -1
        try:
            while (begun := exchange.next_epoch(epoch, producer)) is not None:
                epoch = begun
                if not self._fetch_epoch(fetcher, producer):
                    return
        except BaseException as error:  # noqa: BLE001 - goes to the consumer, who raises it
            self._fail(fetcher, error)

    def _fetch_epoch(self, fetcher: Fetcher, producer: Producer) -> bool:
        exchange, reporter = self.exchange, self.reporter
        while exchange.open:
            chunk = fetcher()
            if chunk is None:
                exchange.end()
                return True
            if chunk.units:
                if not exchange.put(chunk, producer):
                    return False
            else:
                _pause(producer.bell, fetcher.pause_seconds)
            reporter.tick()
        return False

    def _fail(self, fetcher: Fetcher, error: BaseException) -> None:
        if not isinstance(error, WorkerError):
            told = WorkerError(f"{fetcher.who}: {type(error).__name__}: {error}")
            told.__cause__ = error
            error = told
        self.exchange.fail(error)

    # -- consumers --

    def take(self, consumer: Consumer) -> list[Piece]:
        """Takes the next batch; none at the end of the epoch. Raises as the exchange does."""
        self._check_process()
        if self._threads:
            return self.exchange.take(consumer, self._wait)
        with self._turn:
            return self.exchange.take(consumer, self._fetch_here)

    def have_more(self, consumer: Consumer) -> bool:
        """Waits until it is known whether a batch comes in this epoch."""
        self._check_process()
        if self._threads:
            return self.exchange.have_more(consumer, self._wait)
        with self._turn:
            return self.exchange.have_more(consumer, self._fetch_here)

    def ready(self) -> int:
        """Batches that wait in the buffer."""
        return self.exchange.rows.count // self._largest_units()

    def resize(self) -> None:
        """Takes note of changed batch sizes."""
        self.exchange.resize(self._largest_units())

    def _largest_units(self) -> int:
        return self.sizes.largest if self.job.rebatch else 1

    def _check_process(self) -> None:
        if self.process != os.getpid():
            raise ClosedError(
                f"source {self.job.source!r}: this iterator belongs to the process that made it; call iter() in this one"
            )

    def _wait(self, consumer: Consumer, started: float) -> None:
        """Waits for workers."""
        waited, limit = time.perf_counter() - started, self.job.timeout_seconds
        due = _SLOW_SECONDS * (waited // _SLOW_SECONDS + 1)
        if limit is not None and limit < due:
            due = limit
        if not _pause(consumer.bell, due - waited):
            return
        inside = ", ".join(str(fetcher.id) for fetcher in self._fetchers if fetcher.is_inside)
        where = f"inside fetch: workers {inside}" if inside else "no worker is inside fetch"
        message = f"source {self.job.source!r}: no batch for {due:g} s; {where}"
        if due == limit:
            raise WorkerError(f"{message}; make fetch faster, use more workers, or set timeout_seconds higher")
        log.warning(message)

    def _fetch_here(self, consumer: Consumer, started: float) -> None:
        """Fetches instead of waiting for a worker."""
        [fetcher], [producer] = self._fetchers, self.exchange.producers
        try:
            chunk = fetcher()
        except Exception as error:  # noqa: BLE001 - raised by the exchange, as that of a thread
            self._fail(fetcher, error)
            return
        if chunk is None:
            self.exchange.end()
        elif chunk.units:
            self.exchange.put(chunk, producer)
        else:
            _pause(consumer.bell, fetcher.pause_seconds)
        self.reporter.tick()

    # -- ends --

    def halt(self) -> None:
        """Lets all threads end, and consumers know; safe at any moment, in any thread."""
        self.exchange.halt()
        _RUNS.discard(self)

    def stop(self, until: float) -> bool:
        """Ends the threads, and waits for them.

        Args:
            until: when to give up waiting, on time.monotonic's clock.

        Returns:
            Whether all have ended. One that hasn't is still inside a user's function; it is a daemon and ends with the
            process, or when the function returns.
        """
        self.halt()
        if self.process != os.getpid():
            return True  # a forked child has none of these threads
        with self._lifecycle:
            is_first = self._launched and not self._finished
            self._finished = True
        error = self._shut_down() if is_first else None
        left = self._join(until)
        self.exchange.discard()
        if is_first:
            self.reporter.finish()
        if error is not None:
            raise error
        return not left

    def _shut_down(self) -> WorkerError | None:
        """Calls the user's function; what it raises waits until all has been stopped."""
        if self.job.shutdown is None:
            return None
        try:
            self.job.shutdown()
        except Exception as cause:  # noqa: BLE001 - raised later
            error = WorkerError(f"source {self.job.source!r}: shutdown raised {type(cause).__name__}: {cause}")
            error.__cause__ = cause
            return error
        return None

    def _join(self, until: float) -> list[str]:
        """Waits for the threads; gives the names of those that go on."""
        here = threading.current_thread()
        others = [thread for thread in self._threads if thread is not here and thread.is_alive()]
        for thread in others:
            thread.join(max(0.0, until - time.monotonic()))
        left = [thread.name for thread in others if thread.is_alive()]
        if left:
            log.warning("source %r: still inside fetch, and left alone: %s", self.job.source, ", ".join(left))
        return left

    def is_current(self, after_failure: bool) -> bool:
        """Whether this goes on, or has failed and that isn't to be passed over."""
        if self.process != os.getpid() or self.exchange.stopped:
            return False
        return self.exchange.open or not after_failure

    def is_alive(self, worker: int) -> bool:
        """Whether the thread of a worker, by its place, goes on."""
        return bool(self._threads) and self._threads[worker].is_alive()


_RUNS: set[Run] = set()  # those that go on


def running(source: str | None = None) -> list[Run]:
    """The runs that go on in this process, or those of one source."""
    return [run for run in list(_RUNS) if source is None or run.job.source == source]


def stop_runs(runs: Iterable[Run], seconds: float) -> bool:
    """Tells all to stop, and then waits for all.

    Returns:
        Whether all their threads have ended.
    """
    runs = list(runs)
    for run in runs:
        run.halt()
    until = time.monotonic() + seconds
    ended = [run.stop(until) for run in runs]
    return all(ended)


def _pause(bell: queue.SimpleQueue[None], seconds: float) -> bool:
    """Waits for a bell; true if it didn't ring."""
    try:
        bell.get(timeout=max(seconds, 0.0))
    except queue.Empty:
        return True
    return False


def _stop_at_exit() -> None:
    stop_runs(running(), STOP_SECONDS)
