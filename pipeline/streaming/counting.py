"""What has to be known of a pass before its first batch: how many there are, and of what shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqprep.execution import needed_stretches
from seqprep.lazy import cached_property
from seqprep.planning import NO_ROW, PassPlan, ShardPlan, ShardTask
from seqprep.types import Array, Int64, KeySpec


@dataclass(frozen=True)
class CountedPass:
    """The plan of a pass, and its batches counted."""

    plan: PassPlan
    bounds: Int64
    """int64 [shards + 1]: where each shard begins among the batches of the pass."""
    rows: Int64
    """int64 [batches]: rows of each, without those that only fill it up; segments, where rows are packed."""
    sizes: Mapping[str, Int64]
    """What decides the shape of each key's array, int64 [batches, n]; rows under the empty name."""
    held_bytes: Int64
    """int64 [shards]: what each shard's sequences take in memory."""

    @cached_property
    def before(self) -> list[int]:
        """The bounds, for looking up a batch."""
        found: list[int] = self.bounds.tolist()
        return found

    def shapes(self, keys: Sequence[str]) -> Int64:
        """Gives batches whose arrays have equal shapes the same number, and others another; int64 [batches]."""
        table = np.concatenate([self.sizes[name] for name in ("", *keys)], axis=1)
        return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)


def count_pass(plan: PassPlan, stored: Mapping[str, KeySpec]) -> CountedPass:
    """Plans every shard of a pass, and keeps what is said above of it.

    Args:
        plan: of the pass.
        stored: the keys as they would be stored.
    """
    batches, rows, held = [0], [np.zeros(0, np.int64)], []
    sizes: dict[str, list[Array]] = {name: [] for name in ("", *stored)}
    for number in range(len(plan)):
        task = plan.task(number)
        shard = task.plan()
        batches.append(len(shard.batch_rows))
        real = np.concatenate([np.zeros(1, np.int64), np.cumsum(shard.sequence != NO_ROW)])
        rows.append(np.diff(real[shard.bounds]))
        held.append(_held_bytes(task, shard, stored))
        sizes[""].append(shard.batch_rows[:, None])
        for name, spec in stored.items():
            sizes[name].append(_key_sizes(shard, name, spec))
    return CountedPass(
        plan,
        np.cumsum(batches),
        np.concatenate(rows),
        {name: np.concatenate(columns) for name, columns in sizes.items()},
        np.array(held, np.int64),
    )


def _key_sizes(shard: ShardPlan, name: str, spec: KeySpec) -> Int64:
    if not spec.has_time:
        return np.diff(shard.bounds)[:, None]
    frames = shard.batch_frames(name)[:, None]
    return np.concatenate([frames, shard.batch_sizes(name)], axis=1) if spec.ragged else frames


def _held_bytes(task: ShardTask, shard: ShardPlan, stored: Mapping[str, KeySpec]) -> int:
    rules = {rule.name: rule for rule in task.rules.keys}
    units = {
        name: needed_stretches(task, shard, rules[name], spec).total if spec.has_time else len(task.sequence)
        for name, spec in stored.items()
    }
    return sum(units[name] * spec.nbytes for name, spec in stored.items())
