"""Which datasets are keys: as the options say it, or by the names that people give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from seqprep.config import suggestion
from seqprep.errors import SourceError
from seqprep.sources.hdf5.columns import THROUGH_H5PY, Rows
from seqprep.sources.hdf5.files import check_size, plain_offset
from seqprep.sources.hdf5.options import Hdf5Options
from seqprep.types import Int64, KeySpec

INPUT_NAMES = ("data", "inputs", "input", "feats", "features", "x", "X", "audio", "signal", "tokens")
KNOWN_NAMES = frozenset(
    (*INPUT_NAMES, "classes", "labels", "label", "targets", "target", "outputs", "output", "ali", "alignment", "y", "Y")
)


def input_first(names: Iterable[str]) -> list[str]:
    """Sorts names of keys, that of the input before the others if one has a usual name."""
    inside = set(names)
    first = next((name for name in INPUT_NAMES if name in inside), None)
    return sorted(inside, key=lambda name: (name != first, name))


def chosen(available: Mapping[str, str], options: Hdf5Options, path: str) -> dict[str, str]:
    """Takes the keys that the options name.

    Args:
        available: for each key that the file has, its dataset.

    Raises:
        SourceError: the file hasn't one of them.
    """
    if options.keys is None:
        return dict(available)
    wanted = options.datasets or {name: name for name in options.keys}
    by_path = {dataset: dataset for dataset in available.values()} | dict(available)
    for name in wanted.values():
        if name not in by_path:
            raise SourceError(
                f"{path}: there is no key {name!r}, which source.keys names{suggestion(name, available) or ': check it'}"
            )
    return {key: by_path[name] for key, name in wanted.items()}


def number_type(dtype: Any, path: str, name: str) -> str:
    """The name of a dataset's dtype.

    Raises:
        SourceError: it isn't one of numbers.
    """
    if dtype.kind not in "biuf" or dtype.subdtype is not None:
        raise SourceError(
            f"{path}: dataset {name!r} holds {dtype}, not numbers; convert it, or name the keys to take in source.keys"
        )
    return str(dtype.newbyteorder("=").name)


def rows_of(
    path: str, file: Any, name: str, key: str, begin: Int64, *, padded: bool = False, timed: bool = True
) -> Rows:
    """Describes a dataset that holds all sequences of a key.

    Args:
        path: the file.
        file: the same, opened.
        name: of the dataset, [frames, …], or [rows, frames, …] if padded; without time, [sequences, …].
        key: the key, for messages.
        begin: frame (of all, row by row) at which each sequence begins; int64 [sequences].
        padded: there are rows.
        timed: the key has a time axis.
    """
    dataset = file[name]
    check_size(dataset)
    spec = KeySpec(dtype=number_type(dataset.dtype, path, name), shape=dataset.shape[1 + padded :], has_time=timed)
    if spec.nbytes == 0:
        raise SourceError(
            f"{path}: dataset {name!r} has shape {list(dataset.shape)}: frames of key {key!r} hold no value"
        )
    offset = plain_offset(dataset, file)
    return Rows(
        path=path,
        dataset=name,
        spec=spec,
        begin=begin,
        offset=THROUGH_H5PY if offset is None else offset,
        row_frames=dataset.shape[1] if padded else None,
    )


def back_to_back(lengths: Int64) -> Int64:
    """Frame at which each sequence begins, if they follow each other; int64 [sequences]."""
    return np.cumsum(lengths) - lengths
