"""The configuration that a finished dataset was made by, and whether it still gives the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqprep.config import BY_FILE, Config, load_config
from seqprep.errors import DatasetError
from seqprep.shards import Index

CONVERTED, MERGED, PART = "converted", "merged", "part"
"""Entries of an index's configuration that no configuration has: how batches were put into other shards, the runs
whose shards are listed, and which part of a split this is."""


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
    settings: dict[str, Any] = {
        name: value for name, value in index.configuration.items() if name not in (CONVERTED, PART)
    }
    keys: dict[str, Any] = dict(settings.get("keys", ()))
    for name, key in keys.items():
        if (key.get("normalize") or {}).get("by") == BY_FILE:
            raise DatasetError(
                f"{folder}: key {name!r} was normalised by a file of statistics, which the dataset doesn't hold; "
                "give the configuration that names it"
            )
    split: Mapping[str, Any] | None = settings.get("split")
    path = str(folder)
    if split is not None:
        settings["split"] = dict(split["parts"]) | ({"by": split["by"]} if split["by"] else {})
        path = str(folder.parent / "{split}")
    output: Mapping[str, Any] = settings.get("output", {})
    return load_config(settings | {"keys": keys, "output": {**output, "path": path}})
