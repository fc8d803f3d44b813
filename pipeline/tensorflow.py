"""`seqprep.tensorflow`: batches on a device ahead of time, and as a tf.data.Dataset for Keras.

TensorFlow itself is imported when one of these is first called; the extra `seqprep[tensorflow]` brings it.
"""

from seqprep.runtime.staging import Stage, StageMetrics
from seqprep.runtime.tensorflow_dataset import dataset
from seqprep.runtime.tensorflow_staging import stage

__all__ = ["Stage", "StageMetrics", "dataset", "stage"]
