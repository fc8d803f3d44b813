"""`seqprep.jax`: batches on a device, or shared among several, ahead of time.

JAX itself is imported when this is first called; the extra `seqprep[jax]` brings it.
"""

from seqprep.runtime.jax_staging import stage
from seqprep.runtime.staging import Stage, StageMetrics

__all__ = ["Stage", "StageMetrics", "stage"]
