from __future__ import annotations

import logging
import re
import threading
import time
from typing import Any

import pytest

from seqprep import DataWorkers
from seqprep.errors import WorkerError
from seqprep.runtime import DataWorkersMetrics, data_metrics, data_run
from seqprep.runtime.data_metrics import ConsumerCounters, Ledger, Reporter, WorkerCounters
from seqprep.runtime.protocol import MeteredSource

from .data_workers_helpers import Counting, endless, numbered, taken, until

pytestmark = pytest.mark.usefixtures("bounded")
CAFFE2 = {
    "inputs_per_sec",
    "queue_size",
    "time_elapsed",
    "fetcher_time",
    "fetcher_time_count",
    "enqueue_time",
    "enqueue_time_count",
}


class Keeper:
    """A logger with a method `log`, as Caffe2 knows them."""

    def __init__(self) -> None:
        self.kept: list[dict[str, float]] = []

    def log(self, metrics: Any) -> None:
        self.kept.append(metrics)


@pytest.mark.parametrize("num_workers", [0, 3])
def test_counts_are_exact(num_workers: int) -> None:
    with DataWorkers(Counting(100, [10]), batch_size=8, num_workers=num_workers) as workers:
        assert isinstance(workers, MeteredSource)
        for epoch in range(1, 3):
            taken(workers)
            metrics = workers.metrics()
            assert isinstance(metrics, DataWorkersMetrics)
            assert metrics.batches == 13 * epoch
            assert metrics.rows == 100 * epoch
            assert metrics.bytes == 100 * epoch * (3 * 4 + 8)
            assert metrics.fetches == 10 * epoch
            assert metrics.empty_fetches == metrics.ready == metrics.discarded_rows == metrics.logger_failures == 0
            assert metrics.fetch_seconds > 0
            assert metrics.join_seconds > 0


def test_waiting_is_counted_where_it_happens() -> None:
    given = iter([endless(0, 4)])

    def slow(worker_id: int, batch_size: int) -> Any:
        until(lambda: bool(workers._source.run.exchange._waiting))
        time.sleep(0.02)
        return next(given, None)

    with DataWorkers(slow, batch_size=4, num_workers=1) as workers:
        assert len(list(workers)) == 1
        assert 0.02 <= workers.metrics().consumer_wait_seconds < 20
        assert workers.metrics().worker_wait_seconds == 0
    with DataWorkers(endless, batch_size=4, num_workers=2, max_buffered_batches=1) as workers:
        workers.start()
        until(lambda: len(workers._source.run.exchange._full) == 2)
        time.sleep(0.05)
        for _ in zip(range(4), workers, strict=False):
            pass
        until(lambda: workers.metrics().worker_wait_seconds > 0.09)  # both


def test_loggers_get_caffe2s_numbers_and_ours_after_every_interval_and_at_the_end() -> None:
    keeper, kept = Keeper(), []
    with DataWorkers(
        Counting(1000, [10]), batch_size=10, num_workers=2, loggers=[keeper, kept.append], log_seconds=0.02
    ) as workers:
        for _ in range(4):
            taken(workers)
            time.sleep(0.02)
    assert len(keeper.kept) >= 3
    assert kept == keeper.kept
    assert kept[0] is not keeper.kept[0]
    for values in kept:
        assert set(values) >= CAFFE2
        assert values["time_elapsed"] > 0
    # Nothing is counted twice or forgotten between two intervals.
    assert sum(values["fetcher_time_count"] for values in kept) == 400
    assert sum(values["enqueue_time_count"] for values in kept) == 400
    assert sum(values["inputs_per_sec"] * values["time_elapsed"] for values in kept) == pytest.approx(4000)
    assert sum(values["fetcher_time"] for values in kept) == pytest.approx(workers.metrics().fetch_seconds)
    assert kept[-1]["batches"] == 400
    assert kept[-1]["rows"] == 4000


def test_stopping_at_once_is_reported_too() -> None:
    kept: list[dict[str, float]] = []
    workers = DataWorkers(Counting(0), batch_size=10, loggers=[kept.append])
    workers.stop()
    assert kept == []  # it hasn't been started
    workers.start()
    workers.stop()
    assert len(kept) == 1
    assert kept[0]["inputs_per_sec"] == 0


def test_a_logger_that_raises_is_reported_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    kept: list[Any] = []

    def broken(values: Any) -> None:
        raise ConnectionError("no such host")

    with DataWorkers(
        Counting(1000, [10]), batch_size=10, num_workers=2, loggers=[broken, kept.append], log_seconds=0.01
    ) as workers:
        for _ in range(3):
            assert sum(len(batch) for batch in taken(workers)) == 1000
            time.sleep(0.01)
    assert workers.metrics().logger_failures == len(kept) >= 3
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING and "logger" in record.message]
    assert (
        record.getMessage()
        == "source 'train': logger 0 raised ConnectionError: no such host (said once; it is told on)"
    )
    assert record.exc_info


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(("waited", "warns"), [(0.0, False), (2.9, False), (3.1, True), (30.0, True)])
def test_intervals_are_logged_with_a_warning_when_fetching_lags_behind(
    waited: float, warns: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "seqprep.data_workers")
    clock = Clock()
    monkeypatch.setattr(data_metrics, "time", clock)
    ledger = Ledger([WorkerCounters(rows=7), WorkerCounters()], {"": ConsumerCounters()})
    reporter = Reporter("dev", ledger, lambda: 5, [], 30.0)
    clock.now += 29
    reporter.tick()
    assert not caplog.records
    ledger.workers[1].rows += 600
    ledger.consumers[""].wait_seconds += waited
    clock.now += 1
    reporter.tick()
    reporter.tick()
    expected = [(logging.INFO, "source 'dev': 20 rows/s fetched, 5 batches ready")]
    if warns:
        lag = f"consumers waited for {waited:.1f} of the last 30 s; make fetch faster or use more workers"
        expected.append((logging.WARNING, f"source 'dev' lags behind: {lag}"))
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == expected


def test_workers_report_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "seqprep.data_workers")
    with DataWorkers(endless, batch_size=4, num_workers=2, log_seconds=0.01, source="dev") as workers:
        batches = iter(workers)
        while sum(record.levelno == logging.INFO for record in caplog.records) < 3:
            next(batches)
    assert all(record.getMessage().startswith("source 'dev'") for record in caplog.records)


def test_a_consumer_that_waits_long_says_so(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_run, "_SLOW_SECONDS", 0.05)
    let_go = threading.Event()
    inside: list[int] = []

    def fetch(worker_id: int, batch_size: int) -> Any:
        inside.append(worker_id)
        let_go.wait()
        return numbered(0, batch_size)

    with DataWorkers(fetch, batch_size=4, num_workers=2, timeout_seconds=0.5) as workers:
        workers.start()
        until(lambda: len(inside) == 2)
        where = f"inside fetch: workers {workers.worker_ids[0]}, {workers.worker_ids[1]}"
        with pytest.raises(
            WorkerError, match=rf"no batch for 0\.5 s; {where}; make fetch faster, use more workers, or set"
        ):
            next(iter(workers))
        assert caplog.records
        for record in caplog.records:
            assert re.fullmatch(rf"source 'train': no batch for 0\.\d+ s; {where}", record.getMessage())
        let_go.set()
        assert len(next(iter(workers))["y"]) == 4
