"""Reads batches ahead in threads, and delivers them in order.

A reading thread takes a buffer first and then, with it in hand, its ticket: the next batch to be delivered that nobody
reads yet. So no thread can use up the buffers for later batches while an earlier one waits for its own. A consumer whose
batch nobody has taken reads it itself, instead of waiting for a thread to wake up: into a free buffer, or into fresh
memory when it keeps all buffers itself. So it is slowed by keeping batches, never stuck.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from seqprep.errors import ClosedError
from seqprep.runtime.opened import Entry
from seqprep.runtime.pool import Buffer, Loan, buffer_of
from seqprep.runtime.positions import Iteration
from seqprep.runtime.ranges import Batch, LeaseOf
from seqprep.runtime.reporting import Reporter
from seqprep.runtime.starting import start_threads
from seqprep.types import Int64

_COUNTED_TOGETHER = 256

_process = os.getpid()


def _note_fork() -> None:
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=_note_fork)

ReadOne = Callable[[int, LeaseOf], Batch]


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
    """The consumer was blocked because nothing was ready: it waited, or read its batch itself."""
    reader_wait_seconds: float = 0.0
    """Reading threads were idle because every buffer was in use; all threads together."""
    unpooled_buffers: int = 0
    """Batches that got a buffer outside the pool, because the consumer kept all of those in it."""


class Pool:
    """A bounded number of buffers; `free` holds those that nobody uses."""

    def __init__(self, count: int) -> None:
        self.free: queue.SimpleQueue[Buffer | Loan | None] = (
            queue.SimpleQueue()
        )  # None: something has changed, look around
        self._buffers = [Buffer(self.free.put) for _ in range(count)]  # lent ones, too, are held here
        for buffer in self._buffers:
            self.free.put(buffer)

    def take_now(self) -> Buffer | None:
        """Gives a free buffer, if there is one."""
        while True:
            try:
                found = self.free.get_nowait()
            except queue.Empty:
                return None
            if found is not None:
                return buffer_of(found)


@dataclass
class Failure:
    """Stands for a batch that couldn't be read."""

    error: BaseException


class Work:
    """What the threads share. Knows nothing of the iterator, so that this can be collected while they run."""

    def __init__(self, batches: Int64, read: ReadOne, pool: Pool, counters: Counters, threads: int) -> None:
        self.batches, self.read, self.pool, self.counters = memoryview(cast(Any, batches)), read, pool, counters
        self.turn = threading.Lock()
        self.next_ticket = 0
        self.delivered = 0  # batches handed out
        self.handed_out: list[Entry] = []  # those not counted yet
        self.wanted = -1
        self.results: dict[int, Batch | Failure] = {}
        self.signal: queue.SimpleQueue[None] = queue.SimpleQueue()  # wakes the consumer; one too many does no harm
        self.stopped = False
        self.process = _process
        self.threads = [
            threading.Thread(target=self.run, daemon=True, name=f"seqprep-read-{number}")
            for number in range(min(threads, len(batches)))
        ]

    @property
    def ready(self) -> int:
        """Batches read and waiting."""
        return len(self.results)

    def check(self) -> None:
        """Refuses to go on where nothing more can come.

        Raises:
            ClosedError: it was stopped, or made in another process.
        """
        if self.process != _process:
            raise ClosedError(
                "this iterator belongs to the process that made it; call iter() on the loader in this one"
            )
        if self.stopped:
            raise ClosedError("the loader was closed, iterated anew or interrupted in the middle of this epoch")

    def start(self) -> None:
        """Starts the threads; whoever has to end them knows of this by then, for an interrupt may come in between."""
        start_threads(self.threads)

    def stop(self) -> None:
        """Lets the threads end; safe at any moment, in any thread."""
        self.stopped = True
        self.signal.put(None)
        if self.threads:
            self.pool.free.put(None)  # each thread that ends hands it on

    def close(self) -> None:
        """Ends the threads, and waits for them; a consumer that waits for a batch is told."""
        if self.process != _process:
            return  # a forked child has none of these threads
        self.stop()
        for thread in self.threads:
            if (
                thread.is_alive()
            ):  # else an interrupt came in its start, and if it was begun, it will see that it's stopped
                thread.join()
        self.results.clear()
        self.count()

    def run(self) -> None:
        """A reading thread."""
        free = self.pool.free
        while True:
            if free.empty():
                started = time.perf_counter()
                found = free.get()
                self.counters.reader_wait_seconds += time.perf_counter() - started
            else:
                found = free.get()
            if found is None:
                if self.stopped:
                    free.put(None)  # it may have been meant for another one that waits
                    return
                continue
            ticket = self.take(len(self.batches))
            if ticket < 0:
                free.put(found)
                return
            self.results[ticket] = self.read_into(ticket, buffer_of(found))
            if self.wanted == ticket:
                self.signal.put(None)

    def count(self) -> None:
        """Counts what was handed out since the last call; many batches together, for that costs less."""
        entries, self.handed_out = self.handed_out, []
        self.counters.batches += len(entries)
        self.counters.rows += sum([entry.end - entry.begin for entry in entries])
        self.counters.frames += sum([entry.frames for entry in entries])
        self.counters.bytes += sum([entry.nbytes for entry in entries])

    def take(self, most: int) -> int:
        """Takes the next ticket, if it is below `most` and reading goes on; else gives −1."""
        with self.turn:
            ticket = self.next_ticket
            if ticket >= most or self.stopped:
                return -1
            self.next_ticket = ticket + 1
            return ticket

    def read_into(self, ticket: int, buffer: Buffer) -> Batch | Failure:
        """Reads a batch into a buffer of the pool."""
        leases = buffer.leases
        try:
            return self.read(self.batches[ticket], buffer.lease)
        except BaseException as error:  # noqa: BLE001 - goes to the consumer, who raises it
            if buffer.leases == leases:
                self.pool.free.put(buffer)  # never lent, so nothing else brings it back
            return Failure(error)


class ReadAhead(Iterator[Batch]):
    """Delivers batches in order while threads read the next ones, once its `work` was started.

    Args:
        batches: int64 [n]: numbers of the batches, in order of delivery.
        read: reads one batch into leased memory; called in several threads.
        pool: the buffers.
        threads: reading threads.
        counters: what is counted goes there.
        reporter: told of batches handed out and of waits for them.
        exhausted: told when the last one has been handed out and one more was asked for.
    """

    iteration: Iteration
    """What its positions are called; set by who made it."""

    def __init__(
        self,
        batches: Int64,
        read: ReadOne,
        pool: Pool,
        threads: int,
        counters: Counters,
        reporter: Reporter,
        exhausted: Callable[[], None],
    ) -> None:
        self.work = Work(batches, read, pool, counters, threads)
        self._reporter, self._exhausted = reporter, exhausted
        self._ended = False
        weakref.finalize(self, self.work.stop)  # never joins: it may run in any thread

    def __next__(self) -> Batch:
        """Gives the next batch.

        Raises:
            ClosedError: the loader was closed or iterated anew meanwhile, or the iterator was made in another process.
            SeqprepError: reading failed; names shard, batch and bytes.
        """
        work = self.work
        ticket = work.delivered
        result = work.results.get(ticket)
        if result is None or work.process != _process:
            result = self._obtain(ticket)
        if isinstance(result, Failure):
            work.close()
            try:
                raise result.error
            finally:
                del result  # or the error would refer to itself through this frame, and keep its buffer
        work.delivered = ticket + 1  # first, for an interrupt in between may not leave a batch that never comes
        work.results.pop(ticket, None)
        work.handed_out.append(result.entry)
        if len(work.handed_out) >= _COUNTED_TOGETHER:
            work.count()
        if self._reporter.due is not None:
            self._reporter.tick()
        return result

    def _obtain(self, ticket: int) -> Batch | Failure:
        """Gives the batch that is due, and counts the time until then as waited."""
        self._check(ticket)
        started = time.perf_counter()
        try:
            result = self._read_or_wait(ticket)
        except BaseException:
            self.work.stop()  # interrupted anywhere in here, a ticket may be lost
            raise
        waited = time.perf_counter() - started
        self.work.counters.consumer_wait_seconds += waited
        self._reporter.waited(waited)
        return result

    def _read_or_wait(self, ticket: int) -> Batch | Failure:
        """Reads a batch rather than wait idly, and gives the one that is due."""
        work = self.work
        # The one that is due, or, if a thread is reading that, the one behind it.
        own = work.take(min(ticket + 2, len(work.batches)))
        if own >= 0:
            buffer = work.pool.take_now()
            if buffer is None:
                work.counters.unpooled_buffers += 1
                buffer = Buffer()
            read = work.read_into(own, buffer)
            if own == ticket:
                return read
            if isinstance(read, Failure) and not isinstance(read.error, Exception):
                raise read.error  # an interrupt is the consumer's now, not with the next batch
            work.results[own] = read
        work.wanted = ticket
        while (result := work.results.get(ticket)) is None:
            if work.stopped:
                raise ClosedError("the loader was closed while a batch was waited for")
            work.signal.get()
        work.wanted = -1
        return result

    def _check(self, ticket: int) -> None:
        """Ends the iteration behind its last batch, and where it was stopped."""
        work = self.work
        if self._ended:
            raise StopIteration
        work.check()
        if ticket == len(work.batches):
            self._ended = True
            work.close()
            self._exhausted()
            raise StopIteration

    def __length_hint__(self) -> int:
        """Batches that are still to come."""
        return len(self.work.batches) - self.work.delivered

    def close(self) -> None:
        """Ends the threads, and waits for them; the iterator gives nothing more."""
        self.work.close()
