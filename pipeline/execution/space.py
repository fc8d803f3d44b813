"""Refuses a run beforehand that its disk can't hold."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from seqprep.errors import OutputError

_log = logging.getLogger("seqprep")
_MOUNTS = "/proc/self/mounts"
_PLAIN = frozenset(("ext2", "ext3", "ext4", "xfs", "tmpfs", "ramfs", "overlay", "vfat", "exfat", "ntfs3"))
"""File systems that take as many bytes as they are given. Others may compress or share them, so that less would do."""


def check_space(wanted: Mapping[Path, int]) -> None:
    """Looks whether there is room, on each file system, for what is going to be written there.

    Where a file system doesn't say how much it holds, nothing is refused; one that may compress is only warned of.

    Args:
        wanted: for each folder, which need not exist, the bytes that it is going to take at least.

    Raises:
        OutputError: there is less room; says how much is needed and free.
    """
    needed: dict[int, int] = {}
    for folder, size in wanted.items():
        there = next((path for path in (folder, *folder.absolute().parents) if os.path.isdir(path)), Path("/"))
        try:
            device, stats = os.stat(there).st_dev, os.statvfs(there)
        except OSError:
            continue
        needed[device] = needed.get(device, 0) + max(size, 0)
        blocks = stats.f_bfree if os.geteuid() == 0 else stats.f_bavail
        free = blocks * stats.f_frsize
        if stats.f_blocks > 0 and blocks > 0 and needed[device] > free:
            short = f"{folder}: the output takes at least {needed[device]:,} bytes, but only {free:,} are free there; "
            if file_system(there) in _PLAIN:
                raise OutputError(short + "free some space, choose another output, or compress it; nothing was written")
            _log.warning("%sit may not fit, unless the file system compresses it", short)


def file_system(folder: Path) -> str:
    """The kind of file system that holds a folder, such as ext4; empty if the system doesn't say."""
    kinds: dict[str, str] = {}
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                _, point, kind, *_ = line.split(" ")
                kinds[re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point)] = kind  # the last one counts
        place = folder.resolve()
    except (OSError, ValueError):
        return ""
    return next((kinds[str(path)] for path in (place, *place.parents) if str(path) in kinds), "")


def bytes_of(paths: Iterable[Path]) -> int:
    """Bytes of files; one that is missing has none."""
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total
