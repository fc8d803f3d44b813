"""Says what an input holds, and proposes a configuration for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.errors import SeqprepError
from seqprep.execution.resume import MARKER_NAME
from seqprep.report.proposal import propose
from seqprep.shards import INDEX_NAME
from seqprep.sources import Source, open_source
from seqprep.sources.guess import guess_source
from seqprep.types import FrameRange, Int64

_FIRST_TAGS = 3
_FIRST_VALUES = 4
_NAMES = ("id", "tag", "key", "name", "seq_tag", "uid", "utt_id", "unique_id", "series", "series_id", "item_id")
"""Fields and columns that may hold the names of sequences."""
_NAMING_OPTION = {"csv": "id", "jsonl": "id", "parquet": "tag", "tfrecord": "tag"}


def is_dataset(path: str | Path) -> bool:
    """Whether a path is a folder of shards, finished or not."""
    return any((Path(path) / name).exists() for name in (INDEX_NAME, MARKER_NAME))


def describe_source(path: str, kind: str | None = None) -> dict[str, Any]:
    """Opens an input, and describes it.

    Args:
        path: a file, folder or glob; or "synthetic".
        kind: the reader, if it is known.

    Returns:
        Plain values: `source` (its section of a configuration), `decided` (what its ending alone doesn't tell), counts,
        keys with their lengths and first values, first tags, and a `configuration` as YAML (None if nothing can be cut).

    Raises:
        SourceError: it can't be read.
        ConfigError: nothing tells what it is.
    """
    guess = guess_source(path, kind)
    settings, source = _open_named(guess.settings)
    try:
        timed = {name: source.lengths(name) for name, spec in source.keys.items() if spec.has_time}
        sizes = {
            name: int(timed[name].sum() if spec.has_time else len(source.tags)) * spec.nbytes
            for name, spec in source.keys.items()
        }
        return {
            "path": path,
            "source": settings,
            "decided": guess.reason,
            "sequences": len(source.tags),
            "bytes": sum(sizes.values()),
            "keys": {name: _describe_key(source, name) for name in source.keys},
            "first_tags": list(source.tags[:_FIRST_TAGS]),
            "configuration": propose(path, settings, source.keys, timed),
        }
    finally:
        source.close()


def _open_named(settings: Mapping[str, Any]) -> tuple[dict[str, Any], Source]:
    """Opens an input, by the names of its sequences if a field of a usual name holds them."""
    option = _NAMING_OPTION.get(settings["type"])
    if option is not None and Path(str(settings.get("path"))).exists():
        for name in _NAMES:
            named = {**settings, option: name}
            try:
                source = open_source(named)
            except SeqprepError:
                continue
            if settings["type"] != "csv" or _is_long(source):
                return named, source
            source.close()
    return dict(settings), open_source(settings)


def _is_long(source: Source) -> bool:
    """Whether a column of a CSV file names series, and not rows."""
    return len(source.tags) * 2 <= int(source.lengths(next(iter(source.keys))).sum())


def _describe_key(source: Source, name: str) -> dict[str, Any]:
    spec = source.keys[name]
    described: dict[str, Any] = {"dtype": spec.dtype, "shape": list(spec.shape), "has_time": spec.has_time}
    if spec.labels is not None:
        described["labels"] = list(spec.labels)
    if spec.has_time:
        described["lengths"] = _statistics(source.lengths(name))
    described["first"] = _first_values(source, name)
    return described


def _statistics(lengths: Int64) -> dict[str, Any]:
    return {
        "least": int(lengths.min()),
        "median": float(np.median(lengths)),
        "mean": float(lengths.mean()),
        "greatest": int(lengths.max()),
        "total": int(lengths.sum()),
        "empty": int((lengths == 0).sum()),
    }


def _first_values(source: Source, name: str) -> list[Any]:
    """The first values of the first sequence that has any."""
    if not source.keys[name].has_time:
        values = source.read(name, 0)
    else:
        filled = np.flatnonzero(source.lengths(name))
        if not len(filled):
            return []
        sequence = int(filled[0])
        frames = FrameRange(0, min(_FIRST_VALUES, int(source.lengths(name)[sequence])))
        values = source.read(name, sequence, frames)
    first: list[Any] = values.reshape(-1)[:_FIRST_VALUES].tolist()
    return first
