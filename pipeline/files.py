"""Reading files by byte ranges, with a bounded number of open descriptors."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
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


def unreadable(error: OSError) -> str:
    """Says why a file of a dataset can't be read, and what to do about it."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        remedy = "allow more open files (ulimit -n)"
    elif error.errno in (errno.EACCES, errno.EPERM):
        remedy = "check who may read it"
    elif error.errno in (errno.ENOENT, errno.ENOTDIR):
        remedy = "seqprep repair makes it again"
    elif error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EISDIR):
        remedy = "check the path"
    else:
        remedy = "check the disk"
    return f"{error.strerror}; {remedy}"


class OpenFile:
    """An open file, closed when nobody refers to it any more.

    Args:
        path: of the file, which is opened for reading by byte ranges.

    Raises:
        OSError: the file can't be opened.
    """

    __slots__ = ("__weakref__", "descriptor")

    def __init__(self, path: str) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.descriptor >= 0:
            close(self.descriptor)


class FileCache:
    """Open files, at most `capacity` of them beyond those that are in use at this moment.

    Who holds a file keeps it open, also when it has left the cache. Safe to use from several threads, and in forked
    children, for reading by ranges moves no position. A pickled copy opens files anew.
    """

    def __init__(self, capacity: int = 64) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._open: dict[str, OpenFile] = {}  # the first opened comes first

    def __reduce__(self) -> tuple[type[FileCache], tuple[int]]:
        return FileCache, (self._capacity,)

    def get(self, path: str) -> OpenFile:
        """Gives the file, opened if it isn't yet.

        Raises:
            OSError: the file can't be opened.
        """
        file = self._open.get(path)
        if file is None:
            file = OpenFile(path)
            with self._lock:
                file = self._open.setdefault(path, file)
                while len(self._open) > self._capacity:
                    del self._open[next(iter(self._open))]
        return file

    def close(self) -> None:
        """Lets go of every file; those in use are closed as soon as they aren't any more."""
        with self._lock:
            self._open.clear()
