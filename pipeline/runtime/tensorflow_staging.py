"""Puts batches onto a device ahead of who trains on them, through TensorFlow's staging area.

A thread of its own takes batches from a loader and stages them; the consumer unstages them in order. TensorFlow's Stage
and Unstage block without a way to stop them, so neither ever has to wait: the area is unbounded for TensorFlow, and two
queues of tokens of ours keep count. A token in `room` allows one Stage, an entry in `ready` allows one Unstage; both
queues also take a token that only says "look around", so that every wait can be ended.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
import types
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

from seqprep.errors import ClosedError, ConfigError
from seqprep.runtime.frameworks import import_framework
from seqprep.runtime.protocol import BatchSource, MeteredSource, ResumableSource
from seqprep.runtime.tensorflow_area import Area, Staged

_JOIN_SECONDS = 1.5  # how long close() waits for a source that doesn't let go of its batch
_IN_FLIGHT_SECONDS = 1.0  # how long a consumer may take over one Unstage while its stage is closed


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
    """Spent importing arrays and in Stage, in the stage's thread."""
    unstage_seconds: float = 0.0
    """Spent in Unstage, in the consumer's thread."""
    ready: int = 0
    """Batches staged and waiting, at this moment."""
    source: Any = None
    """The loader's own metrics; None for a source that keeps none."""


@dataclass(frozen=True)
class _End:
    """Stands behind the last batch."""

    error: BaseException | None


class _Work:
    """What the thread and the consumer share. Knows nothing of the iterator, so that this can be collected."""

    def __init__(self, batches: Iterator[Mapping[str, Any]], device: str, depth: int, counters: StageMetrics) -> None:
        self.batches, self.depth, self.counters = batches, depth, counters
        self.area = Area(device)
        self.room: queue.SimpleQueue[bool] = queue.SimpleQueue()  # False: look around
        self.ready: queue.SimpleQueue[Staged | _End | None] = queue.SimpleQueue()  # None: closed
        for _ in range(depth):
            self.room.put(True)
        self.missing = depth  # tokens of room that aren't back; 0 when nothing is staged or about to be unstaged
        self.staged = 0
        self.stopped = False
        self.process = os.getpid()
        self.thread = threading.Thread(target=self._run, daemon=True, name="seqprep-stage")

    def start(self) -> None:
        """Starts the thread, and sees to it that it ends before the interpreter does."""
        atexit.register(self.close)  # a thread inside TensorFlow at that moment would end the process the hard way
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
        if self._drain():
            self.area.release()
        atexit.unregister(self.close)

    def _stage_all(self) -> None:
        while self.room.get():
            self.missing -= 1
            batch = None if self.stopped else next(self.batches, None)
            if batch is None or self.stopped:
                return
            started = time.perf_counter()
            entry = self.area.put(batch)
            del batch
            self.counters.stage_seconds += time.perf_counter() - started
            self.counters.staged += 1
            self.staged += 1
            self.missing += 1
            self.ready.put(entry)

    def _drain(self) -> bool:
        """Waits until the consumer has unstaged all, or, once stopped, unstages the rest.

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
                if isinstance(entry, Staged):
                    self.area.take(entry)
                    self.missing -= 1
        if self.stopped:
            self.ready.put(None)  # in place of the one that may just have been taken
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

    def __init__(self, work: _Work, position: _Position) -> None:
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
        work.area.check_eager()
        try:
            entry = self._wait()
            if isinstance(entry, Staged):
                started = time.perf_counter()
                batch = work.area.take(entry)
                work.room.put(True)
                counters.unstage_seconds += time.perf_counter() - started
                counters.batches += 1
                self._position.left += 1
                return batch
        except BaseException:
            work.stop()  # interrupted anywhere in here, the count of what is staged can't be relied on
            raise
        return self._end(entry)

    def _wait(self) -> Staged | _End:
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
        self._work.thread.join(_JOIN_SECONDS)  # everything is unstaged, so nothing keeps it
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
    """Batches of a loader, staged on a device ahead of their use; made by `stage`.

    Iterating gives one epoch. A batch is a dict in the loader's order of names: numeric arrays as tf.Tensor of the same
    shape and dtype on the device, the rest (`seq_tag`) as it is, on the host. On a CPU, tensors use the loader's memory
    itself.
    """

    def __init__(self, source: BatchSource, device: str, depth: int) -> None:
        self._source, self._device, self._depth = source, device, depth
        self._counters = StageMetrics()
        self._work: _Work | None = None  # not the iterator: an abandoned one has to be collected
        self._position: _Position | None = None
        self._closed = False

    @property
    def device(self) -> str:
        """Where the tensors are."""
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
        self._work = _Work(iter(self._source), self._device, self._depth, self._counters)
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
        """Ends the thread and empties the area; tensors handed out stay valid, the loader stays open. Always returns."""
        self._closed = True
        if self._work is not None:
            self._work.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stage(loader: BatchSource, *, device: str | None = None, depth: int = 2) -> Stage:
    """Stages batches on a device from a thread of its own, so that the copy of the next runs under this one's step.

    Args:
        loader: a `seqprep.Loader`, or anything that gives batches (see `seqprep.runtime.protocol`).
        device: TensorFlow's name of it, such as "/GPU:0"; the first GPU, or the CPU where there is none.
        depth: batches staged ahead.

    Raises:
        DependencyError: TensorFlow isn't installed.
        ConfigError: depth is less than 1, or there is no such device.
    """
    if depth < 1:
        raise ConfigError(f"depth is {depth}: at least 1 batch has to be staged ahead")
    tf = import_framework("tensorflow")
    if device is None:
        device = next((found.name for found in tf.config.list_logical_devices("GPU")), "/CPU:0")
    return Stage(loader, _find_device(tf, device), depth)


def _find_device(tf: Any, name: str) -> str:
    """Gives a device's full name; TensorFlow itself takes the CPU for one that isn't there."""
    known = ", ".join(found.name.removeprefix("/device:") for found in tf.config.list_logical_devices())
    try:
        with tf.device(name):
            place = str(tf.zeros(()).device)
        asked, found = tf.DeviceSpec.from_string(name), tf.DeviceSpec.from_string(place)
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise ConfigError(f"device is {name!r}: {error}; there are {known}") from error
    for wanted, got in ((asked.device_type, found.device_type), (asked.device_index, found.device_index)):
        if wanted not in (None, got):
            raise ConfigError(f"device is {name!r}, which isn't there; there are {known}")
    return place
