"""While one shard is made safe, the next one is made; what goes wrong meanwhile is told, and nothing is left of it."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import seqprep
from seqprep.errors import OutputError
from seqprep.shards import Storage

from .small import QUICK, content, small
from .systems import QuickSystem


class SlowDisk(QuickSystem):
    """The module os; the first shard's fsync waits until the second shard is begun, and then may fail."""

    def __init__(self, error: int = 0) -> None:
        self._error, self._begun, self._waited = error, threading.Event(), False

    def open(self, path: Any, *rest: Any) -> int:
        if "shard-00001" in str(path):
            self._begun.set()
        return os.open(path, *rest)

    def fsync(self, descriptor: int) -> None:
        if "shard-00000" in os.readlink(f"/proc/self/fd/{descriptor}"):
            assert self._begun.wait(30), "the second shard waits for the first one's fsync"
            self.overlapped = True
            if self._error:
                raise OSError(self._error, os.strerror(self._error))


class SlowStorage(Storage):
    """A storage on such a disk."""

    def __init__(self, error: int = 0) -> None:
        self.system = SlowDisk(error)


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    seqprep.chunk(small(tmp_path / "model"), storage=QUICK)
    return content(tmp_path / "model")


def test_the_next_shard_is_made_meanwhile(tmp_path: Path, whole: dict[str, bytes]) -> None:
    storage = SlowStorage()
    seqprep.chunk(small(tmp_path / "out"), storage=storage)
    assert storage.system.overlapped
    assert content(tmp_path / "out") == whole


def test_a_failure_is_told_and_leaves_nothing_half_made(tmp_path: Path, whole: dict[str, bytes]) -> None:
    out, threads = tmp_path / "out", threading.active_count()
    with pytest.raises(OutputError, match=r"shard-00000-of-00002\.h5\.partial: can't be written: .*; check the disk"):
        seqprep.chunk(small(out), storage=SlowStorage(errno.EIO))
    assert [name for name in content(out) if name.startswith("shard")] == []
    assert threading.active_count() == threads
    seqprep.chunk(small(out), storage=QUICK)
    assert content(out) == whole


def test_stopped_meanwhile_the_first_one_is_kept(tmp_path: Path, whole: dict[str, bytes]) -> None:
    out, told = tmp_path / "out", 0

    def stop(progress: seqprep.execution.Progress) -> None:
        nonlocal told
        told = progress.rows
        if storage.system._begun.is_set():
            raise KeyboardInterrupt

    storage = SlowStorage()
    with pytest.raises(KeyboardInterrupt):
        seqprep.chunk(small(out), storage=storage, progress=stop)
    assert told > 0
    kept = {name: data for name, data in content(out).items() if name.startswith("shard")}
    assert set(kept) == {"shard-00000-of-00002.h5", "shard-00000-of-00002.idx"}
    assert kept.items() <= whole.items()
    seqprep.chunk(small(out), storage=QUICK)
    assert content(out) == whole
