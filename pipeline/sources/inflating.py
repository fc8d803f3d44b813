"""Random access to what a deflated stream holds: a raw one, as in a zip archive, or a gzip file of any members."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

RAW, GZIP = -15, 31
"""zlib's names for the two kinds of streams."""
MOST_EXPANDED = 1032
"""Deflate makes no more bytes of one than this (zlib's technical notes), so larger claims are false."""

_INPUT = 1 << 14
_PIECE = 1 << 18
_SPACING = 1 << 20
_MOST_POINTS = 64

Fetch = Callable[[Any, int], int]
"""Fills a buffer from an offset of the compressed bytes on; gives how many bytes there were."""


class Checked(NamedTuple):
    """What reading a stream to its end found."""

    filled: int
    """Bytes that went into the buffer."""
    size: int
    """Bytes of the whole."""
    crc32: int
    """CRC-32 of the whole."""


class _State:
    """A decompressor somewhere in the stream; copies go their own ways."""

    __slots__ = ("between", "kind", "machine", "pending", "position", "taken")

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.machine = zlib.decompressobj(kind)
        self.between = False
        """Behind a member, and no byte of another has come."""
        self.pending = b""
        """Compressed bytes that were fetched and not used."""
        self.taken = 0
        """Compressed bytes fetched so far."""
        self.position = 0
        """Bytes made so far."""

    def copy(self) -> _State:
        copied = object.__new__(_State)
        for name in self.__slots__:
            setattr(copied, name, getattr(self, name))
        copied.machine = self.machine.copy()
        return copied

    def next(self, fetch: Fetch, most: int) -> bytes:
        """Makes at most `most` further bytes; none at the end.

        Raises:
            zlib.error: the stream is damaged or cut off.
        """
        made = b""
        while not made:
            if self.machine.eof:
                if self.kind == RAW:
                    return b""
                self.pending, self.between = self.machine.unused_data, True
                self.machine = zlib.decompressobj(self.kind)
            ended = not self.pending and not self._fetch(fetch)
            if self.between:
                self.pending = self.pending.lstrip(b"\0")  # padding, as tapes have it
                if ended:
                    return b""
                if not self.pending:
                    continue
            self.between = False
            made = self.machine.decompress(self.pending, most)
            self.pending = self.machine.unconsumed_tail
            if ended and not made and not self.machine.eof:
                raise zlib.error("the compressed stream is cut off")
        self.position += len(made)
        return made

    def _fetch(self, fetch: Fetch) -> bool:
        buffer = bytearray(_INPUT)
        size = fetch(buffer, self.taken)
        self.taken += size
        self.pending = bytes(memoryview(buffer)[:size])
        return size > 0


class Inflater:
    """Reads any range of the decompressed bytes, from the nearest of at most 64 remembered points before it.

    Points are remembered as the stream is passed, 1 MiB apart or more; each takes about 60 kB. A read that goes on
    where the last one ended costs no more than its own bytes. Safe to use from several threads.

    Args:
        fetch: reads the compressed bytes.
        kind: RAW or GZIP.
    """

    def __init__(self, fetch: Fetch, kind: int) -> None:
        self._fetch, self._kind = fetch, kind
        self._lock = threading.Lock()
        self._points: list[_State] = []  # in ascending order
        self._spacing = _SPACING
        self._cursor: _State | None = None  # where the last read ended

    def read(self, buffer: Any, offset: int) -> int:
        """Fills a buffer from an offset of the decompressed bytes on.

        Returns:
            The bytes read: fewer than the buffer holds only if the stream ends before.

        Raises:
            zlib.error: the stream is damaged or cut off.
        """
        state = self._nearest(offset)
        while state.position < offset:
            if not self._advance(state, offset - state.position):
                return 0
        view, filled = memoryview(buffer), 0
        while filled < len(view):
            piece = self._advance(state, len(view) - filled)
            if not piece:
                break
            view[filled : filled + len(piece)] = piece
            filled += len(piece)
        with self._lock:
            self._cursor = state
        return filled

    def check(self, buffer: Any, offset: int) -> Checked:
        """Reads as `read`, and the whole stream with it.

        Raises:
            zlib.error: the stream is damaged or cut off.
        """
        state, crc = _State(self._kind), 0
        view, filled = memoryview(buffer), 0
        while piece := self._advance(state, _PIECE):
            crc = zlib.crc32(piece, crc)
            begin = state.position - len(piece)  # of the piece
            part = piece[max(0, offset - begin) : max(0, offset + len(view) - begin)]
            view[filled : filled + len(part)] = part
            filled += len(part)
        return Checked(filled, state.position, crc)

    def _nearest(self, offset: int) -> _State:
        """A state of one's own, at or before an offset."""
        with self._lock:
            best = max((point for point in self._points if point.position <= offset), key=_position, default=None)
            cursor = self._cursor
            if cursor is not None and cursor.position <= offset and (best is None or best.position <= cursor.position):
                self._cursor = None  # taken, not copied
                return cursor
            return _State(self._kind) if best is None else best.copy()

    def _advance(self, state: _State, most: int) -> bytes:
        piece = state.next(self._fetch, min(most, _PIECE))
        last = self._points[-1].position if self._points else 0
        if piece and state.position >= last + self._spacing:
            self._remember(state.copy())
        return piece

    def _remember(self, state: _State) -> None:
        with self._lock:
            if self._points and state.position < self._points[-1].position + self._spacing:
                return  # another thread was here
            self._points.append(state)
            if len(self._points) > _MOST_POINTS:
                self._points = self._points[1::2]
                self._spacing *= 2


def _position(state: _State) -> int:
    return state.position
