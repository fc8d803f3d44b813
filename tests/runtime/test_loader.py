"""What a loader reads, counts and tells, and the memory that it reads into."""

from __future__ import annotations

import logging
import os
import pickle
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import seqprep
from seqprep import Loader
from seqprep.errors import ClosedError, CorruptError
from seqprep.runtime import reporting
from seqprep.runtime.ranges import BatchReader
from seqprep.shards import read_sidecar
from tests.execution.small import QUICK, small

from .conftest import our_threads
from .resumable import plain

pytestmark = pytest.mark.usefixtures("bounded")


def made(folder: Path) -> Path:
    """Some thirty batches, whose data is too large to be held in memory; labels aren't."""
    config = small(folder / "out", output__shard_size=100_000)
    config["source"] |= {"sequences": 20, "features": 200}
    return seqprep.chunk(config, storage=QUICK).path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("loader"))


# -- what is read --


def test_only_the_keys_that_are_asked_for_are_read(path: Path) -> None:
    read = {}
    with Loader(path) as loader:
        whole = [plain(batch) for batch in loader]
        read["all"] = loader.metrics().bytes
    for key in ("data", "classes"):
        with Loader(path, keys=[key]) as loader:
            assert list(loader.keys) == [key]
            for batch, expected in zip(loader, whole, strict=True):
                own = plain(batch)
                assert own == {name: expected[name] for name in own}
                assert {name.partition("/")[0] for name in own} == {key, "seq_idx", "seq_tag"}
            read[key] = loader.metrics().bytes
    assert read["data"] + read["classes"] == read["all"]
    assert min(read.values()) > 0


@pytest.mark.parametrize("threads", [0, 2])
def test_any_batch_by_its_number(path: Path, threads: int) -> None:
    with Loader(path) as loader:
        whole = [plain(batch) for batch in loader]
    with Loader(path, shuffle=True, rank=1, world_size=3, threads=threads) as loader:
        iterator = iter(loader)
        next(iterator)
        for number in (5, 0, len(whole) - 1, -1):
            assert plain(loader.batch(number)) == whole[number]
        assert loader.state_dict() == loader.state_at(1)  # it moves nothing
        for number in (len(whole), -len(whole) - 1):
            with pytest.raises(IndexError, match=f"batch {number} of {len(whole)}"):
                loader.batch(number)


@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("world_size", [1, 3])
def test_a_single_batch_for_many(tmp_path: Path, threads: int, world_size: int) -> None:
    config = small(tmp_path / "out", batch__max_frames=100_000, output__shard_size=10**6)
    path = seqprep.chunk(config, storage=QUICK).path
    steps = {"pad": [1] * world_size, "none": [1] + [0] * (world_size - 1), "drop": [int(world_size == 1)] * world_size}
    for even, expected in steps.items():
        found = []
        for rank in range(world_size):
            with Loader(path, rank=rank, world_size=world_size, even=even, threads=threads, shuffle=True) as loader:  # type: ignore[arg-type]
                found.append([len(list(loader)) for _ in range(2)])
                assert loader.epoch == 2
        assert found == [[steps, steps] for steps in expected]


# -- verification --


@pytest.mark.parametrize(
    ("verify", "notices"), [("always", [True, True]), ("first", [True, False]), ("never", [False, False])]
)
@pytest.mark.parametrize("late", [False, True])
def test_when_checksums_are_compared(tmp_path: Path, verify: Any, notices: list[bool], late: bool) -> None:
    """Data that changes before the first epoch, or before the second."""
    path = made(tmp_path)
    with Loader(path, verify=verify) as loader:
        epochs = [0, 1]
        if late:
            list(loader)
            epochs = [1]
        damage_all_data(path)
        for epoch in epochs:
            loader.load_state_dict(loader.state_dict() | {"epoch": epoch, "position": 0})
            if notices[epoch]:
                with pytest.raises(CorruptError, match=r"shard-.*: batch \d+, key 'data': bytes \d+ to \d+ differ"):
                    list(loader)
            else:
                assert len(list(loader)) == len(loader)


def damage_all_data(path: Path) -> None:
    for shard in path.glob("*.h5"):
        sidecar = read_sidecar(shard)
        content = bytearray(shard.read_bytes())
        for offset in sidecar.offsets["data"].tolist():
            content[offset] ^= 1
        shard.write_bytes(content)


# -- copies and forks --


@pytest.mark.parametrize("taken", [0, 3, None])
def test_a_pickled_loader_goes_on_where_it_was(path: Path, taken: int | None) -> None:
    options: dict[str, Any] = {"keys": ["data"], "shuffle": "window:2", "seed": 3, "rank": 1, "world_size": 2,
                               "even": "drop", "threads": 2, "prefetch": 3, "verify": "first"}  # fmt: skip
    with Loader(path, **options) as loader:
        iterator = iter(loader)
        for _ in range(len(loader) if taken is None else taken):
            next(iterator)
        content = pickle.dumps(loader)
        with pickle.loads(content) as copy:
            assert copy.state_dict() == loader.state_dict()
            assert copy._arguments() == loader._arguments()
            rest = [plain(batch) for batch in iterator] or [plain(batch) for batch in loader]
            assert [plain(batch) for batch in copy] == rest
            assert rest
    with pytest.raises(ClosedError, match="closed"):
        pickle.dumps(loader)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("threads", [0, 2])
def test_a_forked_child_reads_on_with_a_loader_of_its_parent(path: Path, threads: int) -> None:
    with Loader(path, threads=threads, shuffle=True) as loader:
        whole = [plain(batch) for batch in loader]
        loader.load_state_dict(loader.state_dict() | {"epoch": 0})
        iterator = iter(loader)
        first = next(iterator)
        state = loader.state_dict()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking where threads run
            child = os.fork()
        if not child:
            os._exit(_in_the_child(loader, iterator, state, whole))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [plain(first), *map(plain, iterator)] == whole


def _in_the_child(loader: Loader, iterator: Any, state: Any, whole: list[Any]) -> int:
    try:
        try:
            next(iterator)
        except ClosedError as error:
            assert "belongs to the process that made it" in str(error)  # noqa: PT017
        else:
            return 2
        loader.load_state_dict(state)
        assert [plain(batch) for batch in loader] == whole[1:]
        loader.close()
        assert not our_threads()
    except BaseException:  # noqa: BLE001 - the parent's pytest may not go on in here
        return 1
    return 0


# -- restoring --


@pytest.mark.parametrize("shuffle", [False, True, "shards", "window:2"])
def test_restoring_reads_nothing_but_what_comes(path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: Any) -> None:
    """The same at the start of an epoch, at its end, and in a late epoch."""
    read, numbers = BatchReader.read, []

    def noted(self: BatchReader, batch: int, *rest: Any) -> Any:
        numbers.append(batch)
        return read(self, batch, *rest)

    monkeypatch.setattr(BatchReader, "read", noted)
    with Loader(path, shuffle=shuffle, threads=0) as loader:
        start, count = loader.state_dict(), len(loader)
        for epoch in (0, 10**9):
            order = loader.order.whole(epoch).tolist()
            for position in (0, 1, count // 2, count - 1):
                numbers.clear()
                loader.load_state_dict(start | {"epoch": epoch, "position": position})
                assert numbers == []
                next(iter(loader))
                assert numbers == [order[position]]


# -- memory --


def test_arrays_are_aligned_and_their_memory_is_used_again(path: Path) -> None:
    with Loader(path, prefetch=2) as loader:
        places = set()
        for _ in range(3):
            for batch in loader:
                for name in set(batch) - {"seq_tag"}:
                    assert batch[name].ctypes.data % 64 == 0
                places.add(batch["data"].ctypes.data)
                del batch
        assert len(places) <= 2 + 2  # prefetched, in hand, asked for
        assert loader.metrics().unpooled_buffers == 0


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_who_keeps_batches_is_not_stuck(path: Path, threads: int) -> None:
    with Loader(path, prefetch=2, threads=threads) as loader:
        kept, copies = [], []
        for _ in range(2):
            for batch in loader:
                kept.append(batch)
                copies.append(plain(batch))
        assert loader.metrics().unpooled_buffers >= len(kept) - 4 - threads
        assert [plain(batch) for batch in kept] == copies
        assert len({batch["data"].ctypes.data for batch in kept}) == len(kept)
        kept.clear()
        del batch
        before = loader.metrics().unpooled_buffers
        for batch in loader:
            del batch
        assert loader.metrics().unpooled_buffers == before  # the pool's are back


# -- what is counted and told --


@pytest.mark.parametrize("threads", [0, 2])
def test_counts_are_exact(path: Path, threads: int) -> None:
    with Loader(path, threads=threads) as loader:
        rows = frames = size = 0
        for batches, batch in enumerate(loader, 1):
            rows += len(batch["seq_idx"])
            frames += int(batch["data/size0"].sum())
            size += batch["data"].nbytes + batch["classes"].nbytes
            if batches in (1, 5):
                found = loader.metrics()
                assert (found.batches, found.rows, found.frames, found.bytes) == (batches, rows, frames, size)
        found = loader.metrics()
        assert (found.batches, found.rows, found.frames, found.bytes) == (len(loader), rows, frames, size)
        assert (found.ready, found.shards_opened) == (0, len(list(path.glob("*.h5"))))
        assert found.consumer_wait_seconds > 0
        assert (found.reader_wait_seconds == 0) or threads


def test_waiting_is_counted_where_it_happens(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = BatchReader.read

    def slow(self: BatchReader, *rest: Any) -> Any:
        time.sleep(0.01)
        return read(self, *rest)

    with Loader(path, prefetch=1) as loader:
        for _ in loader:
            time.sleep(0.01)
        assert loader.metrics().reader_wait_seconds > 0.005 * len(loader)
    monkeypatch.setattr(BatchReader, "read", slow)
    with Loader(path) as loader:
        list(loader)
        assert loader.metrics().consumer_wait_seconds > 0.005 * len(loader) / 2


def test_a_function_is_told_at_intervals_and_at_the_end_of_each_epoch(path: Path) -> None:
    told: list[tuple[int, int]] = []

    def tell(metrics: Any) -> None:
        told.append((metrics.batches, threading.get_ident()))

    with Loader(path, on_metrics=(tell, 1e-9)) as loader:
        count = len(loader)
        list(loader)
        assert [batches for batches, _ in told] == [*range(1, count + 1), count]
    told.clear()
    with Loader(path, on_metrics=(tell, 1000)) as loader:
        for _ in range(2):
            list(loader)
        assert told == [(count, threading.get_ident()), (2 * count, threading.get_ident())]


def test_a_function_that_raises_is_reported_once_and_stops_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def fails(metrics: Any) -> None:
        calls.append(metrics)
        raise RuntimeError("the logger is away")

    with Loader(path, on_metrics=(fails, 1e-9)) as loader, caplog.at_level(logging.WARNING, "seqprep.loader"):
        assert len(list(loader)) == len(loader) == len(calls) - 1
    (record,) = caplog.records
    assert "on_metrics raised RuntimeError: the logger is away" in record.getMessage()
    assert record.exc_info is not None


@pytest.mark.parametrize(("waited", "worked", "warns"), [(4, 0, False), (6, 0, True), (6, 23, True), (6, 25, False)])
def test_a_consumer_that_keeps_waiting_is_warned_of_once_in_an_epoch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, waited: int, worked: int, warns: bool
) -> None:
    now = 0.0
    monkeypatch.setattr(reporting, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now)}))
    reporter = reporting.Reporter("shards/train", lambda: None, None)
    with caplog.at_level(logging.WARNING, "seqprep.loader"):
        for epoch in range(2):
            reporter.begin(epoch)
            now += worked
            for _ in range(waited):
                now += 1
                reporter.waited(1.0)
    assert len(caplog.records) == 2 * warns
    for epoch, record in enumerate(caplog.records):
        told = record.getMessage()
        assert f"shards/train: epoch {epoch}: batches were waited for in " in told
        assert "raise threads or prefetch" in told
