"""Tells from a path, and where its ending doesn't tell from what is in it, which reader an input needs."""

from __future__ import annotations

import csv
import glob
import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from seqprep.errors import ConfigError, SourceError
from seqprep.sources.byteranges import ByteRanges
from seqprep.sources.lines import lines_of

_TYPES = {
    ".h5": "hdf5", ".hdf": "hdf5", ".hdf5": "hdf5",
    ".wav": "audio", ".flac": "audio", ".ogg": "audio",
    ".npz": "npz", ".npy": "npz",
    ".tfrecord": "tfrecord", ".tfrecords": "tfrecord", ".tfrec": "tfrecord",
    ".parquet": "parquet", ".arrow": "parquet", ".feather": "parquet", ".ipc": "parquet",
    ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".scp": "kaldi", ".ark": "kaldi",
}  # fmt: skip
_RECORDINGS = "wav.scp"
_MANIFESTS = ("csv", "jsonl")
"""Types whose files may also list audio files, or stand beside data of another type."""


class Guess(NamedTuple):
    """How an input is taken."""

    settings: dict[str, Any]
    """The section `source` of a configuration."""
    reason: str | None = None
    """What was decided that the ending of a file alone doesn't tell, in a sentence."""


def guess_source(path: str, kind: str | None = None) -> Guess:
    """Works out the section `source` of a configuration for an input.

    Args:
        path: a file, folder or glob; or "synthetic".
        kind: the type, if the user has said it.

    Raises:
        SourceError: there is nothing at the path.
        ConfigError: nothing there tells its type.
    """
    if path == "synthetic" and kind in (None, "synthetic"):
        return Guess({"type": "synthetic"})
    found = _type_of(Path(path)) if Path(path).is_file() else None
    recordings = _recordings(Path(path)) if kind in (None, "audio") else None
    if recordings is not None:
        return Guess({"type": "audio", "manifest": str(recordings)})
    if kind is not None:
        if found is None and kind in _TYPES.values():
            _files(path)  # or there is nothing
        return Guess({"type": kind, "manifest" if kind == "audio" and found in _MANIFESTS else "path": path})
    if not Path(path).is_file():
        return _guess_among(path, _files(path))
    if found is None:
        raise ConfigError(f"{path}: can't tell what kind of input this is; say it with --source, such as --source hdf5")
    return _guess_text(path, found) if found in _MANIFESTS else Guess({"type": found, "path": path})


def _recordings(path: Path) -> Path | None:
    """Kaldi's list of recordings, where a path is one, or a data folder without features."""
    inside = path / _RECORDINGS
    if path.is_dir() and inside.is_file() and not (path / "feats.scp").is_file():
        return inside
    return path if path.name == _RECORDINGS and path.is_file() else None


def _type_of(file: Path) -> str | None:
    """The type that a file's ending stands for; one of .gz is looked behind."""
    name = file.with_suffix("") if file.suffix.lower() == ".gz" else file
    return _TYPES.get(name.suffix.lower())


def _files(path: str) -> list[Path]:
    root = Path(path)
    inside = sorted(root.rglob("*")) if root.is_dir() else sorted(map(Path, glob.glob(path, recursive=True)))
    if not inside:
        raise SourceError(
            f"{path}: {'the folder is empty' if root.is_dir() else 'no such file or folder'}; check INPUT"
        )
    return inside


def _guess_among(path: str, files: list[Path]) -> Guess:
    """Takes the type that most files are of; text, which often stands beside data, only if there is nothing else."""
    counts = Counter(kind for kind in map(_type_of, files) if kind is not None)
    if not counts:
        raise ConfigError(f"{path}: can't tell what kind of input this is; say it with --source, such as --source hdf5")
    best = max(counts, key=lambda kind: (kind not in _MANIFESTS, counts[kind]))
    if len(counts) == 1:
        return Guess({"type": best, "path": path})
    others = ", ".join(f"{count} of {kind}" for kind, count in counts.items() if kind != best)
    return Guess(
        {"type": best, "path": path},
        f"{path}: taken as {best}, of which there are {counts[best]} files; left out: {others}; --source says otherwise",
    )


def _guess_text(path: str, kind: str) -> Guess:
    """Looks into a CSV or JSON-lines file: it lists audio files, or holds sequences itself."""
    what = "column" if kind == "csv" else "field"
    if "path" in (_csv_names(path) if kind == "csv" else _json_names(path)):
        return Guess(
            {"type": "audio", "manifest": path},
            f"{path}: has a {what} 'path', so it is taken as a list of audio files; --source {kind} reads it as sequences",
        )
    meant = "one series unless source.id names a column" if kind == "csv" else "a sequence in each line"
    return Guess(
        {"type": kind, "path": path},
        f"{path}: has no {what} 'path', so it is taken as {kind}, {meant}; --source audio takes it as a list of audio files",
    )


def _first_line(path: str) -> bytes:
    files = ByteRanges()
    try:
        lines = (line.content for line in islice(lines_of(files, path), 100) if not line.content.isspace())
        return next(lines, b"")
    finally:
        files.close()


def _csv_names(path: str) -> list[str]:
    text = _first_line(path).decode("utf-8", "replace")
    tabs = Path(path).suffix.lower() == ".tsv"
    try:
        return [name.strip() for name in next(csv.reader([text], delimiter="\t" if tabs else ","), [])]
    except csv.Error:
        return []


def _json_names(path: str) -> list[str]:
    try:
        row = json.loads(_first_line(path))
    except (ValueError, RecursionError):
        return []
    return [name for name, value in row.items() if isinstance(value, str)] if isinstance(row, dict) else []
