"""The command line, through real processes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest

from seqprep.cli.main import COMMANDS, main

CHUNK = [
    "chunk",
    "synthetic",
    "out",
    "--max-frames",
    "3000",
    "--chunk-size",
    "50",
    "--chunk-step",
    "25",
    "--context",
    "5",
]
SMALL = ["--set", "source.sequences=60", "--shard-size", "1MB", "--order", "random"]


def run(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "seqprep", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def said(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """As `run`, in this process: for what is the same there, and is done often."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
        warnings.catch_warnings(), pytest.raises(SystemExit) as ended,
    ):  # fmt: skip
        main(list(arguments))
    assert ended.value.code == code, err.getvalue()
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("format", ["hdf5", pytest.param("tfrecord", marks=pytest.mark.slow)])
def test_from_nothing_to_a_verified_dataset(tmp_path: Path, format: str) -> None:
    summary = json.loads(run(tmp_path, *CHUNK, *SMALL, "--format", format, "--json").stdout)
    assert summary["sequences"] == 60
    assert summary["shards"] > 1
    assert not summary["already_complete"]
    again = json.loads(run(tmp_path, *CHUNK, *SMALL, "--format", format, "--json").stdout)
    assert again["already_complete"]
    shown = json.loads(run(tmp_path, "inspect", "out", "--batch", "1", "--json").stdout)
    assert shown["dataset"]["rows"] == summary["rows"]
    assert shown["batch"]["data"]["shape"][2] == 40
    assert "padding" in run(tmp_path, "inspect", "out").stdout
    verified = json.loads(run(tmp_path, "verify", "out", "--json").stdout)
    assert verified == {"shards": summary["shards"], "bytes": summary["bytes"], "compared": 0, "faults": []}
    bench = json.loads(run(tmp_path, "bench", "out", "--no-staging", "--rounds", "1", "--json").stdout)
    assert [reading["name"] for reading in bench["readings"]] == ["raw read limit", "loader", "loader, verified"]
    (tmp_path / "config.yaml").write_text("source: {type: synthetic, sequences: 9}\nbatch: {max_frames: 3000}\n")
    live = json.loads(run(tmp_path, "bench", "config.yaml", "--no-staging", "--rounds", "1", "--json").stdout)
    names = ["memory copy limit", "stream, without threads", "stream"]
    assert [reading["name"] for reading in live["readings"]] == names
    assert live["batches"] > 1


@pytest.mark.parametrize("format", ["hdf5", pytest.param("tfrecord", marks=pytest.mark.slow)])
def test_workers_and_interruptions_leave_the_same_bytes(tmp_path: Path, format: str) -> None:
    arguments = [*CHUNK, *SMALL, "--format", format, "--set", "source.sequences=250"]
    run(tmp_path, *arguments, "--set", "output.path=one", "--workers", "1")
    run(tmp_path, *arguments, "--set", "output.path=four", "--workers", "4")
    assert content(tmp_path / "one") == content(tmp_path / "four")
    command = [sys.executable, "-m", "seqprep", *arguments, "--set", "output.path=killed", "--workers", "1"]
    for kill in (signal.SIGKILL, signal.SIGINT):
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        done = len(list(tmp_path.glob("killed/*.idx")))
        while (
            len(list(tmp_path.glob("killed/*.idx"))) < done + 2
            and time.monotonic() < deadline
            and process.poll() is None
        ):
            time.sleep(0.001)
        process.send_signal(kill)
        process.communicate(timeout=60)
        assert process.returncode in (-signal.SIGKILL, 130, 0)
        if process.returncode:
            assert "no finished dataset" in run(tmp_path, "inspect", "killed", code=1).stderr
    run(tmp_path, *arguments, "--set", "output.path=killed", "--workers", "2")
    assert content(tmp_path / "one") == content(tmp_path / "killed")


def write_hdf(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["inputs"] = np.zeros((50, 3), np.float32)
        file["seqLengths"] = np.array([[20], [30]], np.int32)
        file["seqTags"] = np.array([b"a", b"b"])


def test_what_goes_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    import soundfile

    write_hdf(tmp_path / "good.hdf")
    (tmp_path / "cut.hdf").write_bytes((tmp_path / "good.hdf").read_bytes()[:1500])
    (tmp_path / "empty").mkdir()
    (tmp_path / "silent").mkdir()
    soundfile.write(tmp_path / "silent" / "none.wav", np.zeros(0), 8000)
    (tmp_path / "file").write_text("")
    budget = ["--max-frames", "100"]
    cases = [
        (["chunk", "missing.hdf", "out", *budget], 1, "missing.hdf: no such file or folder"),
        (["chunk", "empty", "out", *budget], 1, "empty: the folder is empty"),
        (["chunk", "empty", "out", *budget, "--source", "audio"], 1, "empty: the folder is empty"),
        (["chunk", "cut.hdf", "out", *budget], 1, "cut.hdf: can't be read as HDF5"),
        (["chunk", "silent", "out", *budget], 1, "on_empty"),
        (["chunk", "good.hdf", "out", "--max-frame", "5"], 2, "--max-frame"),
        (["chunk", "good.hdf", "out"], 2, "batch.max_frames"),
        (["chunk", "good.hdf", "out", *budget, "--set", "chnk.size=5"], 2, "did you mean 'chunk'"),
        (["chunk", "good.hdf", "file", *budget], 1, "file: can't be written"),
        (["chunk", "good.hdf", "/proc/seqprep", *budget], 1, "/proc/seqprep: can't be written"),
        (["chunk", "good.hdf", "x" * 300, *budget], 1, "xxx: can't be written"),
        (["chnk"], 2, "did you mean 'chunk'"),
        (["verify", "nowhere"], 1, "nowhere: no such folder"),
    ]
    for arguments, code, message in cases:
        error = said(tmp_path, *arguments, code=code).stderr
        assert message in error, (arguments, error)
        assert "Traceback" not in error
        if code == 1:
            assert len(error.splitlines()) == 1, error
    assert not (tmp_path / "out").exists()


def test_another_configuration_is_refused_and_shown(tmp_path: Path) -> None:
    write_hdf(tmp_path / "good.hdf")
    run(tmp_path, "chunk", "good.hdf", "out", "--max-frames", "100")
    before = content(tmp_path / "out")
    error = run(tmp_path, "chunk", "good.hdf", "out", "--max-frames", "50", code=1).stderr
    assert "there: 100" in error
    assert "now: 50" in error
    assert content(tmp_path / "out") == before
    run(tmp_path, "chunk", "good.hdf", "out", "--max-frames", "50", "--overwrite")
    assert content(tmp_path / "out") != before


@pytest.mark.parametrize("format", ["hdf5", pytest.param("tfrecord", marks=pytest.mark.slow)])
def test_damage_is_found_and_named(tmp_path: Path, format: str) -> None:
    run(tmp_path, *CHUNK, *SMALL, "--format", format)
    shard = sorted((tmp_path / "out").glob("shard-00000*"))[0]
    shard = next(
        path
        for path in (shard, shard.with_suffix(".h5"), shard.with_suffix(".tfrecord"))
        if path.exists() and path.suffix != ".idx"
    )
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    found = run(tmp_path, "verify", "out", code=1)
    assert f"{shard.name}: batch" in found.stdout
    assert "1 faults" in found.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example(tmp_path: Path, command: str) -> None:
    assert "Example:" in said(tmp_path, command, "--help").stdout


def test_version_and_environment(tmp_path: Path) -> None:
    assert run(tmp_path, "--version").stdout.startswith("seqprep 0.")
    assert os.path.exists(sys.executable)
