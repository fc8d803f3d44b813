"""A shard that nobody writes: its rows are planned when the first of its batches is asked for, and its sequences read
when the first row of them is.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqprep.execution import MemoryOf, Normalizer, ShardGatherer, shard_table, tags_of_rows
from seqprep.planning import ShardTask
from seqprep.runtime import Batch, LeaseOf, OpenedShard
from seqprep.shards import NO_REGIONS, ShardTable, Sidecar
from seqprep.sources import Source
from seqprep.types import Int64, KeySpec, UInt8

_UNREAD, _BEING_READ, _READ = 0, 1, 2
_SECONDS_TOGETHER, _MOST_AHEAD = 0.002, 16
"""Sequences of so many batches at most are read together, if it takes no longer; threads that take turns less often lose
less time by it.
"""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What all shards of a stream are made from."""

    source: Source
    stored: Mapping[str, KeySpec]
    keys: Sequence[str]
    """Those that are read."""
    pad_values: Mapping[str, float]
    normalizers: Mapping[str, Normalizer]


class Memory:
    """Bytes that are used again: the first write to fresh ones costs as much as reading them full."""

    def __init__(self) -> None:
        self._free: queue.SimpleQueue[UInt8] = queue.SimpleQueue()

    def take(self, size: int) -> UInt8:
        """Gives so many bytes, or more."""
        kept = []
        with contextlib.suppress(queue.Empty):
            while True:
                kept.append(self._free.get_nowait())
        kept.sort(key=len)
        fitting = next((place for place, bytes_ in enumerate(kept) if len(bytes_) >= size), None)
        if fitting is None:  # the next one may be a little larger; what is too small now is let go
            return np.empty(size + size // 8, np.uint8)
        found = kept.pop(fitting)
        for bytes_ in kept:
            self._free.put(bytes_)
        return found

    def give_back(self, bytes_: UInt8) -> None:
        """Takes bytes back; at any moment, in any thread."""
        self._free.put(bytes_)


class LiveShard:
    """Gives the batches of one shard, to several threads at a time. Each sequence is read once, by whoever needs it first.

    Args:
        origin: what it is made from.
        task: its sequences.
        name: for messages.
        memory: where its sequences' bytes come from, and go when the shard isn't used any more.
    """

    def __init__(self, origin: Origin, task: ShardTask, name: str, memory: Memory) -> None:
        plan, stored = task.plan(), origin.stored
        table = shard_table(plan, task, stored, tags_of_rows(plan, origin.source.tags))
        self._opened = OpenedShard(Path(name), _placeless(table), origin.keys, 0, False)
        self._gatherer = ShardGatherer(
            origin.source,
            task,
            plan,
            {key: stored[key] for key in origin.keys},
            origin.pad_values,
            origin.normalizers,
            memory=self._memory_of(memory),
        )
        self._state = np.full(len(task.sequence), _UNREAD, np.uint8)
        self._unread = len(self._state)
        self._ahead = 1
        self._changed = threading.Condition()

    def _memory_of(self, memory: Memory) -> MemoryOf:
        def take(size: int) -> UInt8:
            taken = memory.take(size)
            weakref.finalize(self, memory.give_back, taken)  # batches are copies: nothing else refers to it by then
            return taken

        return take

    def read(self, number: int, lease_of: LeaseOf) -> Batch:
        """Makes one batch.

        Args:
            number: of the batch in the shard.
            lease_of: gives the memory.

        Raises:
            SourceError: a sequence can't be read, or holds a value that the stored dtype can't.
        """
        if self._unread:
            self._read_sequences(number)
        shard = self._opened
        entry = shard.entries[number]
        lease = lease_of(entry.memory_bytes)
        for key, (place, shape) in zip(shard.dtypes, entry.arrays, strict=True):
            self._gatherer.fill(key, number, np.ndarray(shape, shard.dtypes[key][1], lease, place))
        fields = shard.blocks[entry.block]
        memoryview(lease)[entry.array_bytes : entry.array_bytes + len(fields)] = fields  # type: ignore[arg-type]
        return Batch(shard, entry, lease)

    def _read_sequences(self, batch: int) -> None:
        """Sees that a batch's sequences are read: reads those that nobody reads, and waits for those that another does."""
        state, owners = self._state, self._gatherer.owners(batch, batch + 1)
        while not (state[owners] == _READ).all():
            mine, became = owners[:0], _UNREAD
            try:
                with self._changed:
                    if (state[owners] == _UNREAD).any():
                        ahead = self._gatherer.owners(batch, batch + self._ahead)
                        mine = np.unique(ahead[state[ahead] == _UNREAD])
                        state[mine] = _BEING_READ
                    elif (state[owners] == _BEING_READ).any():
                        self._changed.wait()  # who reads them tells, also of a failure
                if len(mine):
                    self._read(mine)
                became = _READ
            finally:  # an interrupt, too, may not leave them claimed
                with self._changed:
                    state[mine] = became
                    self._unread -= len(mine) if became == _READ else 0
                    self._changed.notify_all()

    def _read(self, owners: Int64) -> None:
        """Reads sequences, and finds for how many batches to do so together next time: more than one where it is quick."""
        started = time.perf_counter()
        self._gatherer.read(owners)
        each = (time.perf_counter() - started) / self._ahead
        self._ahead = max(min(int(_SECONDS_TOGETHER / max(each, 1e-9)), 2 * self._ahead, _MOST_AHEAD), 1)


def _placeless(table: ShardTable) -> Sidecar:
    """Gives a shard's table the form of one that lies in a file, for what reads tables."""
    nowhere = np.zeros(len(table.batch_rows), np.int64)
    return Sidecar(
        format="",
        file_bytes=0,
        fingerprint="",
        table=table,
        offsets=dict.fromkeys(table.keys, nowhere),
        crcs=dict.fromkeys(table.keys, nowhere.astype(np.uint32)),
        regions=NO_REGIONS,
    )
