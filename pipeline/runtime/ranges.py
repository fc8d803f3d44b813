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
from typing import Any

import numpy as np

from seqprep.config import shown, suggestion
from seqprep.errors import ConfigError, CorruptError, DatasetError
from seqprep.files import FileCache, read_exactly, unreadable
from seqprep.runtime.opened import Entry, OpenedShard
from seqprep.runtime.pool import Lease, aligned
from seqprep.shards import Dataset, crc32c
from seqprep.types import Array

LeaseOf = Callable[[int], Lease]
"""Gives memory of a number of bytes."""
_MOST_HELD_BYTES = 1 << 26  # of small keys, over all shards of a reader that are open
_MOST_OPENED_BYTES = 1 << 28  # of open shards' tables, over all shards of a reader


class Batch(Mapping[str, Any]):
    """One batch: names to arrays, batch first, and `seq_tag` to `Tags`; docs/format.md lists the names.

    Every array lies on 64 bytes, in memory that is the caller's until the last array on it is gone. An array is made
    when it is first asked for, so that those nobody uses cost nothing; `dict(batch)` makes all.
    """

    __slots__ = ("_lease", "_made", "_shard", "entry")

    def __init__(self, shard: OpenedShard, entry: Entry, lease: Lease) -> None:
        self._shard, self.entry, self._lease = shard, entry, lease
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        made = self._made.get(name)
        if made is None:
            found = self._shard.dtypes.get(name)
            if found is None:
                made = self._make(name)
            else:
                place, shape = self.entry.arrays[found[0]]
                made = np.ndarray(shape, found[1], self._lease, place)
            self._made[name] = made
        return made

    def _make(self, name: str) -> Any:
        shard, entry = self._shard, self.entry
        if name == "seq_tag":
            return shard.tags.stretch(entry.begin, entry.end)
        if name in shard.derived:
            return self._derive(name)
        place, shape, dtype = shard.placed(entry.end - entry.begin)[name]
        return np.ndarray(shape, dtype, self._lease, entry.array_bytes + place)

    def _derive(self, name: str) -> Array:
        """Makes what follows from the fields: where in its row each frame's segment is."""
        shard, entry = self._shard, self.entry
        shapes = {other: entry.arrays[shard.dtypes[key][0]][1][:2] for other, (key, _) in shard.derived.items()}
        place = entry.array_bytes + entry.block.stop - entry.block.start
        for other, (rows, frames) in shapes.items():
            if other == name:
                break
            place += aligned(4 * rows * frames)
        key, make = shard.derived[name]
        out = np.ndarray(shapes[name], np.int32, self._lease, place)
        return make(self[f"{key}/size0"], self["segment_row"], segment_starts(self, key), out)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shard.names)

    def __len__(self) -> int:
        return len(self._shard.names)

    def __contains__(self, name: object) -> bool:
        return name in self._shard.names

    def __repr__(self) -> str:
        return f"Batch({', '.join(f'{name}: {self[name].dtype} {list(self[name].shape)}' for name in self)})"

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


def segment_starts(batch: Mapping[str, Any], key: str) -> Any:
    """Where the segments of a batch begin in its rows, in a key's own frames; integers [S]."""
    own = f"{key}/segment_start"
    return batch[own if own in batch else "segment_start"]


class BatchReader:
    """Reads any batch of a dataset. Safe to use from several threads.

    The tables of shards that were opened stay in memory, up to 256 MB of them; then the shard opened first is dropped.
    Its batches stay valid.

    Args:
        dataset: the dataset.
        keys: which keys to read; all unless told.
        verify: check what is held in memory when it is read.
        least_opened: so many shards stay open, whatever their tables take.

    Raises:
        ConfigError: a key isn't in the dataset.
    """

    def __init__(
        self, dataset: Dataset, keys: Sequence[str] | None = None, *, verify: bool = True, least_opened: int = 1
    ) -> None:
        known = dataset.index.keys
        for name in keys or ():
            if name not in known:
                raise ConfigError(f"{dataset.path}: holds no key {shown(name)}{suggestion(name, known)}")
        self.keys = tuple(name for name in known if keys is None or name in keys)
        self._dataset = dataset
        self._before: list[int] = dataset.batches_before().tolist()
        self._shards: dict[int, OpenedShard] = {}  # the one opened first comes first
        self._verify, self._least_opened = verify, least_opened
        self._may_hold, self._may_open = _MOST_HELD_BYTES, _MOST_OPENED_BYTES
        self.shards_opened = 0
        self._lock = threading.Lock()
        self._files = FileCache()

    def __len__(self) -> int:
        """Batches of the dataset."""
        return self._before[-1]

    def close(self) -> None:
        """Closes the shards' files."""
        self._files.close()

    def renew_locks(self) -> None:
        """Makes locks and files of its own in a forked child, where those of the parent may be held for good."""
        self._lock, self._files = threading.Lock(), FileCache()

    def describe(self, batch: int) -> str:
        """Names a batch by its shard and its number there."""
        number = bisect_right(self._before, batch) - 1
        return f"{self._dataset.shard_path(number)}: batch {batch - self._before[number]}"

    def _open(self, number: int) -> OpenedShard:
        with self._lock:
            shard = self._shards.get(number)
            if shard is None:
                path, sidecar = self._dataset.shard_path(number), self._dataset.sidecar(number)
                shard = OpenedShard(path, sidecar, self.keys, self._may_hold, self._verify)
                self._shards[number] = shard
                self._account(shard, 1)
                self.shards_opened += 1
                while self._may_open < 0 and len(self._shards) > self._least_opened:
                    self._account(self._shards.pop(next(iter(self._shards))), -1)
            return shard

    def _account(self, shard: OpenedShard, sign: int) -> None:
        self._may_hold -= sign * shard.held_bytes
        self._may_open -= sign * shard.nbytes

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
        try:
            shard = self._shards.get(number) or self._open(number)
        except OSError as error:
            raise self._unreadable(batch, error) from error
        entry = shard.entries[batch - self._before[number]]
        ranges, array_bytes, block, memory_bytes, _, _, _, _, _ = entry
        fields = shard.blocks[block]
        lease = lease_of(memory_bytes)
        memory = memoryview(lease)  # type: ignore[arg-type]
        try:
            file = self._files.get(shard.path)
            if shard.decoder is not None:
                shard.decoder.fill(
                    file.descriptor,
                    [(memory[at : at + size], offset, crc if verify else None) for at, size, offset, crc in ranges],
                )
                ranges = ()
            for number, (place, size, offset, crc) in enumerate(ranges):
                target = memory[place : place + size]
                if preadv(file.descriptor, [target], offset) != size and (
                    read_exactly(file.descriptor, target, offset) != size
                ):
                    raise CorruptError(
                        f"{_place(shard, entry, number)}: the shard ends before them; seqprep repair makes it again"
                    )
                if verify and crc32c(target) != crc:
                    raise CorruptError(
                        f"{_place(shard, entry, number)} differ from their checksum; "
                        "seqprep verify finds all such places"
                    )
        except OSError as error:
            raise self._unreadable(batch, error) from error
        memory[array_bytes : array_bytes + len(fields)] = fields
        return Batch(shard, entry, lease)

    def _unreadable(self, batch: int, error: OSError) -> DatasetError:
        return DatasetError(f"{self.describe(batch)} can't be read: {unreadable(error)}")


def _place(shard: OpenedShard, entry: Entry, number: int) -> str:
    """Names the place of one of the batch's ranges."""
    found = entry.ranges[number]
    return (
        f"{shard.path}: batch {shard.entries.index(entry)}, key {shard.read[number]!r}: "
        f"bytes {found.offset} to {found.offset + found.size}"
    )
