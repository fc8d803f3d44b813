"""What every stage built on seqprep.runtime.staging does, whatever the framework; `plain` is one without any."""

import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from seqprep import Loader
from seqprep.errors import ClosedError, ConfigError, CorruptError, DependencyError, MismatchError
from seqprep.runtime.staging import Stage
from tests.descriptors import needs_listing, open_descriptors

from .conftest import MakeDataset, our_threads, wait_for_threads, within
from .resumable import plain

pytestmark = pytest.mark.usefixtures("bounded")

Batch = dict[str, Any]
MakeStage = Callable[..., Stage]
FRAMEWORKS = ("tensorflow", "torch", "jax")


class PlainArea:
    """Keeps batches as they are, and counts what it holds."""

    areas: ClassVar[list["PlainArea"]] = []

    def __init__(self) -> None:
        self.held, self.released = 0, False
        self.areas.append(self)

    def check(self) -> None: ...

    def put(self, batch: Any) -> Batch:
        assert not self.released
        self.held += 1
        return dict(batch)

    def take(self, entry: Batch) -> Batch:
        self.held -= 1
        return entry

    def release(self) -> None:
        assert self.held == 0
        self.released = True


def plain_stage(source: Any, *, depth: int = 2, **options: Any) -> Stage:
    return Stage(source, device="host", depth=depth, area_of=PlainArea, **options)


@pytest.fixture(params=["plain", *FRAMEWORKS])
def stage(request: pytest.FixtureRequest) -> Iterator[MakeStage]:
    if request.param == "plain":
        PlainArea.areas.clear()
        yield plain_stage
        gc.collect()
        assert not wait_for_threads()
        assert all(area.released and area.held == 0 for area in PlainArea.areas)
    else:
        pytest.importorskip(request.param)
        if request.param == "tensorflow":
            request.getfixturevalue("every_stage_was_unstaged")
        yield importlib.import_module(f"seqprep.{request.param}").stage


def small_batches(count: int, rows: int = 3) -> list[Batch]:
    return [{"x": np.full((rows, 4), number, np.float32), "tag": [f"t{number}"] * rows} for number in range(count)]


def numbers(batches: Any) -> list[int]:
    return [int(batch["x"][0, 0]) for batch in batches]


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.001)


def address(array: Any) -> int:
    """Where a framework's array begins in memory."""
    if hasattr(array, "data_ptr"):
        return int(array.data_ptr())
    if hasattr(array, "unsafe_buffer_pointer"):
        return int(array.unsafe_buffer_pointer())
    return int(np.asarray(memoryview(array)).ctypes.data)


# -- content --


@pytest.mark.parametrize("output_format", ["hdf5", "tfrecord"])
@pytest.mark.parametrize("depth", [1, 3])
def test_gives_what_the_loader_gives_in_its_order(
    stage: MakeStage, make_dataset: MakeDataset, output_format: str, depth: int
) -> None:
    with Loader(make_dataset(output_format), shuffle=True, seed=5) as loader, stage(loader, depth=depth) as staged:
        expected = [[{name: np.array(value) for name, value in batch.items()} for batch in loader] for _ in range(2)]
        loader.load_state_dict(loader.state_dict() | {"epoch": 0, "position": 0})
        assert len(staged) == len(expected[0]) > 10
        for epoch in expected:
            for batch, arrays in zip(staged, epoch, strict=True):
                assert list(batch) == list(arrays)
                for name, array in arrays.items():
                    if name == "seq_tag":
                        assert list(batch[name]) == list(array)
                        continue
                    got = np.asarray(batch[name])
                    narrow = {"int64": "int32"} if type(batch[name]).__module__.startswith("jax") else {}
                    assert got.dtype.name == narrow.get(array.dtype.name, array.dtype.name)
                    np.testing.assert_array_equal(got, array)
        metrics = staged.metrics()
        assert metrics.batches == metrics.staged == 2 * len(staged)
        assert metrics.source.batches == 4 * len(staged)
        assert metrics.ready == 0


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_on_the_cpu_it_is_the_loaders_memory(make_dataset: MakeDataset, framework: str) -> None:
    pytest.importorskip(framework)
    seen: list[int] = []

    class Spy:
        def __iter__(self) -> Iterator[Any]:
            for batch in loader:
                seen.append(batch["data"].ctypes.data)
                yield batch

    with Loader(make_dataset()) as loader:
        kept = list(importlib.import_module(f"seqprep.{framework}").stage(Spy(), device="cpu"))
        assert [address(batch["data"]) for batch in kept] == seen
        assert len(set(seen)) == len(seen)


def test_memory_is_left_alone_while_anything_is_on_it(stage: MakeStage, make_dataset: MakeDataset) -> None:
    """Keeps every array of an epoch, or one small part of each, while the loader goes round and round."""
    with Loader(make_dataset(), prefetch=1, threads=2, shuffle=True) as loader, stage(loader, depth=2) as staged:
        kept = list(staged)
        parts = [batch["data"][1:, ::2] for batch in staged]
        copies = [plain(batch) for batch in kept]
        parts_then = [np.asarray(part).copy() for part in parts]
        for _ in range(3):
            for batch in staged:
                del batch
        assert staged.metrics().source.unpooled_buffers > 0
        assert [plain(batch) for batch in kept] == copies
        for part, then in zip(parts, parts_then, strict=True):
            np.testing.assert_array_equal(part, then)


def test_memory_is_used_again_when_nothing_is_on_it(stage: MakeStage, make_dataset: MakeDataset) -> None:
    with Loader(make_dataset(), prefetch=8) as loader, stage(loader, depth=2) as staged:
        for _ in range(3):
            for batch in staged:
                np.asarray(batch["data"]).sum()
        metrics = staged.metrics().source
        assert metrics.batches == 3 * len(loader) > 50
        assert metrics.unpooled_buffers < 20  # kept ones would make it all but the first ten


def test_keeps_the_order_of_names_and_leaves_the_rest_alone(stage: MakeStage) -> None:
    values = {"b": np.ones(1, np.float32), "tag": np.array(["x"], object), "a": np.zeros(1), "day": ["Monday"]}
    (batch,) = stage([values])
    assert list(batch) == ["b", "tag", "a", "day"]
    assert batch["tag"] is values["tag"]
    assert batch["day"] is values["day"]
    assert float(batch["b"][0]) == 1
    assert list(stage([{}])) == [{}]


def test_stages_only_what_is_named(stage: MakeStage, make_dataset: MakeDataset) -> None:
    names = ["classes/size0", "data", "seq_tag"]
    with Loader(make_dataset()) as loader, stage(loader, names=names) as staged:
        expected = [plain(batch) for batch in loader]
        for batch, wanted in zip(staged, expected, strict=True):
            assert list(batch) == names
            assert plain(batch) == {name: wanted[name] for name in names}
        with pytest.raises(ConfigError, match="names: the batches hold no 'clases'; did you mean 'classes'"):
            next(iter(stage(loader, names=["data", "clases"])))
        with pytest.raises(ConfigError, match=r"names is 'data': it has to be a sequence of names, such as \['data'\]"):
            stage(loader, names="data")


# -- going round, and stopping --


def test_iterates_again(stage: MakeStage) -> None:
    staged = stage(small_batches(7))
    for _ in range(3):
        assert numbers(staged) == list(range(7))
    assert len(staged) == 7
    iterator = iter(staged)
    assert numbers(iterator) == list(range(7))
    assert next(iterator, None) is None
    assert list(stage([])) == []


@pytest.mark.parametrize("taken", [0, 1, 4, 100])
def test_an_abandoned_iteration_leaves_no_thread(stage: MakeStage, make_dataset: MakeDataset, taken: int) -> None:
    loader = Loader(make_dataset(sequences=8))
    iterator = iter(stage(loader, depth=3))
    for _ in range(min(taken, len(loader))):
        next(iterator)
    del iterator
    assert not wait_for_threads()


def test_abandoning_does_not_advance_the_epoch(stage: MakeStage, make_dataset: MakeDataset) -> None:
    with Loader(make_dataset(sequences=4), shuffle=True) as loader, stage(loader, depth=4) as staged:
        first, second = ([plain(batch) for batch in staged] for _ in range(2))
        assert first != second
        third = iter(staged)
        begun = plain(next(third))
        until(lambda: loader.epoch == 3)  # read ahead to the end
        del third
        assert staged.state_dict()["epoch"] == 2
        assert plain(next(iter(staged))) == begun


def test_another_iter_ends_the_first(stage: MakeStage) -> None:
    staged = stage(small_batches(9))
    first = iter(staged)
    next(first)
    assert numbers(iter(staged)) == list(range(9))
    with pytest.raises(ClosedError, match="call iter"):
        next(first)


@needs_listing
def test_many_stages_half_read_and_dropped(stage: MakeStage, make_dataset: MakeDataset) -> None:
    path = make_dataset(sequences=12)
    with Loader(path) as loader, stage(loader) as staged:
        list(staged)  # whatever a framework opens for good
    before = open_descriptors()
    for number in range(40):
        loader = Loader(path)
        iterator = iter(stage(loader, depth=1 + number % 4))
        for _ in range(len(loader) // 2):
            next(iterator)
        del iterator, loader
    assert not wait_for_threads()
    assert open_descriptors() <= before


@pytest.mark.parametrize("taken", [0, 3])
def test_close_with_full_queues(stage: MakeStage, make_dataset: MakeDataset, taken: int) -> None:
    with Loader(make_dataset()) as loader:
        staged = stage(loader, depth=2)
        iterator = iter(staged)
        kept = [next(iterator) for _ in range(taken)]
        copies = [plain(batch) for batch in kept]
        until(lambda: staged.metrics().ready == 2)
        state = staged.state_dict()
        with within():
            staged.close()
            staged.close()
        assert not our_threads()
        with pytest.raises(ClosedError, match="call iter"):
            next(iterator)
        with pytest.raises(ClosedError, match="stage is closed"):
            iter(staged)
        assert staged.state_dict() == state == loader.state_at(taken)
        assert staged.metrics().ready == 0
        list(loader)
        assert [plain(batch) for batch in kept] == copies


class Waiting:
    """Gives some batches, then waits until it's closed."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches, self.closed = iter(batches), threading.Event()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        for batch in self.batches:
            return batch
        self.closed.wait()
        raise RuntimeError("closed")

    def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize("staged_before", [0, 2])
def test_close_with_empty_queues_while_the_source_waits(stage: MakeStage, staged_before: int) -> None:
    staged = stage(Waiting(small_batches(staged_before)), depth=4)
    iterator = iter(staged)
    assert numbers([next(iterator) for _ in range(staged_before)]) == list(range(staged_before))
    staged.close()
    assert not our_threads()
    with pytest.raises(ClosedError, match="call iter"):
        next(iterator)


def test_close_returns_though_the_source_cannot_be_closed(stage: MakeStage) -> None:
    go_on = threading.Event()

    def batches() -> Iterator[Batch]:
        yield from small_batches(1)
        go_on.wait()

    staged = stage(batches(), depth=4)
    iterator = iter(staged)
    assert numbers([next(iterator)]) == [0]
    with within():
        staged.close()
    assert our_threads()
    go_on.set()


def test_close_while_the_consumer_waits(stage: MakeStage) -> None:
    staged = stage(Waiting(small_batches(1)))
    iterator = iter(staged)
    next(iterator)
    caught: list[BaseException] = []

    def consume() -> None:
        try:
            next(iterator)
        except BaseException as error:  # noqa: BLE001 - looked at below
            caught.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    time.sleep(0.1)
    with within():
        staged.close()
        consumer.join(5)
    assert not consumer.is_alive()
    assert [type(error) for error in caught] == [ClosedError]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_and_stages_anew(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset(), shuffle=True) as loader, plain_stage(loader, depth=3) as staged:
        whole = [plain(batch) for batch in staged]
        staged.load_state_dict(loader.state_dict() | {"epoch": 0})
        iterator = iter(staged)
        first = [plain(next(iterator)) for _ in range(2)]
        until(lambda: staged.metrics().ready == 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking where threads run
            child = os.fork()
        if not child:
            os._exit(_staged_in_the_child(staged, iterator, whole))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert first + [plain(batch) for batch in iterator] == whole
    gc.collect()
    assert not wait_for_threads()


def _staged_in_the_child(staged: Stage, iterator: Any, whole: list[Any]) -> int:
    try:
        try:
            next(iterator)
        except ClosedError as error:
            assert "a fork" in str(error)  # noqa: PT017
        else:
            return 2
        assert [plain(batch) for batch in staged] == whole  # the epoch that was begun, from its start
        staged.close()
        assert not our_threads()
    except BaseException:  # noqa: BLE001 - the parent's pytest may not go on in here
        return 1
    return 0


def test_an_interrupt_ends_a_wait(stage: MakeStage) -> None:
    staged = stage(Waiting(small_batches(1)))
    iterator = iter(staged)
    next(iterator)
    threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        next(iterator)
    staged.close()
    assert not our_threads()


def test_closes_against_a_running_consumer(stage: MakeStage, make_dataset: MakeDataset) -> None:
    path = make_dataset(sequences=12)
    for delay in np.linspace(0, 0.02, 10):
        with Loader(path) as loader:
            staged, ends = stage(loader, depth=1), []

            def consume(staged: Stage = staged, ends: list[str] = ends) -> None:
                try:
                    for _ in staged:
                        pass
                    ends.append("end")
                except ClosedError:
                    ends.append("closed")

            consumer = threading.Thread(target=consume)
            consumer.start()
            time.sleep(delay)
            staged.close()
            consumer.join(5)
            assert not consumer.is_alive()
            assert ends in (["end"], ["closed"])
            assert ends == ["closed"] or staged.metrics().batches == len(loader)


@pytest.mark.parametrize("framework", [pytest.param("tensorflow", marks=pytest.mark.slow), *FRAMEWORKS[1:]])
def test_leaves_quietly_with_the_interpreter(make_dataset: MakeDataset, framework: str) -> None:
    pytest.importorskip(framework)
    script = (
        f"import seqprep, sys\nfrom seqprep.{framework} import stage\n"
        "iterator = iter(stage(seqprep.Loader(sys.argv[1]), depth=3))\nnext(iterator)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(make_dataset())], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("depth", [1, 4])
def test_never_more_than_depth_staged(stage: MakeStage, depth: int) -> None:
    pulled = 0

    def batches() -> Iterator[Batch]:
        nonlocal pulled
        for batch in small_batches(12):
            pulled += 1
            yield batch

    staged = stage(batches(), depth=depth)
    for left, _ in enumerate(staged, 1):
        until(lambda: staged.metrics().ready == min(depth, 12 - left))  # noqa: B023 - called at once
        time.sleep(0.005)
        assert staged.metrics().ready <= depth
        assert pulled <= left + depth


# -- failing --


def test_an_error_of_the_source_comes_as_it_is(stage: MakeStage) -> None:
    def broken_source() -> Iterator[Batch]:
        yield from small_batches(3)
        raise KeyError("shard 3 is gone")

    iterator = iter(stage(broken_source(), depth=2))
    assert numbers([next(iterator) for _ in range(3)]) == [0, 1, 2]
    with pytest.raises(KeyError, match="shard 3 is gone") as caught:
        next(iterator)
    assert "broken_source" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert next(iterator, None) is None


def test_a_flipped_byte_is_named_and_what_came_before_is_given(stage: MakeStage, make_dataset: MakeDataset) -> None:
    path = make_dataset()
    with Loader(path) as loader:
        target = len(loader) // 2
        expected = [plain(batch) for batch in loader][:target]
        needle = loader.batch(target)["data"].tobytes()
    (shard,) = [found for found in path.glob("*.h5") if needle in found.read_bytes()]
    content = bytearray(shard.read_bytes())
    content[content.index(needle) + 5] ^= 1
    shard.write_bytes(content)
    with Loader(path) as loader, stage(loader, depth=3) as staged:
        got = []
        with pytest.raises(CorruptError, match=rf"{shard.name}: batch \d+, key 'data': bytes \d+ to \d+ differ"):  # noqa: PT012
            for batch in staged:
                got.append(list(batch["seq_tag"]))  # noqa: PERF401 - what comes before the error counts
        assert got == [list(batch["seq_tag"]) for batch in expected]
        assert staged.state_dict() == loader.state_at(target)


def test_refuses_no_depth(stage: MakeStage) -> None:
    with pytest.raises(ConfigError, match="depth is 0: at least 1"):
        stage([], depth=0)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_says_which_extra_is_missing(monkeypatch: pytest.MonkeyPatch, framework: str) -> None:
    monkeypatch.setitem(sys.modules, framework, None)
    with pytest.raises(DependencyError, match=rf"pip install 'seqprep\[{framework}\]'"):
        importlib.import_module(f"seqprep.{framework}").stage([])


# -- state --


def test_loading_a_state_in_the_middle(stage: MakeStage, make_dataset: MakeDataset) -> None:
    with Loader(make_dataset()) as loader, stage(loader) as staged:
        batches = [plain(batch) for batch in staged]
        iterator = iter(staged)
        for _ in range(3):
            next(iterator)
        state = staged.state_dict()
        for _ in range(3):
            next(iterator)
        staged.load_state_dict(state)
        with pytest.raises(ClosedError, match="call iter"):
            next(iterator)
        assert [plain(batch) for batch in staged] == batches[3:]
        with pytest.raises(MismatchError, match="another dataset"):
            staged.load_state_dict(state | {"fingerprint": "other"})


def test_sources_without_state_say_so(stage: MakeStage) -> None:
    staged = stage(small_batches(2))
    with pytest.raises(ConfigError, match="list keeps no state"):
        staged.state_dict()
    with pytest.raises(ConfigError, match="list keeps no state"):
        staged.load_state_dict({})
    assert staged.metrics().source is None


def test_waiting_is_counted(stage: MakeStage) -> None:
    def slow() -> Iterator[Batch]:
        for batch in small_batches(5):
            time.sleep(0.02)
            yield batch

    staged = stage(slow())
    for _ in staged:
        pass
    assert staged.metrics().blocked_seconds > 0.02


def test_a_closed_loader_is_named(stage: MakeStage, make_dataset: MakeDataset) -> None:
    loader = Loader(make_dataset())
    staged = stage(loader)
    next(iter(staged))
    loader.close()
    with pytest.raises(ClosedError, match="the loader is closed"):
        iter(staged)
