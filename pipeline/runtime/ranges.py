"""Reads batches of a dataset into leased buffers, by byte ranges, and checks them."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqprep.config import suggestion
from seqprep.errors import ConfigError, CorruptError, DatasetError
from seqprep.files import DescriptorCache, read_exactly
from seqprep.runtime.pool import Lease, aligned
from seqprep.shards import Dataset, Sidecar, checksum
from seqprep.types import Array, Int64, Tags, UInt8

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

    __slots__ = ("block_bounds", "blocks", "bounds", "columns", "fields", "frames", "names", "path", "tag_bounds", "tags")

    def __init__(self, path: Path, sidecar: Sidecar, keys: Sequence[str]) -> None:
        table = sidecar.table
        self.path, self.tags = str(path), table.tags
        self.tag_bounds: list[int] = np.append(0, table.tags.ends)[table.bounds].tolist()
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
        self.names = (*keys, *fields, "seq_tag")
        self.blocks, self.block_bounds = _field_blocks(list(fields.values()), table.batch_rows)
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
    widths = [values[:1].nbytes for values in fields]  # 4, 8 or 16, so that they divide the alignment
    sizes = [aligned(batch_rows * width) for width in widths]
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sum(sizes), dtype=np.int64)])
    blocks = np.zeros(bounds[-1], np.uint8)
    place = bounds[:-1].copy()
    first = np.cumsum(batch_rows) - batch_rows
    for values, width, size in zip(fields, widths, sizes, strict=True):
        rows = np.arange(len(values)) + np.repeat(place // width - first, batch_rows)
        blocks.view(f"V{width}")[rows] = np.ascontiguousarray(values).reshape(-1).view(f"V{width}")
        place += size
    return blocks, bounds.tolist()


class Batch(Mapping[str, Any]):
    """One batch: names to arrays, batch first, and `seq_tag` to `Tags`; docs/format.md lists the names.

    Every array lies on 64 bytes, in memory that is the caller's until the last array on it is gone. An array is made
    when it is first asked for, so that those nobody uses cost nothing; `dict(batch)` makes all.
    """

    __slots__ = ("_lease", "_made", "_number", "_shard")

    def __init__(self, shard: _Shard, number: int, lease: Lease) -> None:
        self._shard, self._number, self._lease = shard, number, lease
        self._made: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._shard.names)

    def __len__(self) -> int:
        return len(self._shard.names)

    def __contains__(self, name: object) -> bool:
        return name in self._shard.names

    def __getitem__(self, name: str) -> Any:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._make(name)
        return made

    def _make(self, name: str) -> Any:
        shard, number, place = self._shard, self._number, 0
        begin, end = shard.bounds[number], shard.bounds[number + 1]
        if name == "seq_tag":
            first, last = shard.tag_bounds[number], shard.tag_bounds[number + 1]
            return Tags(shard.tags.data[first:last], shard.tags.ends[begin:end] - first)
        for column in shard.columns:
            if column.name == name:
                frames = () if column.frames is None else (column.frames[number],)
                return np.ndarray((end - begin, *frames, *column.shape), column.dtype, self._lease, place)
            place += (column.size[number] + 63) & -64
        for field in shard.fields:
            if field.name == name:
                return np.ndarray((end - begin, *field.shape), field.dtype, self._lease, place)
            place += (field.row_bytes * (end - begin) + 63) & -64
        raise KeyError(name)

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return self._shard.bounds[self._number + 1] - self._shard.bounds[self._number]

    @property
    def frames(self) -> int:
        """Valid frames of the first key that is read, context included."""
        return self._shard.frames[self._number]

    @property
    def nbytes(self) -> int:
        """Bytes of the keys' arrays, padding included."""
        return sum([column.size[self._number] for column in self._shard.columns])

    def __repr__(self) -> str:
        return f"Batch({', '.join(f'{name}: {self[name].dtype} {list(self[name].shape)}' for name in self)})"

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


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
        self._before: list[int] = dataset.batches_before().tolist()
        self._shards: dict[int, _Shard] = {}
        self._lock = threading.Lock()
        self._descriptors = DescriptorCache()

    def __len__(self) -> int:
        """Batches of the dataset."""
        return self._before[-1]

    def close(self) -> None:
        """Closes the shards' files."""
        self._descriptors.close()

    def _open(self, number: int) -> _Shard:
        with self._lock:
            made = _Shard(self._dataset.shard_path(number), self._dataset.sidecar(number), self.keys)
            return self._shards.setdefault(number, made)

    def read(self, batch: int, lease_of: LeaseOf, verify: bool) -> Batch:
        """Reads one batch.

        Args:
            batch: its number in the dataset, in [0, len(self)).
            lease_of: gives the memory.
            verify: check the arrays against their checksums.

        Raises:
            DatasetError: the shard can't be read.
            CorruptError: it ends too early, or a checksum differs; names shard, batch, key and bytes.
        """
        number = bisect_right(self._before, batch) - 1
        shard = self._shards.get(number) or self._open(number)
        within = batch - self._before[number]
        block = shard.blocks[shard.block_bounds[within] : shard.block_bounds[within + 1]]
        size = 0
        for column in shard.columns:
            size += (column.size[within] + 63) & -64
        lease = lease_of(size + len(block))
        self._read_arrays(shard, within, memoryview(lease), verify)  # type: ignore[arg-type]
        lease[size:] = block
        return Batch(shard, within, lease)

    def _read_arrays(self, shard: _Shard, batch: int, memory: memoryview, verify: bool) -> None:
        """Reads the keys' arrays to the front of the memory."""
        place = 0
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
                    place += (size + 63) & -64
            finally:
                self._descriptors.release(shard.path)
        except OSError as error:
            raise DatasetError(
                f"{shard.path}: batch {batch} can't be read: {error.strerror}; check the disk"
            ) from error


def _place(shard: _Shard, batch: int, column: _Column) -> str:
    start = column.offset[batch]
    return f"{shard.path}: batch {batch}, key {column.name!r}: bytes {start} to {start + column.size[batch]}"
