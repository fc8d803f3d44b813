"""Reads batches ahead in threads, and delivers them in order.

A reading thread takes its ticket (the next batch to be delivered that nobody reads yet) and a buffer in one step, so
that no thread can use up the buffers for later batches while an earlier one waits for its own. When every buffer is in
the consumer's hands and the batch that it waits for has none, that batch gets a fresh one outside the pool: a consumer
that keeps all batches is slowed, never stuck.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from seqprep.errors import ClosedError
from seqprep.runtime.pool import Buffer, Lease
from seqprep.runtime.ranges import Batch, LeaseOf, ReadBatch
from seqprep.types import Int64

ReadOne = Callable[[int, LeaseOf], ReadBatch]


@dataclass
class Counters:
    """What reading and waiting amounted to."""

    batches: int = 0
    """Handed to the consumer."""
    rows: int = 0
    frames: int = 0
    """Valid frames of the input key, context included."""
    bytes: int = 0
    """Read from shards for the batches handed out."""
    consumer_wait_seconds: float = 0.0
    """The consumer was blocked because nothing was ready."""
    reader_wait_seconds: float = 0.0
    """Reading threads were idle because every buffer was in use; all threads together."""
    unpooled_buffers: int = 0
    """Batches that got a buffer outside the pool, because the consumer kept all of those in it."""


class Pool:
    """A bounded number of buffers, and the calls that wake who waits for one."""

    def __init__(self, count: int) -> None:
        self.free: queue.SimpleQueue[Buffer | None] = queue.SimpleQueue()  # None: look around, something has changed
        for _ in range(count):
            self.free.put(Buffer())

    def wake(self) -> None:
        """Makes one waiting thread look at why."""
        self.free.put(None)


@dataclass
class Failure:
    """Stands for a batch that couldn't be read."""

    error: BaseException


class Work:
    """What the threads share. Knows nothing of the iterator, so that this can be collected while they run."""

    def __init__(self, batches: Int64, read: ReadOne, pool: Pool, counters: Counters, threads: int) -> None:
        self.batches, self.read, self.pool, self.counters = batches, read, pool, counters
        self.turn = threading.Lock()
        self.ready = threading.Condition(threading.Lock())
        self.next_ticket = 0
        self.wanted = -1
        self.results: dict[int, ReadBatch | Failure] = {}
        self.stopped = False
        self.process = os.getpid()
        self.threads = [
            threading.Thread(target=self.run, daemon=True, name=f"seqprep-read-{number}")
            for number in range(min(threads, len(batches)))
        ]

    def stop(self) -> None:
        """Lets the threads end; safe at any moment, in any thread."""
        self.stopped = True
        self.pool.wake()

    def close(self) -> None:
        """Ends the threads, and waits for them; a consumer that waits for a batch is told."""
        if self.process != os.getpid():
            return  # a forked child has none of these threads
        self.stop()
        with self.ready:
            self.ready.notify_all()
        for thread in self.threads:
            thread.join()
        self.results.clear()

    def run(self) -> None:
        """A reading thread."""
        while True:
            with self.turn:
                ticket = self.next_ticket
                if self.stopped or ticket >= len(self.batches):
                    return
                lease_of = self._take_buffer(ticket)
                if lease_of is None:
                    return
                self.next_ticket = ticket + 1
            result: ReadBatch | Failure
            try:
                result = self.read(int(self.batches[ticket]), lease_of)
            except BaseException as error:  # noqa: BLE001 - goes to the consumer, who raises it
                result = Failure(error)
            del lease_of
            with self.ready:
                self.results[ticket] = result
                if ticket == self.wanted:
                    self.ready.notify_all()
            del result

    def _take_buffer(self, ticket: int) -> LeaseOf | None:
        """Waits for a buffer for this ticket; None when stopped."""
        free, started = self.pool.free, 0.0
        while not self.stopped:
            try:
                buffer = free.get_nowait()
            except queue.Empty:
                started = started or time.perf_counter()
                buffer = free.get()
            if buffer is not None:
                if started:
                    self.counters.reader_wait_seconds += time.perf_counter() - started
                return functools.partial(buffer.lease, back=free)
            if self.wanted == ticket:
                self.counters.unpooled_buffers += 1
                return lease_once
        return None


def lease_once(size: int) -> Lease:
    """Memory for one batch, outside any pool."""
    return Buffer().lease(size, None)


class ReadAhead(Iterator[Batch]):
    """Delivers batches in order while threads read the next ones.

    Args:
        batches: int64 [n]: numbers of the batches, in order of delivery.
        read: reads one batch into leased memory; called in several threads.
        pool: the buffers.
        threads: reading threads.
        counters: what is counted goes there.
        delivered: told after each batch that is handed out, in the consumer's thread.
        exhausted: told when the last one has been.
    """

    def __init__(
        self,
        batches: Int64,
        read: ReadOne,
        pool: Pool,
        threads: int,
        counters: Counters,
        delivered: Callable[[], None],
        exhausted: Callable[[], None],
    ) -> None:
        self.work = Work(batches, read, pool, counters, threads)
        self._delivered, self._exhausted = delivered, exhausted
        self._ticket = 0
        weakref.finalize(self, self.work.stop)  # never joins: it may run in any thread
        for thread in self.work.threads:
            thread.start()

    def __next__(self) -> Batch:
        """Gives the next batch.

        Raises:
            ClosedError: the iterator was made in another process.
            SeqprepError: reading failed; names shard, batch and bytes.
        """
        work, ticket = self.work, self._ticket
        if work.process != os.getpid():
            raise ClosedError(
                "this iterator belongs to the process that made it; call iter() on the loader in this one"
            )
        if ticket == len(work.batches):
            self._ticket += 1
            work.close()
            self._exhausted()
        if ticket >= len(work.batches) or work.stopped:
            raise StopIteration
        result = work.results.pop(ticket, None) or self._wait(ticket)
        if isinstance(result, Failure):
            work.close()
            raise result.error
        self._ticket += 1
        counters = work.counters
        counters.batches += 1
        counters.rows += result.rows
        counters.frames += result.frames
        counters.bytes += result.bytes
        self._delivered()
        return result.arrays

    def _wait(self, ticket: int) -> ReadBatch | Failure:
        work = self.work
        started = time.perf_counter()
        with work.ready:
            work.wanted = ticket
            if work.next_ticket <= ticket:
                work.pool.wake()  # nobody has taken it: perhaps for want of a buffer
            while ticket not in work.results:
                if work.stopped:
                    raise ClosedError("the loader was closed while a batch was waited for")
                work.ready.wait()
            work.wanted = -1
            work.counters.consumer_wait_seconds += time.perf_counter() - started
            return work.results.pop(ticket)

    def close(self) -> None:
        """Ends the threads, and waits for them; the iterator gives nothing more."""
        self.work.close()
