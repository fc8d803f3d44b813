"""Carries out plans: reads, gathers and writes shards, in this process or several."""

from seqprep.execution.planning import SourcePlan, plan_source
from seqprep.execution.run import Progress, Summary, chunk

__all__ = ["Progress", "SourcePlan", "Summary", "chunk", "plan_source"]
