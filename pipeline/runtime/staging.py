"""What the stages of all frameworks share: the stage that a user holds, its iterator, and its position."""

from __future__ import annotations

import os
import queue
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

from seqprep.config import shown
from seqprep.errors import ClosedError, ConfigError
from seqprep.runtime.protocol import BatchSource, MeteredSource, ResumableSource
from seqprep.runtime.staging_work import JOIN_SECONDS, Area, End, Staged, StageMetrics, Work

__all__ = ["Area", "Stage", "StageIterator", "StageMetrics"]


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
            if isinstance(entry, Staged):
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

    def _wait(self) -> Staged | End:
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

    def _end(self, end: End) -> NoReturn:
        self._work.thread.join(JOIN_SECONDS)  # everything is taken, so nothing keeps it
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

    def __init__(
        self,
        source: BatchSource,
        *,
        device: str,
        depth: int,
        area_of: Callable[[], Area],
        names: Sequence[str] | None = None,
    ) -> None:
        """Makes a stage.

        Args:
            source: gives batches.
            device: what to call where they are put.
            depth: batches staged ahead.
            area_of: makes the area of an iteration; called in the consumer's thread.
            names: those that are staged; all of a batch unless told.

        Raises:
            ConfigError: depth is less than 1, or names is no sequence of names.
        """
        if depth < 1:
            raise ConfigError(f"depth is {depth}: at least 1 batch has to be staged ahead")
        if isinstance(names, str):
            raise ConfigError(f"names is {shown(names)}: it has to be a sequence of names, such as [{shown(names)}]")
        self._source, self._device, self._depth, self._area_of, self._names = source, device, depth, area_of, names
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
        self._work = Work(iter(self._source), self._area_of(), self._depth, self._names, self._counters)
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
