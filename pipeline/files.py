"""Reading files by byte ranges, with a bounded number of open descriptors."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def read_exactly(descriptor: int, buffer: Any, offset: int) -> int:
    """Fills a buffer from a file, from a byte offset on.

    Args:
        descriptor: of the file.
        buffer: writable bytes, C-contiguous.
        offset: in bytes.

    Returns:
        The bytes read: fewer than the buffer holds only if the file ends before.
    """
    done = os.preadv(descriptor, [buffer], offset)
    while 0 < done < len(buffer):  # a short read: what is left, if the file doesn't end
        view = memoryview(buffer)
        more = os.preadv(descriptor, [view[done:]], offset + done)
        if more == 0:
            break
        done += more
    return done


class DescriptorCache:
    """Open descriptors for reading, at most `capacity` of them beyond those in use at this moment.

    Safe to use from several threads. A process forked off, or one that got a pickled copy, opens its own.
    """

    def __init__(self, capacity: int = 64) -> None:
        self._capacity = capacity
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._idle: OrderedDict[str, int] = OrderedDict()  # least recently used first
        self._busy: dict[str, tuple[int, int]] = {}  # descriptor, users
        self._closed = False

    def __reduce__(self) -> tuple[Callable[..., DescriptorCache], tuple[Any, ...]]:
        return DescriptorCache, (self._capacity,)

    @contextmanager
    def open(self, path: str) -> Iterator[int]:
        """Lends a descriptor of the file.

        Raises:
            OSError: the file can't be opened.
        """
        descriptor = self.acquire(path)
        try:
            yield descriptor
        finally:
            self.release(path)

    def acquire(self, path: str) -> int:
        """Lends a descriptor of the file until `release`; cheaper than `open` by some microseconds.

        Raises:
            OSError: the file can't be opened.
        """
        if self._process != os.getpid():
            self._reset()  # the parent's descriptors stay the parent's
        with self._lock:
            descriptor, users = self._busy.get(path, (-1, 0))
            if not users:
                descriptor = self._idle.pop(path, -1)
                if descriptor < 0:
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._busy[path] = (descriptor, users + 1)
            return descriptor

    def release(self, path: str) -> None:
        """Gives back what `acquire` lent."""
        with self._lock:
            descriptor, users = self._busy.pop(path)
            if users > 1:
                self._busy[path] = (descriptor, users - 1)
                return
            if self._closed:
                os.close(descriptor)
                return
            self._idle[path] = descriptor
            while len(self._idle) > self._capacity:
                os.close(self._idle.popitem(last=False)[1])

    def close(self) -> None:
        """Closes every descriptor, those in use as soon as they are given back."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._closed = True
            while self._idle:
                os.close(self._idle.popitem()[1])
