"""Every decision, from lengths alone: pure, vectorised, deterministic.

rules, stored = resolve(config, source.keys)       # a configuration worked out against a source
plan = make_plan(lengths, rules)                   # which sequences go into which shard
shard = plan.shard(0)                              # which rows, in which batch
"""

from seqprep.planning.alignment import check_lengths, expected_lengths
from seqprep.planning.gathering import FIRST_PLACE, PAD_PLACE, ZERO_PLACE, NeededFrames, gather_places, needed_frames
from seqprep.planning.plan import KeyRows, Plan, ShardPlan, ShardTask, make_plan
from seqprep.planning.rules import ChunkRule, KeyRule, Rules, resolve

__all__ = [
    "FIRST_PLACE",
    "PAD_PLACE",
    "ZERO_PLACE",
    "ChunkRule",
    "KeyRows",
    "KeyRule",
    "NeededFrames",
    "Plan",
    "Rules",
    "ShardPlan",
    "ShardTask",
    "check_lengths",
    "expected_lengths",
    "gather_places",
    "make_plan",
    "needed_frames",
    "resolve",
]
