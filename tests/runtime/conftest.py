import contextlib
import gc
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import seqprep
from seqprep.runtime.tensorflow_area import NAMES

SECONDS = 60


@pytest.fixture
def bounded() -> Iterator[None]:
    """Fails a test that hangs, and holds that no thread of ours outlives it."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"the test took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    left = wait_for_threads()
    assert not left, f"threads left: {left}"


@pytest.fixture
def no_unstage_without_its_stage() -> Iterator[list[tuple[str, str]]]:
    """Holds that TensorFlow's Unstage never came before its Stage; gives the calls of both, each with its area's name."""
    tf = pytest.importorskip("tensorflow")
    calls: list[tuple[str, str]] = []
    stage, unstage = tf.raw_ops.Stage, tf.raw_ops.Unstage

    def noted_stage(**options: Any) -> Any:
        made = stage(**options)
        calls.append(("Stage", options["shared_name"]))
        return made

    def noted_unstage(**options: Any) -> Any:
        calls.append(("Unstage", options["shared_name"]))
        return unstage(**options)

    tf.raw_ops.Stage, tf.raw_ops.Unstage = noted_stage, noted_unstage
    try:
        yield calls
        gc.collect()
        assert not wait_for_threads()
    finally:
        tf.raw_ops.Stage, tf.raw_ops.Unstage = stage, unstage
    assert all(staged >= 0 for staged in _staged(calls)), "an Unstage without its Stage"


def _staged(calls: list[tuple[str, str]]) -> Iterator[int]:
    """After each call, the batches in its area."""
    staged: Counter[str] = Counter()
    for op, name in calls:
        staged[name] += 1 if op == "Stage" else -1
        yield staged[name]


@pytest.fixture
def every_stage_was_unstaged(no_unstage_without_its_stage: list[tuple[str, str]]) -> Iterator[None]:
    """Holds also that both were called equally often, that no staging area that was ever used holds anything, and that all
    their names are free again.
    """
    tf = pytest.importorskip("tensorflow")
    yield
    gc.collect()
    assert not wait_for_threads()
    ops = Counter(op for op, _ in no_unstage_without_its_stage)
    assert ops["Stage"] == ops["Unstage"], "something is staged still"
    assert NAMES.free == NAMES.made
    for number in range(NAMES.made):
        assert int(tf.raw_ops.StageSize(dtypes=[tf.float32], shared_name=f"seqprep-{number}")) == 0


@contextlib.contextmanager
def within(seconds: float = 2.0) -> Iterator[None]:
    """Holds that something ends in time. What it is used on takes milliseconds: it is no measurement."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("seqprep")]


def wait_for_threads(seconds: float = 3.0) -> list[str]:
    """The threads of ours that are still there after a while."""
    until = time.monotonic() + seconds
    while our_threads() and time.monotonic() < until:
        time.sleep(0.002)
    return our_threads()


def write_corpus(path: Path, sequences: int = 30, features: int = 5, seed: int = 0) -> None:
    """Writes dense inputs with a class per frame, flat as RETURNN does."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 60, sequences)
    frames = int(lengths.sum())
    with h5py.File(path, "w") as file:
        file["inputs"] = random.standard_normal((frames, features)).astype(np.float32)
        file["targets/data/classes"] = random.integers(0, 7, frames).astype(np.int32)
        file["seqLengths"] = np.stack([lengths, lengths], axis=1).astype(np.int32)
        file["seqTags"] = [f"Sprecher {number}/größe".encode() for number in range(sequences)]


MakeDataset = Callable[..., Path]


@pytest.fixture
def make_dataset(tmp_path: Path) -> MakeDataset:
    """Makes a dataset of several shards; with `sequences`, of that many recordings."""

    def make(output_format: str = "hdf5", sequences: int = 30) -> Path:
        source, output = tmp_path / f"corpus{sequences}.hdf", tmp_path / f"{output_format}{sequences}"
        write_corpus(source, sequences)
        seqprep.chunk(
            {
                "source": {"type": "hdf5", "path": str(source)},
                "chunk": {"size": 20, "step": 10},
                "context": 2,
                "batch": {"max_frames": 240, "max_sequences": 8},
                "order": {"by": "random", "seed": 3},
                "output": {"path": str(output), "format": output_format, "shard_size": 5000},
            }
        )
        return output

    return make
