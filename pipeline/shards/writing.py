"""Writes whole shards: format, sidecar, and the steps that make them safe."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from seqprep.errors import OutputError
from seqprep.files import read_exactly
from seqprep.shards.checksum import checksum
from seqprep.shards.hdf5 import SUFFIX as HDF5_SUFFIX
from seqprep.shards.hdf5 import Hdf5Writer
from seqprep.shards.hdf5_chunks import ChunkedHdf5Writer
from seqprep.shards.sidecar import NO_REGIONS, Pieces, Regions, Sidecar, gaps, sidecar_path
from seqprep.shards.storage import Storage
from seqprep.shards.table import ShardTable, describe_shard_of
from seqprep.shards.tfrecord import SUFFIX as TFRECORD_SUFFIX
from seqprep.shards.tfrecord import TfRecordWriter
from seqprep.types import Array, Int64, UInt32


class ShardWriter(Protocol):
    """Writes the arrays of one shard's batches, in order, into its partial file."""

    partial: Path
    descriptor: int
    offsets: dict[str, Int64]
    crcs: dict[str, UInt32]

    def write(self, batch: int, arrays: Mapping[str, Array]) -> None:
        """Writes one batch."""

    @property
    def pieces(self) -> Pieces | None:
        """Where the compressed stretches are."""

    @property
    def gaps(self) -> list[int] | None:
        """CRCs of what lies between the arrays, where it came by on the way."""

    def finish(self) -> None:
        """Writes what is only known at the end; the descriptor stays open."""

    def abandon(self) -> None:
        """Lets go of everything but the descriptor, without writing; never raises."""


def _writer(
    path: Path, format: str, compression: str, table: ShardTable, storage: Storage, description: bytes
) -> ShardWriter:
    if format == "tfrecord":
        return TfRecordWriter(path, table, storage, description, compression)
    if compression == "none":
        return Hdf5Writer(path, table, storage, description)
    return ChunkedHdf5Writer(path, table, storage, description, compression)


SUFFIXES = {"hdf5": HDF5_SUFFIX, "tfrecord": TFRECORD_SUFFIX}


@dataclass(frozen=True)
class ShardRecord:
    """What the index says of one shard."""

    name: str
    bytes: int
    batches: int
    rows: int
    frames: int
    """Valid frames of the input key, context included."""
    sidecar_crc32c: int
    segments: int | None = None
    """Segments of its rows, where these are packed."""
    padding: Mapping[str, int] = field(default_factory=dict)
    """For each key with time, the sum of padded length − length over all rows."""
    epoch: int = 0
    """The pass over the input to which it belongs."""
    dropped_rows: int = 0
    """What `batch.drop_last` left out …"""
    dropped_frames: int = 0
    """… and the frames in it, as in `ShardTable`."""


def shard_name(number: int, count: int, format: str) -> str:
    """shard-00000-of-00128.h5 and its like."""
    return f"shard-{number:05d}-of-{count:05d}{SUFFIXES[format]}"


class MadeShard:
    """A shard that is written, but not safe on disk yet, nor under its name; `commit` or `abandon` ends it."""

    def __init__(self, path: Path, writer: ShardWriter, sidecar: Sidecar, storage: Storage) -> None:
        self._path, self._writer, self._sidecar, self._storage = path, writer, sidecar, storage

    def commit(self) -> ShardRecord:
        """Makes the shard and its sidecar safe, each under its name; it may run while the next shard is made.

        Raises:
            OutputError: the disk refuses; nothing but finished files is left.
        """
        try:
            self._storage.commit(self._writer.descriptor, self._writer.partial, self._path)
        except BaseException:
            self.abandon()
            raise
        encoded = self._sidecar.encode()
        self._storage.write_file(sidecar_path(self._path), encoded)
        return record_of(self._path.name, self._sidecar, int.from_bytes(encoded[-4:], "little"))

    def abandon(self) -> None:
        """Removes what is written."""
        self._storage.discard(self._writer.descriptor, self._writer.partial)


def write_shard(
    path: Path,
    format: str,
    table: ShardTable,
    batches: Iterable[Mapping[str, Array]],
    fingerprint: str,
    storage: Storage,
    *,
    compression: str = "none",
    description: bytes = b"",
) -> MadeShard:
    """Writes one shard under its partial name.

    Args:
        path: the shard's path.
        format: hdf5 or tfrecord.
        table: what it holds.
        batches: for each batch of the table in order, its arrays; one may be reused for the next.
        fingerprint: of the run.
        storage: the file layer.
        compression: none, gzip or zstd.
        description: of the dataset, from `Index.describe`, so that the index can be made again from the shards.

    Raises:
        OutputError: it can't be written; nothing but finished files is left.
    """
    writer = _writer(path, format, compression, table, storage, describe_shard_of(description, table))
    try:
        for number, arrays in enumerate(batches):
            writer.write(number, arrays)
        writer.finish()
        return MadeShard(path, writer, _sidecar_of(writer, format, table, fingerprint), storage)
    except BaseException:
        writer.abandon()
        storage.discard(writer.descriptor, writer.partial)
        raise


def record_of(name: str, sidecar: Sidecar, sidecar_crc32c: int) -> ShardRecord:
    """What the index will say of a finished shard."""
    return record_of_table(name, sidecar.table, sidecar.file_bytes, sidecar_crc32c)


def record_of_table(name: str, table: ShardTable, file_bytes: int, sidecar_crc32c: int) -> ShardRecord:
    """The same, from what the shard holds."""
    first = next(name for name, spec in table.keys.items() if spec.has_time)
    return ShardRecord(
        name=name,
        bytes=file_bytes,
        batches=len(table.batch_rows),
        rows=table.rows,
        frames=int(table.fields[f"{first}/size0"].sum()),
        sidecar_crc32c=sidecar_crc32c,
        segments=None if table.batch_segments is None else len(table.tags),
        padding={key: table.padding(key) for key, spec in table.keys.items() if spec.has_time},
        epoch=table.epoch,
        dropped_rows=table.dropped_rows,
        dropped_frames=table.dropped_frames,
    )


def _sidecar_of(writer: ShardWriter, format: str, table: ShardTable, fingerprint: str) -> Sidecar:
    sidecar = Sidecar(format, 0, fingerprint, table, writer.offsets, writer.crcs, NO_REGIONS, writer.pieces)
    try:
        return describe_shard(writer.descriptor, sidecar, writer.gaps)
    except OSError as error:
        raise OutputError(f"{writer.partial}: can't be read again: {error.strerror}; check the disk") from error


def describe_shard(descriptor: int, sidecar: Sidecar, crcs: list[int] | None = None) -> Sidecar:
    """Completes a sidecar: the file's size, and the checksums of what lies between the arrays (or pieces).

    Args:
        descriptor: of the shard.
        sidecar: all but that.
        crcs: the checksums; unless they are given, the file is read for them.

    Raises:
        OSError: the shard can't be read.
    """
    file_bytes = os.fstat(descriptor).st_size
    pieces, table = sidecar.pieces, sidecar.table
    if pieces is not None:
        offset, size = gaps({"": pieces.offset}, {"": pieces.size}, file_bytes)
    else:
        offset, size = gaps(sidecar.offsets, {key: table.array_bytes(key) for key in table.keys}, file_bytes)
    if crcs is None:
        crcs = [_checksum_of(descriptor, *stretch) for stretch in zip(offset.tolist(), size.tolist(), strict=True)]
    return replace(sidecar, file_bytes=file_bytes, regions=Regions(offset, size, np.array(crcs, np.uint32)))


def _checksum_of(descriptor: int, offset: int, size: int) -> int:
    buffer = bytearray(size)
    if read_exactly(descriptor, buffer, offset) < size:
        raise OSError(errno.EIO, "it has become shorter")
    return checksum(buffer)
