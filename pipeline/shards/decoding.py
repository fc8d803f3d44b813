"""Decodes the arrays of compressed shards, straight from their compressed bytes."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from seqprep.errors import CorruptError
from seqprep.files import read_exactly
from seqprep.shards.checksum import crc32c
from seqprep.shards.codecs import codec_for
from seqprep.shards.sidecar import Pieces, Sidecar

Wanted = tuple[memoryview, int, int | None]
"""Where an array goes, where it begins in the decoded stream, and its CRC32C (None: not to be compared)."""


class Decoder:
    """Fills arrays from the pieces of one shard. Safe to use from several threads, which decode side by side.

    Args:
        path: the shard, for messages.
        sidecar: where its pieces are.
        pieces: of the sidecar.
    """

    def __init__(self, path: str | Path, sidecar: Sidecar, pieces: Pieces) -> None:
        self._path, self._sidecar = str(path), sidecar
        self._decompress_into = codec_for(pieces.compression).decompress_into
        self._starts: list[int] = pieces.bounds[:-1].tolist()
        self._places: list[tuple[int, int, int]] = list(
            zip(pieces.offset.tolist(), pieces.size.tolist(), pieces.decoded.tolist(), strict=True)
        )

    def fill(self, descriptor: int, wanted: Iterable[Wanted]) -> None:
        """Fills arrays; a piece that several of them share is decoded once, if they follow each other.

        Args:
            descriptor: of the shard.
            wanted: the arrays.

        Raises:
            CorruptError: a piece can't be decoded, or a checksum differs; names shard, batch, key and bytes.
            OSError: the shard can't be read.
        """
        held, piece, data = -1, 0, memoryview(b"")
        for target, offset, crc in wanted:
            done = 0
            while done < len(target):
                piece = bisect_right(self._starts, offset + done) - 1
                begin, decoded = offset + done - self._starts[piece], self._places[piece][2]
                if piece != held and begin == 0 and decoded <= len(target) - done:  # all of it belongs here
                    self._decode(descriptor, piece, offset, target[done : done + decoded])
                    done += decoded
                    continue
                if piece != held:
                    held, data = piece, _SCRATCH.decoded.take(decoded)
                    self._decode(descriptor, piece, offset, data)
                part = data[begin : begin + len(target) - done]
                target[done : done + len(part)] = part
                done += len(part)
            if crc is not None and crc32c(target) != crc:
                raise CorruptError(f"{self._place(offset, piece)} don't hold what their checksum says; {_REMEDY}")

    def _decode(self, descriptor: int, piece: int, wanted: int, target: memoryview) -> None:
        offset, size, _ = self._places[piece]
        stored = _SCRATCH.stored.take(size)
        if read_exactly(descriptor, stored, offset) < size:
            raise CorruptError(f"{self._place(wanted, piece)}: the shard ends before them; {_REMEDY}")
        try:
            self._decompress_into(stored, target)
        except ValueError as error:
            raise CorruptError(f"{self._place(wanted, piece)} can't be decompressed: {error}; {_REMEDY}") from error

    def _place(self, wanted: int, piece: int) -> str:
        """Names the array that begins at an offset of the decoded stream, and a piece's bytes."""
        offset, size, _ = self._places[piece]
        keys = ((key, np.flatnonzero(offsets == wanted)) for key, offsets in self._sidecar.offsets.items())
        key, batch = next((key, int(found[-1])) for key, found in keys if len(found))
        return f"{self._path}: batch {batch}, key {key!r}: bytes {offset} to {offset + size}"


class _Memory:
    """Bytes that are used again: fresh ones cost threads that read side by side more than decoding does."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def take(self, size: int) -> memoryview:
        """Gives so many bytes; they are those of the last call."""
        if size > _MOST_KEPT:
            return memoryview(bytearray(size))
        if size > len(self._bytes):
            self._bytes = bytearray(size + size // 4)
        return memoryview(self._bytes)[:size]


class _Scratch(threading.local):
    """What each thread reads and decodes into, if not into its target."""

    def __init__(self) -> None:
        self.stored, self.decoded = _Memory(), _Memory()


_MOST_KEPT = 1 << 23
_SCRATCH = _Scratch()
_REMEDY = "seqprep repair makes the shard again"
