"""What data workers count, and how it reaches logs and loggers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from seqprep.config import shown
from seqprep.errors import ConfigError

log = logging.getLogger("seqprep.data_workers")

_LAGGING_SHARE = 0.1  # of an interval: a consumer that waits longer is worth a warning


class HasLog(Protocol):
    """A logger as Caffe2 knows them."""

    def log(self, metrics: Mapping[str, float]) -> object:
        """Takes the numbers of an interval."""


Logger = Callable[[Mapping[str, float]], object] | HasLog


@dataclass
class WorkerCounters:
    """What one worker did."""

    fetches: int = 0
    empty_fetches: int = 0
    rows: int = 0
    fetch_seconds: float = 0.0
    wait_seconds: float = 0.0


@dataclass
class ConsumerCounters:
    """What one instance handed out."""

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    wait_seconds: float = 0.0
    join_seconds: float = 0.0
    unpooled_buffers: int = 0


@dataclass(frozen=True, kw_only=True)
class DataWorkersMetrics:
    """What data workers have done since they were made: batches of this instance, work of the whole source."""

    batches: int
    """Handed to the consumer."""
    rows: int
    bytes: int
    """Of the batches handed out."""
    consumer_wait_seconds: float
    """The consumer was blocked because no batch was ready."""
    worker_wait_seconds: float
    """Workers were idle because the buffer was full; all together."""
    fetches: int
    """Calls of `fetch` that gave rows."""
    empty_fetches: int
    """Calls of `fetch` that gave none."""
    fetch_seconds: float
    """Inside `fetch`; all workers together."""
    join_seconds: float
    """Putting batches together, in the consumer's thread."""
    ready: int
    """Batches that wait in the buffer, at this moment."""
    unpooled_buffers: int
    """Batches put together in memory outside the pool, because the consumer kept what is in it."""
    discarded_rows: int
    """Fetched, but given to nobody, because the workers were stopped or one failed (chunks, without rebatching)."""
    logger_failures: int
    """Calls of loggers that raised."""


@dataclass
class Ledger:
    """All that is counted for one source."""

    workers: list[WorkerCounters]
    consumers: dict[str, ConsumerCounters] = field(default_factory=dict)
    """By scope."""
    discarded: int = 0
    logger_failures: int = 0

    def metrics(self, scope: str | None, ready: int) -> DataWorkersMetrics:
        """Adds it up.

        Args:
            scope: of the instance whose batches are meant; None for all.
            ready: batches that wait at this moment.
        """
        consumers = list(self.consumers.values()) if scope is None else [self.consumers[scope]]
        return DataWorkersMetrics(
            batches=sum(each.batches for each in consumers),
            rows=sum(each.rows for each in consumers),
            bytes=sum(each.bytes for each in consumers),
            consumer_wait_seconds=sum(each.wait_seconds for each in consumers),
            worker_wait_seconds=sum(each.wait_seconds for each in self.workers),
            fetches=sum(each.fetches for each in self.workers),
            empty_fetches=sum(each.empty_fetches for each in self.workers),
            fetch_seconds=sum(each.fetch_seconds for each in self.workers),
            join_seconds=sum(each.join_seconds for each in consumers),
            ready=ready,
            unpooled_buffers=sum(each.unpooled_buffers for each in consumers),
            discarded_rows=self.discarded,
            logger_failures=self.logger_failures,
        )

    def fetched_rows(self) -> int:
        """Rows that all workers fetched."""
        return sum(each.rows for each in self.workers)


class Reporter:
    """Logs how a source does, at intervals, and tells the users' loggers.

    These get a dict of numbers: for the interval, what Caffe2's data workers reported, under the same names
    (`inputs_per_sec`, `queue_size`, `time_elapsed`, `fetcher_time`, `fetcher_time_count`, `enqueue_time`,
    `enqueue_time_count`; times in seconds), and since the start the fields of `DataWorkersMetrics`.

    Args:
        source: its name, for messages.
        ledger: what is counted.
        ready: tells how many batches wait at this moment.
        loggers: who is told; one that raises is reported once, and told on.
        seconds: an interval.
    """

    def __init__(
        self, source: str, ledger: Ledger, ready: Callable[[], int], loggers: Sequence[Logger], seconds: float
    ) -> None:
        self._source, self._ledger, self._ready, self._seconds = source, ledger, ready, seconds
        self._loggers = [logger_function(logger) for logger in loggers]
        self._failed: set[int] = set()
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._fetched = ledger.fetched_rows()
        self._before = ledger.metrics(None, 0)

    def tick(self) -> None:
        """Reports if an interval is over; in whatever thread notices first."""
        if time.monotonic() - self._began >= self._seconds and self._lock.acquire(blocking=False):
            try:
                if time.monotonic() - self._began >= self._seconds:
                    self._report(warn=True)
            finally:
                self._lock.release()

    def finish(self) -> None:
        """Reports what has gathered since the last time."""
        if self._lock.acquire(blocking=False):  # else this comes out of a logger, which reports already
            try:
                self._report(warn=False)
            finally:
                self._lock.release()

    def _report(self, warn: bool) -> None:
        now, fetched, metrics = time.monotonic(), self._ledger.fetched_rows(), self._ledger.metrics(None, self._ready())
        before, elapsed = self._before, now - self._began
        rate = (fetched - self._fetched) / elapsed if elapsed > 0 else 0.0
        waited = metrics.consumer_wait_seconds - before.consumer_wait_seconds
        self._began, self._fetched, self._before = now, fetched, metrics
        log.info("source %r: %.0f rows/s fetched, %d batches ready", self._source, rate, metrics.ready)
        if warn and waited > _LAGGING_SHARE * elapsed * max(len(self._ledger.consumers), 1):
            log.warning(
                "source %r lags behind: consumers waited for %.1f of the last %.0f s; make fetch faster or use more workers",
                self._source, waited, elapsed,
            )  # fmt: skip
        values = {
            "inputs_per_sec": rate,
            "queue_size": metrics.ready,
            "time_elapsed": elapsed,
            "fetcher_time": metrics.fetch_seconds - before.fetch_seconds,
            "fetcher_time_count": metrics.fetches + metrics.empty_fetches - before.fetches - before.empty_fetches,
            "enqueue_time": metrics.join_seconds - before.join_seconds,
            "enqueue_time_count": metrics.batches - before.batches,
        } | asdict(metrics)
        for number, logger in enumerate(self._loggers):
            self._tell(number, logger, dict(values))

    def _tell(self, number: int, logger: Callable[[dict[str, float]], object], values: dict[str, float]) -> None:
        try:
            logger(values)
        except Exception as error:
            self._ledger.logger_failures += 1
            if number not in self._failed:
                self._failed.add(number)
                log.warning(
                    "source %r: logger %d raised %s: %s (said once; it is told on)",
                    self._source, number, type(error).__name__, error, exc_info=error,
                )  # fmt: skip


def checked_loggers(loggers: Any) -> tuple[Logger, ...]:
    """The loggers that a user gave.

    Raises:
        ConfigError: it is no list, or holds something else.
    """
    if not isinstance(loggers, Iterable) or isinstance(loggers, str | bytes | Mapping):
        raise ConfigError(
            f"loggers is {shown(loggers)}: give a list of functions of a dict, or of objects with a method `log`"
        )
    for logger in (given := tuple(loggers)):
        logger_function(logger)
    return given


def logger_function(logger: Any) -> Callable[[dict[str, float]], object]:
    """What is called to tell a logger: its method `log`, or itself.

    Raises:
        ConfigError: it has neither.
    """
    function = getattr(logger, "log", logger)
    if not callable(function):
        raise ConfigError(
            f"loggers holds {shown(logger)}: give functions of a dict, or objects with such a method `log`"
        )
    return function  # type: ignore[no-any-return]
