"""Carries out plans: reads, gathers and writes shards, in this process or several."""

from seqprep.execution.run import Progress, Summary, chunk, plan_source
from seqprep.execution.statistics import stats
from seqprep.execution.statistics_file import KeyStatistics, describe_statistics

__all__ = ["KeyStatistics", "Progress", "Summary", "chunk", "describe_statistics", "plan_source", "stats"]
