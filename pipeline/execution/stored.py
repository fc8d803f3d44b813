"""The configuration that a finished dataset was made by, and whether it still gives the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from seqprep.config import Config, load_config
from seqprep.errors import DatasetError
from seqprep.shards import Index

CONVERTED, MERGED = "converted", "merged"
"""Entries of an index's configuration that no configuration has: how batches were put into other shards, and the runs
whose shards are listed."""


def stored_config(index: Index, folder: Path) -> Config:
    """Gives the configuration that made a dataset.

    Args:
        index: of the dataset.
        folder: where it lies.

    Raises:
        DatasetError: it was merged, so several made it.
        ConfigError: this seqprep doesn't know its settings.
    """
    if MERGED in index.configuration:
        raise DatasetError(
            f"{folder}: was merged from {len(index.configuration[MERGED])} datasets, so no configuration made it; "
            "do this with each of those"
        )
    settings: dict[str, Any] = {name: value for name, value in index.configuration.items() if name != CONVERTED}
    keys: Iterable[Any] = settings.get("keys", ())
    output: Mapping[str, Any] = settings.get("output", {})
    return load_config(settings | {"keys": dict(keys), "output": {**output, "path": str(folder)}})
