"""Every tool that changes a folder, killed or failed by the disk before each of its system calls: nothing half-made has
a final name, what was there is kept or replaced as a whole, and the tool run again comes to the same bytes."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import seqprep
from seqprep.errors import OutputError
from seqprep.shards import Storage

from .small import FORMATS, assert_none_or_whole, content, small
from .systems import CHANGING, FailingStorage, QuickSystem
from .test_faults import ERRORS, REMEDIES
from .tools import TOOLS, Trial


class Killed(BaseException):
    """Stands for the end of the process."""


class DyingSystem(QuickSystem):
    """The module os, for a process that is gone at its n-th changing call: neither that nor any behind it is made.

    Args:
        at: number of the call, from 0.
    """

    def __init__(self, at: int) -> None:
        self.at, self.calls = at, 0
        self._open: list[tuple[int, os.stat_result]] = []

    def __getattr__(self, name: str) -> Any:
        real = super().__getattr__(name)
        if name not in CHANGING or name == "close":
            return real

        def call(*arguments: Any) -> Any:
            number, self.calls = self.calls, self.calls + 1
            if number >= self.at:
                raise Killed
            result = real(*arguments)
            if name == "open":
                self._open.append((result, os.fstat(result)))
            return result

        return call

    def end(self) -> None:
        """Closes what the process had open, and with it lets go of its locks."""
        for descriptor, of in self._open:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), of):
                    os.close(descriptor)


class DyingStorage(Storage):
    """A storage of a process that dies."""

    commits_aside = False

    def __init__(self, at: int) -> None:
        self.system = DyingSystem(at)


def killed_everywhere(trial: Trial, step: int) -> None:
    at = 0
    while True:
        storage = DyingStorage(at)
        try:
            trial.tool.run(trial.place, storage)
        except Killed:
            storage.system.end()
            trial.finish()
        else:
            assert at >= storage.system.calls > 5
            return
        trial.start_again()
        at += step


def failed_everywhere(trial: Trial, step: int, errors: tuple[int, ...]) -> None:
    counting = FailingStorage()
    trial.tool.run(trial.place, counting)
    names = counting.system.calls
    for number in range(0, len(names), step):
        for error in errors or (ERRORS[number % len(ERRORS)],):
            trial.start_again()
            try:
                trial.tool.run(trial.place, FailingStorage(number, error, forever=number % 2 == 0))
            except OutputError as failure:
                message = str(failure)
                assert REMEDIES[error] in message, message
                assert str(trial.place) in message
                assert len(message.splitlines()) == 1
            else:  # cleaning up, or closing what is safe already
                assert names[number] in ("unlink", "close"), (number, names[number])
            trial.finish()


@pytest.mark.parametrize("name", TOOLS)
def test_killed_at_some_calls(tmp_path: Path, name: str) -> None:
    killed_everywhere(Trial(TOOLS[name], tmp_path / "here"), 11)


@pytest.mark.slow
@pytest.mark.parametrize("name", TOOLS)
def test_killed_at_every_call(tmp_path: Path, name: str) -> None:
    killed_everywhere(Trial(TOOLS[name], tmp_path / "here"), 1)


@pytest.mark.parametrize("name", TOOLS)
def test_the_disk_fails_at_some_calls(tmp_path: Path, name: str) -> None:
    failed_everywhere(Trial(TOOLS[name], tmp_path / "here"), 17, ())


@pytest.mark.slow
@pytest.mark.parametrize("name", TOOLS)
def test_the_disk_fails_at_every_call(tmp_path: Path, name: str) -> None:
    failed_everywhere(Trial(TOOLS[name], tmp_path / "here"), 1, () if "zip" in name or "zstd" in name else ERRORS)


class FatalSystem:
    """The module os; at the n-th changing call of the chosen kind of process, that process and all its relatives die."""

    def __init__(self, at: int, in_worker: bool) -> None:
        self._at, self._in_worker, self._calls = at, in_worker, 0

    def __getattr__(self, name: str) -> Any:
        import multiprocessing

        if name.startswith("_"):
            raise AttributeError(name)  # of this class, while it is unpickled
        real = getattr(QuickSystem(), name)
        if name not in CHANGING or (multiprocessing.parent_process() is not None) != self._in_worker:
            return real
        if self._calls == self._at:
            os.killpg(0, signal.SIGKILL)
        self._calls += 1
        return real


class FatalStorage(Storage):
    """A storage of processes that die together."""

    commits_aside = False

    def __init__(self, at: int, in_worker: bool) -> None:
        self.system = FatalSystem(at, in_worker)


SCRIPT = """
import json, sys
import seqprep
from tests.execution.small import small
from tests.execution.test_tools_stopped import FatalStorage
from pathlib import Path
if __name__ == "__main__":
    out, format, at, role = sys.argv[1:]
    seqprep.chunk(small(Path(out), format, output__shard_size=700), workers=3, storage=FatalStorage(int(at), role == "worker"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("role", ["main", "worker"])
def test_several_workers_are_killed_together(tmp_path: Path, format: str, role: str) -> None:
    """At every third call of the first process, or of whichever worker comes to it first."""
    model = tmp_path / "model"
    seqprep.chunk(small(model, format, output__shard_size=700))
    whole = content(model)
    assert len(whole) > 10
    at, killed = 0, 0
    while True:
        out = tmp_path / f"out-{at}"
        command = [sys.executable, "-c", SCRIPT, str(out), format, str(at), role]
        done = subprocess.run(command, start_new_session=True, stderr=subprocess.PIPE, timeout=120, check=False)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        killed += 1
        assert_none_or_whole(out, whole)
        seqprep.chunk(small(out, format, output__shard_size=700), workers=1)
        assert content(out) == whole
        at += 3
    assert content(out) == whole
    assert killed > 3


def test_the_errors_are_those_that_disks_give() -> None:
    assert set(ERRORS) == {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
