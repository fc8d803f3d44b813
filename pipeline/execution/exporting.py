"""`seqprep.export`: the sequences of a dataset, whole again, as npz files or one HDF5 file."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seqprep.config import suggestion
from seqprep.errors import ConfigError, MismatchError
from seqprep.execution import stitching
from seqprep.execution.run import Progress
from seqprep.execution.space import bytes_of, check_space
from seqprep.execution.stitching import Gaps, Stitcher
from seqprep.shards import LOCK_NAME, Dataset, FlatHdf5Writer, FolderLock, Storage, partial_path
from seqprep.types import Array, KeySpec

MANIFEST_NAME = "export.json"
"""Names the file of every tag; written last."""
_STARTED_NAME = "export.unfinished"
_HDF5_SUFFIXES = (".h5", ".hdf", ".hdf5")
_OURS = re.compile(r"\d{8,}-[A-Za-z0-9._-]{1,100}\.npz(\.partial)?")
Format = Literal["npz", "hdf5"]


@dataclass(frozen=True, kw_only=True)
class Export:
    """What was written."""

    path: Path
    format: Format
    sequences: int
    frames: int
    """Of the input key."""


def export(
    source: str | Path,
    output: str | Path,
    *,
    format: Format | None = None,
    keys: Sequence[str] | None = None,
    gaps: Gaps = "error",
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
    storage: Storage | None = None,
) -> Export:
    """Joins the cores of a dataset's rows to whole sequences, and writes them.

    npz: a folder with a file for each sequence, its keys by name, and `seq_tag`. hdf5: one file in RETURNN's flat
    layout, which the source `hdf5` reads. bfloat16 becomes float32, which holds the same values.

    Args:
        source: the dataset.
        output: a folder (npz), or a file (hdf5).
        format: told by the output's ending unless given.
        keys: which; all unless given.
        gaps: what becomes of frames that no row holds: an `error`, or `nan`.
        overwrite: replace what is there.
        progress: told now and then how far it is.
        storage: the file layer; local files unless told.

    Raises:
        ConfigError: an argument is impossible.
        DatasetError: the dataset can't be used, its rows contradict each other, or there is a gap.
        MismatchError: the output exists, and `overwrite` is false.
        BusyError: another run writes there.
        OutputError: the output can't be written.
    """
    dataset, path, storage = Dataset(source), Path(output), storage or Storage()
    chosen = _chosen_keys(dataset, keys)
    if format is None:
        format = "hdf5" if path.suffix.lower() in _HDF5_SUFFIXES else "npz"
    stitcher = Stitcher(dataset, chosen, gaps)
    there = (
        [path, partial_path(path)] if format == "hdf5" else (list(path.glob("*.npz*")) if os.path.isdir(path) else [])
    )
    check_space({path.parent if format == "hdf5" else path: _least_bytes(stitcher) - bytes_of(there)})
    told = _told(progress, len(stitcher.present))
    if format == "hdf5":
        _write_flat(stitcher, chosen, path, overwrite, storage, told)
    else:
        _write_npz(stitcher, dataset, path, overwrite, storage, told)
    frames = sum(int(lengths.sum()) for lengths in list(stitcher.lengths.values())[:1])
    return Export(path=path, format=format, sequences=len(stitcher.present), frames=frames)


def _least_bytes(stitcher: Stitcher) -> int:
    """Bytes that the arrays with time take at least."""
    return sum(int(frames.sum()) * stitcher.keys[key].nbytes for key, frames in stitcher.lengths.items())


def _chosen_keys(dataset: Dataset, keys: Sequence[str] | None) -> dict[str, KeySpec]:
    known = dataset.index.keys
    for name in keys or ():
        if name not in known:
            raise ConfigError(f"{dataset.path}: holds no key {name!r}{suggestion(name, known)}")
    chosen = {name: spec for name, spec in known.items() if keys is None or name in keys}
    ragged = [name for name, spec in chosen.items() if spec.ragged]
    if ragged:
        raise ConfigError(
            f"{dataset.path}: key {ragged[0]!r} has an axis of varying size, which is padded in rows and can't be exported; "
            "name only others by keys"
        )
    if not any(spec.has_time for spec in chosen.values()):
        raise ConfigError(f"{dataset.path}: none of the keys to export has a time axis; add one")
    return chosen


def _told(progress: Callable[[Progress], None] | None, sequences: int) -> Callable[[stitching.Sequence], None]:
    done = [0, 0]

    def told(sequence: stitching.Sequence) -> None:
        done[0] += 1
        done[1] += sum(array.nbytes for array in sequence.arrays.values())
        if progress is not None:
            progress(Progress(rows=done[0], rows_total=sequences, bytes=done[1]))

    return told


def _write_npz(
    stitcher: Stitcher,
    dataset: Dataset,
    folder: Path,
    overwrite: bool,
    storage: Storage,
    told: Callable[[stitching.Sequence], None],
) -> None:
    """Writes a file for each sequence, and last the manifest."""
    about = {"dataset": dataset.index.fingerprint, "keys": list(stitcher.keys)}
    started = folder / _STARTED_NAME
    goes_on = {name: value for name, value in _unfinished(folder).items() if name != "kept"} == about
    if not (overwrite or goes_on) and os.path.exists(folder) and _holds_other(folder):
        raise MismatchError(f"{folder}: exists and isn't empty; choose another output, or add --overwrite")
    storage.make_folder(folder)
    with FolderLock(folder, storage):
        old = _files_of_exports(folder)
        kept = sorted(
            {path.name for path in folder.iterdir() if _OURS.fullmatch(path.name)} - {path.name for path in old}
        )
        storage.write_file(started, json.dumps(about | {"kept": kept}).encode("utf-8", "surrogateescape"))
        storage.remove(folder / MANIFEST_NAME)
        for path in old:
            if not goes_on or path.suffix == ".partial":
                storage.remove(path)
        files = {}
        for sequence in stitcher.sequences():
            name = f"{sequence.place:08d}-{re.sub(r'[^A-Za-z0-9._-]+', '_', sequence.tag)[:100]}.npz"
            storage.write_file(folder / name, _npz(sequence), sync=False)
            files[sequence.place] = (sequence.tag, name)
            told(sequence)
        storage.sync_all()
        listed = [{"seq_tag": files[place][0], "file": files[place][1]} for place in sorted(files)]
        manifest = about | {"sequences": listed}
        text = json.dumps(manifest, indent=1, ensure_ascii=False).encode("utf-8", "surrogateescape")
        storage.write_file(folder / MANIFEST_NAME, text + b"\n")
        storage.remove(started)


def _unfinished(folder: Path) -> dict[str, Any]:
    """What an export that wasn't finished has left word of: its dataset and keys, and the files that aren't its own."""
    try:
        told = json.loads((folder / _STARTED_NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) and isinstance(told.get("kept"), list) else {}


def _holds_other(folder: Path) -> bool:
    """Whether there is more than an export leaves that was killed before it could say what it was."""
    begun = {LOCK_NAME, partial_path(folder / _STARTED_NAME).name}
    return not folder.is_dir() or any(path.name not in begun for path in folder.iterdir())


def _files_of_exports(folder: Path) -> list[Path]:
    """The files that exports have written, and no others: those of the manifest, and what an unfinished one has left."""
    try:
        listed = json.loads((folder / MANIFEST_NAME).read_bytes())["sequences"]
        names = {str(entry["file"]) for entry in listed}
    except (OSError, ValueError, LookupError, TypeError):
        names = set()
    if (folder / _STARTED_NAME).exists():
        names |= {path.name for path in folder.iterdir()} - set(_unfinished(folder).get("kept", ()))
    return [folder / name for name in sorted(names) if _OURS.fullmatch(name)]


def _npz(sequence: stitching.Sequence) -> bytes:
    target = io.BytesIO()
    arrays: dict[str, Any] = {key: _storable(array) for key, array in sequence.arrays.items()}
    np.savez(target, **arrays, seq_tag=np.array(sequence.tag))
    return target.getvalue()


def _storable(array: Array) -> Array:
    """What stock tools can read: bfloat16 becomes float32."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _write_flat(
    stitcher: Stitcher,
    keys: Mapping[str, KeySpec],
    path: Path,
    overwrite: bool,
    storage: Storage,
    told: Callable[[stitching.Sequence], None],
) -> None:
    """Writes one file, each sequence at its place."""
    if os.path.exists(path) and not overwrite:
        raise MismatchError(f"{path}: exists; choose another output, or add --overwrite")
    storage.make_folder(path.parent)
    lengths = {key: of[stitcher.present] for key, of in stitcher.lengths.items()}
    with FolderLock(path.parent, storage, path.name):
        writer = FlatHdf5Writer(path, keys, lengths, storage)
        _fill(writer, stitcher, told)


def _fill(writer: FlatHdf5Writer, stitcher: Stitcher, told: Callable[[stitching.Sequence], None]) -> None:
    try:
        for sequence in stitcher.sequences():
            number = int(np.searchsorted(stitcher.present, sequence.place))
            arrays = {key: _storable(array) for key, array in sequence.arrays.items()}
            writer.write(number, sequence.tag, arrays)
            told(sequence)
        writer.commit()
    except BaseException:
        writer.discard()
        raise
