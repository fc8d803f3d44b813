"""Stopping: at any moment, in bounded time, with nothing left."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from seqprep import DataWorkers
from seqprep.errors import ClosedError
from seqprep.runtime import data_run

from .conftest import our_threads
from .data_workers_helpers import Counting, endless, flat, taken, until

pytestmark = pytest.mark.usefixtures("bounded")
BOUNDED_SECONDS = 5.0


class Stuck:
    """Gives some rows, and then doesn't return until it is let go."""

    def __init__(self, calls: int = 0) -> None:
        self.let_go = threading.Event()
        self.inside = 0
        self._left = calls

    def __call__(self, worker_id: int, batch_size: int) -> Any:
        if self._left:
            self._left -= 1
            return endless(worker_id, batch_size)
        self.inside += 1
        self.let_go.wait()
        self.inside -= 1
        return endless(worker_id, batch_size)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    fetch = Stuck()
    yield fetch
    fetch.let_go.set()


def in_thread(action: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Runs something elsewhere; the list gets what it returned or raised."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(action())
        except Exception as error:  # noqa: BLE001 - it is looked at
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def ended(thread: threading.Thread) -> bool:
    thread.join(BOUNDED_SECONDS)
    return not thread.is_alive()


# -- full and empty buffers --


@pytest.mark.parametrize("num_workers", [1, 4])
@pytest.mark.parametrize("taken_before", [0, 1, 7])
def test_stopping_with_a_full_buffer(num_workers: int, taken_before: int) -> None:
    workers = DataWorkers(endless, batch_size=4, num_workers=num_workers, max_buffered_batches=2)
    for _, _ in zip(range(taken_before), workers, strict=False):
        pass
    workers.start()
    until(lambda: workers.metrics().ready == 2)
    assert workers.stop()
    assert not our_threads()
    assert workers.metrics().ready == 0
    assert workers.metrics().discarded_rows >= 8
    assert workers.stop()


def test_a_consumer_that_waits_is_told_when_the_workers_are_stopped(stuck: Stuck) -> None:
    workers = DataWorkers(stuck, batch_size=4, num_workers=2, shutdown=stuck.let_go.set)
    for wait in (lambda: next(iter(workers)), lambda: iter(workers).have_more()):
        stuck.let_go.clear()
        thread, found = in_thread(wait)
        until(lambda: stuck.inside == 2)
        assert workers.stop()
        assert ended(thread)
        assert isinstance(found[0], ClosedError)
        assert "the workers were stopped" in str(found[0])
        assert not our_threads()


def test_several_consumers_that_wait_are_all_told(stuck: Stuck) -> None:
    workers = DataWorkers(stuck, batch_size=4, shutdown=stuck.let_go.set)
    instances = [workers, *(workers.scoped(f"gpu_{number}") for number in range(4))]
    consumers = [in_thread(lambda each=each: next(iter(each))) for each in instances]  # type: ignore[misc]
    until(lambda: stuck.inside == 2)
    workers.stop()
    for thread, found in consumers:
        assert ended(thread)
        assert isinstance(found[0], ClosedError)


def test_closing_an_iterator_ends_its_waiting_alone(stuck: Stuck) -> None:
    with DataWorkers(stuck, batch_size=4, num_workers=1, shutdown=stuck.let_go.set) as workers:
        first, second = iter(workers), iter(workers.scoped("other"))
        waits = []
        for batches in (first, second):
            waits.append(in_thread(lambda batches=batches: next(batches)))  # type: ignore[misc]
            time.sleep(0.02)
        until(lambda: stuck.inside == 1)
        first.close()
        first.close()
        assert ended(waits[0][0])
        assert isinstance(waits[0][1][0], ClosedError)
        assert not waits[1][1]
        stuck.let_go.set()
        assert ended(waits[1][0])
        assert len(waits[1][1][0]["y"]) == 4
        with pytest.raises(ClosedError, match="this iterator was closed"):
            next(first)
        assert workers.have_more()  # of another iteration
        assert len(next(iter(workers))["y"]) == 4


# -- workers that don't come back --


def test_a_fetch_that_sleeps_for_ever_is_left_alone_and_reported(
    stuck: Stuck, caplog: pytest.LogCaptureFixture
) -> None:
    workers = DataWorkers(stuck, batch_size=4, num_workers=2, source="dev")
    workers.start()
    until(lambda: stuck.inside == 2)
    began = time.monotonic()
    assert not workers.stop(timeout_seconds=0.1)
    assert time.monotonic() - began < BOUNDED_SECONDS
    names = [f"seqprep-dev-{number}" for number in workers.worker_ids]
    assert [record.getMessage() for record in caplog.records] == [
        f"source 'dev': still inside fetch, and left alone: {', '.join(names)}"
    ]
    left = [thread for thread in threading.enumerate() if thread.name in names]
    assert len(left) == 2
    assert all(thread.daemon for thread in left)
    stuck.let_go.set()
    until(lambda: not our_threads())
    assert workers.metrics().rows == 0
    assert workers.metrics().discarded_rows == 8  # what they fetched in the end went nowhere


def test_a_start_does_not_depend_on_workers_that_are_still_stuck() -> None:
    fetch = Stuck()
    workers = DataWorkers(fetch, batch_size=4, num_workers=2)
    workers.start()
    until(lambda: fetch.inside == 2)
    before = workers.worker_ids
    workers.stop(timeout_seconds=0.01)
    fetch._left = 10**9
    assert len(next(iter(workers))["y"]) == 4
    assert not set(workers.worker_ids) & set(before)  # theirs are still in use
    fetch.let_go.set()
    workers.close()
    until(lambda: not our_threads())


def test_workers_that_have_ended_keep_their_ids_at_the_next_start() -> None:
    with DataWorkers(Counting(20), batch_size=4) as workers:
        before = workers.worker_ids
        for _ in range(3):
            taken(workers)
            workers.stop()
        assert workers.worker_ids == before


# -- from everywhere --


def test_stopping_out_of_fetch_and_out_of_a_logger() -> None:
    def fetch(worker_id: int, batch_size: int) -> Any:
        if worker_id == workers.worker_ids[0]:
            workers.stop()
        return endless(worker_id, batch_size)

    workers = DataWorkers(fetch, batch_size=4, num_workers=3)
    with pytest.raises(ClosedError, match="were stopped"):
        taken(workers)
    until(lambda: not our_threads())

    workers = DataWorkers(endless, batch_size=4, log_seconds=0.01, loggers=[lambda values: workers.stop()])
    with pytest.raises(ClosedError, match="were stopped"):
        taken(workers)
    until(lambda: not our_threads())


def test_a_fetch_that_waits_can_see_that_it_is_not_wanted_any_more() -> None:
    seen: list[bool] = []

    def fetch(worker_id: int, batch_size: int) -> Any:
        seen.append(workers.running)
        while workers.running:
            time.sleep(0.001)
        return []

    workers = DataWorkers(fetch, ["x"], batch_size=4)
    assert not workers.running
    workers.start()
    until(lambda: len(seen) == 2)
    assert workers.running
    assert workers.stop()
    assert not workers.running
    assert seen == [True, True]


def test_stopping_out_of_a_signal_handler() -> None:
    workers = DataWorkers(endless, batch_size=4, num_workers=4, max_buffered_batches=2)
    stopped: list[bool] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: stopped.append(workers.stop()))
    timer = threading.Timer(0.1, signal.pthread_kill, [threading.main_thread().ident, signal.SIGUSR1])
    timer.start()
    try:
        with pytest.raises(ClosedError, match="were stopped"):
            taken(workers)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert stopped == [True]
    assert not our_threads()


def test_one_source_or_all_are_stopped_by_name() -> None:
    made = [DataWorkers(endless, batch_size=4, source=name) for name in ("train", "test", "test")]
    DataWorkers.start_all(*made)
    batches = [iter(each) for each in made]
    assert len(our_threads()) == 6
    assert DataWorkers.stop_all("test")
    assert len(our_threads()) == 2
    assert DataWorkers.stop_all("nonesuch")
    assert len(next(batches[0])["y"]) == 4
    for stopped in batches[1:]:
        with pytest.raises(ClosedError, match="source 'test'"):
            next(stopped)
    assert DataWorkers.stop_all()
    assert not our_threads()


def test_many_stops_at_once() -> None:
    for _ in range(20):
        workers = DataWorkers(endless, batch_size=4, num_workers=3, max_buffered_batches=1)
        batches = iter(workers)
        next(batches)
        stops = [in_thread(workers.stop) for _ in range(4)]
        with pytest.raises(ClosedError, match="were stopped"):
            taken(batches)
        assert all(ended(thread) and found == [True] for thread, found in stops)


# -- nothing grows, nothing is left --


def test_threads_are_flat_over_a_hundred_starts_and_stops() -> None:
    before = threading.active_count()
    calls = Counting(50)
    workers = DataWorkers(calls, batch_size=8, num_workers=3, max_buffered_batches=2)
    gc.collect()
    for turn in range(100):
        if turn % 2:
            assert sorted(flat(taken(workers))) == list(range(50))
        else:
            workers.start()
        assert threading.active_count() <= before + 3
        assert workers.stop()
        assert threading.active_count() == before
        calls._next = 0
        calls._ended.clear()
    assert not data_run._RUNS
    gc.collect()
    assert sum(type(each) is data_run.Run and each.job.fetch is calls for each in gc.get_objects()) == 1


def test_workers_that_nobody_holds_end() -> None:
    workers = DataWorkers(endless, batch_size=4, max_buffered_batches=1)
    batches = iter(workers)
    next(batches)
    gone = weakref.ref(workers)
    del workers
    gc.collect()
    next(batches)  # whoever iterates holds them
    del batches
    gc.collect()
    assert gone() is None
    until(lambda: not our_threads())
    assert not data_run._RUNS


def test_batches_outlive_their_workers() -> None:
    with DataWorkers(Counting(100, [7]), batch_size=32) as workers:
        batches = list(workers)
    del workers
    gc.collect()
    assert sorted(flat(taken(batches))) == list(range(100))


def test_shutdown_is_called_once_a_start_before_threads_are_waited_for(stuck: Stuck) -> None:
    alive: list[int] = []

    def shutdown() -> None:
        alive.append(len(our_threads()))
        stuck.let_go.set()

    with DataWorkers(stuck, batch_size=4, num_workers=2, shutdown=shutdown) as workers:
        workers.stop()  # never started
        assert alive == []
        workers.start()
        until(lambda: stuck.inside == 2)
        assert workers.stop()
        workers.stop()
        assert alive == [2]
        workers.start()
        workers.stop()
    assert len(alive) == 2


# -- interruptions and exits, in real processes --

PREAMBLE = """
import os, signal, sys, threading, time
import numpy as np
from seqprep import DataWorkers

def ready(worker_id, batch_size):
    return {"x": np.zeros((batch_size, 3)), "y": np.zeros(batch_size)}

def never(worker_id, batch_size):
    time.sleep(1000)
"""


def run(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PREAMBLE + code], capture_output=True, text=True, timeout=50, check=False, **options
    )


@pytest.mark.parametrize("fetch", ["ready", "never"])
@pytest.mark.parametrize("use", ["workers.start()", "batches = iter(workers); fetch is never or next(batches)"])
def test_the_interpreter_exits_while_workers_run(fetch: str, use: str) -> None:
    done = run(
        f"import seqprep.runtime.data_run as run; run.STOP_SECONDS = 0.5\n"
        f"fetch = {fetch}\nworkers = DataWorkers(fetch, batch_size=4, num_workers=4)\n{use}\ntime.sleep(0.1)\nprint('end')"
    )
    assert (done.returncode, done.stdout) == (0, "end\n")
    if fetch == "ready":
        assert done.stderr == ""
    else:
        assert done.stderr.startswith("source 'train': still inside fetch, and left alone: seqprep-train-0, ")


def test_an_exit_by_an_error_while_workers_run() -> None:
    done = run("for batch in DataWorkers(ready, batch_size=4, num_workers=4):\n    raise KeyError('mine')")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("KeyError: 'mine'")
    assert "seqprep" not in done.stderr


@pytest.mark.parametrize("consumer", ["stuck", "busy"])
def test_ctrl_c_in_the_consumer(consumer: str) -> None:
    fetch = {"stuck": "lambda worker, size: closing.wait() and None", "busy": "ready"}[consumer]
    code = f"""
closing = threading.Event()
workers = DataWorkers({fetch}, ["x", "y"], batch_size=4, num_workers=4, shutdown=closing.set)
print("begun", flush=True)
with workers:
    for batch in workers:
        pass
"""
    process = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_after_ctrl_c_the_consumer_can_go_on_and_has_lost_nothing() -> None:
    let_go = threading.Event()
    parts = Counting(100, [10])

    def fetch(worker_id: int, batch_size: int) -> Any:
        if len(parts.calls) == 3:
            let_go.wait()
        return parts(worker_id, batch_size)

    with DataWorkers(fetch, batch_size=25, num_workers=1, shutdown=let_go.set) as workers:
        batches = iter(workers)
        found = taken([next(batches)])
        timer = threading.Timer(0.05, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        timer.join()
        let_go.set()
        assert flat(found + taken(batches)) == list(range(100))


def test_a_forked_child_is_told_and_starts_workers_of_its_own() -> None:
    done = run(
        """
import warnings; warnings.simplefilter("ignore")
workers = DataWorkers(ready, batch_size=4, num_workers=2)
batches = iter(workers)
next(batches)
child = os.fork()
if child == 0:
    try:
        next(batches)
    except Exception as error:
        print(error, flush=True)
    print(len(next(iter(workers))["y"]), workers.stop(), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1])
print(len(next(batches)["y"]), workers.stop())
"""
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "source 'train': this iterator belongs to the process that made it; call iter() in this one",
        "4 True",
        "0",
        "4 True",
    ]
