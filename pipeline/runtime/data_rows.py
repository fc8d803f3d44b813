"""Cuts a stream of rows, which come in chunks of any size, into batches of a wanted size.

Pure bookkeeping: no threads, no waiting. A chunk holds the same rows of every input, so whatever is cut, the inputs of
a row stay together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqprep.runtime.pool import aligned
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
            end = min(begin + count, chunk.units)
            pieces.append(Piece(chunk, begin, end))
            count -= end - begin
            if end == chunk.units:
                self._chunks.popleft()
                self._begin = 0
            else:
                self._begin = end
        return pieces


def join(pieces: Sequence[Piece], columns: Sequence[int], lease_of: Callable[[int], Array]) -> tuple[Array, ...]:
    """Makes one array per input of consecutive pieces.

    What one chunk alone gives along its first axis isn't copied, if the array owns its memory: the fetch function has
    given it away. All else is copied into arrays that lie on 64 bytes; texts and objects into arrays of their own.

    Args:
        pieces: at least one; all chunks have the same dtypes, and the same shapes apart from their rows.
        columns: the axis of each input along which its rows lie.
        lease_of: gives memory of so many bytes; uint8, on 64 bytes.

    Returns:
        The arrays, in the order of the inputs; each has the pieces' rows along its batch column.
    """
    made: list[Any] = [None] * len(columns)
    to_copy = []
    offset = 0
    for number, column in enumerate(columns):
        parts = [_part(piece, number, column) for piece in pieces]
        source = pieces[0].chunk.arrays[number]
        if len(parts) == 1 and column == 0 and source.flags.owndata:
            made[number] = parts[0]
        elif source.dtype.kind in "OUSV":  # texts may differ in width from chunk to chunk
            made[number] = np.concatenate(parts, column)
        else:
            rows = sum([part.shape[column] for part in parts])
            shape = (*source.shape[:column], rows, *source.shape[column + 1 :])
            to_copy.append((number, column, parts, shape, offset))
            offset = aligned(offset + source.itemsize * int(np.prod(shape, dtype=np.int64)))
    if to_copy:
        lease = lease_of(offset)
        for number, column, parts, shape, begin in to_copy:
            made[number] = np.ndarray(shape, parts[0].dtype, lease, begin)
            np.concatenate(parts, column, out=made[number])
    return tuple(made)


def _part(piece: Piece, number: int, column: int) -> Array:
    chunk, begin, end = piece
    array = chunk.arrays[number]
    if end - begin == chunk.units:
        return array
    return array[begin:end] if column == 0 else array[(*(slice(None),) * column, slice(begin, end))]
