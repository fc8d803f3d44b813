"""Datasets of rows that have their own lengths each, one row per sequence (HDF5's variable-length types)."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqprep.errors import SourceError
from seqprep.sources.hdf5.columns import Ragged
from seqprep.sources.hdf5.heap import references
from seqprep.sources.hdf5.naming import number_type
from seqprep.sources.hdf5.options import Hdf5Options
from seqprep.types import Int64, KeySpec


def row_type(dataset: Any) -> np.dtype[Any] | None:
    """The dtype of a dataset's rows of their own lengths; None if it has no such rows, or they are strings."""
    import h5py

    base = h5py.check_vlen_dtype(dataset.dtype)
    return None if base is None or np.dtype(base).kind not in "biuf" else np.dtype(base)


def describe_ragged(path: str, key: str, name: str, file: Any, options: Hdf5Options) -> tuple[Ragged, Int64]:
    """Describes one key.

    Returns:
        The key, and the frames of each sequence, int64 [sequences].

    Raises:
        SourceError: a row doesn't hold whole frames, or rows are stored in an unusual way.
    """
    dataset, place = file[name], f"{path}: key {key!r}"
    if dataset.ndim != 1:
        raise SourceError(f"{place} has shape {list(dataset.shape)} of rows; only one row per sequence is read")
    shape = tuple(options.frame_shape.get(key, ()))
    spec = KeySpec(dtype=number_type(row_type(dataset), path, name), shape=shape)
    found = references(dataset)
    if found is None:
        raise SourceError(
            f"{place}: its references are packed by a filter that isn't undone here; store it without compression (that of "
            "such a dataset packs no values anyway), or name the keys to take in source.keys"
        )
    values = found["count"].astype(np.int64)
    size = int(np.prod(shape, dtype=np.int64))
    if (values % size).any():
        odd = int(np.flatnonzero(values % size)[0])
        raise SourceError(
            f"{place}: row {odd} holds {values[odd]} values, no multiple of the {size} of a frame; check source.frame_shape"
        )
    stored = row_type(dataset)
    assert stored is not None  # the dataset was told apart by it
    return Ragged(path=dataset.file.filename, spec=spec, stored=stored.str, references=found), values // size
