"""Reads batches of a dataset into leased buffers, by byte ranges, and checks them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqprep.config import suggestion
from seqprep.errors import ConfigError, CorruptError, DatasetError
from seqprep.files import DescriptorCache, read_exactly
from seqprep.runtime.pool import Lease, aligned
from seqprep.shards import Dataset, Sidecar, checksum
from seqprep.types import Array, Int64, UInt8

Batch = dict[str, Any]
"""Name to array, batch first; `seq_tag` to `Tags`. docs/format.md lists the names."""

LeaseOf = Callable[[int], Lease]
"""Gives memory of a number of bytes."""


class _Column(NamedTuple):
    """One key of a shard, with plain lists for what is looked up at every batch."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    frames: list[int] | None
    offset: list[int]
    size: list[int]
    crc: list[int]


class _Field(NamedTuple):
    """One field of a shard's rows."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    row_bytes: int


class _Shard:
    """A shard's tables, made ready for the reading loop."""

    __slots__ = ("blocks", "bounds", "columns", "fields", "frames", "path", "tags")

    def __init__(self, path: Path, sidecar: Sidecar, keys: Sequence[str]) -> None:
        table = sidecar.table
        self.path, self.tags = path, table.tags
        self.bounds: list[int] = table.bounds.tolist()
        self.columns = [
            _Column(
                name,
                np.dtype(table.keys[name].dtype),
                table.keys[name].shape,
                table.batch_frames[name].tolist() if table.keys[name].has_time else None,
                sidecar.offsets[name].tolist(),
                table.array_bytes(name).tolist(),
                sidecar.crcs[name].tolist(),
            )
            for name in keys
        ]
        fields = {
            name: values for name, values in table.fields.items() if "/" not in name or name.split("/")[0] in keys
        }
        self.fields = [
            _Field(name, values.dtype, values.shape[1:], values[:1].nbytes) for name, values in fields.items()
        ]
        self.blocks = _field_blocks(list(fields.values()), table.batch_rows)
        counted = next((f"{name}/size0" for name in keys if f"{name}/size0" in fields), None)
        sizes = fields[counted] if counted else np.zeros(self.bounds[-1], np.int32)
        self.frames: list[int] = np.add.reduceat(sizes, table.bounds[:-1], dtype=np.int64).tolist()


def _field_blocks(fields: Sequence[Array], batch_rows: Int64) -> tuple[UInt8, list[int]]:
    """Lays the fields of each batch side by side, each aligned, so that one copy brings all of them into a buffer.

    Args:
        fields: each [rows, …].
        batch_rows: int64 [batches].

    Returns:
        The bytes, and where each batch's block begins in them; [batches + 1].
    """
    rows = [values.reshape(len(values), -1).view(np.uint8) for values in fields]
    sizes = [aligned(batch_rows * values.shape[1]) for values in rows]
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sum(sizes), dtype=np.int64)])
    blocks = np.zeros(bounds[-1], np.uint8)
    place = bounds[:-1].copy()
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(batch_rows)])[:-1]
    for values, size in zip(rows, sizes, strict=True):
        flat, width = values.reshape(-1), values.shape[1]
        blocks[np.arange(len(flat)) + np.repeat(place - first * width, batch_rows * width)] = flat
        place += size
    return blocks, bounds.tolist()


class ReadBatch(NamedTuple):
    """A batch, and what is counted of it."""

    arrays: Batch
    rows: int
    frames: int
    bytes: int


class BatchReader:
    """Reads any batch of a dataset. Safe to use from several threads.

    Args:
        dataset: the dataset.
        keys: which keys to read; all unless told.

    Raises:
        ConfigError: a key isn't in the dataset.
    """

    def __init__(self, dataset: Dataset, keys: Sequence[str] | None = None) -> None:
        known = dataset.index.keys
        for name in keys or ():
            if name not in known:
                raise ConfigError(f"{dataset.path}: holds no key {name!r}{suggestion(name, known)}")
        self.keys = tuple(name for name in known if keys is None or name in keys)
        self._dataset = dataset
        self._before: Int64 = dataset.batches_before()
        self._shards: dict[int, _Shard] = {}
        self._lock = threading.Lock()
        self._descriptors = DescriptorCache()

    def __len__(self) -> int:
        """Batches of the dataset."""
        return int(self._before[-1])

    def close(self) -> None:
        """Closes the shards' files."""
        self._descriptors.close()

    def _shard(self, number: int) -> _Shard:
        shard = self._shards.get(number)
        if shard is None:
            with self._lock:
                made = _Shard(self._dataset.shard_path(number), self._dataset.sidecar(number), self.keys)
                shard = self._shards.setdefault(number, made)
        return shard

    def read(self, batch: int, lease_of: LeaseOf, verify: bool) -> ReadBatch:
        """Reads one batch.

        Args:
            batch: its number in the dataset, in [0, len(self)).
            lease_of: gives the memory.
            verify: check the arrays against their checksums.

        Raises:
            DatasetError: the shard can't be read.
            CorruptError: it ends too early, or a checksum differs; names shard, batch, key and bytes.
        """
        number = int(np.searchsorted(self._before, batch, side="right")) - 1
        shard = self._shard(number)
        within = batch - int(self._before[number])
        begin, end = shard.bounds[within], shard.bounds[within + 1]
        rows = end - begin
        blocks, block_bounds = shard.blocks
        block = blocks[block_bounds[within] : block_bounds[within + 1]]
        arrays_bytes = sum([aligned(column.size[within]) for column in shard.columns])
        lease = lease_of(arrays_bytes + len(block))
        arrays: Batch = {}
        place = self._read_arrays(shard, within, lease, arrays, verify)
        lease[place:] = block
        for name, dtype, shape, row_bytes in shard.fields:
            arrays[name] = np.ndarray((rows, *shape), dtype, lease, place)
            place += aligned(row_bytes * rows)
        arrays["seq_tag"] = shard.tags.between(begin, end)
        return ReadBatch(arrays, rows, shard.frames[within], arrays_bytes)

    def _read_arrays(self, shard: _Shard, batch: int, lease: Lease, arrays: Batch, verify: bool) -> int:
        """Reads the keys' arrays to the front of the lease; gives the bytes that they take up."""
        rows = shard.bounds[batch + 1] - shard.bounds[batch]
        memory, place = memoryview(lease), 0
        try:
            descriptor = self._descriptors.acquire(shard.path)
            try:
                for column in shard.columns:
                    size = column.size[batch]
                    target = memory[place : place + size]
                    if size and read_exactly(descriptor, target, column.offset[batch]) < size:
                        raise CorruptError(_place(shard, batch, column) + ": the shard ends before them; make it again")
                    if verify and checksum(target) != column.crc[batch]:
                        raise CorruptError(
                            _place(shard, batch, column)
                            + " differ from their checksum; seqprep verify finds all such places"
                        )
                    frames = () if column.frames is None else (column.frames[batch],)
                    arrays[column.name] = np.ndarray((rows, *frames, *column.shape), column.dtype, lease, place)
                    place += aligned(size)
            finally:
                self._descriptors.release(shard.path)
        except OSError as error:
            raise DatasetError(
                f"{shard.path}: batch {batch} can't be read: {error.strerror}; check the disk"
            ) from error
        return place


def _place(shard: _Shard, batch: int, column: _Column) -> str:
    start = column.offset[batch]
    return f"{shard.path}: batch {batch}, key {column.name!r}: bytes {start} to {start + column.size[batch]}"
