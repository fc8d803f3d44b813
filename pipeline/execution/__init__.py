"""Carries out plans: reads, gathers and writes shards, in this process or several."""

from seqprep.execution.planning import SourcePlan, plan_source
from seqprep.execution.run import Progress, Summary, chunk
from seqprep.execution.statistics import stats
from seqprep.execution.statistics_file import KeyStatistics, describe_statistics

__all__ = [
    "KeyStatistics",
    "Progress",
    "SourcePlan",
    "Summary",
    "chunk",
    "describe_statistics",
    "plan_source",
    "stats",
]
