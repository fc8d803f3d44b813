"""The plan of a pass: which rows, in which batch, in which shard. Made from lengths alone, before any data is read.

A client plans by sequence (`make_plan`); the rows and batches of a shard are planned where it is written
(`Plan.shard`), so a plan stays small however many chunks there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np

from seqprep.planning.batching import NO_ROW
from seqprep.planning.buckets import LengthClasses
from seqprep.planning.chunking import cut, cut_sequences
from seqprep.planning.context import context_frames
from seqprep.planning.layout import Segments, lay_out
from seqprep.planning.ordering import order_rows
from seqprep.planning.report import Count, CutReport
from seqprep.planning.rules import Rules
from seqprep.types import Int64


@dataclass(frozen=True)
class KeyRows:
    """Rows of a shard in one key, in its frames; all int64 [rows]."""

    start: Int64
    """First frame of the core in its sequence."""
    core: Int64
    """Frames of the core."""
    left: Int64
    """Frames of context in front of the core."""
    frames: Int64
    """Frames of the row, context included."""
    length: Int64
    """Frames of the whole sequence."""

    def take(self, places: Int64) -> KeyRows:
        """Gives the rows at these places; all numbers are 0 where a place is NO_ROW."""
        real = places != NO_ROW
        columns = (getattr(self, column.name) for column in fields(self))
        return KeyRows(*(np.where(real, column[places], 0) for column in columns))


@dataclass(frozen=True)
class ShardPlan:
    """Rows and batches of one shard, in the order in which they are written.

    Where rows are packed, its rows are the segments that share them; their own number is `batch_rows`.
    """

    owner: Int64
    """int64 [rows]: place of each row's sequence among those of the shard; their number for an empty row."""
    sequence: Int64
    """int64 [rows]: place of each row's sequence in the source; NO_ROW for an empty row."""
    number: Int64
    """int64 [rows]: number of the chunk in its sequence."""
    keys: Mapping[str, KeyRows]
    bounds: Int64
    """int64 [batches + 1]: batch i holds rows bounds[i] up to bounds[i + 1]."""
    batch_rows: Int64
    """int64 [batches]: B of each batch."""
    padded_frames: Mapping[str, Int64]
    """For each key, int64 [batches]: T of each batch."""
    segments: Segments | None
    """Where rows lie in those that they share; None unless rows are packed."""
    dropped: Count
    """What `drop_last` left out."""
    sizes: Mapping[str, Int64]
    """For each key with ragged axes, int64 [rows, axes]: their sizes in each row."""

    def batch_frames(self, key: str) -> Int64:
        """Padded frames of each batch's rows in one key; int64 [batches]."""
        return self.padded_frames[key]

    def batch_sizes(self, key: str) -> Int64:
        """Padded sizes of a key's ragged axes: those of the batch's largest row; int64 [batches, axes]."""
        return np.maximum.reduceat(self.sizes[key], self.bounds[:-1], axis=0)


@dataclass(frozen=True)
class ShardTask:
    """The sequences of one shard: all that its rows and batches follow from. Small, and picklable."""

    rules: Rules
    epoch: int
    sequence: Int64
    """int64 [sequences]: places in the source, in order."""
    first: Int64
    """int64 [sequences]: the first chunk taken from each."""
    stop: Int64
    """int64 [sequences]: one past the last."""
    lengths: Mapping[str, Int64]
    """For each key with time, int64 [sequences]."""
    classes: LengthClasses | None = None
    sizes: Mapping[str, Int64] = field(default_factory=dict)
    """For each key with ragged axes, int64 [sequences, axes]."""

    @property
    def rows(self) -> int:
        """Rows of the shard."""
        return int((self.stop - self.first).sum())

    def plan(self) -> ShardPlan:
        """Works out the shard's rows and batches."""
        owner, number = self.chunks()
        order = order_rows(self.sequence[owner], number, self.rules, self.epoch)
        owner, number = owner[order], number[order]
        keys = self.key_rows(owner, number)
        laid = lay_out({name: rows.frames for name, rows in keys.items()}, self.rules, self.classes)
        places, empty = laid.entries, laid.entries == NO_ROW
        dropped = Count(rows=len(laid.dropped), frames=int(keys[self.rules.input.name].core[laid.dropped].sum()))
        sizes = {name: np.concatenate([axes, np.zeros_like(axes[:1])]) for name, axes in self.sizes.items()}
        owner = np.where(empty, len(self.sequence), owner[places])
        return ShardPlan(
            owner=owner,
            sequence=np.where(empty, NO_ROW, np.append(self.sequence, NO_ROW)[owner]),
            number=np.where(empty, 0, number[places]),
            keys={name: rows.take(places) for name, rows in keys.items()},
            bounds=laid.bounds,
            batch_rows=laid.batch_rows,
            padded_frames=laid.batch_frames,
            segments=laid.segments,
            dropped=dropped,
            sizes={name: axes[owner] for name, axes in sizes.items()},
        )

    def chunks(self) -> tuple[Int64, Int64]:
        """The shard's chunks, sequence by sequence: place of the sequence among those of the shard, and number in it."""
        taken = self.stop - self.first
        owner = np.repeat(np.arange(len(taken)), taken)
        return owner, np.arange(len(owner)) - np.repeat(np.cumsum(taken) - taken - self.first, taken)

    def key_rows(self, owner: Int64, number: Int64) -> dict[str, KeyRows]:
        """Where chunks lie in each key.

        Args:
            owner: int64 [rows]: place of each one's sequence among those of the shard.
            number: int64 [rows]: its number in it.
        """
        cuts = cut_sequences(self.lengths, self.rules, self.sequence, self.epoch).cuts.take(owner)
        keys = {}
        for rule in self.rules.keys:
            length = self.lengths[rule.name][owner]
            core = cut(length, number, cuts, rule, self.rules)
            left, right = context_frames(core.start, core.size, length, rule)
            keys[rule.name] = KeyRows(core.start, core.size, left, left + core.size + right, length)
        return keys

    def frames(self) -> dict[str, Int64]:
        """For each key, frames of the shard's rows, context included, in no particular order; int64 [rows]."""
        return {name: rows.frames for name, rows in self.key_rows(*self.chunks()).items()}


@dataclass(frozen=True)
class Plan:
    """All shards of a dataset, by sequence."""

    rules: Rules
    epoch: int
    lengths: Mapping[str, Int64]
    classes: LengthClasses | None
    counts: Int64
    """int64 [sequences]: chunks of each sequence, in the source's order."""
    order: Int64
    """int64 [sequences]: places in the source, in the order of writing."""
    cut_place: Int64
    """int64 [shards + 1]: shard i begins at this place of the order …"""
    cut_chunk: Int64
    """int64 [shards + 1]: … with this chunk."""
    sizes: Mapping[str, Int64]
    """For each key with ragged axes, int64 [sequences, axes]."""
    report: CutReport
    """What cutting did."""
    row_bytes: int
    """Of all rows, context included and padding not."""

    def __len__(self) -> int:
        return len(self.cut_place) - 1

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return int(self.counts[self.order].sum())

    @property
    def sequences(self) -> int:
        """Sequences of all shards, those without a row included."""
        return len(self.order)

    def task(self, shard: int) -> ShardTask:
        """Gives what is needed to plan one shard's rows.

        Args:
            shard: number of the shard, in [0, len(self)).
        """
        begin, end = int(self.cut_place[shard]), int(self.cut_place[shard + 1])
        first_chunk, end_chunk = int(self.cut_chunk[shard]), int(self.cut_chunk[shard + 1])
        sequence = self.order[begin : end + (end_chunk > 0)]
        first = np.zeros(len(sequence), np.int64)
        stop = self.counts[sequence]
        first[:1] = first_chunk
        if end_chunk:
            stop[-1] = end_chunk
        return ShardTask(
            rules=self.rules,
            epoch=self.epoch,
            sequence=sequence,
            first=first,
            stop=stop,
            lengths={name: frames[sequence] for name, frames in self.lengths.items()},
            classes=self.classes,
            sizes={name: axes[sequence] for name, axes in self.sizes.items()},
        )

    def shard(self, shard: int) -> ShardPlan:
        """Works out one shard's rows and batches."""
        return self.task(shard).plan()
