"""`seqprep.torch`: batches on a device ahead of time, and as a dataset for a DataLoader.

PyTorch itself is imported when one of these is first called; the extra `seqprep[torch]` brings it.
"""

from seqprep.runtime.staging import Stage, StageMetrics
from seqprep.runtime.torch_dataset import dataset
from seqprep.runtime.torch_staging import stage

__all__ = ["Stage", "StageMetrics", "dataset", "stage"]
