"""One key of a source: which objects its sequences are, how long, and how any range of one is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from seqprep.errors import SourceError
from seqprep.files import FileCache
from seqprep.sources.kaldi.entries import Entries, content_of, header_at, read_entries
from seqprep.sources.kaldi.lists import Span, read_table
from seqprep.sources.kaldi.objects import FormatError, Header, read_rows, span_in
from seqprep.sources.kaldi.text import parse_text, read_text
from seqprep.sources.matching import match_tags
from seqprep.sources.plain import read_plain
from seqprep.types import Array, Int64, KeySpec, Tags

FEATURES = "feats.scp"
"""What a data folder calls the list of its features."""
_COUNTS = "utt2num_frames"
_NOT_PLAIN = -1
FOREIGN_ERRORS = (OSError, FormatError, MemoryError)
"""What reading an object raises when it is missing or damaged."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key, whose sequences stand in the source's order."""

    entries: Entries
    spec: KeySpec
    columns: int | None
    """Columns that are taken; None for vectors."""
    rows: Int64
    """Rows that are taken of each object; int64 [sequences]."""
    first: Int64
    """First row of each sequence in its object; int64 [sequences]."""
    length: Int64
    """Rows of each sequence; int64 [sequences]."""
    plain: Int64
    """Where each object's values begin in its file, if they lie there in whole rows as numpy has them; else −1."""

    def read(self, files: FileCache, sequence: int, start: int, out: Array) -> None:
        """Reads rows of one sequence.

        Args:
            files: open files.
            sequence: its place.
            start: the first row.
            out: [rows, …], C-contiguous, not empty; filled.

        Raises:
            FormatError: the object isn't what it was when it was opened.
            OSError: the file can't be read, or a command fails.
        """
        entries, first = self.entries, self.first.item(sequence) + start
        plain = self.plain.item(sequence)
        if plain == _NOT_PLAIN:
            self._read_object(files, sequence, first, out)
        else:
            path = entries.files[entries.file.item(sequence)]
            read_plain(files, path, plain + first * (out.nbytes // len(out)), out)

    def _read_object(self, files: FileCache, sequence: int, first: int, out: Array) -> None:
        entries = self.entries
        content = content_of(files, entries, sequence)
        header = header_at(content, entries.offset.item(sequence))
        rows, columns = taken(entries, sequence, header)
        if len(rows) != self.rows.item(sequence):
            raise FormatError(
                f"it has {len(rows)} rows where {self.rows.item(sequence)} were told of; is utt2num_frames right?"
            )
        if header.dtype != self.spec.dtype or _count(columns) != self.columns:
            raise FormatError(
                f"it is {_shown(header.dtype, columns)}, not {self.spec.dtype} of {self.columns or 1} columns"
            )
        wanted = range(first, first + len(out))
        if header.kind.startswith("TEXT"):
            values = parse_text(read_text(content, header.data))[wanted.start : wanted.stop]
            out[...] = values if columns is None else values[:, columns.start : columns.stop]
        elif header.is_plain and _is_whole(header, columns) and entries.file.item(sequence) not in entries.commands:
            path = entries.files[entries.file.item(sequence)]
            read_plain(files, path, header.data + first * header.row_bytes, out)
        else:
            read_rows(content, header, wanted, columns or range(0), out)

    def take(self, places: Int64) -> Key:
        """Gives the key for the sequences at these places, in their order; places may repeat."""
        return replace(
            self,
            entries=self.entries.take(places),
            rows=self.rows[places],
            first=self.first[places],
            length=self.length[places],
            plain=self.plain[places],
        )

    def cut(self, starts: Int64, lengths: Int64) -> Key:
        """Gives the key for stretches of its sequences, one of each."""
        return replace(self, first=self.first + starts, length=lengths)


def taken(entries: Entries, number: int, header: Header) -> tuple[range, range | None]:
    """The rows and columns of an object that its entry takes; None for a vector's columns.

    Raises:
        FormatError: a range is outside of it.
    """
    rows, columns = (
        Span(first, None if last < 0 else last)
        for first, last in (entries.rows[number].tolist(), entries.columns[number].tolist())
    )
    return (
        span_in(rows, header.rows, "rows"),
        None if header.columns is None else span_in(columns, header.columns, "columns"),
    )


def load_key(
    name: str, paths: Sequence[Path], files: FileCache, *, allow_pipes: bool = False, timed: bool = True
) -> Key:
    """Opens a key from scp files and archives; of a feats.scp, the utt2num_frames beside it tells the rows.

    Args:
        name: the key.
        paths: its files.
        files: open files.
        allow_pipes: whether scp files may name shell commands.
        timed: False if an object is one value.

    Raises:
        SourceError: a file is missing or damaged, holds nothing, objects differ, or two have one tag.
    """
    shown = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and others"
    entries = read_entries(paths, allow_pipes)
    if not len(entries):
        raise SourceError(f"{shown}: lists no object; check source.path")
    twice = entries.tags.duplicate()
    if twice is not None:
        named = " and ".join(entries.files[entries.file.item(place)] for place in twice)
        raise SourceError(f"{shown}: tag {entries.tags[twice[0]]!r} stands twice, in {named}; tags have to be unique")
    counts = paths[0].with_name(_COUNTS)
    told = _counts(counts, entries.tags) if len(paths) == 1 and paths[0].name == FEATURES and counts.is_file() else None
    return open_key(name, entries, files, told, timed)


def _counts(path: Path, tags: Tags) -> Int64 | None:
    """Reads how many rows the objects have, or None if the table lacks one of them."""
    table = read_table(path)
    places = match_tags(tags, Tags.of(table.tags))
    if (places < 0).any():
        return None
    for place, value in enumerate(table.values):
        if not (value.isascii() and value.isdecimal() and len(value) < 19):
            raise SourceError(
                f"{table.where(place)}: {value!r} is no count of frames; make the file again, or remove it"
            )
    return np.array([int(value) for value in table.values], np.int64)[places]


def open_key(name: str, entries: Entries, files: FileCache, told: Int64 | None, timed: bool) -> Key:
    """Describes a key from its objects' headers.

    Args:
        name: the key.
        entries: its objects; at least one.
        files: open files.
        told: rows of every sequence, if a table tells them: then headers are read up to the first object with rows.
        timed: False if an object is one value.

    Raises:
        SourceError: an object is missing or damaged, or they differ in type or columns; names file and sequence.
    """
    count = len(entries)
    rows = np.zeros(count, np.int64) if told is None else told
    plain, model = np.full(count, _NOT_PLAIN), _Model(name, entries)
    for number in range(count):
        try:
            content = content_of(files, entries, number)
            header = header_at(content, entries.offset.item(number))
            own, columns = taken(entries, number, header)
        except FOREIGN_ERRORS as error:
            raise SourceError(
                f"{entries.place(number)}: {describe(error)}; check the scp file, or make it again"
            ) from error
        if len(own):
            model.check(number, header.dtype, columns)
        if told is not None and len(own):
            break
        if told is None:
            rows[number] = len(own)
        if header.is_plain and _is_whole(header, columns) and entries.file.item(number) not in entries.commands:
            plain[number] = header.data
    spec = model.spec(rows, timed)
    first = entries.rows[:, 0].copy()
    return Key(entries=entries, spec=spec, columns=model.columns, rows=rows, first=first, length=rows, plain=plain)


class _Model:
    """What all objects of a key have to agree in."""

    def __init__(self, name: str, entries: Entries) -> None:
        self._name, self._entries = name, entries
        self._number = 0
        self._dtype: str | None = None
        self.columns: int | None = None

    def check(self, number: int, dtype: str, columns: range | None) -> None:
        """Compares an object with the first."""
        count = _count(columns)
        if self._dtype is None:
            self._number, self._dtype, self.columns = number, dtype, count
        if (dtype, count) != (self._dtype, self.columns):
            raise SourceError(
                f"{self._entries.place(number)}: it is {_shown(dtype, columns)}, but {self._entries.tags[self._number]!r} is "
                f"{_shown(self._dtype, None if self.columns is None else range(self.columns))}; the objects of key "
                f"{self._name!r} have to be alike"
            )

    def spec(self, rows: Int64, timed: bool) -> KeySpec:
        """The key's description; of a float vector per frame if no object has a row."""
        dtype, shape = self._dtype or "float32", () if self.columns is None else (self.columns,)
        if timed:
            return KeySpec(dtype=dtype, shape=shape)
        odd = np.flatnonzero(rows != rows[0])
        if len(odd) or not rows[0]:
            number = int(odd[0]) if len(odd) else 0
            raise SourceError(
                f"{self._entries.place(number)}: it has {rows[number]} rows, the first has {rows[0]}; values without time "
                f"have one size: take {self._name!r} out of source.without_time"
            )
        return KeySpec(dtype=dtype, shape=(int(rows[0]), *shape), has_time=False)


def _count(columns: range | None) -> int | None:
    return None if columns is None else len(columns)


def _is_whole(header: Header, columns: range | None) -> bool:
    return columns is None or len(columns) == header.columns


def _shown(dtype: str, columns: range | None) -> str:
    return f"a {dtype} vector" if columns is None else f"a {dtype} matrix of {len(columns)} columns"


def describe(error: BaseException) -> str:
    """The error's text; of one of the system without its number and path."""
    if isinstance(error, OSError) and error.strerror:
        return f"can't be read: {error.strerror}"
    return str(error) or "it doesn't fit into memory"
