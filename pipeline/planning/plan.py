"""The plan: which rows, in which batch, in which shard. Made from lengths alone, before any data is read.

A client plans by sequence (`make_plan`); the rows and batches of a shard are planned where it is written
(`Plan.shard`), so a plan stays small however many chunks there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seqprep.errors import ConfigError
from seqprep.planning.alignment import Alignment
from seqprep.planning.batching import greedy_batches
from seqprep.planning.changes import Changes
from seqprep.planning.chunking import Cutting, cut, cut_sequences
from seqprep.planning.context import context_frames
from seqprep.planning.ordering import order_rows, order_sequences
from seqprep.planning.rules import Rules
from seqprep.planning.sharding import cut_shards
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


@dataclass(frozen=True)
class ShardPlan:
    """Rows and batches of one shard, in the order in which they are written."""

    owner: Int64
    """int64 [rows]: place of each row's sequence among those of the shard."""
    sequence: Int64
    """int64 [rows]: place of each row's sequence in the source."""
    number: Int64
    """int64 [rows]: number of the chunk in its sequence."""
    keys: Mapping[str, KeyRows]
    bounds: Int64
    """int64 [batches + 1]: batch i holds rows bounds[i] up to bounds[i + 1]."""
    sizes: Mapping[str, Int64]
    """For each key with ragged axes, int64 [rows, axes]: their sizes in each row."""

    @property
    def batch_rows(self) -> Int64:
        """Rows of each batch; int64 [batches]."""
        return np.diff(self.bounds)

    def batch_frames(self, key: str) -> Int64:
        """Padded frames of each batch's rows in one key: those of its longest row; int64 [batches]."""
        return np.maximum.reduceat(self.keys[key].frames, self.bounds[:-1])

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
    sizes: Mapping[str, Int64]
    """For each key with ragged axes, int64 [sequences, axes]."""

    @property
    def rows(self) -> int:
        """Rows of the shard."""
        return int((self.stop - self.first).sum())

    def plan(self) -> ShardPlan:
        """Works out the shard's rows and batches."""
        taken = self.stop - self.first
        owner = np.repeat(np.arange(len(taken)), taken)
        number = np.arange(len(owner)) - np.repeat(np.cumsum(taken) - taken - self.first, taken)
        order = order_rows(self.sequence[owner], number, self.rules, self.epoch)
        owner, number = owner[order], number[order]
        cuts = cut_sequences(self.lengths, self.rules, self.sequence, self.epoch).cuts.take(owner)
        keys = {}
        for rule in self.rules.keys:
            length = self.lengths[rule.name][owner]
            core = cut(length, number, cuts, rule, self.rules)
            left, right = context_frames(core.start, core.size, length, rule)
            keys[rule.name] = KeyRows(core.start, core.size, left, left + core.size + right, length)
        bounds = greedy_batches(
            [keys[rule.name].frames for rule in self.rules.keys],
            [rule.max_frames for rule in self.rules.keys],
            self.rules.max_sequences,
        )
        sizes = {name: axes[owner] for name, axes in self.sizes.items()}
        return ShardPlan(owner, self.sequence[owner], number, keys, bounds, sizes)


@dataclass(frozen=True)
class Plan:
    """All shards of a dataset, by sequence."""

    rules: Rules
    epoch: int
    lengths: Mapping[str, Int64]
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
    changes: Changes
    """What was left out, cut off or added."""

    def __len__(self) -> int:
        return len(self.cut_place) - 1

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return int(self.counts.sum())

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
            sizes={name: axes[sequence] for name, axes in self.sizes.items()},
        )

    def shard(self, shard: int) -> ShardPlan:
        """Works out one shard's rows and batches."""
        return self.task(shard).plan()


def make_plan(
    lengths: Mapping[str, Int64] | Alignment,
    rules: Rules,
    epoch: int = 0,
    sizes: Mapping[str, Int64] | None = None,
) -> Plan:
    """Plans a dataset.

    Args:
        lengths: from `align_lengths`; or for each key of the rules, int64 [sequences], in frames that fit together.
        rules: from `resolve`.
        epoch: number of the pass; part of every random draw.
        sizes: for each key with ragged axes, int64 [sequences, axes].

    Raises:
        ConfigError: no sequence gives a row.
    """
    if not isinstance(lengths, Alignment):
        count = len(lengths[rules.input.name])
        lengths = Alignment(dict(lengths), np.zeros(count, bool), {})
    named = {rule.name: np.asarray(lengths.lengths[rule.name], np.int64) for rule in rules.keys}
    places = np.arange(len(lengths.dropped))
    cutting = cut_sequences(named, rules, places, epoch, lengths.dropped)
    changes = _changes(lengths, cutting)
    _check_some_rows(named, cutting, changes, rules)
    order = order_sequences(len(places), rules, epoch)
    ragged = dict(sizes or {})
    units = {name: np.prod(axes, axis=1, dtype=np.int64) for name, axes in ragged.items()}
    shards = cut_shards(order, cutting.cuts, named, rules, units)
    return Plan(rules, epoch, named, cutting.cuts.count, order, shards.place, shards.chunk, ragged, changes)


def _changes(alignment: Alignment, cutting: Cutting) -> Changes:
    lost = {name: int(frames.sum()) for name, frames in cutting.lost.items()}
    return Changes(
        **alignment.counts,
        chunks_dropped_short=int(cutting.short.sum()),
        chunks_shifted=int(cutting.moved.sum()),
        chunks_dropped_context=int(cutting.lacking.sum()),
        frames_lost_to_shift={name: count for name, count in lost.items() if count},
        sequences_without_rows=int((cutting.cuts.count == 0).sum()),
    )


def _check_some_rows(lengths: Mapping[str, Int64], cutting: Cutting, changes: Changes, rules: Rules) -> None:
    """Refuses a plan without rows, and says what became of the sequences."""
    if cutting.cuts.count.any():
        return
    reasons = {
        f"without frames in key {rules.input.name!r} (check the source)": int((lengths[rules.input.name] == 0).sum()),
        "without a full chunk (lower chunk.size, or set chunk.tail to keep)": int((cutting.short > 0).sum()),
        "without a chunk whose context is all real (pad it otherwise)": int((cutting.lacking > 0).sum()),
        "whose keys differ in length (set keys.*.on_mismatch to trim or pad)": changes.sequences_dropped,
    }
    told = ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)
    raise ConfigError(f"none of the {len(cutting.cuts.count)} sequences gives a row: {told}")
