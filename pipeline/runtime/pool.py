"""Aligned buffers that batches are read into, used again when nothing refers to them any more.

A buffer is lent as one `Lease`, an array made directly on the buffer's memory. Every array of a batch, and whatever a
framework makes of it without copying, keeps the lease alive; when the last is gone, a finaliser puts the buffer back.
It may run in any thread at any moment, so all it does is to put into a queue that allows just that. And it is no Python
function: an interrupt that came within one would be swallowed, and the buffer lost.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable
from typing import Any, cast

import numpy as np

ALIGNMENT = 64
"""Bytes on which every array of a batch lies; TensorFlow ends the process for an imported array that doesn't."""

_GRANULE = 1 << 16
_START = 256
"""Where a lease begins in its pages. Processors stall when a copy's target lies a little behind its source modulo 4096
bytes, and large arrays of malloc, numpy and the frameworks begin 16 to 128 bytes into a page: a copy out of leases that
began on a page ran at a quarter of the speed."""


def aligned(size: Any) -> Any:
    """Rounds a number of bytes, or an array of them, up to the alignment."""
    return (size + 63) & -64


class Lease(np.ndarray[Any, Any]):
    """The bytes of a lent buffer; a type of its own, for numpy shortens chains of views down to it, not past it."""


class Loan(weakref.ref[Lease]):
    """What goes back when a lease is gone, in place of the buffer that was lent."""

    __slots__ = ("buffer",)

    buffer: weakref.ref[Buffer]


class Buffer:
    """Memory of its own that grows when a larger batch needs it."""

    __slots__ = ("__weakref__", "_give_back", "_loan", "_memory", "_own", "_size", "leases")

    def __init__(self, give_back: Callable[[Any], object] | None = None) -> None:
        """Makes an empty buffer.

        Args:
            give_back: called with the `Loan` each time when a lease and all its views are gone, in any thread at any
                moment; so it has to be a function that isn't written in Python. Somebody has to hold the buffer then, or
                it goes with the lease.
        """
        self._memory: mmap.mmap | None = None
        self._size = 0
        self._give_back, self._own = give_back, weakref.ref(self)
        self._loan: Loan | None = None
        self.leases = 0  # how often it was lent

    def lease(self, size: int) -> Lease:
        """Lends the memory, which has to be free.

        Args:
            size: bytes needed.

        Returns:
            uint8 [size].
        """
        if self._memory is None or size + _START > self._size:
            self._size = -(-(size + _START) // _GRANULE) * _GRANULE
            # private: a forked child gets copies, not our memory
            self._memory = mmap.mmap(-1, self._size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        lease = Lease((size,), np.uint8, self._memory, _START)
        self.leases += 1
        if self._give_back is not None:
            self._loan = Loan(lease, self._give_back)  # cheaper than weakref.finalize by ten microseconds
            self._loan.buffer = self._own
        return lease


def buffer_of(given: Buffer | Loan) -> Buffer:
    """The buffer that is free, or whose lease is gone."""
    return cast(Buffer, given.buffer()) if isinstance(given, Loan) else given


def lease_once(size: int) -> Lease:
    """Memory for one batch, outside any pool; uint8 [size]."""
    return Buffer().lease(size)
