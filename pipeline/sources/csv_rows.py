"""Rows of CSV files: where they are, what their header says, and their cells as numbers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seqprep.errors import SourceError
from seqprep.sources.byteranges import ByteRanges
from seqprep.sources.lines import Line, decode, lines_of
from seqprep.types import Array

SUFFIXES = (".csv.gz", ".tsv.gz", ".csv", ".tsv", ".txt")
SEPARATORS = (",", ";", "\t", "|")
_EXACT = 1 << 53
"""Below it, every whole number is a float64."""
_MISSING = frozenset({"", "na", "n/a", "nan", "-nan", "null", "none"})


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How cells are written."""

    separator: str
    """One character; a blank stands for any number of blanks."""
    decimal: str = "."

    def rows(self, lines: Iterator[str], place: Callable[[], str]) -> Iterator[list[str]]:
        """Splits lines into cells; a quoted cell may go over several lines.

        Raises:
            SourceError: a line is no CSV.
        """
        if self.separator == " ":
            yield from (line.split() for line in lines)
            return
        reader = csv.reader(lines, delimiter=self.separator, strict=True)
        try:
            yield from reader
        except csv.Error as error:
            raise SourceError(f"{place()}: not valid CSV: {error}; quote or fix the line") from error


class Row(NamedTuple):
    """One row with its place in the file."""

    line: int
    """The line on which it begins, from 1."""
    start: int
    """Its first byte."""
    stop: int
    """One past its last byte."""
    cells: list[str]


def rows_of(files: ByteRanges, path: str, dialect: Dialect) -> Iterator[Row]:
    """Goes through a file's rows; blank ones are left out.

    Raises:
        SourceError: the file can't be read, or isn't CSV.
    """
    seen = _Seen()

    def texts() -> Iterator[str]:
        for line in lines_of(files, path):
            seen.take(line)
            yield decode(line.content, f"{path}, line {line.number}")

    for cells in dialect.rows(texts(), lambda: f"{path}, line {seen.last}"):
        if any(cells) or len(cells) > 1:
            yield Row(seen.line, seen.start, seen.stop, cells)
        seen.begin()


class _Seen:
    """Which lines a row has taken so far."""

    def __init__(self) -> None:
        self.line = self.start = self.stop = self.last = 0
        self._fresh = True

    def take(self, line: Line) -> None:
        if self._fresh:
            self.line, self.start, self._fresh = line.number, line.start, False
        self.stop, self.last = line.stop, line.number

    def begin(self) -> None:
        self._fresh = True


def is_number(cell: str, dialect: Dialect) -> bool:
    """Whether a cell holds a number, or nothing."""
    return cell.strip().lower() in _MISSING or _number(cell, dialect) is not None


def _number(cell: str, dialect: Dialect) -> float | None:
    if dialect.decimal != ".":
        if "." in cell:  # which then groups thousands
            return None
        cell = cell.replace(dialect.decimal, ".")
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


class CellError(ValueError):
    """A cell that is no number."""

    def __init__(self, row: int, column: int, cell: str | None) -> None:
        super().__init__()
        self.row, self.column, self.cell = row, column, cell


def numbers_in(
    content: bytes, count: int, columns: Sequence[int], dialect: Dialect, integers: bool, place: str
) -> Array:
    """Reads some rows' cells as numbers; missing ones (empty, NA, NaN, null, None) are NaN.

    Args:
        content: whole rows, as `rows_of` finds them.
        count: how many.
        columns: the columns to take.
        dialect: how cells are written.
        integers: all are whole numbers, and may have 64 bits.
        place: names the file and sequence in messages.

    Returns:
        [rows, columns], int64 if `integers` and none is missing, else float64.

    Raises:
        CellError: a cell holds something else, or a row is too short.
        SourceError: there are more or fewer rows.
    """
    text = decode(content, place)
    plain = not integers and (dialect.decimal == "." or "." not in text)
    found = _by_numpy(text.replace(dialect.decimal, "."), columns, dialect) if plain else None
    if found is None or len(found) != count:
        lines = iter(io.StringIO(text, newline=""))
        rows = [cells for cells in dialect.rows(lines, lambda: place) if any(cells) or len(cells) > 1]
        if len(rows) != count:
            raise SourceError(f"{place}: the file changed since it was opened; start again")
        found = _integers(rows, columns) if integers else None
        if found is None:
            found = _one_by_one(rows, columns, dialect, integers)
    return found


def joined(parts: Sequence[Array], place: str) -> Array:
    """Puts stretches of rows one behind the other; int64 if all are.

    Raises:
        SourceError: whole numbers would be rounded, for other stretches hold missing cells.
    """
    mixed = len({part.dtype for part in parts}) > 1
    if mixed and any(part.dtype.kind == "i" and (np.abs(part) >= _EXACT).any() for part in parts):
        raise SourceError(f"{place}: holds whole numbers of more than 53 bits, and missing cells; fill those in")
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _by_numpy(text: str, columns: Sequence[int], dialect: Dialect) -> Array | None:
    """Reads cells with numpy's parser, which is quick; None if there is anything but plain numbers."""
    separator = None if dialect.separator == " " else dialect.separator
    quote = None if separator is None else '"'
    try:
        found: Array = np.loadtxt(
            io.StringIO(text, newline=""),
            delimiter=separator,
            usecols=list(columns),
            comments=None,
            quotechar=quote,
            ndmin=2,
        )
    except (ValueError, IndexError):
        return None
    return found


def _integers(rows: Sequence[Sequence[str]], columns: Sequence[int]) -> Array | None:
    """Reads cells as whole numbers; None if one isn't."""
    try:
        taken = [row[column] for row in rows for column in columns]
        if any("_" in cell for cell in taken):  # which Python takes for the grouping of digits
            return None
        return np.fromiter(map(int, taken), np.int64, len(taken)).reshape(len(rows), len(columns))
    except (ValueError, IndexError, OverflowError):
        return None


def _one_by_one(rows: Sequence[Sequence[str]], columns: Sequence[int], dialect: Dialect, integers: bool) -> Array:
    found = np.empty((len(rows), len(columns)))
    for place, row in enumerate(rows):
        for target, column in enumerate(columns):
            if column >= len(row):
                raise CellError(place, column, None)
            missing = row[column].strip().lower() in _MISSING
            value = math.nan if missing else _number(row[column], dialect)
            if value is None or (integers and abs(value) >= _EXACT):
                raise CellError(place, column, row[column])
            found[place, target] = value
    return found
