from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from seqprep import DataWorkers
from seqprep.errors import WorkerError
from seqprep.runtime import DataWorkersMetrics, data_run
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
    def slow(worker_id: int, batch_size: int) -> Any:
        time.sleep(0.02)
        return endless(worker_id, batch_size)

    with DataWorkers(slow, batch_size=4, num_workers=1) as workers:
        for _ in zip(range(5), workers, strict=False):
            pass
        assert 0.08 < workers.metrics().consumer_wait_seconds < 5
        assert workers.metrics().worker_wait_seconds < 0.08
    with DataWorkers(endless, batch_size=4, num_workers=2, max_buffered_batches=1) as workers:
        workers.start()
        until(lambda: workers.metrics().ready == 1)
        time.sleep(0.05)
        for _ in zip(range(3), workers, strict=False):
            pass
        until(lambda: workers.metrics().worker_wait_seconds > 0.08)  # both
        assert workers.metrics().consumer_wait_seconds < workers.metrics().worker_wait_seconds


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


def test_intervals_are_logged_with_a_warning_when_fetching_lags_behind(caplog: pytest.LogCaptureFixture) -> None:
    def slow(worker_id: int, batch_size: int) -> Any:
        time.sleep(0.005)
        return endless(worker_id, batch_size)

    caplog.set_level(logging.INFO, "seqprep.data_workers")
    with DataWorkers(slow, batch_size=4, num_workers=1, log_seconds=0.05, source="dev") as workers:
        for _ in zip(range(50), workers, strict=False):
            pass
    messages = [(record.levelno, record.getMessage()) for record in caplog.records]
    rates = [text for level, text in messages if level == logging.INFO]
    warnings = [text for level, text in messages if level == logging.WARNING]
    assert rates
    assert warnings
    assert all(text.startswith("source 'dev': ") and text.endswith("batches ready") for text in rates)
    assert all(text.startswith("source 'dev' lags behind: consumers waited for ") for text in warnings)

    caplog.clear()
    with DataWorkers(endless, batch_size=4, num_workers=1, log_seconds=0.02, max_buffered_batches=2) as workers:
        for _ in zip(range(20), workers, strict=False):
            time.sleep(0.005)
    assert caplog.records
    assert all(record.levelno == logging.INFO for record in caplog.records)


def test_a_consumer_that_waits_long_says_so(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_run, "_SLOW_SECONDS", 0.05)
    let_go = threading.Event()

    def fetch(worker_id: int, batch_size: int) -> Any:
        let_go.wait()
        return numbered(0, batch_size)

    with DataWorkers(fetch, batch_size=4, num_workers=2, timeout_seconds=0.13) as workers:
        with pytest.raises(
            WorkerError, match=r"no batch for 0\.13 s; inside fetch: workers .*, or set timeout_seconds"
        ):
            next(iter(workers))
        first, second = workers.worker_ids
        assert [record.getMessage() for record in caplog.records] == [
            f"source 'train': no batch for {seconds} s; inside fetch: workers {first}, {second}"
            for seconds in ("0.05", "0.1")
        ]
        let_go.set()
        assert len(next(iter(workers))["y"]) == 4
