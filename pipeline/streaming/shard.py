"""A shard that nobody writes: its rows are planned when the first of its batches is asked for, and its sequences read
when the first row of them is.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqprep.execution import Normalizer, ShardGatherer, shard_table, tags_of_rows
from seqprep.planning import ShardTask
from seqprep.runtime import Batch, LeaseOf, OpenedShard
from seqprep.shards import NO_REGIONS, ShardTable, Sidecar
from seqprep.sources import Source
from seqprep.types import Int64, KeySpec

_UNREAD, _BEING_READ, _READ = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What all shards of a stream are made from."""

    source: Source
    stored: Mapping[str, KeySpec]
    keys: Sequence[str]
    """Those that are read."""
    pad_values: Mapping[str, float]
    normalizers: Mapping[str, Normalizer]


class LiveShard:
    """Gives the batches of one shard, to several threads at a time. Each sequence is read once, by whoever needs it first.

    Args:
        origin: what it is made from.
        task: its sequences.
        name: for messages.
    """

    def __init__(self, origin: Origin, task: ShardTask, name: str) -> None:
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
        )
        self._state = np.full(len(task.sequence), _UNREAD, np.uint8)
        self._unread = len(self._state)
        self._changed = threading.Condition()

    def read(self, number: int, lease_of: LeaseOf) -> Batch:
        """Makes one batch.

        Args:
            number: of the batch in the shard.
            lease_of: gives the memory.

        Raises:
            SourceError: a sequence can't be read, or holds a value that the stored dtype can't.
        """
        if self._unread:
            self._read_sequences(self._gatherer.owners(number))
        shard = self._opened
        entry = shard.entries[number]
        lease = lease_of(entry.memory_bytes)
        for key, (place, shape) in zip(shard.dtypes, entry.arrays, strict=True):
            self._gatherer.fill(key, number, np.ndarray(shape, shard.dtypes[key][1], lease, place))
        fields = shard.blocks[entry.block]
        memoryview(lease)[entry.array_bytes : entry.array_bytes + len(fields)] = fields  # type: ignore[arg-type]
        return Batch(shard, entry, lease)

    def _read_sequences(self, owners: Int64) -> None:
        """Sees that sequences are read: reads those that nobody reads, and waits for those that another thread does."""
        state = self._state
        while not (state[owners] == _READ).all():
            mine, became = owners[:0], _UNREAD
            try:
                with self._changed:
                    mine = owners[state[owners] == _UNREAD]
                    state[mine] = _BEING_READ
                    if not len(mine) and (state[owners] == _BEING_READ).any():
                        self._changed.wait()  # who reads them tells, also of a failure
                self._gatherer.read(mine)
                became = _READ
            finally:  # an interrupt, too, may not leave them claimed
                with self._changed:
                    state[mine] = became
                    self._unread -= len(mine) if became == _READ else 0
                    self._changed.notify_all()


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
