"""What the stages of all frameworks share: a thread that brings batches to a device ahead of who trains on them.

The thread takes batches from a loader and puts them into an area, which is the framework's part; the consumer takes them
out in order. Neither ever waits inside the framework, where not every wait can be ended (TensorFlow's Stage and Unstage
block for good): two queues of tokens keep count. A token in `room` allows one `put`, an entry in `ready` allows one
`take`; both queues also take a token that only says "look around", so that every wait can be ended.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol, cast

from seqprep.errors import ClosedError, ConfigError
from seqprep.runtime.protocol import BatchSource, MeteredSource, ResumableSource

_JOIN_SECONDS = 1.5  # how long close() waits for a source that doesn't let go of its batch
_IN_FLIGHT_SECONDS = 1.0  # how long a consumer may take over one `take` while its stage is closed


class Area(Protocol):
    """Where one iteration keeps its batches, on a device; never asked to hold more than the stage's depth.

    `put` is called in the stage's thread, one batch after the other; `check` and `take` in the consumer's. What is left
    when the iteration is ended early is taken out by the stage's thread.
    """

    def check(self) -> None:
        """Refuses to go on where a batch can't be taken out, such as under a framework's tracing; else does nothing."""

    def put(self, batch: Mapping[str, Any]) -> Any:
        """Brings a batch to the device, or begins to; never waits for room.

        Returns:
            What `take` needs.
        """

    def take(self, entry: Any) -> dict[str, Any]:
        """Gives a batch for use on the device; called once per `put`, in their order."""

    def release(self) -> None:
        """Told once that nothing is in it any more and nothing will come."""


@dataclass
class StageMetrics:
    """What a stage has done since it was made."""

    staged: int = 0
    """Batches put onto the device."""
    batches: int = 0
    """Batches handed to the consumer."""
    blocked_seconds: float = 0.0
    """The consumer was blocked because nothing was staged."""
    stage_seconds: float = 0.0
    """Spent putting batches onto the device, or beginning to, in the stage's thread."""
    unstage_seconds: float = 0.0
    """Spent taking them out, in the consumer's thread."""
    ready: int = 0
    """Batches staged and waiting, at this moment."""
    source: Any = None
    """The loader's own metrics; None for a source that keeps none."""


@dataclass(frozen=True)
class _Staged:
    """Stands for a batch in the area."""

    entry: Any


@dataclass(frozen=True)
class _End:
    """Stands behind the last batch."""

    error: BaseException | None


class Work:
    """What the thread and the consumer share. Knows nothing of the iterator, so that this can be collected."""

    def __init__(self, batches: Iterator[Mapping[str, Any]], area: Area, depth: int, counters: StageMetrics) -> None:
        self.batches, self.area, self.depth, self.counters = batches, area, depth, counters
        self.room: queue.SimpleQueue[bool] = queue.SimpleQueue()  # False: look around
        self.ready: queue.SimpleQueue[_Staged | _End | None] = queue.SimpleQueue()  # None: closed
        for _ in range(depth):
            self.room.put(True)
        self.missing = depth  # tokens of room that aren't back; 0 when nothing is staged or about to be taken
        self.staged = 0
        self.stopped = False
        self.process = os.getpid()
        self.thread = threading.Thread(target=self._run, daemon=True, name="seqprep-stage")

    def start(self) -> None:
        """Starts the thread, and sees to it that it ends before the interpreter does."""
        atexit.register(self.close)  # a thread inside a framework at that moment would end the process the hard way
        self.thread.start()

    def stop(self) -> None:
        """Lets the thread end, which empties the area; safe at any moment, in any thread."""
        self.stopped = True
        self.room.put(False)
        self.ready.put(None)

    def close(self) -> None:
        """Ends the thread and waits for it; a consumer that waits for a batch is told."""
        if self.process != os.getpid():
            return  # a forked child has no such thread
        self.stop()
        try:
            if self.thread.is_alive() and not isinstance(self.batches, types.GeneratorType):
                _close(self.batches)  # the thread may be waiting for a batch
        finally:
            if self.thread.ident is not None:  # else it is about to start, and will see that it's stopped
                self.thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        """The thread."""
        error: BaseException | None = None
        try:
            try:
                self._stage_all()
            finally:
                _close(self.batches)
        except BaseException as caught:  # noqa: BLE001 - goes to the consumer, who raises it
            error = caught
        self.ready.put(None if self.stopped else _End(error))  # stopped, it isn't the epoch's end
        del error  # its traceback refers to this frame
        try:
            if self._drain():
                self.area.release()
        finally:
            if self.stopped:
                self.ready.put(None)  # in place of the one that draining may just have taken
            atexit.unregister(self.close)

    def _stage_all(self) -> None:
        while self.room.get():
            self.missing -= 1
            batch = None if self.stopped else next(self.batches, None)
            if batch is None or self.stopped:
                return
            started = time.perf_counter()
            entry = _Staged(self.area.put(batch))
            del batch
            self.counters.stage_seconds += time.perf_counter() - started
            self.counters.staged += 1
            self.staged += 1
            self.missing += 1
            self.ready.put(entry)
            del entry  # or the batch would stay while the next one is waited for

    def _drain(self) -> bool:
        """Waits until the consumer has taken all, or, once stopped, takes the rest.

        Returns:
            Whether the area is empty for sure.
        """
        while self.missing:
            if not self.stopped:
                self.missing -= self.room.get()
                continue
            try:
                entry = self.ready.get_nowait()
            except queue.Empty:
                try:
                    self.missing -= self.room.get(timeout=_IN_FLIGHT_SECONDS)
                except queue.Empty:  # the consumer was interrupted in between: nobody knows
                    break
            else:
                if isinstance(entry, _Staged):
                    self.area.take(entry.entry)
                    self.missing -= 1
        return not self.missing


def _close(batches: Any) -> None:
    if hasattr(batches, "close"):
        batches.close()


@dataclass
class _Position:
    """How far an iteration's consumer is."""

    left: int = 0
    """Batches that left the stage."""
    ended: bool = False
    """It has been told that nothing more comes."""
    complete: bool = False
    """It has got all there is."""


class StageIterator(Iterator[dict[str, Any]]):
    """One epoch of staged batches, for one thread at a time; made by `iter` of a `Stage`."""

    def __init__(self, work: Work, position: _Position) -> None:
        self._work, self._position = work, position
        weakref.finalize(self, work.stop).atexit = False  # never joins: it may run in any thread
        work.start()

    def __next__(self) -> dict[str, Any]:
        """Gives the next batch.

        Raises:
            ClosedError: the stage was closed, or another iteration of it begun.
            SeqprepError: the loader failed, or whatever else the source raised.
        """
        if self._position.ended:
            raise StopIteration
        work, counters = self._work, self._work.counters
        work.area.check()
        try:
            entry = self._wait()
            if isinstance(entry, _Staged):
                started = time.perf_counter()
                batch = work.area.take(entry.entry)
                work.room.put(True)
                counters.unstage_seconds += time.perf_counter() - started
                counters.batches += 1
                self._position.left += 1
                return batch
        except BaseException:
            work.stop()  # interrupted anywhere in here, the count of what is staged can't be relied on
            raise
        return self._end(entry)

    def _wait(self) -> _Staged | _End:
        work = self._work
        if work.stopped or work.process != os.getpid():
            raise ClosedError("this iteration was ended, by close(), another iter() or a fork; call iter() again")
        try:
            entry = work.ready.get_nowait()
        except queue.Empty:
            started = time.perf_counter()
            entry = work.ready.get()
            work.counters.blocked_seconds += time.perf_counter() - started
        if entry is None:
            raise ClosedError("the stage was closed while a batch was waited for")
        return entry

    def _end(self, end: _End) -> NoReturn:
        self._work.thread.join(_JOIN_SECONDS)  # everything is taken, so nothing keeps it
        self._position.ended, self._position.complete = True, end.error is None
        if end.error is None:
            raise StopIteration
        try:
            raise end.error
        finally:
            del end  # the error's traceback refers to this frame

    def close(self) -> None:
        """Ends the thread, and waits for it; the iterator gives nothing more."""
        self._work.close()


class Stage:
    """Batches of a loader, staged on a device ahead of their use; made by a framework's `stage`.

    Iterating gives one epoch. A batch is a dict in the loader's order of names: arrays of numbers as the framework's own
    on the device, the rest (`seq_tag`) as it is, on the host.
    """

    def __init__(self, source: BatchSource, *, device: str, depth: int, area_of: Callable[[], Area]) -> None:
        """Makes a stage.

        Args:
            source: gives batches.
            device: what to call where they are put.
            depth: batches staged ahead.
            area_of: makes the area of an iteration; called in the consumer's thread.

        Raises:
            ConfigError: depth is less than 1.
        """
        if depth < 1:
            raise ConfigError(f"depth is {depth}: at least 1 batch has to be staged ahead")
        self._source, self._device, self._depth, self._area_of = source, device, depth, area_of
        self._counters = StageMetrics()
        self._work: Work | None = None  # not the iterator: an abandoned one has to be collected
        self._position: _Position | None = None
        self._closed = False

    @property
    def device(self) -> str:
        """Where the batches are."""
        return self._device

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return len(cast(Any, self._source))

    def __iter__(self) -> StageIterator:
        """Starts where the loader would: at the loaded position, else at the epoch's start.

        An iteration under way is ended; as with the loader, abandoning it doesn't advance the epoch.

        Raises:
            ClosedError: the stage or the loader is closed.
        """
        if self._closed:
            raise ClosedError("the stage is closed; make another")
        self._end_iteration()
        self._work = Work(iter(self._source), self._area_of(), self._depth, self._counters)
        self._position = _Position()
        if self.closed:  # meanwhile, by another thread
            self._work.stop()
        return StageIterator(self._work, self._position)

    def _end_iteration(self) -> None:
        if self._work is not None:
            self._work.close()
        position, source = self._position, self._source
        if position and not position.complete and isinstance(source, ResumableSource):
            source.load_state_dict(source.state_at(0))  # the thread may have come to the epoch's end already
        self._work = self._position = None

    def state_dict(self) -> dict[str, Any]:
        """The loader's position behind the last batch that left the stage, whatever is staged or read ahead.

        Raises:
            ConfigError: the source keeps no state.
        """
        source, position = self._resumable(), self._position
        if position is None or position.complete:
            return source.state_dict()
        return source.state_at(position.left)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved position at the next `iter`; see the loader's.

        Raises:
            MismatchError: the state belongs to another dataset or order.
            ConfigError: it is no such state, or the source keeps none.
        """
        self._end_iteration()
        self._resumable().load_state_dict(state)

    def _resumable(self) -> ResumableSource:
        if not isinstance(self._source, ResumableSource):
            raise ConfigError(f"{type(self._source).__name__} keeps no state (state_dict, state_at, load_state_dict)")
        return self._source

    def metrics(self) -> StageMetrics:
        """What was staged and waited for since the stage was made, with the loader's own metrics."""
        source = self._source.metrics() if isinstance(self._source, MeteredSource) else None
        work, position = self._work, self._position
        ready = work.staged - position.left if work and position and not work.stopped else 0
        return replace(self._counters, ready=ready, source=source)

    def close(self) -> None:
        """Ends the thread and empties the area; batches handed out stay valid, the loader stays open. Always returns."""
        self._closed = True
        if self._work is not None:
            self._work.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
