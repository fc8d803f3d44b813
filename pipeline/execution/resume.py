"""What is in the output folder already, and whether this run may go on there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqprep.errors import CorruptError, MismatchError
from seqprep.shards import INDEX_NAME, Index, Storage, read_index

MARKER_NAME = "unfinished.json"
"""Says, from a run's start until its index is written, what the folder is going to be."""

_OURS = (INDEX_NAME, f"{INDEX_NAME}.partial", MARKER_NAME, f"{MARKER_NAME}.partial", "shard-*-of-*.*")


def prepare_folder(folder: Path, expected: Index, storage: Storage, overwrite: bool) -> Index | None:
    """Makes the output folder ready for a run, or finds the run done.

    Args:
        folder: the output.
        expected: the index that the run will write, without its shards.
        storage: the file layer.
        overwrite: remove a dataset or unfinished run of something else.

    Returns:
        The index, if the folder already holds exactly this dataset.

    Raises:
        MismatchError: the folder holds something else, and `overwrite` is false; shows what differs.
        OutputError: the folder can't be written.
    """
    found = _existing_index(folder, overwrite)
    if found is not None and found.fingerprint == expected.fingerprint:
        return found
    begun = _read_marker(folder)
    if found is not None and not overwrite:
        raise MismatchError(_difference(folder, "holds a dataset", _sides(found), _sides(expected)))
    if begun is not None and begun != _sides(expected) and not overwrite:
        raise MismatchError(_difference(folder, "holds the unfinished run", begun, _sides(expected)))
    storage.make_folder(folder)
    if overwrite and begun != _sides(expected):
        for path in sorted(path for pattern in _OURS for path in folder.glob(pattern)):  # index.json goes first
            storage.remove(path)
    storage.write_file(folder / MARKER_NAME, json.dumps(_sides(expected), indent=1).encode())
    return None


def _existing_index(folder: Path, overwrite: bool) -> Index | None:
    """The index of a finished dataset in the folder, if there is one to be respected."""
    try:
        return read_index(folder) if (folder / INDEX_NAME).exists() else None
    except CorruptError as error:
        if overwrite:
            return None
        raise MismatchError(f"{error} with --overwrite") from error


def _sides(index: Index) -> dict[str, Any]:
    """What two runs have to agree in."""
    return {
        "fingerprint": index.fingerprint,
        "configuration": json.loads(json.dumps(index.configuration)),
        "source": dict(index.source),
    }


def _read_marker(folder: Path) -> dict[str, Any] | None:
    try:
        content = json.loads((folder / MARKER_NAME).read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _difference(folder: Path, holds: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Says on aligned lines what the folder was made from and what is asked for now."""
    rows = [("fingerprint", old.get("fingerprint"), new.get("fingerprint"))]
    for part in ("configuration", "source"):
        before, after = _flatten(old.get(part, {}), part), _flatten(new.get(part, {}), part)
        rows += [
            (name, before.get(name, "(not set)"), after.get(name, "(not set)"))
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        ]
    width = max(len(name) for name, _, _ in rows)
    left = max(len(str(value)) for _, value, _ in rows)
    table = "\n".join(f"  {name:<{width}}  there: {before!s:<{left}}  now: {after}" for name, before, after in rows)
    cause = (
        "the input has changed" if any(name.startswith("source.") for name, _, _ in rows) else "a setting has changed"
    )
    return (
        f"{folder}: {holds} of something else:\n{table}\n"
        f"  probably {cause}; choose another output.path, or add --overwrite to replace what is there"
    )


def _flatten(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value:
        return {name: value}
    return {path: leaf for key, inner in value.items() for path, leaf in _flatten(inner, f"{name}.{key}").items()}
