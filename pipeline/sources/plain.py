"""Reading arrays whose bytes lie in a file as they are in memory."""

from __future__ import annotations

import os

import numpy as np

from seqprep.files import FileCache, read_exactly
from seqprep.types import Array


class CutOffError(OSError):
    """The file ends before the bytes that it should hold."""


def read_plain(files: FileCache, path: str, offset: int, out: Array) -> None:
    """Fills an array from a file's bytes.

    Args:
        files: open files.
        path: the file.
        offset: of the first byte.
        out: C-contiguous, not empty; filled.

    Raises:
        OSError: the file can't be read, or (CutOffError) ends before.
    """
    file = files.get(path)
    done = os.preadv(file.descriptor, [out], offset)  # type: ignore[list-item]  # any buffer will do
    if done < out.nbytes:
        flat = out.reshape(-1).view(np.uint8)
        if read_exactly(file.descriptor, flat, offset) < len(flat):
            raise CutOffError("the file ends inside it")
