"""The bounded buffer between worker threads and consumers.

Everybody who waits has a bell, a queue of tokens that say "look around": one too many does no harm, and none gets lost.
What anybody may do is decided under one lock, and never while waiting. Telling all to stop takes no lock at all, for it
has to be possible at any moment, in a finaliser or a signal handler, too.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from seqprep.errors import ClosedError, WorkerError
from seqprep.runtime.data_metrics import ConsumerCounters, Ledger, WorkerCounters
from seqprep.runtime.data_rows import Chunk, Piece, Rows

Bell = queue.SimpleQueue[None]
Wait = Callable[["Consumer", float], None]
"""Called with a consumer and since when it waits: returns when something may have changed for it."""
T = TypeVar("T")


@dataclass(eq=False)
class Producer:
    """Who puts chunks: one worker."""

    counters: WorkerCounters
    bell: Bell = field(default_factory=queue.SimpleQueue)


@dataclass(eq=False)
class Consumer:
    """Who takes batches, for one thread at a time."""

    wanted: Callable[[], int]
    """How many units its next batch has."""
    epoch: int
    """Which epoch it takes them from."""
    counters: ConsumerCounters
    bell: Bell = field(default_factory=queue.SimpleQueue)
    called: bool = False
    """Its bell was rung by a worker since it last looked."""
    closed: bool = False

    def close(self) -> None:
        """Ends its waiting; safe at any moment, in any thread."""
        self.closed = True
        self.bell.put(None)


class Exchange:
    """Takes chunks from workers and gives batches to consumers, in order, epoch by epoch.

    Consumers are served in the order in which they came to wait. Workers that found it full sleep until half of it is
    empty, and are then woken one by one, for a thread that runs takes the interpreter from the consumer.

    Args:
        source: its name, for messages.
        ledger: what is counted goes there; one producer is made for each worker in it.
        batches: how many batches it holds before putting has to wait.
        largest: units of the largest batch that a consumer takes.
    """

    def __init__(self, source: str, ledger: Ledger, batches: int, largest: int) -> None:
        self.lock = threading.RLock()  # re-entrant: a signal handler may stop what it interrupts
        self.rows = Rows()
        self.epoch = -1
        self.fetching = 0
        """Workers that haven't ended the epoch."""
        self.producers = [Producer(counters) for counters in ledger.workers]
        self.stopped = False
        self.failure: WorkerError | None = None
        self._source, self._ledger, self._batches = source, ledger, batches
        self._full: deque[Bell] = deque()  # of workers that wait for room
        self._waiting: deque[Consumer] = deque()
        self._capacity = self._low = 0
        self.resize(largest)

    @property
    def open(self) -> bool:
        """Whether workers may go on."""
        return not self.stopped and self.failure is None

    # -- workers --

    def next_epoch(self, last: int, producer: Producer) -> int | None:
        """Waits until the epoch behind `last` begins; None says that there won't be one."""
        while self.open:
            if self.epoch > last:
                return self.epoch
            producer.bell.get()
        return None

    def put(self, chunk: Chunk, producer: Producer) -> bool:
        """Puts a chunk, once there is room; False says that it isn't wanted any more."""
        while True:
            with self.lock:
                if not self.open:
                    self._ledger.discarded += chunk.units
                    return False
                if self.rows.count < self._capacity:
                    self.rows.append(chunk)
                    if self._waiting and self.rows.count >= self._waiting[0].wanted():
                        self._call(self._waiting[0])
                    return True
                if producer.bell not in self._full:  # it may have rung for something else
                    self._full.append(producer.bell)
            started = time.perf_counter()
            producer.bell.get()
            producer.counters.wait_seconds += time.perf_counter() - started

    def end(self) -> None:
        """Tells that a worker has put all of its epoch."""
        with self.lock:
            self.fetching -= 1
            if not self.fetching:
                self._ring_consumers()

    def fail(self, failure: WorkerError) -> None:
        """Stops the workers; consumers are told behind the last whole batch."""
        with self.lock:
            if self.failure is None:
                self.failure = failure
        self._ring_all()

    # -- consumers --

    def enter(self, last: int) -> int:
        """Begins an epoch, or joins the one that goes on.

        Args:
            last: the epoch that the consumer comes from.

        Returns:
            The epoch to take from: `last` itself if that isn't exhausted, else the one behind it.
        """
        with self.lock:
            if self.epoch > last:
                return last + 1
            if self.fetching or self.rows.count or not self.open:
                return max(last, 0)
            self.epoch += 1
            self.fetching = len(self.producers)
        for producer in self.producers:
            producer.bell.put(None)
        return last + 1

    def take(self, consumer: Consumer, wait: Wait) -> list[Piece]:
        """Takes the next batch, the last of an epoch being what is left.

        Args:
            consumer: who takes it.
            wait: waits for a change.

        Returns:
            The pieces of the batch; none at the end of the epoch.

        Raises:
            ClosedError: the workers were stopped, or the consumer closed.
            WorkerError: a worker has failed, and no whole batch is left.
        """
        with self.lock:
            pieces = self._take(consumer)
        return self._wait_for(consumer, wait, self._take) if pieces is None else pieces

    def refill(self) -> None:
        """Wakes a worker that found it full, if half of it is empty now.

        To be called when a batch has been put together: a worker that runs meanwhile would take the interpreter from
        the consumer at each of numpy's copies.
        """
        if self._full and self.rows.count <= self._low:
            with self.lock:
                if self._full:
                    self._full.popleft().put(None)

    def have_more(self, consumer: Consumer, wait: Wait) -> bool:
        """Waits until it is known whether a batch comes in this epoch; raises as `take`."""
        return self._wait_for(consumer, wait, self._peek)

    def _wait_for(self, consumer: Consumer, wait: Wait, look: Callable[[Consumer], T | None]) -> T:
        started = time.perf_counter()
        try:
            with self.lock:
                self._waiting.append(consumer)  # before looking, so that `halt` finds it or it finds `stopped`
            while True:
                with self.lock:
                    found = look(consumer)
                    if found is None:
                        self._ring_full()  # whatever they hold may be what is missing
                if found is not None:
                    return found
                wait(consumer, started)
        finally:
            consumer.counters.wait_seconds += time.perf_counter() - started
            with self.lock:
                if consumer in self._waiting:
                    self._waiting.remove(consumer)
                if self._waiting:
                    self._call(self._waiting[0])

    def _take(self, consumer: Consumer) -> list[Piece] | None:
        """Takes a batch if there is one and it is the consumer's turn; none says that it has to wait."""
        consumer.called = False
        self._check(consumer)
        if self.epoch > consumer.epoch:
            return []
        wanted, there = consumer.wanted(), self.rows.count
        if there < wanted:
            self._raise_failure()
            if self.fetching:
                return None
            wanted = there
        if wanted and self._waiting and self._waiting[0] is not consumer:
            return None
        return self.rows.take(wanted)

    def _peek(self, consumer: Consumer) -> bool | None:
        consumer.called = False
        self._check(consumer)
        if self.epoch > consumer.epoch:
            return False
        if self.rows.count < consumer.wanted():
            self._raise_failure()
        if self.rows.count:
            return True
        return None if self.fetching else False

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise WorkerError(*self.failure.args) from self.failure.__cause__  # a new one: each consumer is told

    def _check(self, consumer: Consumer) -> None:
        if self.stopped:
            raise ClosedError(f"source {self._source!r}: the workers were stopped in the middle of this epoch")
        if consumer.closed:
            raise ClosedError(f"source {self._source!r}: this iterator was closed; call iter() again")

    # -- both --

    def resize(self, largest: int) -> None:
        """Makes room for batches of another size; a consumer's own size may have changed, too."""
        with self.lock:
            self._capacity = self._batches * largest
            # A consumer that waits for its largest batch may never find all workers asleep.
            self._low = max(self._capacity // 2, largest - 1)
            self._ring_full()
            self._ring_consumers()

    def halt(self) -> None:
        """Lets workers and consumers end; takes no lock."""
        self.stopped = True
        self._ring_all()

    def discard(self) -> None:
        """Forgets what is waiting."""
        with self.lock:
            self._ledger.discarded += self.rows.count
            self.rows = Rows()  # a new one, for this may be a signal handler amid `take`

    def _call(self, consumer: Consumer) -> None:
        if not consumer.called:
            consumer.called = True
            consumer.bell.put(None)

    def _ring_full(self) -> None:
        while self._full:
            self._full.popleft().put(None)

    def _ring_consumers(self) -> None:
        for consumer in list(self._waiting):
            consumer.bell.put(None)

    def _ring_all(self) -> None:
        for producer in self.producers:
            producer.bell.put(None)
        self._ring_consumers()
