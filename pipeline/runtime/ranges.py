"""Reads batches of a dataset into leased buffers, by byte ranges, and checks them.

A batch passes through few lines of Python here, and through few calls that let go of the interpreter lock: where threads
hand it to each other, a batch can lose more time than its reading takes. So what is looked up at every batch is laid out
in plain tuples when a shard is opened, and arrays are made when they are asked for.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import preadv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqprep.config import suggestion
from seqprep.errors import ConfigError, CorruptError, DatasetError
from seqprep.files import FileCache, read_exactly
from seqprep.runtime.pool import Lease, aligned
from seqprep.shards import Dataset, Decoder, Sidecar, crc32c
from seqprep.types import Array, Int64, UInt8

LeaseOf = Callable[[int], Lease]
"""Gives memory of a number of bytes."""


class _Range(NamedTuple):
    """One array of one batch."""

    place: int
    """Where it goes in the batch's memory."""
    size: int
    offset: int
    """Where it is in the shard."""
    crc: int
    shape: tuple[int, ...]


class Entry(NamedTuple):
    """One batch of a shard."""

    ranges: tuple[_Range, ...]
    """Of each key that is read."""
    array_bytes: int
    """Of all arrays, each aligned; the block of the fields comes behind them."""
    block: slice
    """The batch's block among those of the shard."""
    begin: int
    """The batch's first row in the shard."""
    end: int
    """One past its last."""
    frames: int
    """Valid frames of the first key that is read, context included."""

    @property
    def nbytes(self) -> int:
        """Bytes of the keys' arrays, padding included."""
        return sum([found.size for found in self.ranges])


class _Field(NamedTuple):
    """A field of the rows."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """Of one row."""
    row_bytes: int


class _Shard:
    """A shard's tables, made ready for the reading loop."""

    __slots__ = ("blocks", "decoder", "dtypes", "entries", "fields", "path", "tags")

    def __init__(self, path: Path, sidecar: Sidecar, keys: Sequence[str]) -> None:
        table = sidecar.table
        fields = {
            name: values for name, values in table.fields.items() if "/" not in name or name.split("/")[0] in keys
        }
        self.path, self.tags = str(path), table.tags
        self.decoder = Decoder(path, sidecar, sidecar.pieces) if sidecar.pieces is not None else None
        self.dtypes = {key: (number, np.dtype(table.keys[key].dtype)) for number, key in enumerate(keys)}
        self.fields = {
            name: _Field(values.dtype, values.shape[1:], values[:1].nbytes) for name, values in fields.items()
        }
        blocks, block_bounds = _field_blocks(list(fields.values()), table.batch_rows)
        self.blocks = blocks.data
        self.entries = _entries(sidecar, keys, block_bounds)


def _entries(sidecar: Sidecar, keys: Sequence[str], block_bounds: Int64) -> list[Entry]:
    table = sidecar.table
    place = np.zeros(len(table.batch_rows), np.int64)
    per_key = []
    for key in keys:
        size, spec = table.array_bytes(key), table.keys[key]
        axes = [table.batch_rows.tolist(), *([table.batch_frames[key].tolist()] if spec.has_time else [])]
        shapes = [(*lengths, *spec.shape) for lengths in zip(*axes, strict=True)]
        columns = (place, size, sidecar.offsets[key], sidecar.crcs[key])
        per_key.append(list(map(_Range, *(column.tolist() for column in columns), shapes)))
        place = place + aligned(size)
    counted = next(f"{key}/size0" for key in table.keys if key in (*keys, *table.keys) and table.keys[key].has_time)
    frames = np.add.reduceat(table.fields[counted], table.bounds[:-1], dtype=np.int64)
    blocks = map(slice, block_bounds[:-1].tolist(), block_bounds[1:].tolist())
    rows = table.bounds.tolist()
    return list(map(Entry, zip(*per_key, strict=True), place.tolist(), blocks, rows[:-1], rows[1:], frames.tolist()))


def _field_blocks(fields: Sequence[Array], batch_rows: Int64) -> tuple[UInt8, Int64]:
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
    return blocks, bounds


class Batch(Mapping[str, Any]):
    """One batch: names to arrays, batch first, and `seq_tag` to `Tags`; docs/format.md lists the names.

    Every array lies on 64 bytes, in memory that is the caller's until the last array on it is gone. An array is made
    when it is first asked for, so that those nobody uses cost nothing; `dict(batch)` makes all.
    """

    __slots__ = ("_lease", "_made", "_shard", "entry")

    def __init__(self, shard: _Shard, entry: Entry, lease: Lease) -> None:
        self._shard, self.entry, self._lease = shard, entry, lease
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        made = self._made.get(name)
        if made is None:
            found = self._shard.dtypes.get(name)
            if found is None:
                made = self._make(name)
            else:
                place, _, _, _, shape = self.entry.ranges[found[0]]
                made = np.ndarray(shape, found[1], self._lease, place)
            self._made[name] = made
        return made

    def _make(self, name: str) -> Any:
        shard, (_, place, _, begin, end, _) = self._shard, self.entry
        if name == "seq_tag":
            return shard.tags.take(np.arange(begin, end))
        wanted = shard.fields[name]
        for other, field in shard.fields.items():
            if other == name:
                break
            place += aligned(field.row_bytes * (end - begin))
        return np.ndarray((end - begin, *wanted.shape), wanted.dtype, self._lease, place)

    def __iter__(self) -> Iterator[str]:
        yield from self._shard.dtypes
        yield from self._shard.fields
        yield "seq_tag"

    def __len__(self) -> int:
        return len(self._shard.dtypes) + len(self._shard.fields) + 1

    def __contains__(self, name: object) -> bool:
        return name in self._shard.dtypes or name in self._shard.fields or name == "seq_tag"

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
        self._files = FileCache()

    def __len__(self) -> int:
        """Batches of the dataset."""
        return self._before[-1]

    def close(self) -> None:
        """Closes the shards' files."""
        self._files.close()

    def _open(self, number: int) -> _Shard:
        with self._lock:
            shard = self._shards.get(number)
            if shard is None:
                shard = _Shard(self._dataset.shard_path(number), self._dataset.sidecar(number), self.keys)
                self._shards[number] = shard
            return shard

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
        entry = shard.entries[batch - self._before[number]]
        ranges, array_bytes, block, _, _, _ = entry
        fields = shard.blocks[block]
        lease = lease_of(array_bytes + len(fields))
        memory = memoryview(lease)  # type: ignore[arg-type]
        try:
            file = self._files.get(shard.path)
            if shard.decoder is not None:
                shard.decoder.fill(
                    file.descriptor,
                    [(memory[at : at + size], offset, crc if verify else None) for at, size, offset, crc, _ in ranges],
                )
                ranges = ()
            for place, size, offset, crc, _ in ranges:
                target = memory[place : place + size]
                if preadv(file.descriptor, [target], offset) != size and (
                    read_exactly(file.descriptor, target, offset) != size
                ):
                    raise CorruptError(f"{_place(shard, entry, offset)}: the shard ends before them; make it again")
                if verify and crc32c(target) != crc:
                    raise CorruptError(
                        f"{_place(shard, entry, offset)} differ from their checksum; "
                        "seqprep verify finds all such places"
                    )
        except OSError as error:
            number = shard.entries.index(entry)
            raise DatasetError(
                f"{shard.path}: batch {number} can't be read: {error.strerror}; check the disk"
            ) from error
        memory[array_bytes:] = fields
        return Batch(shard, entry, lease)


def _place(shard: _Shard, entry: Entry, offset: int) -> str:
    number = next(number for number, found in enumerate(entry.ranges) if found.offset == offset and found.size)
    return (
        f"{shard.path}: batch {shard.entries.index(entry)}, key {list(shard.dtypes)[number]!r}: "
        f"bytes {offset} to {offset + entry.ranges[number].size}"
    )
