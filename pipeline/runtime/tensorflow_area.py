"""A staging area of TensorFlow, and how arrays get into it."""

from __future__ import annotations

import ctypes
import itertools
import queue
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqprep.errors import SeqprepError
from seqprep.runtime.frameworks import import_framework
from seqprep.runtime.pool import ALIGNMENT
from seqprep.types import Array

_EXPORTED = frozenset("?bBhHiIlLqQefdFD")
"""Numpy's letters of the dtypes that numpy exports and TensorFlow imports."""


class Names:
    """Names for areas, used again when an area is empty, for TensorFlow never forgets one (69 kB each)."""

    def __init__(self) -> None:
        self.made = 0
        self._numbers = itertools.count()
        self._free: queue.SimpleQueue[str] = queue.SimpleQueue()

    def take(self) -> str:
        """Gives a name that no area has."""
        try:
            return self._free.get_nowait()
        except queue.Empty:
            number = next(self._numbers)
            self.made = number + 1
            return f"seqprep-{number}"

    def give_back(self, name: str) -> None:
        """Lets another area have the name of an empty one."""
        self._free.put(name)

    @property
    def free(self) -> int:
        """How many names that were made are free."""
        return self._free.qsize()


NAMES = Names()


@dataclass(frozen=True)
class _Staged:
    """Stands for a batch in the area."""

    names: tuple[str, ...]
    dtypes: list[Any]
    """TensorFlow's dtypes of those that are in the area, in order."""
    host: Mapping[str, Any]
    """Those that stay on the host."""


class TensorflowArea:
    """One staging area, under a name that no other live area has.

    TensorFlow bounds nothing here, and blocks for good where there is nothing to take: the caller keeps count.

    Args:
        device: TensorFlow's name of the device where batches are kept.
    """

    def __init__(self, device: str) -> None:
        self._tf = import_framework("tensorflow")
        self._device = device
        self._name = NAMES.take()

    def check(self) -> None:
        """Refuses to be traced: a traced Unstage would run once per call of the graph, and nobody could count it.

        Raises:
            SeqprepError: this is the inside of a tf.function.
        """
        if not self._tf.executing_eagerly():
            raise SeqprepError("a stage is iterated inside a tf.function; iterate outside, and call it with each batch")

    def put(self, batch: Mapping[str, Any]) -> _Staged:
        """Copies a batch to the device, or only imports it if that is the CPU.

        Args:
            batch: names to arrays of any shape; what is no array of a number type of TensorFlow's stays on the host.
        """
        host: dict[str, Any] = {}
        tensors: dict[str, Any] = {}
        with self._tf.device(self._device):
            for name, value in batch.items():
                if isinstance(value, np.ndarray) and _is_numeric(self._tf, value.dtype):
                    tensors[name] = import_array(self._tf, value)
                else:
                    host[name] = value
            if tensors:
                self._tf.raw_ops.Stage(values=list(tensors.values()), shared_name=self._name)
        return _Staged(tuple(batch), [tensor.dtype for tensor in tensors.values()], host)

    def take(self, staged: _Staged) -> dict[str, Any]:
        """Takes the oldest batch out, of which `put` gave this description.

        Returns:
            Names in the batch's order to tf.Tensor on the device, or to what stayed on the host.
        """
        values: Iterator[Any] = iter(())
        if staged.dtypes:
            with self._tf.device(self._device):
                values = iter(self._tf.raw_ops.Unstage(dtypes=staged.dtypes, shared_name=self._name))
        host = staged.host
        return {name: host[name] if name in host else next(values) for name in staged.names}

    def release(self) -> None:
        """Lets another area have the name; this one has to be empty."""
        NAMES.give_back(self._name)


def _is_numeric(tf: Any, dtype: np.dtype[Any]) -> bool:
    if dtype.char in _EXPORTED:
        return True
    try:
        return bool(tf.dtypes.as_dtype(dtype) != tf.string)
    except TypeError:
        return False


def import_array(tf: Any, array: Array) -> Any:
    """Makes a tensor of an array: on the array's own memory where that is safe, else by copying it.

    TensorFlow ends the process, without an exception, when it slices an imported array that isn't aligned.

    Args:
        tf: the module tensorflow.
        array: of any shape, and a dtype that TensorFlow knows.
    """
    dtype = array.dtype
    # carray: contiguous and writeable
    if dtype.char in _EXPORTED and dtype.isnative and array.flags.carray and _address(array) % ALIGNMENT == 0:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.constant(array)


def _address(array: Array) -> int:
    if not array.size:
        return int(array.ctypes.data)
    memory: Any = array  # an array is a buffer, whatever its annotations say before Python 3.12
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))  # a fifth of the time of array.ctypes
