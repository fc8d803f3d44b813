"""Datasets of rows that have their own lengths each, one row per sequence (HDF5's variable-length types)."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqprep.errors import SourceError
from seqprep.sources.hdf5.columns import Ragged
from seqprep.sources.hdf5.files import check_size, file_number, plain_offset
from seqprep.sources.hdf5.naming import number_type
from seqprep.sources.hdf5.options import Hdf5Options
from seqprep.types import Array, Int64, KeySpec

_ROWS_AT_ONCE = 1024


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
        SourceError: a row doesn't hold whole frames.
    """
    dataset, place = file[name], f"{path}: key {key!r}"
    if dataset.ndim != 1:
        raise SourceError(f"{place} has shape {list(dataset.shape)} of rows; only one row per sequence is read")
    shape = tuple(options.frame_shape.get(key, ()))
    spec = KeySpec(dtype=number_type(row_type(dataset), path, name), shape=shape)
    values = _row_sizes(path, dataset, file)
    size = int(np.prod(shape, dtype=np.int64))
    if (values % size).any():
        odd = int(np.flatnonzero(values % size)[0])
        raise SourceError(
            f"{place}: row {odd} holds {values[odd]} values, no multiple of the {size} of a frame; check source.frame_shape"
        )
    lengths = values // size
    return Ragged(path=path, dataset=name, spec=spec, length=lengths), lengths


def _row_sizes(path: str, dataset: Any, file: Any) -> Int64:
    """Counts the values of each row: from the file's references to them where those lie open, else by reading all."""
    check_size(dataset)
    address_bytes = file.id.get_create_plist().get_sizes()[0]
    reference = np.dtype([("values", "<u4"), ("where", np.void, address_bytes + 4)])
    offset = plain_offset(dataset, file)
    if offset is not None:
        references: Array = np.fromfile(path, reference, count=len(dataset), offset=offset)
        return references["values"].astype(np.int64)
    if (
        dataset.chunks is not None
        and dataset.id.get_create_plist().get_nfilters() == 0
        and file_number(dataset) == file_number(file)
    ):
        sizes = np.zeros(-(-len(dataset) // dataset.chunks[0]) * dataset.chunks[0], np.int64)
        for number in range(dataset.id.get_num_chunks()):
            first = dataset.id.get_chunk_info(number).chunk_offset
            part = np.frombuffer(dataset.id.read_direct_chunk(first)[1], reference)["values"]
            sizes[first[0] : first[0] + len(part)] = part
        return sizes[: len(dataset)]
    starts = range(0, len(dataset), _ROWS_AT_ONCE)
    return np.array([len(row) for start in starts for row in dataset[start : start + _ROWS_AT_ONCE]], np.int64)
