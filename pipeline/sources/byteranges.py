"""Byte ranges of files as they are, and of what gzip files hold, through one bounded cache of open files."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Hashable, Iterator
from typing import Any

from seqprep.errors import SourceError
from seqprep.files import FileCache, OpenFile, read_exactly
from seqprep.sources.inflating import GZIP, MOST_EXPANDED, RAW, Fetch, Inflater

_BLOCK = 1 << 20
_MAGIC = b"\x1f\x8b"
_MOST_INFLATERS = 16


class ByteRanges:
    """Reads byte ranges of many files; a gzip file (told by its first bytes) is read as what it holds.

    Safe to use from several threads; a pickled copy opens files anew. All errors are SourceErrors that name the file.
    """

    def __init__(self) -> None:
        self._files = FileCache()
        self._lock = threading.Lock()
        self._inflaters: dict[Hashable, Inflater] = {}  # the most recently used comes last
        self._is_gzip: dict[str, bool] = {}

    def __reduce__(self) -> tuple[type[ByteRanges], tuple[()]]:
        return ByteRanges, ()

    def open(self, path: str, place: object = None) -> OpenFile:
        """The open file, as it is; `place` as for `read_stored`.

        Raises:
            SourceError: it can't be opened.
        """
        try:
            return self._files.get(path)
        except OSError as error:
            raise SourceError(f"{place or path}: can't be opened: {error.strerror}; check the path") from error

    def read_stored(self, path: str, buffer: Any, offset: int, place: object = None) -> int:
        """Fills a buffer from an offset of the file itself.

        Args:
            path: the file.
            buffer: writable bytes, C-contiguous.
            offset: in bytes.
            place: names the file, and what is read of it, in messages; the path unless given.

        Returns:
            The bytes read: fewer than the buffer holds only if the file ends before.

        Raises:
            SourceError: the file can't be read.
        """
        return _read(self.open(path, place), place or path, buffer, offset)

    def read(self, path: str, buffer: Any, offset: int, place: object = None) -> int:
        """Fills a buffer from an offset of the file, or of what the gzip file holds; as `read_stored`.

        Raises:
            SourceError: the file can't be read, or is damaged.
        """
        if not self.is_gzip(path):
            return self.read_stored(path, buffer, offset, place)
        try:
            return self._inflater(path, GZIP, 0, None, place).read(buffer, offset)
        except zlib.error as error:
            raise _damaged(place or path, error) from error

    def member(self, path: str, start: int, size: int, place: object = None) -> Inflater:
        """A raw deflated stream inside a file; its reads raise zlib.error where it is damaged.

        Args:
            path: the file.
            start: where the stream begins in it.
            size: its compressed bytes.
            place: as for `read_stored`.
        """
        return self._inflater(path, RAW, start, size, place)

    def is_gzip(self, path: str) -> bool:
        """Whether the file begins as gzip files do.

        Raises:
            SourceError: the file can't be read.
        """
        found = self._is_gzip.get(path)
        if found is None:
            head = bytearray(2)
            self.read_stored(path, head, 0)
            if len(self._is_gzip) > 4096:
                self._is_gzip.clear()
            found = self._is_gzip[path] = head == _MAGIC
        return found

    def bound(self, path: str) -> int:
        """The bytes of a file; of a gzip file, the most that it can hold.

        Raises:
            SourceError: the file can't be read.
        """
        size = os.fstat(self.open(path).descriptor).st_size
        return size * MOST_EXPANDED if self.is_gzip(path) else size

    def blocks(self, path: str) -> Iterator[bytes]:
        """All bytes in order, up to 1 MiB at a time.

        Raises:
            SourceError: the file can't be read, or is damaged.
        """
        offset, buffer = 0, bytearray(_BLOCK)
        while size := self.read(path, buffer, offset):
            yield bytes(memoryview(buffer)[:size])
            offset += size

    def close(self) -> None:
        """Lets go of every file."""
        with self._lock:
            self._inflaters.clear()
        self._is_gzip.clear()
        self._files.close()

    def _inflater(self, path: str, kind: int, start: int, size: int | None, place: object) -> Inflater:
        key = (path, start)
        with self._lock:
            found = self._inflaters.pop(key, None)
            if found is not None:
                self._inflaters[key] = found
                return found
        made = Inflater(_fetch(self.open(path, place), path, start, size), kind)
        with self._lock:
            made = self._inflaters.setdefault(key, made)
            while len(self._inflaters) > _MOST_INFLATERS:
                del self._inflaters[next(iter(self._inflaters))]
        return made


def _fetch(file: OpenFile, path: str, start: int, size: int | None) -> Fetch:
    """Reads compressed bytes of one stream; it keeps the file open as long as it is used."""

    def fetch(buffer: Any, offset: int) -> int:
        if size is not None:
            buffer = memoryview(buffer)[: max(0, min(len(buffer), size - offset))]
        return _read(file, path, buffer, start + offset)

    return fetch


def _read(file: OpenFile, place: object, buffer: Any, offset: int) -> int:
    try:
        return read_exactly(file.descriptor, buffer, offset) if len(buffer) else 0
    except OSError as error:
        raise SourceError(f"{place}: can't be read at byte {offset}: {error.strerror}; check the disk") from error


def _damaged(place: object, error: zlib.error) -> SourceError:
    what = str(error).removeprefix("Error ")
    return SourceError(f"{place}: damaged gzip file: {what}; copy it again, or check it with gzip -t")
