"""Carries out plans: reads, gathers and writes shards, in this process or several; and tends finished datasets."""

from seqprep.execution.converting import convert
from seqprep.execution.exporting import Export, export
from seqprep.execution.gather import ShardGatherer, needed_stretches
from seqprep.execution.merging import merge
from seqprep.execution.normalization import Normalizer
from seqprep.execution.planning import SourcePlan, plan_source
from seqprep.execution.predicting import PlannedPart, plan
from seqprep.execution.repairing import Repair, repair
from seqprep.execution.run import Progress, Summary, chunk, describe_run, no_batch
from seqprep.execution.statistics import stats
from seqprep.execution.statistics_file import KeyStatistics, describe_statistics
from seqprep.execution.stretches import MemoryOf
from seqprep.execution.task import shard_table, tags_of_rows
from seqprep.execution.verifying import Verification, verify

__all__ = [
    "Export",
    "KeyStatistics",
    "MemoryOf",
    "Normalizer",
    "PlannedPart",
    "Progress",
    "Repair",
    "ShardGatherer",
    "SourcePlan",
    "Summary",
    "Verification",
    "chunk",
    "convert",
    "describe_run",
    "describe_statistics",
    "export",
    "merge",
    "needed_stretches",
    "no_batch",
    "plan",
    "plan_source",
    "repair",
    "shard_table",
    "stats",
    "tags_of_rows",
    "verify",
]
