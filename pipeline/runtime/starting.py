"""Starts threads such that an interrupt can't lose one."""

from __future__ import annotations

import _thread
import contextlib
import queue
import threading
from collections.abc import Iterable

_ALIVE_SECONDS = 0.5  # a bound for what takes well under a millisecond


def start_threads(threads: Iterable[threading.Thread]) -> None:
    """Starts threads in order; returns once all are alive.

    Python raises an interrupt in the main thread only. Raised there within `Thread.start`, it may leave the new thread
    waiting for good for a lock of Python's own, so they are started elsewhere. Interrupted here, all of them still start
    before the interrupt goes on; whoever owns them has to end them.

    Raises:
        RuntimeError: the system allows no more threads.
    """
    outcome: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def start() -> None:
        try:
            for thread in threads:
                thread.start()
        except BaseException as error:  # noqa: BLE001 - goes to the caller, who raises it
            outcome.put(error)
        else:
            outcome.put(None)

    try:
        _thread.start_new_thread(start, ())  # nothing of Python's own code that could be interrupted
        error = outcome.get()
    except BaseException:
        with contextlib.suppress(queue.Empty):
            outcome.get(timeout=_ALIVE_SECONDS)  # so that whoever owns the threads finds them alive, and can join them
        raise
    if error is not None:
        raise error
