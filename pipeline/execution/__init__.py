"""Carries out plans: reads, gathers and writes shards, in this process or several; and tends finished datasets."""

from seqprep.execution.converting import convert
from seqprep.execution.exporting import Export, export
from seqprep.execution.merging import merge
from seqprep.execution.repairing import Repair, repair
from seqprep.execution.run import Progress, Summary, chunk, plan_source
from seqprep.execution.verifying import Verification, verify

__all__ = [
    "Export",
    "Progress",
    "Repair",
    "Summary",
    "Verification",
    "chunk",
    "convert",
    "export",
    "merge",
    "plan_source",
    "repair",
    "verify",
]
