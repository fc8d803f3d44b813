"""Which rows of CSV files make which sequence: an index of blocks of rows, made in one pass."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqprep.config import suggestion
from seqprep.errors import ConfigError, SourceError
from seqprep.sources.byteranges import ByteRanges
from seqprep.sources.csv_rows import SEPARATORS, SUFFIXES, Dialect, Row, is_number, rows_of
from seqprep.sources.lines import decode, lines_of
from seqprep.sources.reading import tags_of_files
from seqprep.types import Int64, Tags

_BLOCK_ROWS = 256
Name = str | int
"""A column: its name in the header, or its place from 0."""


class KeyColumns(NamedTuple):
    """What becomes one key."""

    names: tuple[Name, ...]
    alone: bool
    """One column that is [T], not [T, 1]."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How files are laid out; the options of the source, worked out."""

    columns: Mapping[str, KeyColumns] | None
    """For each key, its columns; None for one key `data` of all that hold numbers."""
    id: Name | None
    """The column that says to which sequence a row belongs; None if each file is one."""
    header: bool | None
    """None: there is one if the first row holds a cell that is no number."""
    separator: str | None
    """None: the one that the first line holds most of."""
    decimal: str


@dataclass(frozen=True, kw_only=True)
class CsvTable:
    """All sequences of some files."""

    columns: Mapping[str, KeyColumns]
    dialects: Sequence[Dialect]
    """Of each file."""
    places: Sequence[Mapping[str, tuple[int, ...]]]
    """Of each file: where each key's columns are."""
    tags: Tags
    lengths: Int64
    """int64 [sequences], in rows."""
    file: Int64
    """int64 [sequences]: the file of each."""
    bounds: Int64
    """int64 [sequences + 1]: the blocks of each sequence."""
    start: Int64
    """int64 [blocks]: first byte of each block in its file."""
    stop: Int64
    """int64 [blocks]: one past its last byte."""
    before: Int64
    """int64 [blocks]: rows of its sequence in front of it."""


def index_table(paths: Sequence[Path], shape: Shape, files: ByteRanges) -> CsvTable:
    """Reads all rows once.

    Raises:
        ConfigError: there is no such column, or none of numbers.
        SourceError: a file can't be read, or isn't CSV, or has other columns than the first.
    """
    builder = _Builder()
    columns = shape.columns
    dialects, places = [], []
    known: dict[tuple[object, ...], Mapping[str, tuple[int, ...]]] = {}
    for path in paths:
        dialect = _dialect(files, path, shape)
        rows = rows_of(files, str(path), dialect)
        first = next(rows, None)
        header = _header(first, dialect, shape, path)
        if first is not None and header is None:
            rows = chain([first], rows)
        second = next(rows, None) if columns is None else None
        if columns is None and second is not None:
            rows = chain([second], rows)
            columns = {"data": _numeric_columns(second, header, dialect, shape.id, path)}
        found = _places(columns or {}, header, first, path)
        places.append(known.setdefault(tuple(found.items()), found))
        dialects.append(dialect)
        builder.add_file(rows, _place(shape.id, header, first, path) if shape.id is not None else None, path)
    tags = Tags.of(tags_of_files(paths, SUFFIXES) if shape.id is None else builder.tags)
    return builder.table(columns or {"data": KeyColumns((), False)}, dialects, places, tags)


def _dialect(files: ByteRanges, path: Path, shape: Shape) -> Dialect:
    """How a file's cells are separated, told from its first line unless it is given."""
    if shape.separator is not None:
        return Dialect(separator=shape.separator, decimal=shape.decimal)
    first = next((line for line in lines_of(files, str(path)) if not line.content.isspace()), None)
    text = "" if first is None else decode(first.content, f"{path}, line {first.number}")
    counts = {mark: text.count(mark) for mark in SEPARATORS if mark != shape.decimal}
    best = max(counts, key=lambda mark: counts[mark])
    if counts[best] == 0 and len(text.split()) > 1:
        best = " "
    return Dialect(separator=best, decimal=shape.decimal)


def _header(first: Row | None, dialect: Dialect, shape: Shape, path: Path) -> list[str] | None:
    """The names of a file's columns; None if it has no header."""
    if first is None or shape.header is False:
        return None
    if shape.header is None and all(is_number(cell, dialect) for cell in first.cells):
        return None
    names = [cell.strip() for cell in first.cells]
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise SourceError(f"{path}: the header names the column {twice!r} twice; rename one")
    return names


def _numeric_columns(row: Row, header: list[str] | None, dialect: Dialect, id: Name | None, path: Path) -> KeyColumns:
    """All columns of which the first row holds a number, but that of the tags."""
    listed: list[Name] = list(range(len(row.cells))) if header is None else list(header)
    cells = [(name, cell) for name, cell in zip(listed, row.cells, strict=False) if name != id and name != ""]
    with_comma = replace(dialect, decimal=",")
    for name, cell in cells:
        if dialect.separator != "," and not is_number(cell, dialect) and is_number(cell, with_comma):
            raise ConfigError(
                f"{path}, line {row.line}: column {name!r} holds {cell.strip()!r}; set source.decimal: ',' if that is a "
                "number, or name the columns to take in source.columns"
            )
    names = [name for name, cell in cells if is_number(cell, dialect)]
    if not names:
        raise ConfigError(f"{path}, line {row.line}: no column holds numbers; check source.separator and source.header")
    return KeyColumns(tuple(names), False)


def _places(
    columns: Mapping[str, KeyColumns], header: list[str] | None, first: Row | None, path: Path
) -> dict[str, tuple[int, ...]]:
    return {key: tuple(_place(name, header, first, path) for name in own.names) for key, own in columns.items()}


def _place(name: Name, header: list[str] | None, first: Row | None, path: Path) -> int:
    """Where a column is."""
    if first is None:
        return 0  # an empty file, of which nothing is read
    if isinstance(name, str):
        if header is None:
            raise ConfigError(f"{path}: has no header to name the column {name!r}; give its place from 0")
        if name not in header:
            raise ConfigError(f"{path}: has no column {name!r}{suggestion(name, filter(None, header))}")
        return header.index(name)
    if not 0 <= name < len(first.cells):
        raise ConfigError(f"{path}: has no column {name}; its columns are 0 to {len(first.cells) - 1}")
    return name


class _Builder:
    """Gathers blocks: rows of one sequence that follow each other in a file, at most 256."""

    def __init__(self) -> None:
        self.tags: list[str] = []
        self._file = array("q")
        self._owner, self._start, self._stop, self._rows = (array("q") for _ in range(4))
        self._files = 0

    def add_file(self, rows: Iterator[Row], id_place: int | None, path: Path) -> None:
        """Takes the rows of one file."""
        numbers: dict[str, int] = {}  # of this file's sequences
        previous = None
        if id_place is None:
            self._file.append(self._files)
            previous = len(self._file) - 1
        fresh = True  # the next row begins a block
        for row in rows:
            if id_place is not None:
                owner = self._owner_of(row, id_place, numbers, path)
                fresh, previous = fresh or owner != previous, owner
            if fresh or self._rows[-1] == _BLOCK_ROWS:
                self._owner.append(previous if previous is not None else 0)
                self._start.append(row.start)
                self._stop.append(row.stop)
                self._rows.append(1)
                fresh = False
            else:
                self._stop[-1] = row.stop
                self._rows[-1] += 1
        self._files += 1

    def _owner_of(self, row: Row, id_place: int, numbers: dict[str, int], path: Path) -> int:
        if id_place >= len(row.cells):
            raise SourceError(f"{path}, line {row.line}: the row has {len(row.cells)} cells, and no id")
        tag = row.cells[id_place]
        owner = numbers.get(tag)
        if owner is None:
            owner = numbers[tag] = len(self._file)
            self._file.append(self._files)
            self.tags.append(tag)
        return owner

    def table(
        self,
        columns: Mapping[str, KeyColumns],
        dialects: Sequence[Dialect],
        places: Sequence[Mapping[str, tuple[int, ...]]],
        tags: Tags,
    ) -> CsvTable:
        """All of it as arrays, block by block of each sequence."""
        owner, rows = np.array(self._owner, np.int64), np.array(self._rows, np.int64)
        order = np.argsort(owner, kind="stable")
        count = len(self._file)
        lengths = np.bincount(owner, rows, count).astype(np.int64)
        bounds = np.searchsorted(owner[order], np.arange(count + 1))
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows[order])])
        return CsvTable(
            columns=columns,
            dialects=dialects,
            places=places,
            tags=tags,
            lengths=lengths,
            file=np.array(self._file, np.int64),
            bounds=bounds,
            start=np.array(self._start, np.int64)[order],
            stop=np.array(self._stop, np.int64)[order],
            before=total[:-1] - np.repeat(total[bounds[:-1]], np.diff(bounds)),
        )
