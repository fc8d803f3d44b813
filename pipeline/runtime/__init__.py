"""What runs beside training: reading threads, the loader, staging, one adapter per framework."""

from seqprep.runtime.loader import Loader, Metrics
from seqprep.runtime.ranges import Batch
from seqprep.runtime.unpacking import unpack

__all__ = ["Batch", "Loader", "Metrics", "unpack"]
