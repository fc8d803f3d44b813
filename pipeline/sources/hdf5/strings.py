"""Tags and names of classes: datasets of strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqprep.sources.hdf5.files import check_size
from seqprep.sources.hdf5.heap import read_strings, references
from seqprep.types import Array, Tags

_AT_ONCE = 1 << 20


def is_text(dtype: Any) -> bool:
    """Whether a dataset's dtype is one of strings."""
    import h5py

    return dtype.kind == "S" or h5py.check_string_dtype(dtype) is not None


def read_tags(dataset: Any) -> Tags:
    """Reads a dataset of strings of any kind, or of whole numbers, as tags; a string ends at its first NUL.

    Raises:
        OSError, ValueError: it holds something else, or the file is damaged.
    """
    if len(dataset.shape) != 1 or dataset.dtype.kind not in "SOiu":
        raise ValueError(
            f"dataset {dataset.name!r} holds {dataset.dtype} {list(dataset.shape)}, not one tag a sequence"
        )
    check_size(dataset)
    found = references(dataset) if dataset.dtype.kind == "O" else None
    if found is not None:
        return read_strings(dataset, found)
    blocks = (dataset[start : start + _AT_ONCE] for start in range(0, len(dataset), _AT_ONCE))
    return Tags.concatenate([_as_tags(block) for block in blocks])


def _as_tags(block: Array) -> Tags:
    if block.dtype.kind in "iu":
        return Tags.of(str(number) for number in block.tolist())
    if block.dtype.kind == "O":
        return Tags.of(string.partition(b"\0")[0] for string in block.tolist())
    width = block.dtype.itemsize
    letters = block.view(np.uint8).reshape(len(block), width)
    sizes = np.where((letters == 0).any(axis=1), (letters == 0).argmax(axis=1), width)
    return Tags(letters[np.arange(width) < sizes[:, None]], np.cumsum(sizes, dtype=np.int64))
