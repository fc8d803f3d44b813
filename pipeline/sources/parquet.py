"""Parquet, Arrow and Feather files: a row is a sequence, list columns go along time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, Field

from seqprep import config
from seqprep.config.units import parse_bytes
from seqprep.errors import SourceError
from seqprep.sources.arrow_files import SUFFIXES, read_column, reading
from seqprep.sources.arrow_table import ArrowTable, index_table
from seqprep.sources.arrow_values import flatten
from seqprep.sources.byteranges import ByteRanges
from seqprep.sources.fingerprint import fingerprint_of
from seqprep.sources.paths import find_files
from seqprep.sources.reading import Place, as_bytes, check_unique, target_of
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags


class ParquetSource:
    """A row is a sequence. A column of lists is a key with time, [T] or, of lists in lists, [T, F]; a column of numbers,
    or of lists of a fixed size, is a key without time. Columns of anything else are left out.

    Arrow's uncompressed values are read by their place in the file. Else a row group is decoded when the first of its
    rows is asked for, and the latest are kept, up to `cache_size`. Parquet's page checksums are checked where there are
    any. Opening reads the list columns of Parquet once, for only that tells lengths; of Arrow it reads the offsets.

    Args:
        options: what to read.

    Raises:
        ConfigError: there is no such column, or none of numbers.
        DependencyError: the extra `parquet` isn't installed.
        SourceError: a file is missing, damaged, or has other columns than the first; or a value is null.
    """

    class Options(config.Options):
        """The section `source` with `type: parquet`."""

        path: str | list[str]
        """A file, a folder (.parquet, .arrow, .feather and .ipc in it and below), a glob, or a list of these."""
        columns: list[str] | dict[str, str] | None = None
        """Columns that become keys: [column, …] or {key: column}; all of numbers unless given."""
        tag: str | None = None
        """The column that names the sequences; numbered unless given."""
        with_time: list[str] = Field(default=[])
        """Columns of lists of a fixed size that go along time, instead of being one value."""
        cache_size: Annotated[int, BeforeValidator(lambda size: parse_bytes(size, "source.cache_size"))] = 256_000_000
        """Bytes of decoded row groups to keep; the last one is kept however large it is."""

        @property
        def column_of(self) -> dict[str, str] | None:
            """For each key, its column; None for all."""
            return {name: name for name in self.columns} if isinstance(self.columns, list) else self.columns

    def __init__(self, options: Options) -> None:
        self._options = options
        self._files = ByteRanges()
        self._cache = _Cache(options.cache_size)
        self._paths = find_files(options.path, SUFFIXES)
        self._table: ArrowTable = index_table(self._paths, options.column_of, options.tag, frozenset(options.with_time))
        check_unique(self.tags, self._place, "choose another source.tag, or leave it out to number them")

    def _place(self, sequence: int) -> str:
        group = self._table.group_of(sequence)
        row = sequence - int(self._table.first[group])
        return f"{self._paths[self._table.file[group]]}: row group {self._table.number[group]}, row {row}"

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """The columns, in the order of the first file or of `columns`."""
        return self._table.keys

    @property
    def tags(self) -> Tags:
        """Tags of all rows, file by file."""
        return self._table.tags

    def lengths(self, key: str) -> Int64:
        """Frames of every sequence in one key; int64 [sequences]."""
        if not self._table.keys[key].has_time:
            raise KeyError(key)
        return self._table.lengths[key]

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        """Reads frames of one sequence; see `Source.read`."""
        spec, table = self._table.keys[key], self._table
        length = table.lengths[key].item(sequence) if spec.has_time else 1
        (start, stop), out = target_of(spec, length, frames, out)
        if stop == start or not out.size:
            return out
        group = table.group_of(sequence)
        first = table.begin[key].item(sequence) + start
        offset = table.offset[key].item(group)
        if offset < 0:
            flat = self._cache.get(
                (key, group), lambda: self._decode(key, group, f" (for sequence {self.tags[sequence]!r})")
            )
            out[...] = flat[first : first + stop - start] if spec.has_time else flat[first]
            return out
        raw = as_bytes(out)
        place = Place(lambda: f"{self._place(sequence)}: sequence {self.tags[sequence]!r}, key {key!r}")
        path = str(self._paths[table.file.item(group)])
        if self._files.read_stored(path, raw, offset + first * spec.nbytes, place) < len(raw):
            raise SourceError(f"{place} is cut off; copy the file again")
        return out

    def _decode(self, key: str, group: int, reason: str) -> Array:
        """The values of one key in one row group; [frames of all its rows, *shape]. `reason` is for messages."""
        table = self._table
        path, number = str(self._paths[table.file[group]]), int(table.number[group])
        where = f"{path}: row group {number}, column {table.column_of[key]!r}{reason}"
        with reading(where):
            arrays = read_column(path, table.kinds[int(table.file[group])], number, table.column_of[key])
            parts = [flatten(array, table.columns[key]) for array in arrays]
            values = [part.values() for part in parts]
        rows = slice(int(table.first[group]), int(table.first[group + 1]))
        lengths = np.concatenate([part.lengths for part in parts]) if parts else np.empty(0, np.int64)
        if not np.array_equal(lengths, table.lengths[key][rows]):
            raise SourceError(f"{where}: the file changed since it was opened; start again")
        return values[0] if len(values) == 1 else np.concatenate(values)

    def fingerprint(self) -> Mapping[str, str]:
        """See `Source.fingerprint`."""
        lengths = {name: self._table.lengths[name] for name, spec in self.keys.items() if spec.has_time}
        return fingerprint_of(self.keys, self.tags, lengths, self._paths)

    def close(self) -> None:
        """Gives back open files and decoded row groups."""
        self._files.close()
        self._cache.clear()


class _Cache:
    """Decoded row groups, the latest up to a number of bytes; a pickled copy is empty.

    One is decoded at a time, so that threads that want the same one don't each decode it.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock, self._decoding = threading.Lock(), threading.Lock()
        self._held: dict[tuple[str, int], Array] = {}  # the most recently used comes last
        self._bytes = 0

    def __reduce__(self) -> tuple[type[_Cache], tuple[int]]:
        return _Cache, (self._most_bytes,)

    def get(self, place: tuple[str, int], decode: Callable[[], Array]) -> Array:
        found = self._find(place)
        if found is None:
            with self._decoding:
                found = self._find(place)
                if found is None:
                    found = decode()
                    self._keep(place, found)
        return found

    def _find(self, place: tuple[str, int]) -> Array | None:
        with self._lock:
            found = self._held.pop(place, None)
            if found is not None:
                self._held[place] = found
            return found

    def _keep(self, place: tuple[str, int], values: Array) -> None:
        with self._lock:
            self._held[place] = values
            self._bytes += values.nbytes
            while self._bytes > self._most_bytes and len(self._held) > 1:
                self._bytes -= self._held.pop(next(iter(self._held))).nbytes

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
            self._bytes = 0
