"""Parquet, Arrow and Feather files: their groups of rows, read a column at a time through pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from seqprep.errors import SeqprepError, SourceError
from seqprep.sources.arrow_values import ColumnError, import_arrow

SUFFIXES = (".parquet", ".arrow", ".feather", ".ipc")
Kind = Literal["parquet", "file", "stream"]
_READ_BYTES = 64_000_000
"""About as much of a group is taken into memory at once while lengths are read."""
_STORED_ELSEWHERE = -1


class Chunk(NamedTuple):
    """Some rows of a group, in the columns asked for."""

    group: int
    rows: int
    columns: dict[str, Any]
    """Arrow's arrays."""
    base: int
    """Where the file's first byte lies in memory; 0 if it isn't mapped."""
    size: int
    """Bytes of the mapped file."""

    def offset(self, leaf: Any, itemsize: int) -> int:
        """Where an array's values lie in the file, as they are; −1 if they don't."""
        buffer = leaf.buffers()[-1]
        if not self.base or buffer is None or leaf.type.bit_width != itemsize * 8:
            return _STORED_ELSEWHERE
        begin = buffer.address - self.base + leaf.offset * itemsize
        return begin if begin >= 0 and begin + len(leaf) * itemsize <= self.size else _STORED_ELSEWHERE


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Turns pyarrow's errors into ours; whatever touches its objects belongs in here."""
    arrow = import_arrow()
    try:
        yield
    except SeqprepError:
        raise
    except ColumnError as error:
        raise SourceError(f"{place}: {error}") from error
    except (arrow.ArrowException, OSError, ValueError, TypeError, LookupError, MemoryError, OverflowError) as error:
        what = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise SourceError(f"{place}: can't be read: {what}; is the file whole? copy or write it again") from error


def kind_of(path: str) -> Kind:
    """Tells from its first bytes what a file is.

    Raises:
        SourceError: it can't be opened, or is of the first version of Feather.
    """
    try:
        with open(path, "rb") as file:
            magic = file.read(6)
    except OSError as error:
        raise SourceError(f"{path}: can't be opened: {error.strerror}; check the path") from error
    if magic[:4] == b"FEA1":
        raise SourceError(f"{path}: is a Feather file of version 1; write it again as version 2 or as Parquet")
    return "parquet" if magic[:4] in (b"PAR1", b"PARE") else "file" if magic == b"ARROW1" else "stream"


def schema_of(path: str, kind: Kind) -> Any:
    """A file's columns, as Arrow's schema.

    Raises:
        SourceError: the file can't be read.
    """
    with reading(path), _opened(path, kind, None) as file:
        return file.schema_arrow if kind == "parquet" else file.schema


def chunks(path: str, kind: Kind, columns: Sequence[str]) -> Iterator[Chunk]:
    """Goes through some columns of a file, group by group; a group may come in several chunks.

    Raises:
        SourceError: the file can't be read.
    """
    if kind == "parquet":
        yield from _parquet_chunks(path, columns)
        return
    arrow = import_arrow()
    with reading(path), arrow.memory_map(path) as mapped:
        size = mapped.size()
        base = mapped.read_buffer(min(size, 1)).address if size else 0
        mapped.seek(0)
        for group, batch in enumerate(_batches(arrow, mapped, kind, None)):
            found = {name: batch.column(name) for name in columns}
            for array in found.values():
                array.validate(full=True)  # offsets that lead out of the file would crash, not raise
            yield Chunk(group, batch.num_rows, found, base, size)


def _parquet_chunks(path: str, columns: Sequence[str]) -> Iterator[Chunk]:
    with reading(path), _opened(path, "parquet", columns) as file:
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            if not columns:
                yield Chunk(group, about.num_rows, {}, 0, 0)
                continue
            rows = max(1, int(about.num_rows * _READ_BYTES / max(about.total_byte_size, 1)))
            for batch in file.iter_batches(rows, row_groups=[group], columns=list(columns), use_threads=False):
                yield Chunk(group, batch.num_rows, {name: batch.column(name) for name in columns}, 0, 0)


def read_column(path: str, kind: Kind, group: int, column: str) -> list[Any]:
    """Reads a column of one group.

    Returns:
        Its chunks, Arrow's arrays.

    Raises pyarrow's errors, and IndexError if there is no such group any more: call it in `reading`.
    """
    with _opened(path, kind, [column]) as file:
        if kind == "parquet":
            array = file.read_row_group(group, columns=[column], use_threads=False).column(column)
        elif kind == "file":
            array = file.get_batch(group).column(column)
        else:
            batch = next((batch for number, batch in enumerate(file) if number == group), None)
            if batch is None:
                raise IndexError("the file has fewer record batches than when it was opened")
            array = batch.column(column)
        parts = array.chunks if kind == "parquet" else [array]
        for part in parts:
            part.validate(full=True)
        return list(parts)


@contextmanager
def _opened(path: str, kind: Kind, columns: Sequence[str] | None) -> Iterator[Any]:
    """pyarrow's reader of a file, without threads of its own."""
    arrow = import_arrow()
    if kind == "parquet":
        with arrow.parquet.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
            yield file
        return
    with arrow.OSFile(path) as source:
        yield _reader(arrow, source, kind, columns)


def _reader(arrow: Any, source: Any, kind: Kind, columns: Sequence[str] | None) -> Any:
    opener = arrow.ipc.open_file if kind == "file" else arrow.ipc.open_stream
    options = arrow.ipc.IpcReadOptions(use_threads=False)
    if columns is not None:
        schema = opener(source, options=options).schema
        source.seek(0)
        included = [schema.get_field_index(name) for name in columns]
        options = arrow.ipc.IpcReadOptions(use_threads=False, included_fields=included)
    return opener(source, options=options)


def _batches(arrow: Any, mapped: Any, kind: Kind, columns: Sequence[str] | None) -> Iterator[Any]:
    reader = _reader(arrow, mapped, kind, columns)
    if kind == "stream":
        yield from reader
    else:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
