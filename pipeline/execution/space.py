"""Refuses a run beforehand that its disk can't hold."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from seqprep.errors import OutputError


def check_space(wanted: Mapping[Path, int]) -> None:
    """Looks whether there is room, on each file system, for what is going to be written there.

    Where a file system doesn't say how much it holds, nothing is refused.

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
            raise OutputError(
                f"{folder}: the output takes at least {needed[device]:,} bytes, but only {free:,} are free there; "
                "free some space, choose another output, or compress it; nothing was written"
            )


def bytes_of(paths: Iterable[Path]) -> int:
    """Bytes of files; one that is missing has none."""
    total = 0
    for path in paths:
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total
