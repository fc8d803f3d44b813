"""CSV files of series: a file is a sequence, or a column says to which one a row belongs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from seqprep import config
from seqprep.errors import SourceError
from seqprep.sources.byteranges import ByteRanges
from seqprep.sources.csv_rows import SUFFIXES, CellError, joined, numbers_in
from seqprep.sources.csv_table import CsvTable, KeyColumns, Name, Shape, index_table
from seqprep.sources.fingerprint import fingerprint_of, short_hash
from seqprep.sources.paths import find_files
from seqprep.sources.reading import check_unique, store, target_of
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags

Dtype = Literal["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16", "float32", "float64"]


class CsvSource:
    """Series of numbers: a row is a frame. Without `id` each file is a sequence, named by its path; with `id` the rows
    of one value of that column are, in their order, wherever in the file they stand.

    Opening goes through all rows once, to find where they are; cells are read when they are asked for.

    Args:
        options: what to read.

    Raises:
        ConfigError: there is no such column, or none of numbers.
        SourceError: a file is missing, isn't CSV, or has other columns than the first.
    """

    class Options(config.Options):
        """The section `source` with `type: csv`."""

        path: str | list[str]
        """A file, a folder (.csv, .tsv and .txt in it and below, also with .gz), a glob, or a list of these."""
        columns: list[Name] | dict[str, Name | list[Name]] | None = None
        """What becomes keys: a list of columns is the key `data`, [T, columns]; {key: column} is [T], and {key:
        [column, …]} is [T, columns]. By name, or by place from 0. Unless given, all of which the first row holds a
        number."""
        id: Name | None = None
        """The column that says to which sequence a row belongs."""
        header: bool | Literal["auto"] = "auto"
        """Whether the first row names the columns; auto: if one of its cells is no number."""
        separator: str = "auto"
        """What stands between cells: one character; a blank is any number of blanks; auto: the one of comma, semicolon,
        tab and | that the first line holds most of, else blanks."""
        decimal: Literal[".", ","] = "."
        """What stands in front of decimals."""
        on_nan: Literal["error", "keep", "zero", "forward"] = "error"
        """What becomes of cells that are empty, NA, NaN, null or None: an error, NaN, 0, or the sequence's last value
        before (an error where there is none)."""
        dtypes: dict[str, Dtype] = Field(default={})
        """For each key, its dtype, where it isn't float32."""

        @model_validator(mode="after")
        def _check(self) -> CsvSource.Options:
            if self.separator != "auto" and len(self.separator) != 1:
                raise ValueError(f"source.separator is {self.separator!r}: it has to be one character, or auto")
            if self.separator == self.decimal:
                raise ValueError(f"source.separator and source.decimal are both {self.decimal!r}; they have to differ")
            for key in self.dtypes:
                if key not in (self.key_columns or ("data",)):
                    raise ValueError(f"source.dtypes names {key!r}, which is no key")
            return self

        @property
        def key_columns(self) -> dict[str, KeyColumns] | None:
            """For each key, its columns; None for all of numbers."""
            if self.columns is None:
                return None
            per_key = {"data": self.columns} if isinstance(self.columns, list) else self.columns
            return {
                key: KeyColumns(tuple(own), False) if isinstance(own, list) else KeyColumns((own,), True)
                for key, own in per_key.items()
            }

        @property
        def shape(self) -> Shape:
            """What the options come to."""
            return Shape(
                columns=self.key_columns,
                id=self.id,
                header=None if self.header == "auto" else self.header,
                separator=None if self.separator == "auto" else self.separator,
                decimal=self.decimal,
            )

    def __init__(self, options: Options) -> None:
        self._options = options
        self._files = ByteRanges()
        self._paths = find_files(options.path, (*SUFFIXES, ".gz"))
        self._table: CsvTable = index_table(self._paths, options.shape, self._files)
        self._keys = {
            key: KeySpec(dtype=options.dtypes.get(key, "float32"), shape=() if own.alone else (len(own.names),))
            for key, own in self._table.columns.items()
        }
        check_unique(self.tags, self._path, "rename one, or choose another source.id")

    def _path(self, sequence: int) -> str:
        return str(self._paths[self._table.file[sequence]])

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """`data`, or the keys of `columns`."""
        return self._keys

    @property
    def tags(self) -> Tags:
        """Names of the files, or the ids in the order in which they come first, file by file."""
        return self._table.tags

    def lengths(self, key: str) -> Int64:
        """Rows of every sequence, the same in all keys; int64 [sequences]."""
        return dict.fromkeys(self._keys, self._table.lengths)[key]

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        """Reads frames of one sequence; see `Source.read`."""
        (start, stop), out = target_of(self._keys[key], int(self._table.lengths[sequence]), frames, out)
        if stop == start:
            return out
        place = f"{self._path(sequence)}: sequence {self.tags[sequence]!r}, key {key!r}"
        first = 0 if self._options.on_nan == "forward" else start
        values = self._filled(self._values(key, sequence, FrameRange(first, stop), place), key, first, place)
        store(values[start - first :].reshape(out.shape), out, place)
        return out

    def _values(self, key: str, sequence: int, frames: FrameRange, place: str) -> Array:
        """Cells as numbers; [frames, columns]."""
        file = int(self._table.file[sequence])
        columns, parts = self._table.places[file][key], []
        integers = self._keys[key].dtype.startswith(("int", "uint"))
        for start, stop, before, count in self._stretches(sequence, frames):
            content = bytearray(stop - start)
            if self._files.read(str(self._paths[file]), content, start, place) < len(content):
                raise SourceError(f"{place}: is cut off; the file changed since it was opened, start again")
            try:
                found = numbers_in(bytes(content), count, columns, self._table.dialects[file], integers, place)
            except CellError as error:
                raise self._wrong(error, key, columns, before, place) from error
            parts.append(found[max(0, frames.start - before) : frames.stop - before])
        return joined(parts, place)

    def _wrong(self, error: CellError, key: str, columns: tuple[int, ...], before: int, place: str) -> SourceError:
        name = self._table.columns[key].names[columns.index(error.column)]
        what = f"holds {error.cell[:40]!r}, not a number" if error.cell is not None else "is missing"
        return SourceError(
            f"{place}: column {name!r} of frame {before + error.row} {what}; fix it, or name other columns in "
            "source.columns"
        )

    def _stretches(self, sequence: int, frames: FrameRange) -> Iterator[tuple[int, int, int, int]]:
        """Stretches of the file that hold some frames: first byte, end, rows of the sequence before, rows."""
        table = self._table
        first, end = int(table.bounds[sequence]), int(table.bounds[sequence + 1])
        before = table.before[first:end]
        low = int(np.searchsorted(before, frames.start, side="right")) - 1
        high = int(np.searchsorted(before, frames.stop, side="left"))
        starts, stops = (
            table.start[first + low : first + high].tolist(),
            table.stop[first + low : first + high].tolist(),
        )
        marks = [*before[low:high].tolist(), int(before[high]) if high < len(before) else int(table.lengths[sequence])]
        begin = 0
        for place in range(1, len(starts) + 1):  # blocks that touch are read together
            if place == len(starts) or starts[place] != stops[place - 1]:
                yield starts[begin], stops[place - 1], marks[begin], marks[place] - marks[begin]
                begin = place

    def _filled(self, values: Array, key: str, first: int, place: str) -> Array:
        """Does what `on_nan` says with missing values."""
        policy = self._options.on_nan
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
        if policy == "keep" or not missing.any():
            return values
        if policy == "zero":
            return np.where(missing, 0, values)
        if policy == "forward":
            last = np.maximum.accumulate(np.where(missing, -1, np.arange(len(values))[:, None]), axis=0)
            values = np.where(last >= 0, np.take_along_axis(values, np.maximum(last, 0), axis=0), np.nan)
            missing = last < 0
        if missing.any():
            frame, column = (int(where[0]) for where in np.nonzero(missing))
            name = self._table.columns[key].names[column]
            raise SourceError(
                f"{place}: column {name!r} of frame {first + frame} is missing; set source.on_nan to keep, zero or forward"
            )
        return values

    def fingerprint(self) -> Mapping[str, str]:
        """As `Source.fingerprint`, with `options` (which columns, and how cells are read)."""
        lengths = dict.fromkeys(self._keys, self._table.lengths)
        parts = fingerprint_of(self._keys, self.tags, lengths, self._paths)
        made = {key: own.names for key, own in self._table.columns.items()}
        how = [self._options.on_nan, self._options.decimal, self._options.separator, str(self._options.header)]
        parts["options"] = short_hash([json.dumps([made, how]).encode()])
        return parts

    def close(self) -> None:
        """Gives back open files."""
        self._files.close()
