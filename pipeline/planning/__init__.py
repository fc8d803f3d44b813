"""Every decision, from lengths alone: pure, vectorised, deterministic.

rules, stored = resolve(config, source.keys)       # a configuration worked out against a source
plan = make_plan(lengths, rules)                   # which sequences go into which shard, in one pass over all of them
shard = plan.shard(0)                              # which rows, in which batch

selected = select(lengths["data"], counts, tags, SelectRule.of(config, None))
parts = plan_parts(lengths, tags, selected, rules, SplitRule.of(config))  # all passes over each part of a split
"""

from seqprep.planning.alignment import Alignment, align_lengths, expected_lengths
from seqprep.planning.batching import NO_ROW
from seqprep.planning.chunking import count_chunks
from seqprep.planning.dataset import WHOLE, DatasetPlan, PassRecipe, plan_parts
from seqprep.planning.gathering import (
    FIRST_PLACE,
    OUTSIDE_PLACE,
    PAD_PLACE,
    NeededFrames,
    gather_places,
    needed_frames,
    unit_places,
)
from seqprep.planning.key_rules import ChunkRule, KeyRule
from seqprep.planning.layout import Segments
from seqprep.planning.layout_rules import BatchRule, OrderRule
from seqprep.planning.packing import positions, scatter, segment_ids
from seqprep.planning.passes import GlobalPlan, PassPlan, make_plan
from seqprep.planning.plan import KeyRows, Plan, ShardPlan, ShardTask
from seqprep.planning.report import Count, CutReport, OverBudget, Report, joined, report_lines
from seqprep.planning.rules import Rules, resolve
from seqprep.planning.selection import Selected, SelectRule, SplitRule, count_of, select

__all__ = [
    "FIRST_PLACE",
    "NO_ROW",
    "OUTSIDE_PLACE",
    "PAD_PLACE",
    "WHOLE",
    "Alignment",
    "BatchRule",
    "ChunkRule",
    "Count",
    "CutReport",
    "DatasetPlan",
    "GlobalPlan",
    "KeyRows",
    "KeyRule",
    "NeededFrames",
    "OrderRule",
    "OverBudget",
    "PassPlan",
    "PassRecipe",
    "Plan",
    "Report",
    "Rules",
    "Segments",
    "SelectRule",
    "Selected",
    "ShardPlan",
    "ShardTask",
    "SplitRule",
    "align_lengths",
    "count_chunks",
    "count_of",
    "expected_lengths",
    "gather_places",
    "joined",
    "make_plan",
    "needed_frames",
    "plan_parts",
    "positions",
    "report_lines",
    "resolve",
    "scatter",
    "segment_ids",
    "select",
    "unit_places",
]
