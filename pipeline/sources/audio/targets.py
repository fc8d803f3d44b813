"""Labels per frame: a .npy or .txt file for each sequence, or Kaldi's alignments."""

from __future__ import annotations

from pathlib import Path
from tokenize import TokenError
from typing import Any, Protocol

import numpy as np

from seqprep.errors import SourceError
from seqprep.files import FileCache
from seqprep.sources.kaldi.keys import FOREIGN_ERRORS, Key, describe, load_key
from seqprep.sources.matching import match_tags
from seqprep.sources.paths import find_files
from seqprep.sources.plain import read_plain
from seqprep.types import Array, Int64, KeySpec, Tags

_NUMBERS = "iufb"
_MOST_INTEGER = 2**31 - 1


class Target(Protocol):
    """One key with a label per frame."""

    @property
    def spec(self) -> KeySpec:
        """What its frames look like."""

    @property
    def length(self) -> Int64:
        """Frames of each sequence; int64 [sequences]."""

    def read(self, files: FileCache, sequence: int, start: int, out: Array) -> None:
        """Reads frames start, start + 1, … of a sequence.

        Raises:
            SourceError: the file isn't what it was, or can't be read.
        """

    def files(self) -> list[Path]:
        """The files that hold it."""


class FileLabels:
    """Labels in a file per sequence.

    A .npy file holds [frames, …]; any other is text, a label after the other: integers, else numbers, else names, which
    become class numbers in the sorted order of all names.

    Args:
        paths: the file of each sequence.
        places: the line that names each, to stand before a message.

    Raises:
        SourceError: a file can't be read, or they differ in dtype or shape.
    """

    def __init__(self, paths: list[Path], places: list[str]) -> None:
        self._paths = Tags.of(map(str, paths))
        is_text = [path.suffix.lower() != ".npy" for path in paths]
        if len(set(is_text)) > 1:
            odd = paths[is_text.index(not is_text[0])]
            raise SourceError(f"{odd}: a .npy file among text files; give files of one kind")
        self._offsets: Int64 | None = None
        self._words: dict[str, int] | None = None
        if is_text[0]:
            self._survey_text(places)
        else:
            self._survey_arrays(places)

    def _survey_arrays(self, places: list[str]) -> None:
        self.length, self._offsets = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        first: tuple[Any, Any] | None = None
        for sequence, place in enumerate(places):
            shape, dtype, self._offsets[sequence] = _npy_header(self._paths[sequence], place)
            self.length[sequence] = shape[0]
            own = dtype, shape[1:]
            first = first or own
            if own != first:
                raise SourceError(
                    f"{place}{self._paths[sequence]}: it holds {dtype} with frames of {list(own[1])}, but "
                    f"{self._paths[0]} {first[0]} of {list(first[1])}; make them alike"
                )
        assert first is not None  # a listing holds a sequence
        self.spec = KeySpec(dtype=first[0].name, shape=first[1])

    def _survey_text(self, places: list[str]) -> None:
        self.length = np.empty(len(places), np.int64)
        words: set[str] = set()
        for sequence, place in enumerate(places):
            own = _words(self._paths[sequence], place)
            self.length[sequence] = len(own)
            words.update(own)
        if all(_is_integer(word) for word in words):
            self.spec = KeySpec(dtype="int32")
        elif all(_is_number(word) for word in words):
            self.spec = KeySpec(dtype="float32")
        else:
            names = sorted(words)
            self._words = {word: number for number, word in enumerate(names)}
            self.spec = KeySpec(dtype="int32", labels=tuple(names))

    def read(self, files: FileCache, sequence: int, start: int, out: Array) -> None:
        """As `Target.read`."""
        path = self._paths[sequence]
        try:
            if self._offsets is not None:
                read_plain(files, path, self._offsets.item(sequence) + start * self.spec.nbytes, out)
                return
            words = _words(path, "")
            if len(words) != self.length.item(sequence):
                raise ValueError(f"it has {len(words)} labels, and had {self.length.item(sequence)}")
            part = words[start : start + len(out)]
            out[...] = [self._words[word] for word in part] if self._words else np.array(part, np.float64)
        except (OSError, ValueError, KeyError) as error:
            raise SourceError(f"{path}: can't be read: {error}; it changed since it was opened, start again") from error

    def files(self) -> list[Path]:
        """As `Target.files`."""
        return [Path(path) for path in self._paths]


class KaldiLabels:
    """Kaldi's alignments, found by their tags.

    Args:
        key: the key.
        name: an scp file or archive.
        tags: the sequences.
        files: open files.

    Raises:
        SourceError: it can't be read, or lacks a sequence.
    """

    def __init__(self, key: str, name: str, tags: Tags, files: FileCache) -> None:
        own = load_key(key, find_files(name, (".scp", ".ark")), files)
        places = match_tags(tags, own.entries.tags)
        if (places < 0).any():
            tag = tags[int(np.flatnonzero(places < 0)[0])]
            raise SourceError(f"{name}: sequence {tag!r} isn't in it ({(places < 0).sum()} such); complete it")
        self._key: Key = own.take(places)

    @property
    def spec(self) -> KeySpec:
        """As `Target.spec`."""
        return self._key.spec

    @property
    def length(self) -> Int64:
        """As `Target.length`."""
        return self._key.length

    def read(self, files: FileCache, sequence: int, start: int, out: Array) -> None:
        """As `Target.read`."""
        try:
            self._key.read(files, sequence, start, out)
        except FOREIGN_ERRORS as error:
            raise SourceError(f"{self._key.entries.place(sequence)}: {describe(error)}; make it again") from error

    def files(self) -> list[Path]:
        """As `Target.files`."""
        return [Path(file) for file in self._key.entries.files]


def _npy_header(path: str, place: str) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape and dtype of an array in a .npy file, and where its values begin.

    Only numbers: of objects, which numpy stores by pickle, nothing is loaded.
    """
    remedy = "store plain numbers, time first, with numpy.save"
    try:
        with open(path, "rb") as file:
            version = np.lib.format.read_magic(file)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"its format is of version {version}")
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, is_fortran, dtype = read(file)
            offset, size = file.tell(), file.seek(0, 2)
    except (OSError, ValueError, SyntaxError, TypeError, MemoryError, RecursionError, TokenError) as error:
        raise SourceError(
            f"{place}{path}: can't be read as an array: {' '.join(str(error).split())}; {remedy}"
        ) from error
    if dtype.kind not in _NUMBERS or not dtype.isnative or not shape or (is_fortran and len(shape) > 1):
        raise SourceError(
            f"{place}{path}: it holds {dtype} {list(shape)}{' in columns' if is_fortran else ''}; {remedy}"
        )
    if offset + dtype.itemsize * int(np.prod(shape, dtype=object)) > size:
        raise SourceError(f"{place}{path}: cut off: its header tells of {list(shape)}; restore it or leave it out")
    return shape, dtype, offset


def _words(path: str, place: str) -> list[str]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read().split()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SourceError(f"{place}{path}: can't be read as labels: {reason}; check the path") from error


def _is_integer(word: str) -> bool:
    digits = word.removeprefix("-").removeprefix("+")
    return digits.isascii() and digits.isdecimal() and len(digits) < 11 and abs(int(word)) <= _MOST_INTEGER


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
