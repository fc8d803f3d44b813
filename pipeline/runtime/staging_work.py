"""The thread that brings batches to a device ahead of who trains on them; the same for all frameworks.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from seqprep.config import suggestion
from seqprep.errors import ConfigError
from seqprep.runtime.starting import start_threads

JOIN_SECONDS = 1.5  # how long close() waits for a source that doesn't let go of its batch
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
class Staged:
    """Stands for a batch in the area."""

    entry: Any


@dataclass(frozen=True)
class End:
    """Stands behind the last batch."""

    error: BaseException | None


class Work:
    """What the thread and the consumer share. Knows nothing of the iterator, so that this can be collected."""

    def __init__(
        self,
        batches: Iterator[Mapping[str, Any]],
        area: Area,
        depth: int,
        names: Sequence[str] | None,
        counters: StageMetrics,
    ) -> None:
        self.batches, self.area, self.names, self.counters = batches, area, names, counters
        self.room: queue.SimpleQueue[bool] = queue.SimpleQueue()  # False: look around
        self.ready: queue.SimpleQueue[Staged | End | None] = queue.SimpleQueue()  # None: closed
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
        start_threads([self.thread])

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
            if self.thread.is_alive():  # else it has ended, or is about to start and will see that it's stopped
                self.thread.join(JOIN_SECONDS)

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
        self.ready.put(None if self.stopped else End(error))  # stopped, it isn't the epoch's end
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
            entry = Staged(self.area.put(batch if self.names is None else _only(self.names, batch)))
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
                if isinstance(entry, Staged):
                    self.area.take(entry.entry)
                    self.missing -= 1
        return not self.missing


def _only(names: Sequence[str], batch: Mapping[str, Any]) -> dict[str, Any]:
    for name in names:
        if name not in batch:
            raise ConfigError(f"names: the batches hold no {name!r}{suggestion(name, batch)}")
    return {name: batch[name] for name in names}


def _close(batches: Any) -> None:
    if hasattr(batches, "close"):
        batches.close()
