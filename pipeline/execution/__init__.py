"""Carries out plans: reads, gathers and writes shards, in this process or several; and tends finished datasets."""

from seqprep.execution.run import Progress, Summary, chunk, plan_source
from seqprep.execution.verifying import Verification, verify

__all__ = ["Progress", "Summary", "Verification", "chunk", "plan_source", "verify"]
