"""What runs beside training: reading threads, the loader, data workers, staging, one adapter per framework."""

from seqprep.runtime.data_metrics import DataWorkersMetrics
from seqprep.runtime.data_workers import DataWorkers
from seqprep.runtime.epochs import Epochs
from seqprep.runtime.loader import Loader, Metrics
from seqprep.runtime.mixing import Mix, MixMetrics, mix
from seqprep.runtime.opened import OpenedShard
from seqprep.runtime.options import LoaderOptions
from seqprep.runtime.order import Even, GlobalOrder, Shuffle, shards_together
from seqprep.runtime.ranges import Batch, LeaseOf
from seqprep.runtime.reporting import OnMetrics
from seqprep.runtime.row_order import RebatchOptions
from seqprep.runtime.stitching import Stitched, stitch
from seqprep.runtime.unpacking import unpack

__all__ = [
    "Batch",
    "DataWorkers",
    "DataWorkersMetrics",
    "Epochs",
    "Even",
    "GlobalOrder",
    "LeaseOf",
    "Loader",
    "LoaderOptions",
    "Metrics",
    "Mix",
    "MixMetrics",
    "OnMetrics",
    "OpenedShard",
    "RebatchOptions",
    "Shuffle",
    "Stitched",
    "mix",
    "shards_together",
    "stitch",
    "unpack",
]
