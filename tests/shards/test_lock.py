"""The lock of a folder, among real processes."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from seqprep.errors import BusyError, OutputError
from seqprep.shards import LOCK_NAME, FolderLock, SharedLock, Storage, lock
from tests.execution.systems import FailingStorage

HOLD = """
import sys, time
from pathlib import Path
from seqprep.shards import FolderLock, Storage
with FolderLock(Path(sys.argv[1]), Storage()) as lock:
    print(lock.shared.run, flush=True)
    time.sleep(60)
"""
JOIN = """
import sys, time
from pathlib import Path
from seqprep.shards import SharedLock
with SharedLock(Path(sys.argv[1]), sys.argv[2]).joined():
    print("joined", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def start(script: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def end(process: subprocess.Popen[str], how: int = signal.SIGKILL) -> None:
    process.send_signal(how)
    process.communicate(timeout=30)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    holder, _ = start(HOLD, str(tmp_path))
    try:
        with pytest.raises(BusyError, match="another run is writing there") as caught, FolderLock(tmp_path, Storage()):
            pytest.fail("both have it")
        assert f"process {holder.pid} on host {socket.gethostname()}" in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1
    finally:
        end(holder)
    with FolderLock(tmp_path, Storage()):  # its holder was killed
        assert (tmp_path / LOCK_NAME).exists()
    assert list(tmp_path.iterdir()) == []


def test_a_holder_on_another_host_is_believed(tmp_path: Path) -> None:
    with FolderLock(tmp_path, Storage()) as held:
        (tmp_path / LOCK_NAME).write_text(f'{{"host": "elsewhere", "process": 1, "run": "{held.shared.run}"}}')
        with pytest.raises(BusyError, match="process 1 on host elsewhere"), FolderLock(tmp_path, Storage()):
            pytest.fail("both have it")


def test_workers_of_a_dead_run_are_waited_for(tmp_path: Path) -> None:
    holder, run = start(HOLD, str(tmp_path))
    worker, joined = start(JOIN, str(tmp_path), run, "1.5")
    assert joined == "joined"
    end(holder)
    with FolderLock(tmp_path, Storage()):
        worker.communicate(timeout=30)
    assert worker.returncode == 0


def test_workers_that_never_end_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_ORPHANS_SECONDS", 0.2)
    holder, run = start(HOLD, str(tmp_path))
    worker, _ = start(JOIN, str(tmp_path), run, "60")
    end(holder)
    try:
        with pytest.raises(BusyError, match=f"process {holder.pid}"), FolderLock(tmp_path, Storage()):
            pytest.fail("both have it")
    finally:
        end(worker)


def test_a_worker_whose_run_has_ended_does_nothing(tmp_path: Path) -> None:
    with FolderLock(tmp_path, Storage()) as first:
        shared = first.shared
        with shared.joined(), shared.joined():  # several at once
            pass
    with pytest.raises(BusyError, match="has ended; nothing was written"), shared.joined():
        pytest.fail("joined a run that is over")
    with FolderLock(tmp_path, Storage()) as second:
        with pytest.raises(BusyError, match="has ended"), shared.joined():
            pytest.fail("joined another run")
        with second.shared.joined():
            pass


def test_an_interrupted_start_is_no_holder(tmp_path: Path) -> None:
    for content in ("", "{", "[]", '{"host": 1}'):
        (tmp_path / LOCK_NAME).write_text(content)
        with FolderLock(tmp_path, Storage()):
            pass


def test_many_at_once_take_turns(tmp_path: Path) -> None:
    inside, most, taken, mutex = [0], [0], [0], threading.Lock()

    def work() -> None:
        for _ in range(20):
            try:
                with FolderLock(tmp_path, Storage()):
                    with mutex:
                        inside[0] += 1
                        taken[0] += 1
                        most[0] = max(most[0], inside[0])
                    with mutex:
                        inside[0] -= 1
            except BusyError:
                continue

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert taken[0] >= 6
    assert list(tmp_path.iterdir()) == []


def test_without_locks_in_the_file_system_runs_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unknown)
    with FolderLock(tmp_path, Storage()) as held, held.shared.joined():
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    counting = FailingStorage()
    with FolderLock(tmp_path, counting):
        pass
    for number in range(3):
        assert counting.system.calls[number] in ("open", "ftruncate", "pwritev")
        with (
            pytest.raises(OutputError, match="free some space"),
            FolderLock(tmp_path, FailingStorage(number, errno.ENOSPC)),
        ):
            pytest.fail("has it")
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutputError, match="nowhere"), FolderLock(tmp_path / "nowhere", Storage()):
        pytest.fail("has it")


def test_it_is_small_and_picklable(tmp_path: Path) -> None:
    import pickle

    shared = SharedLock(tmp_path, "x")
    assert pickle.loads(pickle.dumps(shared)) == shared
