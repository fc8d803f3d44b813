"""The reader of HDF5 files."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np

from seqprep.errors import SourceError
from seqprep.files import FileCache
from seqprep.sources.fingerprint import fingerprint_of, short_hash
from seqprep.sources.hdf5.columns import Content, Readers, Rows
from seqprep.sources.hdf5.files import FOREIGN_ERRORS, Handles, one_line
from seqprep.sources.hdf5.layouts import describe_files
from seqprep.sources.hdf5.options import Hdf5Options
from seqprep.sources.paths import find_files
from seqprep.sources.plain import CutOffError
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags

_OPEN_FILES = 16


class Hdf5Source:
    """HDF5 files of one layout with equal keys.

    Contiguous, uncompressed datasets are read by their offset in the file, without h5py and its lock.

    Args:
        options: where the files are, and what is in them where they don't say it themselves.

    Raises:
        ConfigError: an option doesn't go with the layout.
        SourceError: a file is missing, damaged, or of no known layout; or files differ in their keys, or two sequences
            have one tag.
    """

    Options = Hdf5Options

    def __init__(self, options: Hdf5Options) -> None:
        self._options = options
        self._paths = find_files(options.path, (".h5", ".hdf", ".hdf5"))
        contents = describe_files(self._paths, options)
        _check_equal_keys(contents)
        self._columns = {name: [content.columns[name] for content in contents] for name in contents[0].columns}
        self._keys = {name: columns[0].spec for name, columns in self._columns.items()}
        self._lengths = {name: np.concatenate([one.lengths[name] for one in contents]) for name in contents[0].lengths}
        self._sizes = {name: np.concatenate([one.sizes[name] for one in contents]) for name in contents[0].sizes}
        self._tags = Tags.concatenate([content.tags for content in contents])
        self._first: list[int] = np.cumsum([0, *(len(content.tags) for content in contents)]).tolist()
        _check_unique(self._tags, contents, self._first)
        self._open_handles()

    def _open_handles(self) -> None:
        self._readers = Readers(FileCache(_OPEN_FILES), Handles())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_readers"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open_handles()

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """The keys: those of `keys`, else in the layout's order."""
        return self._keys

    @property
    def tags(self) -> Tags:
        """Tags of all sequences, file by file."""
        return self._tags

    def lengths(self, key: str) -> Int64:
        """Frames of every sequence in one key; int64 [sequences].

        Raises:
            KeyError: there is no such key with a time axis.
        """
        return self._lengths[key]

    def axis_sizes(self, key: str) -> Int64:
        """Sizes of a key's ragged axes; int64 [sequences, axes]."""
        return self._sizes[key]

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        """Reads frames of one sequence; see `Source.read`."""
        place = bisect_right(self._first, sequence) - 1
        column = self._columns[key][place]
        spec = column.spec
        if not spec.has_time:
            value = np.empty(spec.unit_shape, spec.dtype) if out is None else out
            self._fill(key, sequence, place, 0, value[None])
            return value
        start, stop = frames or (0, self._lengths[key].item(sequence))
        if out is None:
            shape = spec.shape_of(self._sizes[key][sequence].tolist()) if spec.ragged else spec.unit_shape
            out = np.empty((stop - start, *shape), spec.dtype)
        if out.nbytes:
            self._fill(key, sequence, place, start, out)
        return out

    def read_together(self, key: str, first: int, last: int, out: Array) -> bool:
        """Reads sequences that lie one behind the other by one range of the file's bytes; see `Source`."""
        place = bisect_right(self._first, first) - 1
        column, before = self._columns[key][place], self._first[place]
        if last > self._first[place + 1] or not isinstance(column, Rows):
            return False
        lengths = self._lengths[key][first:last]
        try:
            return column.read_together(self._readers, first - before, lengths, out)
        except OSError:
            return False  # read alone, the sequence that can't be read says so

    def _fill(self, key: str, sequence: int, place: int, start: int, out: Array) -> None:
        try:
            self._columns[key][place].read(self._readers, sequence - self._first[place], start, out)
        except FOREIGN_ERRORS as error:
            what = "is cut off" if isinstance(error, CutOffError) else "can't be read"
            raise SourceError(
                f"{self._paths[place]}: sequence {self._tags[sequence]!r}, key {key!r} {what}: {one_line(error)}; "
                "is the file whole? copy or make it again"
            ) from error

    def fingerprint(self) -> Mapping[str, str]:
        """See `Source.fingerprint`; with `options`, which say what the files' datasets are taken for."""
        sizes = {f"{key}/size": own for key, own in self._sizes.items()}
        parts = fingerprint_of(self._keys, self._tags, self._lengths | sizes, self._paths)
        said = self._options.model_dump(exclude={"path"})
        return parts | {"options": short_hash([json.dumps(said, sort_keys=True).encode()])}

    def close(self) -> None:
        """Gives back open files."""
        self._readers.files.close()
        self._readers.handles.close()
        self._open_handles()


def _check_equal_keys(contents: list[Content]) -> None:
    first = {name: column.spec for name, column in contents[0].columns.items()}
    for content in contents[1:]:
        keys = {name: column.spec for name, column in content.columns.items()}
        for name in sorted(first.keys() | keys.keys()):
            one, other = keys.get(name), first.get(name)
            if one != other:
                raise SourceError(
                    f"{content.path}: key {name!r} is {_shown(one)}, but in {contents[0].path} it is {_shown(other)}"
                    f"{'; the names of their classes differ' if _shown(one) == _shown(other) else ''}; files of one "
                    "source have equal keys: make them so, or name the keys to take in source.keys"
                )


def _shown(spec: KeySpec | None) -> str:
    if spec is None:
        return "missing"
    return f"{spec.dtype} {list(spec.shape)}{'' if spec.has_time else ' without time'}"


def _check_unique(tags: Tags, contents: list[Content], first: list[int]) -> None:
    twice = tags.duplicate()
    if twice is not None:
        where = [contents[bisect_right(first, place) - 1].path for place in twice]
        raise SourceError(
            f"tag {tags[twice[0]]!r} stands twice, in {where[0]} and {where[1]}; tags have to be unique, rename one"
        )
