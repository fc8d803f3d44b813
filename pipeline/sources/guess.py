"""Tells from a path which reader an input needs."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

from seqprep.errors import ConfigError, SourceError

_TYPES = {
    ".h5": "hdf5", ".hdf": "hdf5", ".hdf5": "hdf5",
    ".wav": "audio", ".flac": "audio", ".ogg": "audio",
    ".csv": "audio", ".jsonl": "audio",
    ".scp": "kaldi", ".ark": "kaldi",
}  # fmt: skip
_MANIFESTS = (".csv", ".jsonl")


def guess_source(path: str, kind: str | None = None) -> dict[str, Any]:
    """Makes the section `source` of a configuration for an input.

    Args:
        path: a file, folder or glob; or "synthetic".
        kind: the type, if the user has said it.

    Raises:
        SourceError: there is nothing at the path.
        ConfigError: nothing there tells its type.
    """
    if path == "synthetic" and kind in (None, "synthetic"):
        return {"type": "synthetic"}
    suffix = _suffix(path)
    found = kind or _TYPES.get(suffix)
    if found is None:
        raise ConfigError(f"{path}: can't tell what kind of input this is; say it with --source, such as --source hdf5")
    return {"type": found, "manifest" if found == "audio" and suffix in _MANIFESTS else "path": path}


def _suffix(path: str) -> str:
    """The ending of the file, or of the first file with a known one in a folder or behind a glob."""
    root = Path(path)
    if root.is_file():
        return root.suffix.lower()
    inside = sorted(root.rglob("*")) if root.is_dir() else sorted(map(Path, glob.glob(path, recursive=True)))
    if not inside:
        raise SourceError(
            f"{path}: {'the folder is empty' if root.is_dir() else 'no such file or folder'}; check INPUT"
        )
    return next((file.suffix.lower() for file in inside if file.suffix.lower() in _TYPES), "")
