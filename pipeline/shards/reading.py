"""Reads the batches of one shard, whatever its format and compression, with every checksum compared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seqprep.errors import CorruptError, DatasetError
from seqprep.files import OpenFile, read_exactly, unreadable
from seqprep.shards.checksum import checksum
from seqprep.shards.decoding import Decoder
from seqprep.shards.sidecar import Sidecar
from seqprep.types import Array, numpy_dtype


class ShardReader:
    """Reads any batch of a shard, into arrays of its own each time. For the loader's speed, see runtime/ranges.py.

    Args:
        path: the shard.
        sidecar: its sidecar.

    Raises:
        DatasetError: the shard can't be opened.
    """

    def __init__(self, path: Path, sidecar: Sidecar) -> None:
        self.path, self.sidecar = path, sidecar
        self._file = open_shard(path)
        self._decoder = Decoder(path, sidecar, sidecar.pieces) if sidecar.pieces is not None else None

    def batch(self, number: int, keys: Sequence[str] | None = None, verify: bool = True) -> dict[str, Array]:
        """Reads the arrays of one batch.

        Args:
            number: of the batch in the shard.
            keys: which; all unless told.
            verify: compare checksums.

        Returns:
            For each key, its array: [B, T, …], or [B, …] without time.

        Raises:
            CorruptError: the bytes are not those that were written; names shard, batch, key and bytes.
            DatasetError: they can't be read.
        """
        sidecar = self.sidecar
        arrays: dict[str, Array] = {}
        wanted = []
        for key in sidecar.table.keys if keys is None else keys:
            shape = sidecar.table.shape(key, number)
            arrays[key] = np.empty(shape, numpy_dtype(sidecar.table.keys[key].dtype))
            target = memoryview(arrays[key].reshape(-1).view(np.uint8))  # type: ignore[arg-type]
            wanted.append((target, int(sidecar.offsets[key][number]), int(sidecar.crcs[key][number]), key))
        try:
            if self._decoder is not None:
                self._decoder.fill(
                    self._file.descriptor, [(target, at, crc if verify else None) for target, at, crc, _ in wanted]
                )
            else:
                for target, offset, crc, key in wanted:
                    self._read(target, offset, crc if verify else None, number, key)
        except OSError as error:
            raise DatasetError(f"{self.path}: batch {number} can't be read: {unreadable(error)}") from error
        return arrays

    def _read(self, target: memoryview, offset: int, crc: int | None, number: int, key: str) -> None:
        place = f"{self.path}: batch {number}, key {key!r}: bytes {offset} to {offset + len(target)}"
        if len(target) and read_exactly(self._file.descriptor, target, offset) != len(target):
            raise CorruptError(f"{place}: the shard ends before them; seqprep repair makes it again")
        if crc is not None and checksum(target) != crc:
            raise CorruptError(f"{place} differ from their checksum; seqprep repair makes the shard again")

    def file_range(self, key: str, batch: int, begin: int, end: int) -> tuple[int, int]:
        """Where bytes `begin` up to `end` of an array are in the file: offset and size; whole pieces, if compressed."""
        first, pieces = int(self.sidecar.offsets[key][batch]), self.sidecar.pieces
        if pieces is None:
            return first + begin, end - begin
        start, stop = np.searchsorted(pieces.bounds, [first + begin, first + end - 1], side="right") - 1
        offset = int(pieces.offset[start])
        return offset, int(pieces.offset[stop] + pieces.size[stop]) - offset

    def region_before(self, batch: int) -> tuple[int, int]:
        """The stretch with the fields of a batch's rows: its framing (TFRecord), or all tables (HDF5); offset and size.

        In a compressed TFRecord shard, the batch itself.
        """
        regions, key = self.sidecar.regions, next(iter(self.sidecar.table.keys))
        if self.sidecar.pieces is not None and self.sidecar.format == "tfrecord":
            return int(self.sidecar.pieces.offset[batch]), int(self.sidecar.pieces.size[batch])
        place = 0
        if self.sidecar.format == "tfrecord":
            offset = self.sidecar.offsets[key][batch]
            place = int(np.searchsorted(regions.offset, offset)) - 1
        return int(regions.offset[place]), int(regions.size[place])

    @property
    def descriptor(self) -> int:
        """Of the open shard."""
        return self._file.descriptor

    @property
    def file_bytes(self) -> int:
        """The shard's size as it is."""
        return os.fstat(self._file.descriptor).st_size


def open_shard(path: Path) -> OpenFile:
    """Opens a shard; it is closed when nobody refers to it any more.

    Raises:
        DatasetError: it can't be opened.
    """
    try:
        return OpenFile(str(path))
    except OSError as error:
        raise DatasetError(f"{path}: the shard can't be opened: {unreadable(error)}") from error
