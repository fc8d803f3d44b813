"""Lines of JSON as sequences: what their fields hold, and an index of them made in one pass."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.config import suggestion
from seqprep.errors import ConfigError, SourceError
from seqprep.sources.byteranges import ByteRanges
from seqprep.sources.lines import Line, lines_of
from seqprep.sources.reading import numbered_tags, tags_of_files
from seqprep.sources.tokenizing import DTYPE, TextTokenizer
from seqprep.types import Array, Int64, KeySpec, Tags

SUFFIXES = (".jsonl.gz", ".ndjson.gz", ".jsonl", ".ndjson")
_AT_ONCE = 256
"""Lines that are tokenized together."""
_KINDS = "bif"
"""Of a key's values, the narrower first."""
_EXACT = 1 << 53
"""Below it, every whole number is a float64."""
_DTYPES = {"b": "bool", "i": "int64", "f": "float32"}

Text = tuple[str, str, TextTokenizer]
"""The key made of text, the text's field, and the tokenizer."""


@dataclass(frozen=True, kw_only=True)
class JsonIndex:
    """All lines of some files, in order: arrays [sequences]."""

    field_of: Mapping[str, str]
    keys: Mapping[str, KeySpec]
    tags: Tags
    lengths: Mapping[str, Int64]
    start: Int64
    """First byte of each line in its file."""
    size: Int64
    """Bytes of each line."""
    line: Int64
    """Number of each line in its file, from 1."""
    first: Int64
    """int64 [files + 1]: the first sequence of each file."""


def parse(content: bytes, place: object) -> dict[str, Any]:
    """Reads a line.

    Raises:
        SourceError: it isn't a JSON object.
    """
    try:
        row = json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or getattr(error, "reason", None) or error
        raise SourceError(f"{place}: not valid JSON: {reason}; give one object per line") from error
    if not isinstance(row, dict):
        raise SourceError(f"{place}: not a JSON object; give one object per line")
    return row


def array_of(row: dict[str, Any], field: str, place: object) -> Array:
    """A field's numbers; bool, int64 or float64.

    Raises:
        SourceError: the field is missing, or holds something else than numbers or equal lists of them.
    """
    if field not in row:
        raise SourceError(f"{place}: has no field {field!r}{suggestion(field, row)}")
    value = row[field]
    try:
        found = np.array(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise SourceError(
            f"{place}: field {field!r} holds lists of different sizes; all frames have one shape"
        ) from error
    if found.dtype.kind not in _KINDS or 0 in found.shape[1:] or _was_rounded(found, value):
        raise SourceError(
            f"{place}: field {field!r} holds {json.dumps(value)[:40]}, not numbers of at most 64 bits; fill it in, or name "
            "other fields in source.fields"
        )
    return found


def _was_rounded(found: Array, value: Any) -> bool:
    """Whether numpy made floats of whole numbers that are too large for it."""
    if found.dtype.kind != "f" or not (np.abs(found) >= _EXACT).any():
        return False
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, list):
            waiting += inner
        elif isinstance(inner, int) and abs(inner) >= _EXACT:
            return True
    return False


def index_rows(
    paths: Sequence[Path],
    field_of: Mapping[str, str] | None,
    tag: str | None,
    dtypes: Mapping[str, str],
    files: ByteRanges,
    text: Text | None,
) -> JsonIndex:
    """Reads all lines once.

    Args:
        paths: the files.
        field_of: for each key, its field; None for all of the first line that hold numbers.
        tag: the field that names a sequence; None numbers them.
        dtypes: for each key, its dtype, where it is given.
        files: reads byte ranges.
        text: what is tokenized, if anything is.

    Raises:
        ConfigError: there is no field of numbers, or `dtypes` names no key.
        SourceError: a line isn't like the others, or is damaged.
    """
    builder = _Builder(field_of, tag, text)
    counts = []
    for path in paths:
        before = len(builder.line)
        rows = (
            (line, parse(line.content, f"{path}, line {line.number}"))
            for line in lines_of(files, str(path))
            if not line.content.isspace()
        )
        while batch := list(islice(rows, _AT_ONCE)):
            builder.add(batch, path)
        counts.append(len(builder.line) - before)
    return builder.index(paths, counts, dtypes)


class _Builder:
    """Gathers what lines hold."""

    def __init__(self, field_of: Mapping[str, str] | None, tag: str | None, text: Text | None) -> None:
        self._field_of, self._tag, self._text = field_of, tag, text
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._has_time: dict[str, bool] = {}
        self._kinds: dict[str, str] = {}
        self._lengths: dict[str, array[int]] = {} if text is None else {text[0]: array("q")}
        self._tags: list[str] = []
        self._start, self._size, self.line = array("q"), array("q"), array("q")

    def add(self, rows: list[tuple[Line, dict[str, Any]]], path: Path) -> None:
        """Takes some lines."""
        if self._text is not None:
            key, field, tokenizer = self._text
            placed = [(row, f"{path}, line {line.number}") for line, row in rows]
            self._lengths[key].extend(len(tokens) for tokens in tokenizer.encode_all(placed, field))
        for line, row in rows:
            place = f"{path}, line {line.number}"
            if self._field_of is None:
                self._field_of = _numeric_fields(row, self._tag, place)
            for key, field in self._field_of.items():
                self._measure(key, array_of(row, field, place), f"{place}: field {field!r}")
            if self._tag is not None:
                self._tags.append(_tag(row, self._tag, place))
            self._start.append(line.start)
            self._size.append(len(line.content))
            self.line.append(line.number)

    def _measure(self, key: str, values: Array, place: str) -> None:
        has_time = self._has_time.setdefault(key, values.ndim > 0)
        if has_time != (values.ndim > 0):
            raise SourceError(
                f"{place} is {'one number' if has_time else 'a list'}, where earlier lines have the other"
            )
        if values.ndim:
            self._lengths.setdefault(key, array("q")).append(len(values))
            if not len(values):
                return  # nothing tells the shape of its frames, or the kind of its numbers
            shape = self._shapes.setdefault(key, values.shape[1:])
            if shape != values.shape[1:]:
                raise SourceError(f"{place} has frames of shape {list(values.shape[1:])}, earlier lines {list(shape)}")
        self._kinds[key] = max(self._kinds.get(key, "b"), values.dtype.kind, key=_KINDS.index)

    def index(self, paths: Sequence[Path], counts: Sequence[int], dtypes: Mapping[str, str]) -> JsonIndex:
        """All of it as arrays."""
        keys = {} if self._text is None else {self._text[0]: KeySpec(dtype=dtypes.get(self._text[0], DTYPE))}
        for key in self._field_of or {}:
            dtype = dtypes.get(key, _DTYPES[self._kinds.get(key, "i")])
            keys[key] = KeySpec(dtype=dtype, shape=self._shapes.get(key, ()), has_time=self._has_time.get(key, True))
        for key in dtypes:
            if self.line and key not in keys:
                raise ConfigError(f"source.dtypes names {key!r}, which is no key{suggestion(key, keys)}")
        return JsonIndex(
            field_of=self._field_of or {},
            keys=keys,
            tags=numbered_tags(tags_of_files(paths, SUFFIXES), counts) if self._tag is None else Tags.of(self._tags),
            lengths={key: np.array(values, np.int64) for key, values in self._lengths.items()},
            start=np.array(self._start, np.int64),
            size=np.array(self._size, np.int64),
            line=np.array(self.line, np.int64),
            first=np.cumsum([0, *counts]),
        )


def _numeric_fields(row: dict[str, Any], tag: str | None, place: str) -> dict[str, str]:
    """The fields of a line that hold numbers, or lists (of numbers, or empty ones)."""
    found = {}
    for field, value in row.items():
        if field == tag or isinstance(value, str | dict) or value is None:
            continue
        inner = value
        while isinstance(inner, list) and inner:
            inner = inner[0]
        if inner == [] or isinstance(inner, bool | int | float):
            found[field] = field
    if not found:
        raise ConfigError(
            f"{place}: no field holds numbers; name them in source.fields, or a field of text in source.text with a "
            f"source.tokenizer (fields: {', '.join(row) or 'none'})"
        )
    return found


def _tag(row: dict[str, Any], field: str, place: str) -> str:
    value = row.get(field)
    if isinstance(value, bool) or not isinstance(value, str | int):
        what = "is missing" if field not in row else f"holds {json.dumps(value)[:40]}, not text or a whole number"
        raise SourceError(f"{place}: field {field!r} {what}; check source.id")
    try:
        value = str(value)
        value.encode()
    except ValueError as error:  # a lone surrogate, or thousands of digits
        raise SourceError(f"{place}: field {field!r} holds no proper text: {error}") from error
    return value


def rows_of(files: ByteRanges, path: str) -> Iterator[dict[str, Any]]:
    """The objects of a file; for a look into it.

    Raises:
        SourceError: as `parse`.
    """
    for line in lines_of(files, path):
        if not line.content.isspace():
            yield parse(line.content, f"{path}, line {line.number}")
