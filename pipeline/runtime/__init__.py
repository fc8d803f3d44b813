"""What runs beside training: reading threads, the loader, staging, one adapter per framework."""

from seqprep.runtime.loader import Loader, Metrics
from seqprep.runtime.mixing import Mix, MixMetrics, mix
from seqprep.runtime.ranges import Batch
from seqprep.runtime.stitching import Stitched, stitch

__all__ = ["Batch", "Loader", "Metrics", "Mix", "MixMetrics", "Stitched", "mix", "stitch"]
