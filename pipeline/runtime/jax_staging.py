"""Puts batches onto JAX devices ahead of who trains on them.

`jax.device_put` returns before the copy is done and keeps the arrays it copies from; called in a thread of its own, its
cost on the host, too, falls under the step of the batch before. On a CPU it uses the loader's memory itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqprep.config import shown
from seqprep.errors import ConfigError, SeqprepError
from seqprep.runtime.frameworks import import_framework, is_number
from seqprep.runtime.protocol import BatchSource
from seqprep.runtime.staging import Area, Stage
from seqprep.types import Array


class JaxArea:
    """A device, or several that share each batch.

    Args:
        jax: the module.
        target: what `jax.device_put` takes: a device, a sharding, or None for the default.
        pad_rows: fill batches up to what the sharding can divide.
    """

    def __init__(self, jax: Any, target: Any, pad_rows: bool) -> None:
        self._jax, self._target, self._pad_rows = jax, target, pad_rows
        self._default = jax.config.jax_default_device  # of this thread; the stage's has its own
        self._parts = _parts(target) if isinstance(target, jax.sharding.Sharding) else 1
        self._number = jax.device_put(np.float32(0), target if isinstance(target, jax.Device) else None)

    def check(self) -> None:
        """Refuses to be traced: the batch would become a constant of the compiled function.

        Raises:
            SeqprepError: this is the inside of a jax.jit.
        """
        if isinstance(-self._number, self._jax.core.Tracer):
            raise SeqprepError("a stage is iterated inside a jax.jit; iterate outside, and call it with each batch")

    def put(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Begins to copy a batch to the device, or only imports it if that is the CPU."""
        jax = self._jax
        numbers: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in batch.items():
            if isinstance(value, np.ndarray) and is_number(value.dtype):
                numbers[name] = _narrowed(jax, name, value)
            else:
                (numbers if isinstance(value, jax.Array) else rest)[name] = value
        if self._parts > 1 and numbers:
            self._fit(numbers, rest)
        with jax.default_device(self._default):
            placed = jax.device_put(numbers, self._target)
        return {name: placed[name] if name in placed else rest[name] for name in batch}

    def _fit(self, numbers: dict[str, Any], rest: dict[str, Any]) -> None:
        """Makes the rows divisible among the devices, or says why they aren't; keeps what isn't by row on the host."""
        rows = len(next(iter(numbers.values())))
        for name in [name for name, value in numbers.items() if value.shape[:1] != (rows,)]:
            rest[name] = numbers.pop(name)
        missing = -rows % self._parts
        if missing and not self._pad_rows:
            raise ConfigError(
                f"a batch has {rows} rows, which {self._parts} devices can't share evenly: stage with pad_rows=True, "
                "which adds empty rows (size0 = 0, seq_idx = -1), or make batches whose rows divide by "
                f"{self._parts}"
            )
        for name in numbers if missing else ():
            numbers[name] = _with_empty_rows(name, np.asarray(numbers[name]), missing)
        if missing and "seq_tag" in rest:
            rest["seq_tag"] = [*rest["seq_tag"], *[""] * missing]

    def take(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Gives what `put` made."""
        return entry

    def release(self) -> None:
        """Does nothing."""


def _narrowed(jax: Any, name: str, array: Array) -> Array:
    """Gives an array the dtype that JAX will keep it in: of 32 bits instead of 64, unless it is told otherwise.

    Raises:
        ConfigError: an integer doesn't fit; JAX itself would cut it off without a word.
    """
    dtype = np.dtype(jax.dtypes.canonicalize_dtype(array.dtype)).newbyteorder("=")
    if dtype == array.dtype:
        return array
    narrow = array.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(narrow, array):
        value = array[narrow != array][0]
        raise ConfigError(
            f"{name} holds {value}, but JAX keeps it as {dtype.name}; "
            "jax.config.update('jax_enable_x64', True) at the program's start keeps all 64 bits"
        )
    return narrow


def _with_empty_rows(name: str, array: Array, missing: int) -> Array:
    """Adds rows of zeros; those of `seq_idx` are −1."""
    fill = np.full((missing, *array.shape[1:]), -1 if name == "seq_idx" else 0, array.dtype)
    return np.concatenate([array, fill])


def _parts(sharding: Any) -> int:
    """Among how many parts a sharding divides the first axis."""
    most = len(sharding.device_set)  # a multiple of it, whatever the sharding does with other axes
    return most // int(sharding.shard_shape((most,))[0])


def stage(
    loader: BatchSource,
    *,
    device: Any = None,
    sharding: Any = None,
    pad_rows: bool = False,
    depth: int = 2,
    names: Sequence[str] | None = None,
) -> Stage:
    """Stages batches on a device from a thread of its own, so that the copy of the next runs under this one's step.

    A batch is a dict in the loader's order of names: arrays of numbers as jax.Array of the same shape on the device, the
    rest (`seq_tag`) as it is, on the host. dtypes are the loader's, except that JAX makes int64, uint64, float64 and
    complex128 half as wide unless `jax_enable_x64` is set for the whole program; integers that wouldn't fit are an
    error. On a CPU, arrays are on the loader's memory, which isn't used again before the last of them is gone.

    Every new shape is compiled anew by JAX: make datasets of few shapes for it.

    Args:
        loader: a `seqprep.Loader`, or anything that gives batches (see `seqprep.runtime.protocol`).
        device: a jax.Device, or a platform with a number, such as "gpu:0" or "cpu"; JAX's default unless told.
        sharding: divides each batch among devices of this process, such as
            `NamedSharding(mesh, PartitionSpec("batch"))`; instead of `device`. Arrays that aren't by row, such as those
            of the segments of packed rows, then stay on the host.
        pad_rows: add empty rows (size0 = 0, seq_idx = −1, an empty tag, all else 0) to batches whose rows don't divide
            among the devices; else such a batch is an error.
        depth: batches staged ahead.
        names: stage only these, such as ["data", "classes"], for JAX takes its time for each array; all of a batch
            unless told.

    Raises:
        DependencyError: JAX isn't installed.
        ConfigError: depth is less than 1, there is no such device, or the sharding isn't for this process alone.
    """
    jax = import_framework("jax")
    if sharding is None:
        if pad_rows:
            raise ConfigError("pad_rows is set but sharding isn't: a single device takes batches of any number of rows")
        target = _find_device(jax, device)
        name = str(target or jax.config.jax_default_device or jax.local_devices()[0])
    else:
        if device is not None:
            raise ConfigError(f"device is {shown(str(device))} and sharding is set: give one of them")
        target, name = sharding, str(sharding)
        if not isinstance(sharding, jax.sharding.Sharding):
            raise ConfigError(f"sharding is {shown(sharding)}: it has to be a jax.sharding.Sharding")
        if not sharding.is_fully_addressable:
            raise ConfigError(
                f"sharding is {sharding}: it has devices of other processes; stage on this process' own, each with its "
                "rank, and join the parts with jax.make_array_from_single_device_arrays"
            )

    def area() -> Area:
        return JaxArea(jax, target, pad_rows)

    return Stage(loader, device=name, depth=depth, area_of=area, names=names)


def _find_device(jax: Any, device: Any) -> Any:
    """Gives the jax.Device of a name; a device and None stay what they are."""
    if device is None or isinstance(device, jax.Device):
        return device
    platform, _, number = str(device).partition(":")
    try:
        devices = jax.local_devices(backend=platform)
        return devices[int(number or 0)]
    except (RuntimeError, ValueError, IndexError) as error:
        known = ", ".join(f"{found.platform}:{number}" for number, found in enumerate(jax.local_devices()))
        raise ConfigError(f"device is {shown(str(device))}, which isn't there; there are {known}") from error
