"""Finds input files: a file, a folder, a glob, or a list of these; always in sorted order."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from seqprep.config import shown
from seqprep.errors import SourceError


def find_files(path: str | Sequence[str], suffixes: Iterable[str]) -> list[Path]:
    """Lists the files that `source.path` means.

    Args:
        path: a file, a folder (searched with all folders in it), a glob (`**` included), or a list of these.
        suffixes: endings taken from a folder, such as ".wav"; a file named outright or by a glob may have any.

    Returns:
        The files, sorted within each part of a list; a file named twice stands once.

    Raises:
        SourceError: a part is missing, can't be looked at, or holds no such file.
    """
    endings = tuple(suffix.lower() for suffix in suffixes)
    found: dict[Path, None] = {}
    for part in [path] if isinstance(path, str) else path:
        try:
            found |= dict.fromkeys(_expand(part, endings))
        except OSError as error:  # a name that is too long, a folder that may not be read
            raise SourceError(
                f"source.path is {shown(part)}, which can't be found: {error.strerror}; check it"
            ) from error
    if not found:
        raise SourceError("source.path is an empty list; name a file, a folder or a glob")
    return list(found)


def _expand(part: str, endings: tuple[str, ...]) -> list[Path]:
    root = Path(part)
    if root.is_file():
        return [root]
    if root.is_dir():
        inside = sorted(file for file in root.rglob("*") if file.suffix.lower() in endings and file.is_file())
        if not inside:
            raise SourceError(f"{part}: the folder holds no {' or '.join(endings)} file; check source.path")
        return inside
    matches = sorted(Path(match) for match in glob.glob(part, recursive=True) if Path(match).is_file())
    if not matches:
        what = "no file matches" if glob.has_magic(part) else "no such file or folder"
        raise SourceError(f"{part}: {what}; check source.path (relative paths start at the current folder)")
    return matches


def names_below(files: Sequence[Path]) -> list[str]:
    """Names files by their paths below the folder that they all share, without their suffixes.

    Args:
        files: at least one.
    """
    absolute = [os.path.abspath(file) for file in files]
    shared = len(os.path.commonpath([os.path.dirname(file) for file in absolute]))
    return [os.path.splitext(file[shared:].lstrip("/"))[0] for file in absolute]
