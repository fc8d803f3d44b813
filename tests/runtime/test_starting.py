"""Threads are started such that an interrupt can't lose one, and a failure to start one reaches the caller."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from seqprep.runtime.starting import start_threads


def test_all_are_alive_when_it_returns() -> None:
    end = threading.Event()
    threads = [threading.Thread(target=end.wait, daemon=True) for _ in range(3)]
    start_threads(threads)
    assert all(thread.is_alive() for thread in threads)
    end.set()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_none_is_started_where_an_interrupt_is_raised() -> None:
    places: list[int] = []

    class Watched(threading.Thread):
        def start(self) -> None:
            places.append(threading.get_ident())
            super().start()

    threads = [Watched(target=time.sleep, args=(0,), daemon=True) for _ in range(3)]
    start_threads(threads)
    assert len(places) == 3
    assert threading.get_ident() not in places


def test_an_interrupt_comes_once_all_are_alive() -> None:
    end, begun, main = threading.Event(), threading.Event(), threading.get_ident()

    class Slow(threading.Thread):
        def start(self) -> None:
            if not begun.is_set():
                begun.set()
                signal.pthread_kill(main, signal.SIGINT)  # which waits for this one
                time.sleep(0.05)
            super().start()

    threads = [Slow(target=end.wait, daemon=True) for _ in range(3)]
    with pytest.raises(KeyboardInterrupt):
        start_threads(threads)
    assert all(thread.is_alive() for thread in threads)
    end.set()
    for thread in threads:
        thread.join(5)


def test_a_start_that_fails_reaches_the_caller() -> None:
    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError, match="can't start new thread"):
        start_threads([Refused()])
