"""A run is killed before each of its system calls that changes a file or folder; then a reader finds no dataset or a
whole one, and the run goes on to the same bytes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import seqprep
from seqprep.shards import LOCK_NAME

from .small import FORMATS, assert_none_or_whole, content, small
from .systems import QuickStorage

STRACE = shutil.which("strace")
CHANGING = ("openat", "write", "pwrite64", "pwritev", "pwritev2", "ftruncate", "fsync", "fdatasync", "rename", "renameat",
            "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "link", "linkat", "fallocate")  # fmt: skip
SCRIPT = """
import json, sys
import seqprep
from seqprep.shards import Storage
if __name__ == "__main__":
    Storage.commits_aside = "aside" in sys.argv[3:]
    seqprep.chunk(json.loads(sys.argv[1]), workers=int(sys.argv[2]), overwrite="overwrite" in sys.argv[3:])
"""


@dataclass(frozen=True)
class Call:
    """A system call of a run, by its name and how many of that name came before, itself included."""

    name: str
    number: int


def command(config: dict[str, Any], workers: int, *how: str) -> list[str]:
    """A run; `how` may say `overwrite`, and `aside`: that one thread makes shards safe while another makes them."""
    return [sys.executable, "-c", SCRIPT, json.dumps(config), str(workers), *how]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def traced(arguments: list[str], trace: Path, *options: str) -> int:
    assert STRACE is not None
    strace = [STRACE, "-f", "-qq", "-y", "-o", str(trace), "-e", f"trace={','.join(CHANGING)}", *options]
    done = subprocess.run([*strace, *arguments], env=environment(), capture_output=True, timeout=120, check=False)
    return done.returncode


def calls_on(folder: Path, trace: Path) -> list[Call]:
    """The calls of a traced run that change something in a folder, in order."""
    counts: dict[tuple[str, str], int] = {}
    found = []
    for line in trace.read_text().splitlines():
        parsed = re.match(r"(\d+) +(\w+)\((.*)", line)
        if parsed is None:
            continue
        process, name, rest = parsed.groups()
        counts[process, name] = counts.get((process, name), 0) + 1
        if str(folder) in rest and (name != "openat" or "O_CREAT" in rest):
            found.append(Call(name, counts[process, name]))
    return found


def every_kill(tmp_path: Path, format: str, sample: slice, *how: str) -> None:
    if STRACE is None:
        pytest.skip("strace isn't installed, which kills at a chosen system call")
    if traced(["true"], tmp_path / "tried") != 0:
        pytest.skip("strace may not trace processes here")
    model = tmp_path / "model"
    old: dict[str, bytes] = {}
    overwrite = "overwrite" in how
    if overwrite:
        seqprep.chunk(small(model, format, order__seed=7))
        old = content(model)
    trace = tmp_path / "trace"
    assert traced(command(small(model, format), 1, *how), trace) == 0
    whole = content(model)
    calls = calls_on(model, trace)
    assert {call.name for call in calls} >= {"openat", "ftruncate", "fsync", "rename", "unlink"}
    assert len(calls) > 30

    def kill(call: Call) -> None:
        own = tmp_path / f"{call.name}-{call.number}"
        out = own / "out"
        own.mkdir()
        if old:
            out.mkdir()
            for name, data in old.items():
                (out / name).write_bytes(data)
        injection = f"inject={call.name}:signal=KILL:when={call.number}"
        status = traced(command(small(out, format), 1, *how), own / "trace", "-e", injection)
        assert status in (-signal.SIGKILL, 128 + signal.SIGKILL), (call, status)
        last = [line for line in (own / "trace").read_text().splitlines() if f"{call.name}(" in line][-1]
        assert str(out) in last or "aside" in how, last  # of two threads, either may come to the number first
        assert_none_or_whole(out, whole, *([old] if old else []))
        for name in content(out).keys() - whole.keys() - old.keys():
            assert name.endswith(".partial") or name in ("unfinished.json", LOCK_NAME), (call, name)
        seqprep.chunk(small(out, format), overwrite=overwrite, storage=QuickStorage())
        assert content(out) == whole, call
        shutil.rmtree(own)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(kill, calls[sample]))


@pytest.mark.parametrize("format", FORMATS)
def test_some_calls(tmp_path: Path, format: str) -> None:
    every_kill(tmp_path, format, slice(4, None, 12))


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_every_call(tmp_path: Path, format: str) -> None:
    every_kill(tmp_path, format, slice(None))


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_every_call_of_an_overwriting_run(tmp_path: Path, format: str) -> None:
    every_kill(
        tmp_path, format, slice(None, 24), "overwrite"
    )  # up to the first shard; from there it is a run as any other


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_calls_of_two_threads(tmp_path: Path, format: str) -> None:
    every_kill(tmp_path, format, slice(None, None, 3), "aside")


def test_a_run_whose_main_process_alone_is_killed(tmp_path: Path) -> None:
    """Its workers may write on for a moment; the next run waits for them and isn't disturbed."""
    config = small(tmp_path / "out", output__shard_size=20_000)
    config["source"] |= {"sequences": 150, "features": 10}
    seqprep.chunk({**config, "output": {**config["output"], "path": str(tmp_path / "model")}})
    whole = content(tmp_path / "model")
    process = subprocess.Popen(command(config, 2), env=environment(), stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("out/*.idx"))) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    seqprep.chunk(config)
    assert content(tmp_path / "out") == whole
