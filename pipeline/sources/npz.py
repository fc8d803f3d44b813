"""Numpy's files: a .npy or .npz per sequence, or one with all sequences back to back and their lengths or offsets."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, model_validator

from seqprep import config
from seqprep.sources.byteranges import ByteRanges
from seqprep.sources.fingerprint import fingerprint_of
from seqprep.sources.npz_layout import Layout, find_sequences
from seqprep.sources.paths import find_files
from seqprep.sources.reading import Place, check_unique, file_of, target_of
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags

SUFFIXES = (".npz", ".npy")


class NpzSource:
    """Numpy arrays. Without `lengths` or `offsets`, each file is a sequence, named by its path.

    An .npy file has one key; each array of an .npz file is a key. Arrays are read by their place in the file, and
    deflated ones (numpy.savez_compressed) from the nearest remembered point. An .npz holds a CRC-32 of each array: it
    is checked when the array is first read. Lengths come from the headers. Objects are refused: nothing is unpickled.

    Args:
        options: what to read.

    Raises:
        ConfigError: options don't go together.
        SourceError: a file is missing, damaged, or not of numbers; or files differ in their keys.
    """

    class Options(config.Options):
        """The section `source` with `type: npz`."""

        path: str | list[str]
        """A file, a folder (.npy and .npz in it and below), a glob, or a list of these."""
        arrays: list[str] | dict[str, str] | None = None
        """Arrays of the .npz files that become keys: [array, …], or {key: array}; all of them unless given."""
        key: str = "data"
        """What the array of an .npy file is called."""
        lengths: str | dict[str, str] | None = None
        """The array (or .npy file) that holds the frames of each sequence, of all or {key: array}: the sequences lie
        back to back in the other arrays."""
        offsets: str | dict[str, str] | None = None
        """In place of lengths: where each sequence begins, and last where the data ends; n + 1 numbers."""
        tags: str | None = None
        """The array (or .npy file) of strings that names the sequences; numbered unless given."""
        without_time: list[str] = Field(default=[])
        """Keys that hold one value for each sequence."""

        @model_validator(mode="after")
        def _check(self) -> NpzSource.Options:
            if self.lengths is not None and self.offsets is not None:
                raise ValueError("source.lengths and source.offsets are both set; set one")
            if self.tags is not None and not self.back_to_back:
                raise ValueError(
                    "source.tags is set without source.lengths or source.offsets: files that hold a sequence each are "
                    "named by their paths; remove it"
                )
            return self

        @property
        def back_to_back(self) -> bool:
            """Whether a file holds many sequences."""
            return self.lengths is not None or self.offsets is not None

        @property
        def layout(self) -> Layout:
            """What the options come to."""
            named = {name: name for name in self.arrays} if isinstance(self.arrays, list) else self.arrays
            return Layout(
                array_of=named,
                npy_key=self.key,
                extents=self.lengths if self.offsets is None else self.offsets,
                are_offsets=self.offsets is not None,
                tags=self.tags,
                without_time=frozenset(self.without_time),
            )

    def __init__(self, options: Options) -> None:
        self._files = ByteRanges()
        self._paths = find_files(options.path, SUFFIXES)
        found = find_sequences(self._paths, options.layout, self._files)
        self._keys, self._arrays = found.keys, found.arrays
        self._tags, self._lengths, self._begin, self._first = found.tags, found.lengths, found.begin, found.first
        check_unique(self._tags, lambda sequence: str(self._path(sequence)), "rename one or give other source.tags")

    def _path(self, sequence: int) -> str:
        return str(self._paths[file_of(self._first, sequence)])

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """The arrays, in the order of the first file or of `arrays`."""
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
        spec = self._keys[key]
        length = int(self._lengths[key][sequence]) if spec.has_time else 1
        (start, stop), out = target_of(spec, length, frames, out)
        if stop > start and out.size:
            file = file_of(self._first, sequence)
            first = int(self._begin[key][sequence]) + start
            path = str(self._paths[file])
            place = Place(lambda: f"{path}: sequence {self._tags[sequence]!r}, key {key!r}")
            self._arrays[key].fill(self._files, path, file, first, out, place)
        return out

    def fingerprint(self) -> Mapping[str, str]:
        """See `Source.fingerprint`."""
        return fingerprint_of(self._keys, self._tags, self._lengths, self._paths)

    def close(self) -> None:
        """Gives back open files."""
        self._files.close()
