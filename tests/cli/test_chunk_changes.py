"""What `seqprep chunk` says of sequences that it cut, filled up or left out; and settings in seconds."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from pathlib import Path

import h5py
import numpy as np
import pytest

import seqprep

CONFIG = """
source: {type: hdf5, path: corpus.hdf}
keys:
  data: {}
  classes: {rate: 3, tolerance: 1, on_mismatch: trim, pad_value: -1}
chunk: {size: 6, step: 3, tail: shift, jitter: false}
context: {left: 2, right: 1, pad: reflect}
batch: {max_sequences: 4}
output: {path: out}
"""


def run(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seqprep", "chunk", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Sequences of 10, 9, 4 and 0 frames; the first lacks a label, the second has one too many."""
    lengths = np.array([[10, 3], [9, 4], [4, 2], [0, 0]])
    with h5py.File(tmp_path / "corpus.hdf", "w") as file:
        file["inputs"] = np.arange(23, dtype=np.float32)[:, None]
        file["targets/data/classes"] = np.arange(9, dtype=np.int32)
        file["seqLengths"] = lengths.astype(np.int32)
        file["seqTags"] = np.array([b"a", b"b", b"c", b"d"])
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def test_changes_are_told(corpus: Path) -> None:
    told = run(corpus, "config.yaml").stdout.splitlines()
    assert told[1:] == [
        "  2 sequences trimmed (data -1 frames, classes -1 frames)",
        "  3 short chunks dropped",
        "  1 sequences gave no row",
    ]
    again = json.loads(run(corpus, "config.yaml", "--json").stdout)
    assert again["already_complete"]
    assert again["changes"] == {
        "sequences_trimmed": 2,
        "sequences_padded": 0,
        "sequences_dropped": 0,
        "frames_trimmed": {"data": 1, "classes": 1},
        "frames_padded": {},
        "chunks_dropped_short": 3,
        "chunks_shifted": 0,
        "chunks_dropped_context": 0,
        "frames_lost_to_shift": {},
        "sequences_without_rows": 1,
    }
    with seqprep.Loader(corpus / "out") as loader:
        (batch, rest) = loader
    assert batch["seq_idx"].tolist() + rest["seq_idx"].tolist() == [0, 0, 1, 1, 2]
    assert batch["data"][0, :, 0].tolist() == [2, 1, 0, 1, 2, 3, 4, 5, 6]
    assert batch["data/length"].tolist() == [9] * 4
    assert rest["classes"].tolist() == [[7, 8]]


def test_padding_and_dropping_are_told(corpus: Path) -> None:
    padded = run(corpus, "config.yaml", "--set", "keys.classes.on_mismatch=pad", "--set", "chunk={size: 3, tail: drop}")
    assert padded.stdout.splitlines()[1:] == [
        "  2 sequences padded (data +1 frames, classes +1 frames)",
        "  3 short chunks dropped",
        "  1 sequences gave no row",
    ]
    with seqprep.Loader(corpus / "out") as loader:
        batch = loader.batch(0)
    assert batch["classes"][:, 0].tolist() == [0, 1, 2, 3]
    dropped = run(
        corpus, "config.yaml", "--set", "keys.classes.on_mismatch=drop", "--set", "context.pad=drop", "--overwrite",
        "--set", "chunk={size: 3}", "--set", "context.left=1", "--set", "context.right=0", "--json",
    )  # fmt: skip
    changes = json.loads(dropped.stdout)["changes"]
    assert changes["sequences_dropped"] == 2
    assert changes["chunks_dropped_context"] == 1
    assert changes["sequences_without_rows"] == 3


def test_beyond_the_tolerance_the_run_ends(corpus: Path) -> None:
    error = run(corpus, "config.yaml", "--set", "keys={data: {}, classes: {rate: 3}}", code=1).stderr
    assert error.splitlines() == [
        "seqprep: error: sequence 'a': key 'classes' has 3 frames where 'data' has 10, which doesn't fit rate 3 with align "
        "ceil (2 such sequences); correct keys.classes.rate or align, or the source, or allow it with "
        "keys.classes.tolerance and on_mismatch"
    ]
    assert not (corpus / "out").exists()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A second and a half at 8 kHz."""
    with wave.open(str(tmp_path / "a.wav"), "wb") as audio:
        audio.setnchannels(1)
        audio.setsampwidth(2)
        audio.setframerate(8000)
        audio.writeframes(np.random.default_rng(1).integers(-999, 999, 12000).astype("<i2").tobytes())
    return tmp_path


def test_seconds_on_the_shell(recording: Path) -> None:
    flags = [
        "a.wav",
        "out",
        "--chunk-size",
        "0.5s",
        "--chunk-step",
        "250ms",
        "--context",
        "10ms",
        "--max-frames",
        "1min",
    ]
    run(recording, *flags)
    with seqprep.Loader(recording / "out") as loader:
        batch = loader.batch(0)
    assert batch["data/start"].tolist() == [0, 2000, 4000, 6000, 8000, 10000]
    assert batch["data/core"].tolist() == [[80, 4000]] * 5 + [[80, 2000]]
    assert batch["data/size0"].max() == 4160


def test_seconds_of_features(recording: Path) -> None:
    flags = ["a.wav", "out", "--max-sequences", "9", "--set", "source.features={frame_shift_ms: 12.5}"]
    run(recording, *flags, "--chunk-size", "0.5s")
    with seqprep.Loader(recording / "out") as loader:
        assert loader.batch(0)["data/core"][0].tolist() == [0, 40]
    error = run(recording, *flags, "--chunk-size", "0.33s", code=2).stderr
    assert error == (
        "seqprep: error: --chunk-size: chunk.size is 0.33s: 26.4 frames of 'data' at 80 per second; "
        "use 26 (0.325s) or 27 (0.3375s)\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--chunk-size", "five"], "--chunk-size: chunk.size is 'five': it has to be a whole number of frames"),
        (["--chunk-size", "0"], "--chunk-size: chunk.size is 0: it has to be at least 1"),
        (["--context", "-1"], "--context: context.left is -1: it has to be at least 0"),
        (
            ["--chunk-size", "9" * 30],
            "--chunk-size: chunk.size is 999999999999999999999999999999: no setting has a number",
        ),
        (["--pad", "edge"], "--pad: context.pad is 'edge' but there is no context; set context.left or context.right"),
        (["--set", "x={b: 1, b: 2}"], "--set x={b: 1, b: 2}: x.b is set twice; keep one of them"),
    ],
)
def test_wrong_flags(tmp_path: Path, flags: list[str], message: str) -> None:
    error = run(tmp_path, "synthetic", "out", "--max-sequences", "9", *flags, code=2).stderr
    assert f"seqprep: error: {message}" in error
