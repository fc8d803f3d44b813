"""Imports frameworks when they are first used, with a hint where one is missing; and what they share."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from seqprep.errors import DependencyError

_NUMBERS = frozenset(
    ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
     "bfloat16", "float16", "float32", "float64", "complex64", "complex128")
)  # fmt: skip
"""Names of dtypes, the same in numpy (bfloat16: with ml_dtypes), PyTorch and JAX."""
_NOTE = re.compile(rb"WARNING: All log messages before absl|[IW]\d{4} |\d{4}-\d\d-\d\d [\d:.]+: [IW] ")
"""How TensorFlow's lines of information and warnings begin."""


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


@contextlib.contextmanager
def without_notes() -> Iterator[None]:
    """Leaves out the notes that a framework's libraries write to stderr while they are loaded, before they heed any
    setting; what else is written there in the meantime comes at the end.
    """
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with tempfile.TemporaryFile() as written:
            os.dup2(written.fileno(), 2)
            try:
                yield
            finally:
                sys.stderr.flush()
                os.dup2(stderr, 2)
                written.seek(0)
                os.write(2, b"".join(line for line in written if not _NOTE.match(line)))
    finally:
        os.close(stderr)


@functools.cache  # numpy takes microseconds to name a dtype
def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether PyTorch and JAX have numbers of this dtype, too."""
    return dtype.name in _NUMBERS
