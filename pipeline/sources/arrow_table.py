"""What Parquet and Arrow files hold, row by row, as far as it has to be known before data is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.config import suggestion
from seqprep.errors import ConfigError
from seqprep.sources.arrow_files import Chunk, Kind, chunks, kind_of, reading, schema_of
from seqprep.sources.arrow_values import Column, column_of, flatten, texts
from seqprep.sources.reading import check_equal_keys, file_of, numbered_tags, tags_of_files
from seqprep.types import Int64, KeySpec, Tags


@dataclass(frozen=True, kw_only=True)
class ArrowTable:
    """All rows of some files, in order."""

    kinds: Sequence[Kind]
    """Of each file."""
    column_of: Mapping[str, str]
    """For each key, its column."""
    columns: Mapping[str, Column]
    """For each key, what its column is like."""
    keys: Mapping[str, KeySpec]
    tags: Tags
    lengths: Mapping[str, Int64]
    """For each key, int64 [sequences]; 1 without time."""
    begin: Mapping[str, Int64]
    """For each key, int64 [sequences]: frames of it in front of each row, within its group."""
    offset: Mapping[str, Int64]
    """For each key, int64 [groups]: where a group's values lie in its file, as they are; −1 if they have to be decoded."""
    first: Int64
    """int64 [groups + 1]: the first sequence of each group."""
    file: Int64
    """int64 [groups]: the file of each group."""
    number: Int64
    """int64 [groups]: its number in its file."""

    def group_of(self, sequence: int) -> int:
        """The group that holds a sequence."""
        return file_of(self.first, sequence)


def index_table(
    paths: Sequence[Path], wanted: Mapping[str, str] | None, tag: str | None, with_time: frozenset[str]
) -> ArrowTable:
    """Reads what has to be known of all files.

    Args:
        paths: the files.
        wanted: for each key, its column; None for all of numbers.
        tag: the column that names the sequences; None numbers them.
        with_time: columns of fixed-size lists that go along time.

    Raises:
        ConfigError: there is no such column, or none of numbers.
        SourceError: a file can't be read, or its columns aren't those of the first.
    """
    kinds = [kind_of(str(path)) for path in paths]
    builder: _Builder | None = None
    counts = []
    for file, (path, kind) in enumerate(zip(paths, kinds, strict=True)):
        with reading(str(path)):
            chosen = _choose(schema_of(str(path), kind), wanted, tag, with_time, path)
        if builder is None:
            builder = _Builder(chosen, tag)
        builder.check_columns(chosen, path, paths[0])
        before = builder.rows
        for chunk in chunks(str(path), kind, builder.needed(kind)):
            builder.add(chunk, file, path)
        counts.append(builder.rows - before)
    assert builder is not None  # there is a file
    tags = numbered_tags(tags_of_files(paths), counts) if tag is None else Tags.of(builder.tags)
    return builder.table(kinds, tags)


def _choose(
    schema: Any, wanted: Mapping[str, str] | None, tag: str | None, with_time: frozenset[str], path: Path
) -> dict[str, tuple[str, Column]]:
    """For each key, its column's name and kind."""
    for name in [*(wanted or {}).values(), *with_time, *([tag] if tag else [])]:
        if schema.get_field_index(name) < 0:
            what = "two columns" if name in schema.names else "no column"
            raise ConfigError(f"{path}: has {what} {name!r}{suggestion(name, schema.names)}")
    listed = {name: name for name in schema.names if name != tag} if wanted is None else wanted
    chosen = {}
    for key, name in listed.items():
        found = column_of(schema.field(name).type, name in with_time) if schema.get_field_index(name) >= 0 else None
        if found is not None:
            chosen[key] = (name, found)
        elif wanted is not None:
            raise ConfigError(f"{path}: column {name!r} holds {schema.field(name).type}, not numbers or lists of them")
    if not chosen:
        held = ", ".join(f"{field.name} ({field.type})" for field in schema) or "none"
        raise ConfigError(f"{path}: no column holds numbers or lists of them; there are: {held}")
    return chosen


class _Builder:
    """Gathers what chunks say."""

    def __init__(self, chosen: Mapping[str, tuple[str, Column]], tag: str | None) -> None:
        self.column_of = {key: name for key, (name, _) in chosen.items()}
        self._columns = {key: column for key, (_, column) in chosen.items()}
        self._tag = tag
        self.tags: list[str | bytes] = []
        self.rows = 0
        self._lengths: dict[str, list[Int64]] = {key: [] for key in chosen}
        self._offset: dict[str, list[int]] = {key: [] for key in chosen}
        self._group: list[tuple[int, int]] = []  # file and number
        self._first: list[int] = []

    def check_columns(self, chosen: Mapping[str, tuple[str, Column]], path: Path, first_path: Path) -> None:
        """Refuses files with other columns than the first."""
        first = {key: column.spec for key, column in self._columns.items()}
        specs = {
            key: first[key] if key in first and column.may_be(self._columns[key]) else column.spec
            for key, (_, column) in chosen.items()
        }
        check_equal_keys(path, specs, first_path, first)

    def needed(self, kind: Kind) -> list[str]:
        """The columns to go through; those of which Parquet's types tell the lengths needn't be decoded for that."""
        names = [name for key, name in self.column_of.items() if kind != "parquet" or self._columns[key].length is None]
        return [*dict.fromkeys([*names, *([self._tag] if self._tag else [])])]

    def add(self, chunk: Chunk, file: int, path: Path) -> None:
        """Takes some rows."""
        where = f"{path}: row group {chunk.group}"
        if not self._group or self._group[-1] != (file, chunk.group):
            self._group.append((file, chunk.group))
            self._first.append(self.rows)
            for key in self._columns:
                self._offset[key].append(-1)
        within = self.rows - self._first[-1]
        for key, name in self.column_of.items():
            with reading(f"{where}, column {name!r}"):
                self._add_column(key, chunk.columns.get(name), chunk, within)
        if self._tag is not None:
            with reading(f"{where}, column {self._tag!r}"):
                self.tags += texts(chunk.columns[self._tag], within)
        self.rows += chunk.rows

    def _add_column(self, key: str, array: Any, chunk: Chunk, within: int) -> None:
        column = self._columns[key]
        if column.length is not None and array is None:
            self._lengths[key].append(np.full(chunk.rows, column.length, np.int64))
            return
        flat = flatten(array, column, within)
        self._lengths[key].append(flat.lengths)
        self._columns[key] = flat.column  # with the sizes that its inner lists have shown
        self._offset[key][-1] = chunk.offset(flat.leaf, np.dtype(column.dtype).itemsize)

    def table(self, kinds: Sequence[Kind], tags: Tags) -> ArrowTable:
        """All of it as arrays."""
        none = np.empty(0, np.int64)
        first = np.array([*self._first, self.rows], np.int64)
        lengths = {key: np.concatenate([none, *parts]) for key, parts in self._lengths.items()}
        begin = {}
        for key, own in lengths.items():
            before = np.concatenate([np.zeros(1, np.int64), np.cumsum(own)])
            begin[key] = before[:-1] - np.repeat(before[first[:-1]], np.diff(first))
        return ArrowTable(
            kinds=kinds,
            column_of=self.column_of,
            columns=self._columns,
            keys={key: column.spec for key, column in self._columns.items()},
            tags=tags,
            lengths=lengths,
            begin=begin,
            offset={key: np.array(parts, np.int64) for key, parts in self._offset.items()},
            first=first,
            file=np.array([file for file, _ in self._group], np.int64),
            number=np.array([number for _, number in self._group], np.int64),
        )
