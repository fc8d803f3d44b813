"""Counts what a process holds open."""

import gc
import os
from pathlib import Path

import pytest

needs_listing = pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="descriptors can't be listed here")


def open_descriptors(*, collect: bool = True) -> int:
    """How many this process has open, those of objects that nobody refers to any more left out unless told otherwise: to
    look for these takes half a second.

    Earlier tests share the process, and what they left may be closed at any moment: a later count may be lower, so only
    "no more than before" says something.
    """
    if collect:
        gc.collect()
    return len(os.listdir("/dev/fd"))
