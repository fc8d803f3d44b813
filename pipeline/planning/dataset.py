"""Plans whole datasets: select → length classes over all → split → a plan for each pass over each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqprep.lazy import cached_property
from seqprep.planning.buckets import LengthClasses
from seqprep.planning.chunking import count_chunks
from seqprep.planning.layout import padded_lengths
from seqprep.planning.packing import segment_frames
from seqprep.planning.passes import PassPlan, length_classes, make_plan
from seqprep.planning.plan import ShardPlan, ShardTask
from seqprep.planning.report import ROW_FRAMES, OverBudget, Report, joined
from seqprep.planning.rules import Rules
from seqprep.planning.selection import REST, Selected, SplitRule, count_of, split
from seqprep.types import Int64, Tags

WHOLE = ""
"""Name of the only part where there is no split."""


@dataclass(frozen=True)
class PassRecipe:
    """All that a pass is planned from, but its number; see `make_plan`."""

    lengths: Mapping[str, Int64]
    rules: Rules
    places: Int64
    classes: LengthClasses | None
    sizes: Mapping[str, Int64] | None
    aligned: Mapping[str, Any] | None

    def plan(self, number: int) -> PassPlan:
        """Plans any pass, also one beyond those that the rules ask for.

        Raises:
            ConfigError: no sequence gives a row.
        """
        return make_plan(
            self.lengths,
            self.rules,
            number,
            places=self.places,
            classes=self.classes,
            sizes=self.sizes,
            aligned=self.aligned,
        )


@dataclass(frozen=True)
class DatasetPlan:
    """All passes of one dataset; its shards are numbered through from pass to pass."""

    passes: tuple[PassPlan, ...]
    report: Report
    recipe: PassRecipe
    """What they were planned from."""

    @cached_property
    def _shards_before(self) -> Int64:
        return np.cumsum([0, *map(len, self.passes)])

    def __len__(self) -> int:
        return int(self._shards_before[-1])

    @property
    def rows(self) -> int:
        """Rows of all shards, those included that `drop_last` is going to leave out."""
        return sum(plan.rows for plan in self.passes)

    @property
    def least_bytes(self) -> int:
        """Bytes that the arrays of all shards have at least: those of the rows without padding, known without planning
        any shard; 0 where `drop_last` is going to leave out some."""
        return 0 if self.recipe.rules.batch.drop_last else sum(plan.row_bytes for plan in self.passes)

    @property
    def sequences(self) -> int:
        """Sequences of a pass, those without a row included."""
        return self.passes[0].sequences

    def task(self, shard: int) -> ShardTask:
        """Gives what is needed to plan one shard's rows; its `epoch` is the pass.

        Args:
            shard: number of the shard, in [0, len(self)).
        """
        number = int(np.searchsorted(self._shards_before, shard, side="right")) - 1
        return self.passes[number].task(shard - int(self._shards_before[number]))

    def shard(self, shard: int) -> ShardPlan:
        """Works out one shard's rows and batches."""
        return self.task(shard).plan()


def plan_parts(
    lengths: Mapping[str, Int64],
    tags: Tags,
    selected: Selected,
    rules: Rules,
    split_rule: SplitRule | None,
    *,
    sizes: Mapping[str, Int64] | None = None,
    aligned: Mapping[str, Any] | None = None,
) -> dict[str, DatasetPlan]:
    """Plans every part of a split, or the whole.

    Args:
        lengths: for each key of the rules, int64 [sequences], in frames; those of the selected are checked.
        tags: of all sequences.
        selected: the sequences to take.
        rules: from `resolve`.
        split_rule: the parts; None if there is one alone.
        sizes: for each key with ragged axes, int64 [sequences, axes].
        aligned: the counts of an `Alignment`, for the report.

    Returns:
        For each part its plan; under WHOLE if there is no split.

    Raises:
        ConfigError: a part is empty.
    """
    classes = length_classes(lengths, selected.places, rules)
    parts = {WHOLE: selected.places} if split_rule is None else split(selected.places, tags, split_rule)
    counts = count_chunks(lengths, rules)
    inputs = lengths[rules.input.name]
    rest = {} if split_rule is None else {"split": count_of(parts.pop(REST), inputs, counts)}
    planned = {}
    for name, places in parts.items():
        recipe = PassRecipe(lengths, rules, places, classes, sizes, aligned)
        passes = tuple(recipe.plan(number) for number in range(rules.epochs))
        left_out = joined(selected.left_out, rest)
        report = Report(left_out=left_out, cut=passes[0].report, over_budget=over_budget(passes))
        planned[name] = DatasetPlan(passes, report, recipe)
    return planned


def over_budget(passes: Sequence[PassPlan]) -> dict[str, OverBudget]:
    """Counts the rows, over all passes, that don't even fit alone.

    Returns:
        For each key with such rows; where rows are packed, under ROW_FRAMES those longer than a packed row.
    """
    limits = {
        name: limit for name, limit in _limits(passes[0].rules).items() if _longest_possible(name, passes) > limit
    }
    rows, longest = dict.fromkeys(limits, 0), dict.fromkeys(limits, 0)
    for plan in passes if limits else ():
        for shard in range(len(plan)):
            needed = _needed(plan.task(shard).frames(), plan)
            for name, limit in limits.items():
                over = needed[name][needed[name] > limit]
                rows[name] += len(over)
                longest[name] = max(longest[name], int(over.max(initial=0)))
    return {
        name: OverBudget(rows=rows[name], longest_frames=longest[name], limit_frames=limit)
        for name, limit in limits.items()
        if rows[name]
    }


def _limits(rules: Rules) -> dict[str, int]:
    """What a row may be too long for, by the name under which it is reported."""
    if rules.batch.row_frames is not None:
        return {ROW_FRAMES: rules.batch.row_frames}
    return {rule.name: rule.max_frames for rule in rules.keys if rule.max_frames is not None}


def _needed(frames: Mapping[str, Int64], plan: PassPlan) -> dict[str, Int64]:
    """What rows take of each limit.

    Args:
        frames: for each key, int64 [rows], context included.
        plan: theirs.
    """
    if plan.rules.batch.row_frames is not None:
        return {ROW_FRAMES: segment_frames(frames, {rule.name: rule.rate for rule in plan.rules.keys})}
    return padded_lengths(frames, plan.rules, plan.classes)


def _longest_possible(name: str, passes: Sequence[PassPlan]) -> int:
    """A bound on what any row takes of a limit; most plans are below it, which saves looking at every row."""
    plan = passes[0]
    if plan.rules.batch.pad_to_class and plan.classes is not None:
        return int(plan.classes.widths[name].max())
    widest = {}
    for rule in plan.rules.keys:
        core = plan.lengths[rule.name].max(initial=0) if rule.chunk is None else rule.chunk.size_frames
        left = max(rule.left_frames, rule.left_initial_frames or 0)
        right = max(rule.right_frames, rule.right_final_frames or 0)
        widest[rule.name] = np.array([core + left + right], np.int64)
    return int(_needed(widest, plan)[name][0])
