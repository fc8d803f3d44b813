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
from seqprep.types import Array, Int64

Batch = dict[str, Array]
"""Name to array, batch first; docs/format.md lists the names."""

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
    values: Array
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    row_bytes: int


class _Shard:
    """A shard's tables, made ready for the reading loop."""

    __slots__ = ("bounds", "columns", "fields", "frames", "path", "tags")

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
        self.fields = [
            _Field(name, values, values.dtype, values.shape[1:], values[:1].nbytes)
            for name, values in table.fields.items()
            if "/" not in name or name.split("/")[0] in keys
        ]
        counted = next((f"{name}/size0" for name in keys if f"{name}/size0" in table.fields), None)
        sizes = table.fields[counted] if counted else np.zeros(self.bounds[-1], np.int32)
        self.frames: list[int] = np.add.reduceat(sizes, table.bounds[:-1], dtype=np.int64).tolist()


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
        total = sum([aligned(column.size[within]) for column in shard.columns])
        lease = lease_of(total + sum([aligned(field.row_bytes * rows) for field in shard.fields]))
        arrays, place, read = {}, 0, 0
        try:
            with self._descriptors.open(shard.path) as descriptor:
                for column in shard.columns:
                    size = column.size[within]
                    target = lease[place : place + size]
                    if size and read_exactly(descriptor, target, column.offset[within]) < size:
                        raise CorruptError(
                            _place(shard, within, column) + ": the shard ends before them; make it again"
                        )
                    if verify and checksum(target) != column.crc[within]:
                        raise CorruptError(
                            _place(shard, within, column)
                            + " differ from their checksum; seqprep verify finds all such places"
                        )
                    shape = (
                        (rows, *column.shape) if column.frames is None else (rows, column.frames[within], *column.shape)
                    )
                    arrays[column.name] = np.ndarray(shape, column.dtype, lease, place)
                    place += aligned(size)
                    read += size
        except OSError as error:
            raise DatasetError(
                f"{shard.path}: batch {within} can't be read: {error.strerror}; check the disk"
            ) from error
        for field in shard.fields:
            values = np.ndarray((rows, *field.shape), field.dtype, lease, place)
            values[...] = field.values[begin:end]
            arrays[field.name] = values
            place += aligned(field.row_bytes * rows)
        arrays["seq_tag"] = shard.tags.strings(begin, end)
        return ReadBatch(arrays, rows, shard.frames[within], read)


def _place(shard: _Shard, batch: int, column: _Column) -> str:
    start = column.offset[batch]
    return f"{shard.path}: batch {batch}, key {column.name!r}: bytes {start} to {start + column.size[batch]}"
