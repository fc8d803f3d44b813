"""Starts threads such that an interrupt can't lose one."""

from __future__ import annotations

import _thread
import queue
import threading
from collections.abc import Iterable


def start_threads(threads: Iterable[threading.Thread]) -> None:
    """Starts threads in order; returns once all are alive.

    Python raises an interrupt in the main thread only. Raised there within `Thread.start`, it may leave the new thread
    waiting for good for a lock of Python's own, so they are started elsewhere. Interrupted here, those that are left still
    start; whoever owns them has to have told them to end by then.

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

    _thread.start_new_thread(start, ())  # nothing of Python's own code that could be interrupted
    error = outcome.get()
    if error is not None:
        raise error
