"""Cuts a stream of rows, which come in chunks of any size, into batches of a wanted size.

Pure bookkeeping: no threads, no waiting. A chunk holds the same rows of every input, so whatever is cut, the inputs of
a row stay together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from seqprep.runtime.pool import ALIGNMENT, Buffer, Loan, aligned, buffer_of
from seqprep.types import Array


class Chunk(NamedTuple):
    """What one call of a fetch function gave: one array per input, in the order of the inputs."""

    arrays: tuple[Array, ...]
    rows: int
    """Along the batch column of each array; of the first, where chunks are passed on whole."""
    units: int
    """What it counts in the buffer, and may be cut into: its rows, or 1 where chunks are passed on whole."""


class Piece(NamedTuple):
    """Units begin, begin+1, …, end−1 of a chunk."""

    chunk: Chunk
    begin: int
    end: int


class Rows:
    """Rows that wait to be taken, in the order in which they came."""

    __slots__ = ("_begin", "_chunks", "count")

    def __init__(self) -> None:
        self.count = 0
        """Units that are waiting."""
        self._chunks: deque[Chunk] = deque()
        self._begin = 0  # units of the first chunk that have been taken

    def append(self, chunk: Chunk) -> None:
        """Adds a chunk of at least one unit behind the others."""
        self._chunks.append(chunk)
        self.count += chunk.units

    def take(self, count: int) -> list[Piece]:
        """Takes the oldest `count` units, which have to be there."""
        pieces = []
        self.count -= count
        while count:
            chunk, begin = self._chunks[0], self._begin
            left = chunk.units - begin
            if left > count:
                self._begin = begin + count
                pieces.append(Piece(chunk, begin, begin + count))
                break
            self._chunks.popleft()
            self._begin = 0
            pieces.append(Piece(chunk, begin, begin + left))
            count -= left
        return pieces


class Memory:
    """Memory for batches, used again when the last array on it is gone.

    Args:
        buffers: how many batches may be in use before another one gets fresh memory.
    """

    def __init__(self, buffers: int) -> None:
        self.unpooled = 0
        """How often that happened."""
        # the one used last on top: its memory is still in the processor's caches
        self._free: deque[Buffer | Loan] = deque()
        self._buffers = [Buffer(self._free.append) for _ in range(buffers)]  # those in use are held here
        self._free.extend(self._buffers)

    def lease(self, size: int) -> Array:
        """Lends memory; uint8 [size], on 64 bytes."""
        try:
            found = self._free.pop()
        except IndexError:
            self.unpooled += 1
            memory = np.empty(size + ALIGNMENT, np.uint8)
            begin = -memory.ctypes.data % ALIGNMENT
            return memory[begin : begin + size]
        return buffer_of(found).lease(size)


def join(pieces: Sequence[Piece], columns: Sequence[int], memory: Memory) -> tuple[Array, ...]:
    """Makes one array per input of consecutive pieces.

    What one chunk alone gives along its first axis isn't copied, if the array owns its memory: the fetch function has
    given it away. All else is copied into arrays that lie on 64 bytes; texts and objects into arrays of their own.

    Args:
        pieces: at least one; all chunks have the same dtypes, and the same shapes apart from their rows.
        columns: the axis of each input along which its rows lie.
        memory: where copies go.

    Returns:
        The arrays, in the order of the inputs; each has the pieces' rows along its batch column.
    """
    rows = sum([end - begin for _, begin, end in pieces])
    made: list[Any] = [None] * len(columns)
    to_copy = []
    offset = 0
    for number, column in enumerate(columns):
        parts = [
            chunk.arrays[number] if end - begin == chunk.units else _cut(chunk.arrays[number], column, begin, end)
            for chunk, begin, end in pieces
        ]
        source = pieces[0].chunk.arrays[number]
        if len(parts) == 1 and column == 0 and source.flags.owndata:
            made[number] = parts[0]
        elif source.dtype.kind in "OUSV":  # texts may differ in width from chunk to chunk
            made[number] = np.concatenate(parts, column)
        else:
            shape = (*source.shape[:column], rows, *source.shape[column + 1 :])
            to_copy.append((number, column, parts, shape, offset))
            offset = aligned(offset + source.itemsize * prod(shape))
    if to_copy:
        lease = memory.lease(offset)
        for number, column, parts, shape, begin in to_copy:
            made[number] = np.ndarray(shape, parts[0].dtype, lease, begin)
            np.concatenate(parts, column, out=made[number])
    return tuple(made)


def _cut(array: Array, column: int, begin: int, end: int) -> Array:
    return array[begin:end] if column == 0 else array[(*(slice(None),) * column, slice(begin, end))]
