"""What runs beside training: reading threads, the loader, data workers, staging, one adapter per framework."""

from seqprep.runtime.data_metrics import DataWorkersMetrics
from seqprep.runtime.data_workers import DataWorkers
from seqprep.runtime.loader import Loader, Metrics
from seqprep.runtime.mixing import Mix, MixMetrics, mix
from seqprep.runtime.ranges import Batch
from seqprep.runtime.stitching import Stitched, stitch
from seqprep.runtime.unpacking import unpack

__all__ = [
    "Batch",
    "DataWorkers",
    "DataWorkersMetrics",
    "Loader",
    "Metrics",
    "Mix",
    "MixMetrics",
    "Stitched",
    "mix",
    "stitch",
    "unpack",
]
