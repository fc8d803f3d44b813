"""Who runs the tasks: this process, or several of our own."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from typing import Any, Protocol

from seqprep.errors import SeqprepError, WorkerError
from seqprep.execution.task import Advance, Job, NumberedTask, begin_task, run_task
from seqprep.shards import ShardRecord

Finished = tuple[int, ShardRecord]
_POLL_SECONDS = 0.2
_QUEUED_PER_WORKER = 2


class Engine(Protocol):
    """Runs tasks and gives their records as they finish, in any order.

    A failing task ends the run: its error is raised, tasks under way are stopped, and nothing of ours outlives the
    iterator. A task that is stopped leaves no shard behind.
    """

    def run(self, job: Job, tasks: Iterable[NumberedTask], count: int, advance: Advance) -> Iterator[Finished]:
        """Runs `count` tasks; `advance` is called in the caller's thread."""


class InlineEngine:
    """Runs one task after the other, in this process; while a shard is made, the disk may still work on the one before."""

    def run(self, job: Job, tasks: Iterable[NumberedTask], count: int, advance: Advance) -> Iterator[Finished]:
        """Runs the tasks in order."""
        before: tuple[int, Future[ShardRecord]] | None = None
        with job.joined(), ThreadPoolExecutor(1, "seqprep-commit") as aside:
            for numbered in tasks:
                made = begin_task(job, numbered, advance)
                if isinstance(made, ShardRecord):
                    yield numbered.number, made
                elif not job.storage.commits_aside:
                    yield numbered.number, made.commit()
                else:
                    try:
                        if before is not None:
                            yield before[0], before[1].result()
                    except BaseException:
                        made.abandon()
                        raise
                    before = numbered.number, aside.submit(made.commit)
            if before is not None:
                yield before[0], before[1].result()


class ProcessEngine:
    """Runs tasks in processes on this machine, started afresh (spawn), so that no thread or handle is forked.

    Args:
        workers: the number of processes.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def run(self, job: Job, tasks: Iterable[NumberedTask], count: int, advance: Advance) -> Iterator[Finished]:
        """Runs the tasks; records come as they finish."""
        context = multiprocessing.get_context("spawn")
        counters = context.RawArray("q", 2 * count)  # rows and bytes of each shard; each written by one task alone
        stop = context.RawValue("b", 0)
        seen = [0, 0]

        def report() -> None:
            now = [sum(counters[0::2]), sum(counters[1::2])]
            if now != seen:
                advance(now[0] - seen[0], now[1] - seen[1])
                seen[:] = now

        # in memory that all share: what a process is given when it starts goes through a pipe of 64 kB, and the next one
        # would only be started when this one has imported everything and reads it
        pickled = pickle.dumps(job, pickle.HIGHEST_PROTOCOL)
        shared = context.RawArray("B", len(pickled))
        memoryview(shared).cast("B")[:] = pickled
        executor = ProcessPoolExecutor(self._workers, context, _begin, (shared, counters, stop))
        waiting = iter(tasks)
        pending: set[Future[Finished]] = set()
        try:
            while True:
                while len(pending) < self._workers * _QUEUED_PER_WORKER and (numbered := next(waiting, None)):
                    pending.add(executor.submit(_run, numbered))
                if not pending:
                    break
                done, pending = wait(pending, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
                report()
                yield from (future.result() for future in done)
            report()
        except BrokenProcessPool as error:
            raise WorkerError(
                "a worker process died without a word: it was killed, perhaps for want of memory (lower --workers or "
                "output.shard_size), or the calling script lacks 'if __name__ == \"__main__\":'"
            ) from error
        finally:
            stop.value = 1
            executor.shutdown(wait=True, cancel_futures=True)


_worker: dict[str, Any] = {}


class _Stopped(SeqprepError):
    """The run was ended from outside; seen by nobody."""


def _begin(job: Any, counters: Any, stop: Any) -> None:
    """Prepares a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to handle; it stops us through `stop`
    _worker.update(job=pickle.loads(memoryview(job).cast("B")), counters=counters, stop=stop)
    threading.Thread(target=_end_with_parent, daemon=True, name="seqprep-parent-watch").start()


def _end_with_parent() -> None:
    """Ends this process when its parent is gone, however that came."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _run(numbered: NumberedTask) -> Finished:
    counters, stop = _worker["counters"], _worker["stop"]

    def advance(rows: int, size: int) -> None:
        counters[2 * numbered.number] += rows
        counters[2 * numbered.number + 1] += size
        if stop.value:
            raise _Stopped("stopped")

    return numbered.number, run_task(_worker["job"], numbered, advance)


def engine_for(workers: int, tasks: int) -> Engine:
    """Chooses an engine: processes are worth starting only for more than one task."""
    useful = min(workers, tasks)
    return InlineEngine() if useful <= 1 else ProcessEngine(useful)
