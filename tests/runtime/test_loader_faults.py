"""What goes wrong under a loader: files that change between opening and reading, threads that raise, consumers that stop,
interrupts. Each ends in an error that names the place, or in a clean end; never in a hang.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seqprep
from seqprep import Loader
from seqprep.errors import ClosedError, CorruptError, DatasetError
from seqprep.runtime.ranges import BatchReader
from tests.descriptors import needs_listing, open_descriptors
from tests.execution.small import QUICK, small

from .conftest import MakeDataset, our_threads, wait_for_threads, within
from .resumable import plain

pytestmark = pytest.mark.usefixtures("bounded")

KINDS = [("hdf5", "none"), ("tfrecord", "none"), ("hdf5", "gzip"), ("tfrecord", "gzip")]


def made(folder: Path, output_format: str, compression: str, seed: int = 1) -> Path:
    """A dataset of a few shards."""
    config = small(folder, output_format, output__compression=compression, order__seed=seed)
    config["source"] |= {"sequences": 40, "features": 8}
    config["output"]["shard_size"] = 12_000
    return seqprep.chunk(config, storage=QUICK).path


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.001)


# -- files --


def delete(shard: Path) -> None:
    shard.unlink()


def cut(shard: Path) -> None:
    os.truncate(shard, shard.stat().st_size // 3)


def empty(shard: Path) -> None:
    os.truncate(shard, 0)


def flip(shard: Path) -> None:
    content = bytearray(shard.read_bytes())
    for place in range(len(content) // 3, len(content), 40):
        content[place] ^= 1
    shard.write_bytes(content)


def replace(shard: Path) -> None:
    """By a whole one of another dataset."""
    other = made(shard.parent.parent / "other", "hdf5" if shard.suffix == ".h5" else "tfrecord", "none", seed=7)
    shutil.copyfile(sorted(other.glob(f"*{shard.suffix}"))[0], shard)


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("change", [delete, cut, empty, flip, replace])
@pytest.mark.parametrize(("output_format", "compression"), KINDS)
def test_a_shard_that_changes_between_opening_and_reading(
    tmp_path: Path, output_format: str, compression: str, change: Callable[[Path], None], threads: int
) -> None:
    path = made(tmp_path / "out", output_format, compression)
    shard = sorted(path.glob("shard-*.[ht]*"))[-1]
    with Loader(path, threads=threads) as loader:
        whole = [plain(batch) for batch in loader]
    kept = shard.read_bytes()
    with Loader(path, threads=threads, prefetch=1) as loader:
        iterator = iter(loader)
        given = [plain(next(iterator))]
        change(shard)
        with within(), pytest.raises(DatasetError, match=shard.name):
            given.extend(plain(batch) for batch in iterator)
        assert given == whole[: len(given)]
        assert len(given) < len(whole)
        assert not our_threads()
        with pytest.raises(ClosedError, match=r"call iter|closed"):
            next(iterator)
    shard.write_bytes(kept)
    with Loader(path, threads=threads) as loader:
        assert [plain(batch) for batch in loader] == whole


@pytest.mark.parametrize("what", ["sidecar", "index"])
def test_what_is_opened_already_may_go(tmp_path: Path, what: str) -> None:
    """An index is read when the loader is opened, a sidecar when the first batch of its shard is."""
    path = made(tmp_path / "out", "hdf5", "none")
    with Loader(path) as loader:
        whole = [plain(batch) for batch in loader]
        gone = path / "index.json" if what == "index" else sorted(path.glob("*.idx"))[0]
        gone.unlink()
        assert [plain(batch) for batch in loader] == whole
    with pytest.raises(DatasetError, match=gone.name), Loader(path) as loader:
        list(loader)


def test_a_sidecar_that_changes_before_it_is_read(tmp_path: Path) -> None:
    path = made(tmp_path / "out", "hdf5", "none")
    sidecar = sorted(path.glob("*.idx"))[1]
    with Loader(path) as loader:
        content = bytearray(sidecar.read_bytes())
        content[-9] ^= 4
        sidecar.write_bytes(content)
        with pytest.raises(CorruptError, match=f"{sidecar.name}.*repair"):
            list(loader)


REFUSALS = [
    (errno.ENOENT, "No such file or directory; seqprep repair makes it again"),
    (errno.EMFILE, r"Too many open files; allow more open files \(ulimit -n\)"),
    (errno.EACCES, "Permission denied; check who may read it"),
    (errno.EIO, "Input/output error; check the disk"),
]


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize(("number", "message"), REFUSALS)
@pytest.mark.parametrize(("output_format", "compression"), KINDS)
def test_a_shard_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output_format: str, compression: str, number: int, message: str,
    threads: int,
) -> None:  # fmt: skip
    path = made(tmp_path / "out", output_format, compression)
    shard = sorted(path.glob("shard-*.[ht]*"))[-1]
    opens = os.open

    def refuses(name: Any, *rest: Any, **options: Any) -> int:
        if name == str(shard):
            raise OSError(number, os.strerror(number), name)
        return opens(name, *rest, **options)

    with Loader(path, threads=threads) as loader:
        monkeypatch.setattr(os, "open", refuses)
        with pytest.raises(DatasetError, match=rf"{shard.name}: batch 0 can't be read: {message}"):
            list(loader)
        with pytest.raises(DatasetError, match=rf"{shard.name}: batch \d+ can't be read: {message}"):
            loader.batch(-1)
        monkeypatch.undo()
        assert len(list(loader)) > 1  # goes on, once it can be opened


# -- threads and consumers --


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_thread_that_raises(make_dataset: MakeDataset, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    read, failing = BatchReader.read, True

    def fails(self: BatchReader, batch: int, *rest: Any) -> Any:
        if failing and batch == 5:
            raise RuntimeError("a bug of ours")
        return read(self, batch, *rest)

    monkeypatch.setattr(BatchReader, "read", fails)
    with Loader(make_dataset(), threads=threads) as loader:
        for _ in range(2):
            iterator = iter(loader)
            assert [next(iterator)["seq_idx"].shape[0] > 0 for _ in range(5)] == [True] * 5
            with within(), pytest.raises(RuntimeError, match="a bug of ours") as caught:
                next(iterator)
            assert any("shard-0000" in note and "batch" in note for note in caught.value.__notes__)
            assert not our_threads()
            assert loader.state_dict()["position"] == 5
        failing = False
        assert sum(1 for _ in loader) == len(loader)


@needs_listing
@pytest.mark.parametrize("taken", [0, 1, 5])
def test_a_consumer_that_stops_early(make_dataset: MakeDataset, taken: int) -> None:
    path = make_dataset()
    with Loader(path) as loader:
        list(loader)
    before = open_descriptors()
    for _ in range(5):
        iterator = iter(Loader(path, threads=2, shuffle=True))
        for _ in range(taken):
            next(iterator)
        del iterator
    gc.collect()
    assert not wait_for_threads()
    assert open_descriptors() <= before


def test_close_with_full_queues(make_dataset: MakeDataset) -> None:
    loader = Loader(make_dataset(), prefetch=3, threads=2)
    iterator = iter(loader)
    kept = next(iterator)
    copy = plain(kept)
    until(lambda: loader.metrics().ready >= 3)
    with within():
        loader.close()
    assert not our_threads()
    assert plain(kept) == copy
    with pytest.raises(ClosedError, match="closed"):
        next(iterator)


def test_close_with_empty_queues_while_the_consumer_waits(
    make_dataset: MakeDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, inside, go = BatchReader.read, threading.Event(), threading.Event()

    def slow(self: BatchReader, batch: int, *rest: Any) -> Any:
        if batch >= 2:
            inside.set()
            assert go.wait(20)
        return read(self, batch, *rest)

    monkeypatch.setattr(BatchReader, "read", slow)
    loader, ended = Loader(make_dataset(), threads=1), []

    def consume() -> None:
        try:
            ended.append(len(list(loader)))
        except ClosedError as error:
            ended.append(str(error))  # type: ignore[arg-type]

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert inside.wait(20)
    threading.Timer(0.1, go.set).start()
    with within():
        loader.close()
        consumer.join(20)
    assert not consumer.is_alive()
    assert "closed" in str(ended[0])
    assert not our_threads()


# -- signals, to real processes --

ITERATES = """
    import signal, sys, time
    from seqprep import Loader

    loader = Loader(sys.argv[1], threads=2, shuffle=True)
    def take(batches, pause):
        count = 0
        try:
            for batch in batches:
                count += 1
                if count == 3 and pause:
                    print("reading", flush=True)
                time.sleep(pause)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        return count
"""
SOURCES = {
    "loader": "source = loader",
    "tensorflow": "import seqprep.tensorflow\n    source = seqprep.tensorflow.stage(loader, device='/CPU:0')",
    "torch": "import seqprep.torch\n    source = seqprep.torch.stage(loader, device='cpu')",
    "jax": "import seqprep.jax\n    source = seqprep.jax.stage(loader)",
}

ENDING_SECONDS = (15.0, 2.0)
"""For a process with a framework, whose own end counts, and for one without."""


def started(path: Path, source: str, ending: str) -> subprocess.Popen[str]:
    """A child that iterates, and has said so."""
    code = textwrap.dedent(ITERATES + "\n    " + SOURCES[source] + "\n" + ending)
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "reading\n", child.communicate()[1]
    return child


@pytest.fixture(
    params=["loader", *(pytest.param(name, marks=pytest.mark.slow) for name in ("tensorflow", "torch", "jax"))]
)
def source(request: pytest.FixtureRequest) -> str:
    if request.param != "loader":
        pytest.importorskip(request.param)
    return request.param  # type: ignore[no-any-return]


def test_ctrl_c_and_on(make_dataset: MakeDataset, source: str) -> None:
    path = make_dataset()
    child = started(path, source, """
    take(source, 0.05)
    print(take(source, 0), len(loader), flush=True)  # goes on, to the end of the epoch, and over the next one
    print(take(source, 0), flush=True)
    """)  # fmt: skip
    time.sleep(0.06)
    assert child.stdout is not None
    with within():
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    lines = out.splitlines()
    given, whole = map(int, lines[0].split())
    assert 0 < given <= whole
    assert int(lines[1]) == whole


def test_ctrl_c_ends_a_program_that_does_not_catch_it(make_dataset: MakeDataset, source: str) -> None:
    child = started(make_dataset(), source, """
    for number, batch in enumerate(source):
        if number == 3:
            print("reading", flush=True)
        time.sleep(0.05)
    """)  # fmt: skip
    with within(ENDING_SECONDS[source == "loader"]):
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert child.returncode in (-signal.SIGINT, 1)
    assert "KeyboardInterrupt" in err.splitlines()[-1]


@pytest.mark.parametrize("handled", [False, True])
def test_sigterm(make_dataset: MakeDataset, source: str, handled: bool) -> None:
    handler = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))" if handled else "pass"
    child = started(make_dataset(), source, f"""
    {handler}
    take(source, 5)
    """.replace("take(source, 5)", "take(source, 0.05)\n    take(source, 5)"))  # fmt: skip
    with within(ENDING_SECONDS[source == "loader"]):
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=60)
    assert child.returncode == (7 if handled else -signal.SIGTERM), err


# -- under stages --


@pytest.mark.parametrize("framework", ["tensorflow", "torch", "jax"])
@pytest.mark.parametrize("change", [delete, cut, flip, replace])
def test_a_shard_that_changes_under_a_stage(
    request: pytest.FixtureRequest, tmp_path: Path, framework: str, change: Callable[[Path], None]
) -> None:
    pytest.importorskip(framework)
    if framework == "tensorflow":
        request.getfixturevalue("every_stage_was_unstaged")
    stage = importlib.import_module(f"seqprep.{framework}").stage
    path = made(tmp_path / "out", "hdf5", "none")
    shard = sorted(path.glob("*.h5"))[-1]
    with Loader(path) as loader:
        whole = len(loader)
    with Loader(path, prefetch=1) as loader, stage(loader, depth=1) as staged:
        iterator = iter(staged)
        next(iterator)
        change(shard)
        given = 1
        with pytest.raises(DatasetError, match=shard.name):  # noqa: PT012 - what comes before the error counts
            for _ in iterator:
                given += 1
        assert given < whole
        assert staged.state_dict()["position"] == given
        assert next(iterator, None) is None
        assert not wait_for_threads()
