"""Kaldi's objects as text: ` [ 1 2 ]` is a vector, with line ends (or semicolons) between rows a matrix, ` 1 2` integers."""

from __future__ import annotations

import re

import numpy as np

from seqprep.sources.kaldi.objects import Content, FormatError
from seqprep.types import Array

_FIRST_BLOCK = 4096
_ROW_END = re.compile(rb"[\n;]")
_MOST_INTEGER = 2**31 - 1


def read_text(content: Content, at: int) -> bytes:
    """Reads an object's text: to its closing bracket, or of integers to the line's end.

    Args:
        content: the object's file.
        at: where what follows the tag begins.

    Raises:
        FormatError: the file ends before.
        OSError: the file can't be read.
    """
    text, block = b"", _FIRST_BLOCK
    while True:
        more = content.fetch(at + len(text), block).tobytes()
        text += more
        end = text.find(b"]" if text.lstrip(b" \t").startswith(b"[") else b"\n")
        if end >= 0:
            return text[: end + 1]
        if len(more) < block:
            if b"[" in text or not text:
                raise FormatError("the file ends inside it")
            return text
        block *= 4


def parse_text(text: bytes) -> Array:
    """Parses an object.

    Returns:
        float32 [rows, columns] or [values], or int32 [values]; an empty matrix is an empty vector.

    Raises:
        FormatError: a number isn't one, or rows differ in length.
    """
    body = text.strip()
    if not body.startswith(b"["):
        return _integers(body.split())
    inner = body[1:-1].strip(b" \t")
    rows = [row.split() for row in _ROW_END.split(inner) if row.strip()]
    if not rows:
        return np.empty(0, np.float32)
    if len({len(row) for row in rows}) > 1:
        raise FormatError("its rows differ in length")
    values = _floats([number for row in rows for number in row])
    return values.reshape(len(rows), -1) if _ROW_END.search(inner) else values


def _floats(numbers: list[bytes]) -> Array:
    try:
        with np.errstate(over="ignore"):
            return np.array(numbers).astype(np.float64).astype(np.float32)
    except ValueError as error:
        raise FormatError(f"it holds what is no number: {' '.join(str(error).split())[:80]}") from error


def _integers(numbers: list[bytes]) -> Array:
    try:
        values = [int(number) for number in numbers]
    except ValueError as error:
        shown = b" ".join(numbers)[:40].decode("utf-8", "backslashreplace")
        raise FormatError(f"{shown!r} are no integers; names belong into source.labels") from error
    if any(abs(value) > _MOST_INTEGER for value in values):
        raise FormatError("it holds an integer of more than 32 bits")
    return np.array(values, np.int32)
