"""Compressed HDF5 shards: as hdf5.py's, but each key in chunks that go through one of HDF5's filters.

We compress, h5py files the chunks: so no plugin is needed to write, and none to read by the sidecar. A batch begins with
a chunk of its own, and its last one is filled up with zeros.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.shards.checksum import checksum
from seqprep.shards.codecs import GZIP_LEVEL, ZSTD_LEVEL, codec_for
from seqprep.shards.hdf5 import side_tables
from seqprep.shards.hdf5_file import StorageFile, create_dataset, new_file, write_chunk
from seqprep.shards.pieces import PieceList
from seqprep.shards.sidecar import Pieces
from seqprep.shards.storage import Storage, partial_path
from seqprep.shards.table import ShardTable
from seqprep.types import Array, Int64, UInt8, UInt32, plain_bytes

_CHUNK_BYTES = 1 << 19
_LEVELS = {"gzip": GZIP_LEVEL, "zstd": ZSTD_LEVEL}


def chunk_frames(batch_frames: Int64, frame_bytes: int) -> int:
    """Chooses the frames of a chunk: the largest batch in equal chunks of about 512 kB: small
    ones cost the threads that decode them more hand-overs of the interpreter lock.

    Args:
        batch_frames: int64 [batches]: frames (rows, without time) of each batch, padding included.
        frame_bytes: of one of them.

    Returns:
        At least 1; 0 if there is nothing to compress.
    """
    most = int(batch_frames.max(initial=0))
    count = max(1, round(most * frame_bytes / _CHUNK_BYTES))
    return -(-most // count) if frame_bytes else 0


class ChunkedHdf5Writer:
    """Writes one compressed shard, batch by batch in order, under its partial name.

    Args:
        path: the shard's final path.
        table: what it will hold.
        storage: the file layer.
        description: of the dataset, JSON.
        compression: gzip or zstd.

    Raises:
        OutputError: the file can't be written.
        DependencyError: the package for zstd is missing.
    """

    def __init__(self, path: Path, table: ShardTable, storage: Storage, description: bytes, compression: str) -> None:
        self.partial = partial_path(path)
        self._table = table
        self._list = PieceList(codec_for(compression), compression)
        frames = {key: np.diff(table.units_before(key)) for key in table.keys}
        self._chunk = {key: chunk_frames(frames[key], spec.nbytes) for key, spec in table.keys.items()}
        self._begins = {key: _chunk_starts(frames[key], self._chunk[key]) for key in table.keys}
        batches = len(table.batch_rows)
        self.offsets: dict[str, Int64] = {key: np.zeros(batches, np.int64) for key in table.keys}
        self.crcs: dict[str, UInt32] = {key: np.zeros(batches, np.uint32) for key in table.keys}
        self.descriptor = storage.open(self.partial)
        self._target = StorageFile(storage, self.descriptor, self.partial)
        self._closing = contextlib.ExitStack()
        try:
            self._datasets = self._begin(description, compression)
            self._target.check()
        except BaseException:
            self.abandon()
            storage.discard(self.descriptor, self.partial)
            raise

    def _begin(self, description: bytes, compression: str) -> dict[str, Any]:
        """Makes the datasets, and fills the small ones."""
        file = self._closing.enter_context(new_file(self._target))
        small = side_tables(self._table, {key: begins[:-1] for key, begins in self._begins.items()}, description)
        for name, array in small.items():
            dataset = create_dataset(file, name, array.shape, array.dtype.name)
            if array.size:
                dataset.write_direct(np.ascontiguousarray(array))
        return {
            key: create_dataset(
                file,
                key,
                (int(self._begins[key][-1]), *spec.unit_shape),
                spec.dtype,
                chunk=self._chunk[key],
                compression=compression,
                level=_LEVELS[compression],
            )
            for key, spec in self._table.keys.items()
        }

    def write(self, batch: int, arrays: Mapping[str, Array]) -> None:
        """Compresses and writes one batch; batches come in order.

        Args:
            batch: its number in the shard.
            arrays: for each key, its C-contiguous array.

        Raises:
            OutputError: the file can't be written.
        """
        for key, array in arrays.items():
            flat = plain_bytes(array)
            self.crcs[key][batch] = checksum(flat)
            self.offsets[key][batch] = self._list.decoded_bytes
            frames = self._chunk[key]
            size = frames * self._table.keys[key].nbytes
            for number, begin in enumerate(range(0, len(flat), size or 1)):
                self._put(key, int(self._begins[key][batch]) + number * frames, flat[begin : begin + size], size)

    def _put(self, key: str, frame: int, data: UInt8, size: int) -> None:
        """Writes one chunk of a key, from a frame of its dataset on."""
        encoded = self._list.encode([data] if len(data) == size else [data, bytes(size - len(data))])
        offset = write_chunk(self._datasets[key], frame, encoded)
        self._target.check()
        self._list.note(encoded, offset, size)

    gaps: list[int] | None = None

    @property
    def pieces(self) -> Pieces:
        """The chunks."""
        return self._list.pieces

    def finish(self) -> None:
        """Writes what HDF5 keeps of the chunks, and closes the file for h5py.

        Raises:
            OutputError: it can't be written.
        """
        self._datasets = {}
        self._closing.close()

    def abandon(self) -> None:
        """Closes the file for h5py, whatever has happened, without writing."""
        self._datasets = {}
        self._target.error = self._target.error or InterruptedError("abandoned")
        with contextlib.suppress(BaseException):
            self._closing.close()


def _chunk_starts(batch_frames: Int64, chunk: int) -> Int64:
    """Where batches begin in their dataset, each filled up to whole chunks; int64 [batches + 1]."""
    filled = -(-batch_frames // chunk) * chunk if chunk else batch_frames
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(filled, dtype=np.int64)])
