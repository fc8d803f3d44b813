"""Every decision, from lengths alone: pure, vectorised, deterministic.

rules, stored = resolve(config, source.keys)       # a configuration worked out against a source
plan = make_plan(lengths, rules)                   # which sequences go into which shard
shard = plan.shard(0)                              # which rows, in which batch
"""

from seqprep.planning.alignment import Alignment, align_lengths, expected_lengths
from seqprep.planning.changes import Changes
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
from seqprep.planning.plan import KeyRows, Plan, ShardPlan, ShardTask, make_plan
from seqprep.planning.rules import Rules, resolve

__all__ = [
    "FIRST_PLACE",
    "OUTSIDE_PLACE",
    "PAD_PLACE",
    "Alignment",
    "Changes",
    "ChunkRule",
    "KeyRows",
    "KeyRule",
    "NeededFrames",
    "Plan",
    "Rules",
    "ShardPlan",
    "ShardTask",
    "align_lengths",
    "expected_lengths",
    "gather_places",
    "make_plan",
    "needed_frames",
    "resolve",
    "unit_places",
]
