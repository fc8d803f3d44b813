"""Writes whole sequences into one HDF5 file of RETURNN's flat layout, which the source `hdf5` reads."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.shards.hdf5_file import StorageFile
from seqprep.shards.storage import Storage, partial_path
from seqprep.types import Array, Int64, KeySpec


class FlatHdf5Writer:
    """Writes sequences, each once, in any order; the file gets its name when it is whole.

    The first key with time becomes `inputs`, the others `targets/data/<key>`; keys without time, of which RETURNN knows
    nothing, `values/<key>` [sequences, …].

    Args:
        path: the file.
        keys: what to write; bfloat16 as float32.
        lengths: for each key with time, int64 [sequences]: frames.
        storage: the file layer.

    Raises:
        OutputError: the file can't be written.
    """

    def __init__(self, path: Path, keys: Mapping[str, KeySpec], lengths: Mapping[str, Int64], storage: Storage) -> None:
        self._path, self._partial, self._storage = path, partial_path(path), storage
        self._begins = {key: np.cumsum(of) - of for key, of in lengths.items()}
        self._tags = np.empty(len(next(iter(lengths.values()))), object)
        self._descriptor = storage.open(self._partial)
        self._target = StorageFile(storage, self._descriptor, self._partial)
        self._closing = contextlib.ExitStack()
        try:
            self._datasets = self._begin(keys, lengths)
            self._target.check()
        except BaseException:
            self.discard()
            raise

    def _begin(self, keys: Mapping[str, KeySpec], lengths: Mapping[str, Int64]) -> dict[str, Any]:
        import h5py

        self._file = file = self._closing.enter_context(h5py.File(self._target, "w", libver="earliest"))
        timed = [key for key, spec in keys.items() if spec.has_time]
        columns = [timed[0], *sorted(timed[1:])]
        file["seqLengths"] = np.stack([lengths[key] for key in columns], axis=1).astype(np.int32)
        names = {timed[0]: "inputs"} | {key: f"targets/data/{key}" for key in columns[1:]}
        datasets = {}
        for key, spec in keys.items():
            count = int(lengths[key].sum()) if spec.has_time else len(self._tags)
            dtype = np.dtype(np.float32 if spec.dtype == "bfloat16" else spec.dtype)
            name = names.get(key, f"values/{key}")
            datasets[key] = file.create_dataset(
                name, (count, *spec.unit_shape), dtype.newbyteorder("<"), track_times=False
            )
            if key in columns[1:]:
                file.require_group("targets/size").attrs[key] = _size(spec)
                file[f"targets/labels/{key}"] = np.array([label.encode() for label in spec.labels or ("",)])
        size = _size(keys[timed[0]])
        file.attrs.update(inputPattSize=size[0], numDims=1, numLabels=size[0], numSeqs=len(self._tags))
        file.attrs["numTimesteps"] = int(lengths[timed[0]].sum())
        file["labels"] = np.zeros(0, "S5")
        return datasets

    def write(self, number: int, tag: str, arrays: Mapping[str, Array]) -> None:
        """Writes one sequence.

        Args:
            number: its place in the file.
            tag: its tag.
            arrays: for each key, [frames, …]; […] without time.

        Raises:
            OutputError: the file can't be written.
        """
        self._tags[number] = tag.encode("utf-8", "surrogateescape")
        for key, array in arrays.items():
            begin = int(self._begins[key][number]) if key in self._begins else number
            end = begin + (len(array) if key in self._begins else 1)
            if end > begin and array.size:
                self._datasets[key][begin:end] = array
            self._target.check()

    def commit(self) -> None:
        """Completes the file, and gives it its name.

        Raises:
            OutputError: the file can't be written.
        """
        import h5py

        self._file.create_dataset("seqTags", data=self._tags, dtype=h5py.special_dtype(vlen=bytes), track_times=False)
        self._datasets = {}
        self._closing.close()
        self._target.check()
        self._storage.commit(self._descriptor, self._partial, self._path)

    def discard(self) -> None:
        """Removes what was written; never raises."""
        self._datasets = {}
        self._target.error = self._target.error or InterruptedError("abandoned")
        with contextlib.suppress(BaseException):
            self._closing.close()
        self._storage.discard(self._descriptor, self._partial)


def _size(spec: KeySpec) -> list[int]:
    """What RETURNN calls the size of a key: its features (or classes), and 2 for dense or 1 for sparse values."""
    if spec.unit_shape:
        return [int(np.prod(spec.unit_shape)), 2]
    return [len(spec.labels) if spec.labels else 1, 1]
