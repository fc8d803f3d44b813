"""Manifests: a CSV or JSON-lines file that names the audio files, their tags and their labels."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.config import suggestion
from seqprep.errors import SourceError
from seqprep.types import Array, KeySpec

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_INTEGER = re.compile(r"[+-]?[0-9]+")

Row = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a manifest lists, row by row: lists of one length."""

    files: list[Path] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    """The line on which each row ends, from 1."""
    spans: list[tuple[str, str]] = field(default_factory=list)
    """The text of the columns `start` and `end`, empty where there is none."""
    channels: list[str] = field(default_factory=list)
    """The text of the column `channel`, empty where there is none."""
    columns: dict[str, list[str]] = field(default_factory=dict)
    """The text of each column asked for."""


def read_manifest(path: Path, columns: Sequence[str]) -> Manifest:
    """Reads a manifest: `.jsonl`, `.ndjson` and `.json` hold a JSON object per line, `.tsv` is CSV with tabs, any
    other file is CSV with commas and a header row.

    The column `path` is relative to the manifest's folder. The column `tag` may be missing or empty: the tag is then
    the path as written, without its suffix, and with `start` and `end` as written where one of these is given.

    Args:
        path: the manifest, in UTF-8.
        columns: the columns to keep besides `path` and `tag`.

    Raises:
        SourceError: it can't be read, lacks a column or a value, or lists nothing; names file, line and column.
    """
    manifest = Manifest(columns={name: [] for name in columns})
    is_json = path.suffix.lower() in _JSON_SUFFIXES
    try:
        for line, row in _json_rows(path) if is_json else _csv_rows(path):
            written = _cell(row, "path", path, line)
            manifest.files.append(path.parent / written)
            start, end = row.get("start", ""), row.get("end", "")
            own = os.path.splitext(written)[0] + (f"_{start}-{end}" if start or end else "")
            manifest.tags.append(row.get("tag") or own)
            manifest.spans.append((start, end))
            manifest.channels.append(row.get("channel", ""))
            manifest.lines.append(line)
            for name, values in manifest.columns.items():
                values.append(_cell(row, name, path, line))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SourceError(f"{path}: can't be read as a manifest: {reason}; check source.manifest") from error
    if not manifest.files:
        raise SourceError(f"{path}: the manifest lists no file; check source.manifest")
    return manifest


def _cell(row: Row, column: str, path: Path, line: int) -> str:
    if column not in row:
        raise SourceError(f"{path}, line {line}: there is no column {column!r}{suggestion(column, row)}")
    if not row[column]:
        raise SourceError(f"{path}, line {line}: column {column!r} is empty; fill it in or leave the row out")
    if "\0" in row[column]:
        raise SourceError(f"{path}, line {line}: column {column!r} holds a NUL: {row[column]!r}; write the file again")
    return row[column]


def _csv_rows(path: Path) -> Iterator[tuple[int, Row]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
        try:
            names = reader.fieldnames or []
            if len(set(names)) < len(names):
                raise SourceError(f"{path}: the header names a column twice: {', '.join(names)}; rename one")
            if names and "path" not in names:
                raise SourceError(f"{path}: the header has no column 'path'{suggestion('path', names)}")
            for row in reader:
                if None in row or None in row.values():
                    raise SourceError(
                        f"{path}, line {reader.line_num}: the row hasn't the {len(names)} cells of the header"
                    )
                yield reader.line_num, row
        except csv.Error as error:
            raise SourceError(
                f"{path}, line {reader.reader.line_num}: not valid CSV: {error}; quote or fix the line"
            ) from error


def _json_rows(path: Path) -> Iterator[tuple[int, Row]]:
    with path.open(encoding="utf-8-sig") as file:
        for line, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
                texts = {name: _as_text(value) for name, value in row.items()} if isinstance(row, dict) else None
            except (ValueError, RecursionError) as error:  # a JSONDecodeError's own text counts lines of its own
                reason = getattr(error, "msg", error)
                raise SourceError(f"{path}, line {line}: not valid JSON: {reason}; give one object per line") from error
            if texts is None:
                raise SourceError(f"{path}, line {line}: not a JSON object; give one object per line, with a 'path'")
            yield line, texts


def _as_text(value: Any) -> str:
    """Brings JSON values to the text that a CSV would hold, so that labels mean the same in both; null is empty."""
    if isinstance(value, str):
        value.encode()  # a lone surrogate is a ValueError here, where its line is known
        return value
    return "" if value is None else json.dumps(value)


def label_key(values: Sequence[str]) -> tuple[KeySpec, Array]:
    """Turns one label per sequence into a key without time.

    Args:
        values: [sequences], text.

    Returns:
        The key, and its values [sequences]: int64 if all are integers, else float32 if all are numbers, else int64
        class numbers, which count the distinct texts (`KeySpec.labels`) in sorted order.

    Raises:
        SourceError: an integer doesn't fit 64 bits.
    """
    if all(_INTEGER.fullmatch(value) for value in values):
        try:
            return KeySpec(dtype="int64", has_time=False), np.array([int(value) for value in values], np.int64)
        except (OverflowError, ValueError) as error:  # ValueError: thousands of digits
            raise SourceError("a label doesn't fit 64-bit integers; write it as a name, such as id-123") from error
    try:
        return KeySpec(dtype="float32", has_time=False), np.array([float(value) for value in values], np.float32)
    except ValueError:  # not all of them are numbers
        names = tuple(sorted(set(values)))
        numbers = {name: number for number, name in enumerate(names)}
        return (
            KeySpec(dtype="int64", has_time=False, labels=names),
            np.array([numbers[value] for value in values], np.int64),
        )
