"""Makes tensors of a batch's arrays, and lays many of them side by side in one block of memory.

One block is one copy to a device, or one piece of shared memory between processes, where each tensor alone would cost
its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqprep.runtime.frameworks import is_number
from seqprep.types import Array

_ALIGNMENT = 512  # what torch's own allocator gives every tensor on a GPU


class Place(NamedTuple):
    """Where a tensor lies in a block."""

    name: str
    dtype: Any
    shape: tuple[int, ...]
    start: int
    """In bytes."""
    stop: int


def split_batch(torch: Any, batch: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parts a batch into what becomes tensors and what stays as it is.

    Args:
        torch: the module.
        batch: names to arrays, or to anything else.

    Returns:
        Names to tensors in CPU memory, and the rest.
    """
    tensors: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in batch.items():
        if isinstance(value, np.ndarray) and is_number(value.dtype):
            tensors[name] = import_array(torch, value)
        elif is_plain(torch, value):
            tensors[name] = value
        else:
            rest[name] = value
    return tensors, rest


def is_plain(torch: Any, value: Any) -> bool:
    """Whether it is a tensor with nothing to it but numbers in CPU memory."""
    return (
        type(value) is torch.Tensor
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and not value.requires_grad
    )


def import_array(torch: Any, array: Array) -> Any:
    """Makes a tensor of an array: on the array's own memory where torch can use that, else on a copy.

    Args:
        torch: the module.
        array: of any shape, and a dtype whose name torch knows.
    """
    if not (array.flags.carray and array.dtype.isnative):  # carray: contiguous and writeable
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    if array.dtype.kind == "V":  # bfloat16, the one number that numpy itself doesn't know
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    if array.dtype.char == "Q":  # C's unsigned long long; torch knows uint64 by C's unsigned long alone
        array = array.view(np.uint64)
    return torch.from_numpy(array)


def lay_out(tensors: Mapping[str, Any]) -> tuple[list[Place], int]:
    """Finds a place for each tensor in one block.

    Returns:
        The places, in order, and the block's bytes.
    """
    places, start = [], 0
    for name, tensor in tensors.items():
        stop = start + tensor.numel() * tensor.element_size()
        places.append(Place(name, tensor.dtype, tuple(tensor.shape), start, stop))
        start = -(-stop // _ALIGNMENT) * _ALIGNMENT
    return places, places[-1].stop if places else 0


def pack(torch: Any, tensors: Mapping[str, Any], places: Sequence[Place], block: Any) -> None:
    """Copies tensors to their places.

    Args:
        torch: the module.
        tensors: names to tensors in CPU memory.
        places: from `lay_out`.
        block: uint8 tensor in CPU memory, at least as long as `lay_out` says.
    """
    with torch.no_grad():
        for name, target in unpack(block, places).items():
            target.copy_(tensors[name])


def unpack(block: Any, places: Sequence[Place]) -> dict[str, Any]:
    """Gives the tensors of a block, on its memory, wherever that is."""
    return {name: block[start:stop].view(dtype).view(shape) for name, dtype, shape, start, stop in places}
