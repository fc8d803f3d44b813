"""Puts batches onto a device ahead of who trains on them, through TensorFlow's staging area.

TensorFlow's Stage and Unstage block without a way to stop them, so neither ever has to wait: the area is unbounded for
TensorFlow, and the stage keeps count (see `seqprep.runtime.staging_work`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from seqprep.config import shown
from seqprep.errors import ConfigError
from seqprep.runtime.frameworks import import_framework
from seqprep.runtime.protocol import BatchSource
from seqprep.runtime.staging import Stage
from seqprep.runtime.tensorflow_area import TensorflowArea


def stage(
    loader: BatchSource, *, device: str | None = None, depth: int = 2, names: Sequence[str] | None = None
) -> Stage:
    """Stages batches on a device from a thread of its own, so that the copy of the next runs under this one's step.

    A batch is a dict in the loader's order of names: arrays of numbers as tf.Tensor of the same shape and dtype on the
    device, the rest (`seq_tag`) as it is, on the host. On a CPU, tensors are on the loader's memory, which isn't used
    again before the last of them is gone.

    Args:
        loader: a `seqprep.Loader`, or anything that gives batches (see `seqprep.runtime.protocol`).
        device: TensorFlow's name of it, such as "/GPU:0"; the first GPU, or the CPU where there is none.
        depth: batches staged ahead.
        names: stage only these, such as ["data", "classes"]; all of a batch unless told.

    Raises:
        DependencyError: TensorFlow isn't installed.
        ConfigError: depth is less than 1, or there is no such device.
    """
    tf = import_framework("tensorflow")
    if device is None:
        device = next((found.name for found in tf.config.list_logical_devices("GPU")), "/CPU:0")
    place = _find_device(tf, device)
    return Stage(loader, device=place, depth=depth, area_of=partial(TensorflowArea, place), names=names)


def _find_device(tf: Any, name: str) -> str:
    """Gives a device's full name; TensorFlow itself takes the CPU for one that isn't there."""
    known = ", ".join(found.name.removeprefix("/device:") for found in tf.config.list_logical_devices())
    try:
        with tf.device(name):
            place = str(tf.zeros(()).device)
        asked, found = tf.DeviceSpec.from_string(name), tf.DeviceSpec.from_string(place)
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise ConfigError(f"device is {shown(name)}: {error}; there are {known}") from error
    for wanted, got in ((asked.device_type, found.device_type), (asked.device_index, found.device_index)):
        if wanted not in (None, got):
            raise ConfigError(f"device is {shown(name)}, which isn't there; there are {known}")
    return place
