"""A loader that runs for long: nothing grows from epoch to epoch, and what is dropped leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import seqprep
from tests.execution.small import QUICK

needs_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")

SOAK = """
import gc, os, sys, threading
from seqprep import Loader

def memory():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def held():
    return len(os.listdir("/proc/self/fd")), threading.active_count()

path, epochs = sys.argv[1], int(sys.argv[2])
with Loader(path, shuffle=sys.argv[3] == "shuffled", threads=2) as loader:
    assert len(loader) >= 1000, len(loader)
    for epoch in range(epochs):
        count = sum(len(batch["data"]) > 0 for batch in loader)
        assert count == len(loader)
        if epoch == 1:
            start, least, most = held(), memory(), memory()
        elif epoch > 1:
            assert held() == start, (epoch, held(), start)
            least, most = min(least, memory()), max(most, memory())
    print("memory:", (most - least) / 1e6, "MB over", epochs, "epochs")
    assert most - least < 5e6
before = held()
for number in range(int(sys.argv[4])):
    loader = Loader(path, shuffle=True, threads=1 + number % 3)
    iterator = iter(loader)
    for _ in range(len(loader) // 2):
        next(iterator)
    del loader, iterator
gc.collect()
deadline = 1000
while threading.active_count() > before[1] and deadline:
    threading.Event().wait(0.01)
    deadline -= 1
gc.collect()
assert held() <= before, (held(), before)
"""


def soak(path: Path, epochs: int, order: str, dropped: int) -> str:
    done = subprocess.run([sys.executable, "-c", SOAK, str(path), str(epochs), order, str(dropped)],
                          capture_output=True, text=True, timeout=600, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 small batches in some twenty shards."""
    return seqprep.chunk(
        {
            "source": {"type": "synthetic", "sequences": 500, "features": 4, "mean_frames": 60, "max_frames": 200},
            "chunk": {"size": 10, "step": 10},
            "batch": {"max_sequences": 3},
            "output": {"path": str(tmp_path_factory.mktemp("soak") / "out"), "shard_size": "25kB"},
        },
        storage=QUICK,
    ).path


@needs_proc
def test_some_epochs(path: Path) -> None:
    soak(path, 12, "shuffled", 5)


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("order", ["in order", "shuffled"])
def test_two_hundred_epochs_and_a_hundred_dropped_loaders(path: Path, order: str) -> None:
    print(soak(path, 200, order, 100))
