"""Carries out plans: reads, gathers and writes shards, in this process or several; and tends finished datasets."""

from seqprep.execution.converting import convert
from seqprep.execution.exporting import Export, export
from seqprep.execution.merging import merge
from seqprep.execution.planning import SourcePlan, plan_source
from seqprep.execution.predicting import PlannedPart, plan
from seqprep.execution.repairing import Repair, repair
from seqprep.execution.run import Progress, Summary, chunk
from seqprep.execution.statistics import stats
from seqprep.execution.statistics_file import KeyStatistics, describe_statistics
from seqprep.execution.verifying import Verification, verify

__all__ = [
    "Export",
    "KeyStatistics",
    "PlannedPart",
    "Progress",
    "Repair",
    "SourcePlan",
    "Summary",
    "Verification",
    "chunk",
    "convert",
    "describe_statistics",
    "export",
    "merge",
    "plan",
    "plan_source",
    "repair",
    "stats",
    "verify",
]
