"""Carries out plans: reads, gathers and writes shards, in this process or several."""

from seqprep.execution.run import Progress, Summary, chunk, plan_source

__all__ = ["Progress", "Summary", "chunk", "plan_source"]
