"""Imports frameworks when they are first used, with a hint where one is missing; and what they share."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from seqprep.errors import DependencyError

_NUMBERS = frozenset(
    ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
     "bfloat16", "float16", "float32", "float64", "complex64", "complex128")
)  # fmt: skip
"""Names of dtypes, the same in numpy (bfloat16: with ml_dtypes), PyTorch and JAX."""


def import_framework(name: str) -> Any:
    """Imports a framework that an extra of the same name brings.

    Returns:
        The module; untyped, for frameworks' own annotations are of little use.

    Raises:
        DependencyError: it isn't installed, or can't be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DependencyError(f"{name} can't be imported ({error}); pip install 'seqprep[{name}]' brings it") from error


@functools.cache  # numpy takes microseconds to name a dtype
def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether PyTorch and JAX have numbers of this dtype, too."""
    return dtype.name in _NUMBERS
