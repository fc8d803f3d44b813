"""HDF5 files in RETURNN's flat layout.

`inputs` [frames, …] holds all sequences back to back, `seqLengths` [sequences, 1 + targets] their frames per key,
`seqTags` their tags, and `targets/data/<name>` the further keys, in the sorted order of their names.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.config import Options as BaseOptions
from seqprep.errors import SourceError
from seqprep.files import FileCache, read_exactly
from seqprep.sources.fingerprint import fingerprint_of
from seqprep.sources.paths import find_files
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags

INPUT_KEY = "data"
"""What the dataset `inputs` is called as a key."""


@dataclass(frozen=True)
class _Stored:
    """One key in one file."""

    dataset: str
    """Path inside the file."""
    spec: KeySpec
    file_offset: int | None
    """Where its bytes begin in the file, if they lie there as they are; else they are read through h5py."""


@dataclass(frozen=True)
class _File:
    path: Path
    stored: Mapping[str, _Stored]
    lengths: Mapping[str, Int64]
    tags: list[bytes]


class Hdf5Source:
    """Reads one or several HDF5 files with equal keys; protocol: `Source`.

    Contiguous, uncompressed datasets are read by their offset in the file, without h5py and its lock.

    Args:
        options: where the files are.

    Raises:
        SourceError: a file is missing, damaged, or not of this layout; or files differ in their keys.
    """

    class Options(BaseOptions):
        """Options of `source: {type: hdf5}`."""

        path: str | list[str]
        """A file, a folder, a glob, or a list of these."""

    def __init__(self, options: Options) -> None:
        self._paths = find_files(options.path, (".h5", ".hdf", ".hdf5"))
        files = [_describe(path) for path in self._paths]
        _check_equal_keys(files)
        self._stored = [file.stored for file in files]
        self._keys = {name: stored.spec for name, stored in files[0].stored.items()}
        self._lengths = {name: np.concatenate([file.lengths[name] for file in files]) for name in self._keys}
        self._tags = Tags.of(tag for file in files for tag in file.tags)
        self._first = np.cumsum([0, *(len(file.tags) for file in files)])
        # Frames of each key in front of a sequence, within its file.
        self._begin = {
            name: np.concatenate([np.cumsum(file.lengths[name]) - file.lengths[name] for file in files])
            for name in self._keys
        }
        _check_unique(self._tags, self._paths, self._first)
        self._open_handles()

    def _open_handles(self) -> None:
        self._files = FileCache(16)
        self._handles = _Handles()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_files", "_handles")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open_handles()

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """`data`, then the targets by name."""
        return self._keys

    @property
    def tags(self) -> Tags:
        """Tags of all sequences, file by file."""
        return self._tags

    def lengths(self, key: str) -> Int64:
        """Frames of every sequence in one key; int64 [sequences]."""
        return self._lengths[key]

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        """Reads frames of one sequence; see `Source.read`."""
        start, stop = frames or FrameRange(0, int(self._lengths[key][sequence]))
        place = int(np.searchsorted(self._first, sequence, side="right")) - 1
        stored, path = self._stored[place][key], self._paths[place]
        if out is None:
            out = np.empty((stop - start, *stored.spec.unit_shape), stored.spec.dtype)
        first = int(self._begin[key][sequence]) + start
        try:
            if stop == start:
                return out
            if stored.file_offset is None:
                self._handles.read(path, stored.dataset, first, out)
                return out
            flat = out.reshape(-1).view(np.uint8)
            file = self._files.get(str(path))
            done = read_exactly(file.descriptor, flat, stored.file_offset + first * stored.spec.nbytes)
        except OSError as error:
            raise SourceError(
                f"{path}: sequence {self._tags[sequence]!r}, key {key!r} can't be read: {error}; is the file whole?"
            ) from error
        if done < len(flat):
            raise SourceError(
                f"{path}: ends inside sequence {self._tags[sequence]!r}, key {key!r}; the file is cut off, copy it again"
            )
        return out

    def fingerprint(self) -> Mapping[str, str]:
        """See `Source.fingerprint`."""
        return fingerprint_of(self._keys, self._tags, self._lengths, self._paths)

    def close(self) -> None:
        """Gives back open files."""
        self._files.close()
        self._handles.close()
        self._open_handles()


class _Handles:
    """h5py files of this process, at most a few; h5py has one lock for all of them, so reads take turns here."""

    _MOST = 16

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._open: dict[Path, Any] = {}

    def read(self, path: Path, dataset: str, first: int, out: Array) -> None:
        import h5py

        if self._process != os.getpid():
            self.__init__()  # type: ignore[misc]  # a forked child must not touch its parent's handles
        with self._lock:
            file = self._open.pop(path, None) or h5py.File(path, "r")
            self._open[path] = file  # the most recently used comes last
            if len(self._open) > self._MOST:
                self._open.pop(next(iter(self._open))).close()
            file[dataset].read_direct(out, np.s_[first : first + len(out)])

    def close(self) -> None:
        if self._process == os.getpid():
            with self._lock:
                while self._open:
                    self._open.popitem()[1].close()


def _describe(path: Path) -> _File:
    """Reads what a file says of its sequences."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            for needed in ("inputs", "seqLengths", "seqTags"):
                if needed not in file:
                    raise SourceError(
                        f"{path}: has no dataset {needed!r}, so it is not in RETURNN's flat layout; check source.path"
                    )
            datasets = {INPUT_KEY: "inputs"}
            if "targets/data" in file:
                datasets |= {name: f"targets/data/{name}" for name in sorted(file["targets/data"])}
            lengths = np.asarray(file["seqLengths"][...], np.int64)
            tags = [tag.encode() if isinstance(tag, str) else bytes(tag) for tag in file["seqTags"][...]]
            stored = {name: _stored(path, file[dataset], dataset) for name, dataset in datasets.items()}
            totals = {name: len(file[dataset]) for name, dataset in datasets.items()}
    except (OSError, KeyError, RuntimeError) as error:
        raise SourceError(f"{path}: can't be read as HDF5: {error}; is it whole? copy or make it again") from error
    return _File(path, stored, _lengths_per_key(path, lengths, tags, totals), tags)


def _stored(path: Path, dataset: Any, name: str) -> _Stored:
    dtype = dataset.dtype
    if dtype.kind not in "biuf":
        raise SourceError(f"{path}: dataset {name!r} holds {dtype}, not numbers; remove it or convert it")
    as_it_is = dtype.isnative and dataset.chunks is None and not dataset.external and not dataset.is_virtual
    spec = KeySpec(dtype=dtype.newbyteorder("=").name, shape=tuple(dataset.shape[1:]))
    return _Stored(name, spec, dataset.id.get_offset() if as_it_is else None)


def _lengths_per_key(path: Path, lengths: Int64, tags: list[bytes], totals: Mapping[str, int]) -> dict[str, Int64]:
    """Splits seqLengths into keys, and holds it against the data."""
    if len(lengths) != len(tags):
        raise SourceError(
            f"{path}: seqLengths tells of {len(lengths)} sequences but seqTags of {len(tags)}; the file is damaged"
        )
    if lengths.ndim == 1:
        lengths = np.repeat(lengths[:, None], len(totals), axis=1)  # one length for all keys, as old files have it
    if lengths.shape[1] < len(totals):
        raise SourceError(
            f"{path}: seqLengths has {lengths.shape[1]} columns for {len(totals)} keys; the file is damaged"
        )
    per_key = {name: np.ascontiguousarray(lengths[:, column]) for column, name in enumerate(totals)}
    for name, frames in per_key.items():
        if (frames < 0).any() or frames.sum() != totals[name]:
            raise SourceError(
                f"{path}: seqLengths adds up to {frames.sum()} frames of key {name!r} but the data has {totals[name]}; "
                "the file is damaged, or its writer was stopped; make it again"
            )
    return per_key


def _check_equal_keys(files: list[_File]) -> None:
    first = {name: stored.spec for name, stored in files[0].stored.items()}
    for file in files[1:]:
        keys = {name: stored.spec for name, stored in file.stored.items()}
        for name in sorted(first.keys() | keys.keys()):
            if keys.get(name) != first.get(name):
                raise SourceError(
                    f"{file.path}: key {name!r} is {_shown(keys.get(name))}, but in {files[0].path} it is "
                    f"{_shown(first.get(name))}; files of one source have equal keys"
                )


def _shown(spec: KeySpec | None) -> str:
    return "missing" if spec is None else f"{spec.dtype} {list(spec.shape)}"


def _check_unique(tags: Tags, paths: list[Path], first: Int64) -> None:
    twice = tags.duplicate()
    if twice is not None:
        where = [str(paths[int(np.searchsorted(first, place, side="right")) - 1]) for place in twice]
        raise SourceError(
            f"tag {tags[twice[0]]!r} stands twice, in {where[0]} and {where[1]}; tags have to be unique, rename one"
        )
