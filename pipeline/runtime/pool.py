"""Aligned buffers that batches are read into, used again when nothing refers to them any more.

A buffer is lent as one `Lease`, an array made directly on the buffer's memory. Every array of a batch, and whatever a
framework makes of it without copying, keeps the lease alive; when the last is gone, a finaliser puts the buffer back.
It may run in any thread at any moment, so all it does is to put into a queue that allows just that.
"""

from __future__ import annotations

import mmap
import queue
import weakref
from typing import Any

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


class Buffer:
    """Memory of its own that grows when a larger batch needs it."""

    __slots__ = ("_memory", "_size")

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._size = 0

    def lease(self, size: int, back: queue.SimpleQueue[Any] | None) -> Lease:
        """Lends the memory.

        Args:
            size: bytes needed.
            back: where the buffer goes when the lease and all its views are gone; None lets it go for good.

        Returns:
            uint8 [size].
        """
        if self._memory is None or size + _START > self._size:
            self._size = -(-(size + _START) // _GRANULE) * _GRANULE
            # private: a forked child gets copies, not our memory
            self._memory = mmap.mmap(-1, self._size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        lease = Lease((size,), np.uint8, self._memory, _START)
        if back is not None:
            weakref.finalize(lease, back.put, self).atexit = False
        return lease
