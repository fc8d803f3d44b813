"""The objects of Kaldi's archives: their headers, and any range of their rows.

Binary objects begin with a NUL and a B. Then a token names the type: FM and DM are matrices and FV and DV vectors of
floats and doubles; CM, CM2 and CM3 are compressed matrices; a 4 begins a vector of integers, each behind a 4 of its own.
Numbers are little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from seqprep.sources.kaldi.lists import Span
from seqprep.types import Array, UInt8

Kind = Literal["FM", "DM", "FV", "DV", "CM", "CM2", "CM3", "INTS", "TEXT", "TEXT_INTS"]

HEADER_BYTES = 32
"""At least as many as the header of a binary object has."""
_PLAIN: dict[str, str] = {"FM": "<f4", "DM": "<f8", "FV": "<f4", "DV": "<f8"}
_LEVELS = 256
"""Of a byte."""
_INTEGER = np.dtype([("size", "u1"), ("value", "<i4")])
_TOLERANCE = 3
"""Rows by which a range may go beyond the end: what rounding and frames' lengths make, as Kaldi has it."""


class Content(Protocol):
    """A file, or what stands for one."""

    @property
    def size(self) -> int:
        """Its bytes."""

    def fetch(self, offset: int, size: int) -> UInt8:
        """Gives bytes from an offset on; fewer only if it ends before.

        Raises:
            OSError: it can't be read.
        """


class FormatError(ValueError):
    """The bytes aren't an object of a known type; the message says what they are."""


@dataclass(frozen=True)
class Header:
    """What an object is."""

    kind: Kind
    rows: int
    columns: int | None
    """None for a vector."""
    data: int
    """Where its values begin in the file: of CM, the columns' headers; of text, all of it."""
    least: float = 0
    spread: float = 0
    """Smallest value and range of a compressed matrix."""

    @property
    def dtype(self) -> str:
        """numpy's name of the values' dtype."""
        return {"DM": "float64", "DV": "float64", "INTS": "int32", "TEXT_INTS": "int32"}.get(self.kind, "float32")

    @property
    def is_plain(self) -> bool:
        """Whether the values lie in the file as numpy has them."""
        return self.kind in _PLAIN

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the file; for CM, of all its columns' bytes of one row."""
        size = {"INTS": 5, "CM": 1, "CM2": 2, "CM3": 1}.get(self.kind) or np.dtype(_PLAIN[self.kind]).itemsize
        return size * (1 if self.columns is None else self.columns)

    @property
    def nbytes(self) -> int:
        """Bytes from `data` to the object's end."""
        return self.rows * self.row_bytes + (8 * (self.columns or 0) if self.kind == "CM" else 0)


def parse_header(start: bytes, at: int) -> Header:
    """Reads the header of a binary object.

    Args:
        start: its first bytes, HEADER_BYTES of them unless the file ends before.
        at: where it begins in the file.

    Raises:
        FormatError: it isn't one, is cut off, or has an impossible size.
    """
    try:
        if start[2:3] == b"\4":
            (rows,) = struct.unpack_from("<i", start, 3)
            header = Header("INTS", rows, None, at + 7)
        elif start[2:5] in (b"FM ", b"DM "):
            one, rows, two, columns = struct.unpack_from("<bibi", start, 5)
            if one != 4 or two != 4:
                raise FormatError("its sizes aren't 4-byte integers")
            header = Header("FM" if start[2:3] == b"F" else "DM", rows, columns, at + 15)
        elif start[2:5] in (b"FV ", b"DV "):
            one, rows = struct.unpack_from("<bi", start, 5)
            if one != 4:
                raise FormatError("its size isn't a 4-byte integer")
            header = Header("FV" if start[2:3] == b"F" else "DV", rows, None, at + 10)
        elif start[2:4] == b"CM":
            header = _compressed_header(start, at)
        else:
            raise FormatError(name_of(start))
    except struct.error as error:
        raise FormatError("the file ends inside its header") from error
    if header.rows < 0 or (header.columns or 0) < 0:
        raise FormatError(f"it claims to have {header.rows} rows" + (f" of {header.columns}" if header.columns else ""))
    return header


def _compressed_header(start: bytes, at: int) -> Header:
    token = start[2:].split(b" ", 1)[0]
    kind: Kind | None = {b"CM": "CM", b"CM2": "CM2", b"CM3": "CM3"}.get(token)  # type: ignore[assignment]
    if kind is None:
        raise FormatError(name_of(start))
    own = 3 + len(token)
    least, spread, rows, columns = struct.unpack_from("<ffii", start, own)
    return Header(kind, rows, columns, at + own + 16, least, spread)


def name_of(start: bytes) -> str:
    """Says what bytes are that aren't an object of these types."""
    if start[:4] == b"RIFF":
        return "it is audio, which source.type audio reads"
    if start[:2] == b"\x1f\x8b":
        return "it is packed by gzip; unpack it"
    token = start[2:].split(b" ", 1)[0][:20].decode("ascii", "backslashreplace")
    return f"it is of the type {token!r}; matrices, vectors and lists of integers are read"


def span_in(span: Span, size: int, what: str) -> range:
    """The rows or columns of an object that a range takes; its end may go a little beyond the object's.

    Raises:
        FormatError: the range is outside.
    """
    stop = size if span.last is None else span.last + 1
    if span.first > size or (span.last is not None and (stop > size + _TOLERANCE or span.first >= size)):
        raise FormatError(f"[{span.first}:{'' if span.last is None else span.last}] is outside of its {size} {what}")
    return range(span.first, min(stop, size))


def read_rows(content: Content, header: Header, rows: range, columns: range, out: Array) -> None:
    """Reads rows of a binary object.

    Args:
        content: the object's file.
        header: the object's.
        rows: which, one after the other.
        columns: which; ignored for vectors.
        out: [rows, columns], or [rows] for a vector.

    Raises:
        FormatError: the file ends before, or an integer isn't one.
        OSError: the file can't be read.
    """
    if header.kind == "CM":
        _read_by_columns(content, header, rows, columns, out)
        return
    size = len(rows) * header.row_bytes
    stored = content.fetch(header.data + rows.start * header.row_bytes, size)
    if len(stored) < size:
        raise FormatError("the file ends inside it")
    if header.kind == "INTS":
        integers = stored.view(_INTEGER)
        if (integers["size"] != 4).any():
            raise FormatError("it isn't a list of 4-byte integers throughout")
        out[...] = integers["value"]
    elif header.columns is None:
        out[...] = stored.view(_PLAIN[header.kind])
    else:
        shaped = stored.view(_PLAIN.get(header.kind, "<u2" if header.kind == "CM2" else "u1"))
        taken = shaped.reshape(len(rows), header.columns)[:, columns.start : columns.stop]
        out[...] = taken if header.kind in _PLAIN else _even(header, taken)


def _even(header: Header, values: Array) -> Array:
    """Decodes CM2 and CM3: levels at even distances, rounded where Kaldi rounds."""
    step = np.float32(header.spread * (1 / (65535.0 if header.kind == "CM2" else 255.0)))
    with np.errstate(all="ignore"):
        return np.float32(header.least) + values.astype(np.float32) * step


def _read_by_columns(content: Content, header: Header, rows: range, columns: range, out: Array) -> None:
    """Decodes CM: a column has four values at the quantiles 0, ¼, ¾ and 1, between which its bytes are levels."""
    count = header.columns or 0
    edges = content.fetch(header.data, 8 * count)
    wanted = len(columns) * header.rows
    levels = content.fetch(header.data + 8 * count + columns.start * header.rows, wanted)
    if len(edges) < 8 * count or len(levels) < wanted:
        raise FormatError("the file ends inside it")
    taken = levels.reshape(len(columns), header.rows)[:, rows.start : rows.stop]
    tables = _tables(header, edges.view("<u2").reshape(count, 4)[columns.start : columns.stop])
    places = np.add(taken.T, np.arange(len(columns)) * _LEVELS, dtype=np.intp, order="C")
    np.take(tables.reshape(-1), places, out=out, mode="clip")  # straight into place; all are inside


def _tables(header: Header, edges: Array) -> Any:
    """The value of each level of each column; float32 [columns, 256]."""
    with np.errstate(all="ignore"):
        scale = np.float32(header.spread) * np.float32(1.52590218966964e-05)
        values = np.float32(header.least) + scale * edges.astype(np.float32)
        low, quarter, three_quarters, high = (values[:, number, None] for number in range(4))
        level = np.arange(_LEVELS, dtype=np.float32)
        parts = [
            (low, quarter - low, level[:65], 1 / 64.0),
            (quarter, three_quarters - quarter, level[65:193] - 64, 1 / 128.0),
            (three_quarters, high - three_quarters, level[193:] - 192, 1 / 63.0),
        ]
        return np.concatenate(
            [
                (base + (width * steps).astype(np.float64) * unit).astype(np.float32)
                for base, width, steps, unit in parts
            ],
            axis=1,
        )
