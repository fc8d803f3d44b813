"""CRC32C (Castagnoli), by the package `crc32c`: it takes any buffer, carries on, and lets go of the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import crc32c as package
import numpy as np

crc32c: Callable[..., int] = package.crc32c
"""The bare function, for loops in which every call counts: of a buffer of bytes, or of a uint8 array."""

_MASK_DELTA = 0xA282EAD8


def checksum(data: Any, value: int = 0) -> int:
    """CRC32C of a C-contiguous buffer or array, carried on from `value`."""
    if isinstance(data, np.ndarray):
        data = data.reshape(-1).view(np.uint8)  # some dtypes (bool, float16, 0-dim) have no buffer format it takes
    return crc32c(data, value)


def masked(value: int) -> int:
    """The CRC as TFRecord files hold it (TensorFlow, core/lib/hash/crc32c.h): rotated by 15 bits, plus a constant."""
    return (((value >> 15) | (value << 17)) + _MASK_DELTA) & 0xFFFFFFFF
