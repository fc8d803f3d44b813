"""What is in the output folder already, and whether this run may go on there."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqprep.errors import DatasetError, MismatchError, OutputError
from seqprep.execution.space import bytes_of
from seqprep.shards import (
    INDEX_NAME,
    LOCK_NAME,
    Dataset,
    FolderLock,
    Index,
    ShardRecord,
    SharedLock,
    Storage,
    read_index,
    read_sidecar,
    shard_name,
    sidecar_path,
    write_index,
)

MARKER_NAME = "unfinished.json"
"""Says, from a run's start until its index is written, what the folder is going to be."""


def make_dataset(
    folder: Path,
    expected: Index,
    shards: int,
    storage: Storage,
    overwrite: bool,
    make_shards: Callable[[SharedLock], Sequence[ShardRecord]],
) -> tuple[Index, bool]:
    """Makes a dataset in its folder, or finds it made: the one order of steps in which a dataset comes to be.

    Args:
        folder: the output.
        expected: the index, without its shards.
        shards: how many it will have.
        storage: the file layer.
        overwrite: replace what the folder holds, if it is something else or damaged.
        make_shards: makes those that aren't there yet, and gives the records of all in order.

    Returns:
        The index, and whether it was there before.

    Raises:
        BusyError: another run writes there.
        MismatchError, CorruptError, OutputError: as `prepare_folder`.
    """
    done = finished_dataset(folder, expected, overwrite)
    if done is not None:
        tidy_folder(folder, storage)
        return done, True
    storage.make_folder(folder)
    with FolderLock(folder, storage) as lock:
        done = prepare_folder(folder, expected, shards, storage, overwrite)
        if done is not None:
            return done, True
        index = expected.with_shards(make_shards(lock.shared))
        write_index(folder, index, storage)
        storage.remove(folder / MARKER_NAME)
    return index, False


def finished_dataset(folder: Path, expected: Index, overwrite: bool) -> Index | None:
    """Finds a run done, by reading alone.

    Args:
        folder: the output.
        expected: the index that the run will write, without its shards.
        overwrite: the run may replace what is there.

    Returns:
        The index, if the folder holds exactly this dataset, whole as far as can be seen without reading it.

    Raises:
        MismatchError: it holds another dataset, and `overwrite` is false; shows what differs.
        CorruptError: it holds this dataset, but damaged, and `overwrite` is false.
    """
    try:
        found = read_index(folder) if os.path.exists(folder / INDEX_NAME) else None  # a name of any length
        if found is not None and found.fingerprint == expected.fingerprint:
            Dataset(folder).check_files()
            return found
    except DatasetError as error:
        if overwrite:
            return None
        raise type(error)(f"{error}, or --overwrite makes all anew") from error
    if found is not None and not overwrite:
        raise MismatchError(_difference(folder, "holds a dataset", _sides(found), _sides(expected)))
    return None


def prepare_folder(folder: Path, expected: Index, shards: int, storage: Storage, overwrite: bool) -> Index | None:
    """Makes the output folder ready for a run that has its lock, or finds the run done.

    What the folder is going to be is written down before anything is removed, and the index goes before any shard: so
    a reader finds the old dataset whole, or none, and a run that was stopped goes on without being told to overwrite.

    Args:
        folder: the output.
        expected: the index that the run will write, without its shards.
        shards: how many it will have.
        storage: the file layer.
        overwrite: remove a dataset or unfinished run of something else.

    Returns:
        The index, if the folder already holds exactly this dataset.

    Raises:
        MismatchError: the folder holds something else, and `overwrite` is false; shows what differs.
        CorruptError: it holds this dataset, but damaged, and `overwrite` is false.
        OutputError: the folder can't be written.
    """
    found = finished_dataset(folder, expected, overwrite)
    if found is not None:
        return found
    begun, own = _read_marker(folder), _sides(expected)
    if not overwrite and begun is not None and begun != own:
        raise MismatchError(_difference(folder, "holds the unfinished run", begun, own))
    if not overwrite and begun is None:
        _check_shards(folder, expected.fingerprint)
    if begun != own:
        storage.write_file(folder / MARKER_NAME, json.dumps(own, indent=1).encode())
    if (folder / INDEX_NAME).exists():
        storage.remove(folder / INDEX_NAME)
        storage.sync_folder(folder)
    ours = {shard_name(number, shards, expected.format) for number in range(shards)}
    ours |= {sidecar_path(Path(name)).name for name in ours}
    for path in _files_of_runs(folder):
        if path.name not in ours or (overwrite and begun != own):
            storage.remove(path)
    return None


def tidy_folder(folder: Path, storage: Storage) -> None:
    """Removes what a run left that was stopped when its dataset was whole; as far as that is possible."""
    if _leftovers(folder) or (folder / LOCK_NAME).exists():
        with contextlib.suppress(OutputError), FolderLock(folder, storage):
            remove_leftovers(folder, storage)


def bytes_there(folder: Path) -> int:
    """Bytes of what runs have written in a folder: another run keeps it, or replaces it."""
    return bytes_of(_files_of_runs(folder)) if os.path.isdir(folder) else 0  # also of a name that no file can have


def remove_leftovers(folder: Path, storage: Storage) -> None:
    """Removes what a dead run left in the folder of a whole dataset; who calls has its lock.

    Raises:
        OutputError: it can't be removed.
    """
    for path in _leftovers(folder):
        storage.remove(path)


def _leftovers(folder: Path) -> list[Path]:
    left = [folder / MARKER_NAME, *(path for path in _files_of_runs(folder) if path.suffix == ".partial")]
    return [path for path in left if path.exists()]


def _files_of_runs(folder: Path) -> list[Path]:
    """Shards, sidecars, and what is or was being written."""
    patterns = ("shard-*-of-*.*", f"{INDEX_NAME}.partial", f"{MARKER_NAME}.partial")
    return sorted(path for pattern in patterns for path in folder.glob(pattern))


def _check_shards(folder: Path, fingerprint: str) -> None:
    """Where neither index nor marker say what the shards are, they have to be this run's."""
    for path in sorted(folder.glob("shard-*-of-*.idx")):
        try:
            known = read_sidecar(path).fingerprint
        except DatasetError:
            known = "an unknown run"
        if known != fingerprint:
            raise MismatchError(
                f"{folder}: holds shards of {known} without their index; seqprep repair makes the index again, or "
                "choose another output.path, or add --overwrite to replace what is there"
            )


def _sides(index: Index) -> dict[str, Any]:
    """What two runs have to agree in."""
    return {
        "fingerprint": index.fingerprint,
        "configuration": json.loads(json.dumps(index.configuration)),
        "source": dict(index.source),
        **({"codec": index.codec} if index.codec else {}),
    }


def _read_marker(folder: Path) -> dict[str, Any] | None:
    try:
        content = json.loads((folder / MARKER_NAME).read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _difference(folder: Path, holds: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Says on aligned lines what the folder was made from and what is asked for now."""
    return (
        f"{folder}: {holds} of something else:\n{_table(old, new)}; choose another output.path, or add --overwrite to "
        "replace what is there"
    )


def differences(there: Index, now: Index) -> str:
    """Says on aligned lines in what two runs differ, and the probable cause."""
    return _table(_sides(there), _sides(now))


def _table(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    rows = [("fingerprint", old.get("fingerprint"), new.get("fingerprint"))]
    for part in ("configuration", "source", "codec"):
        before, after = _flatten(old.get(part, {}), part), _flatten(new.get(part, {}), part)
        rows += [
            (name, before.get(name, "(not set)"), after.get(name, "(not set)"))
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        ]
    width = max(len(name) for name, _, _ in rows)
    left = max(len(str(value)) for _, value, _ in rows)
    table = "\n".join(f"  {name:<{width}}  there: {before!s:<{left}}  now: {after}" for name, before, after in rows)
    names = {name.split(".")[0] for name, _, _ in rows}
    cause = "the input has changed" if "source" in names else "a setting has changed"
    if "codec" in names and not names & {"source", "configuration"}:
        cause = "another release compresses here"
    return f"{table}\n  probably {cause}"


def _flatten(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value:
        return {name: value}
    return {path: leaf for key, inner in value.items() for path, leaf in _flatten(inner, f"{name}.{key}").items()}
