import gc
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from seqprep import Loader
from seqprep.errors import ClosedError, ConfigError, DependencyError, MismatchError, SeqprepError
from seqprep.runtime.tensorflow_area import NAMES
from seqprep.runtime.tensorflow_measuring import measure_staging
from seqprep.tensorflow import Stage, stage

from .conftest import MakeDataset, our_threads, wait_for_threads

pytestmark = pytest.mark.usefixtures("bounded")

Batch = dict[str, Any]


def plain(batch: Batch) -> dict[str, Any]:
    """Values that can be compared, and that don't keep the batch."""
    return {name: np.array(value).tolist() for name, value in batch.items()}


def small_batches(count: int, rows: int = 3) -> list[Batch]:
    return [
        {"x": np.full((rows, 4), number, np.float32), "tag": np.array([f"t{number}"] * rows, object)}
        for number in range(count)
    ]


def numbers(batches: Any) -> list[int]:
    return [int(batch["x"][0, 0]) for batch in batches]


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def areas_are_empty_after() -> Iterator[None]:
    """No staging area that was ever used holds anything, and all names are free again."""
    yield
    gc.collect()
    assert not wait_for_threads()
    assert NAMES.free == NAMES.made
    for number in range(NAMES.made):
        assert int(tf.raw_ops.StageSize(dtypes=[tf.float32], shared_name=f"seqprep-{number}")) == 0


# -- content --


@pytest.mark.parametrize("output_format", ["hdf5", "tfrecord"])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_gives_what_the_loader_gives_in_its_order(make_dataset: MakeDataset, output_format: str, depth: int) -> None:
    with Loader(make_dataset(output_format), shuffle=True, seed=5) as loader, stage(loader, depth=depth) as staged:
        expected = [[{name: np.array(value) for name, value in batch.items()} for batch in loader] for _ in range(2)]
        loader.load_state_dict(loader.state_dict() | {"epoch": 0, "position": 0})
        assert len(staged) == len(expected[0]) > 10
        for epoch in expected:
            count = 0
            for batch, arrays in zip(staged, epoch, strict=True):
                assert list(batch) == list(arrays)
                for name, array in arrays.items():
                    if name == "seq_tag":
                        assert list(batch[name]) == list(array)
                        continue
                    assert isinstance(batch[name], tf.Tensor)
                    assert batch[name].dtype == array.dtype
                    np.testing.assert_array_equal(batch[name], array)
                count += 1
            assert count == len(epoch)
        metrics = staged.metrics()
        assert metrics.batches == metrics.staged == 2 * len(staged)
        assert metrics.source.batches == 4 * len(staged)
        assert metrics.ready == 0
        assert metrics.blocked_seconds > 0


def test_tensors_on_the_cpu_use_the_arrays_memory(make_dataset: MakeDataset) -> None:
    seen: dict[int, int] = {}

    class Spy:
        def __iter__(self) -> Iterator[Batch]:
            for number, batch in enumerate(loader):
                seen[number] = batch["data"].ctypes.data
                yield batch

    with Loader(make_dataset()) as loader, stage(Spy(), device="CPU:0") as staged:
        for number, batch in enumerate(staged):
            assert np.asarray(memoryview(batch["data"])).ctypes.data == seen[number]


def odd_arrays() -> dict[str, np.ndarray]:
    read_only = np.zeros((4, 3), np.float32)
    read_only.flags.writeable = False
    memory = np.zeros(4096, np.uint8)
    start = -memory.ctypes.data % 64
    values = np.arange(24, dtype=np.float32)
    unaligned = memory[start + 4 : start + 100].view(np.float32).reshape(4, 6)
    unaligned[...] = values.reshape(4, 6)
    return {
        "read-only": read_only,
        "unaligned": unaligned,
        "transposed": values.reshape(6, 4).T,
        "strided": values.reshape(4, 6)[:, ::2],
        "broadcast": np.broadcast_to(values[:4, None], (4, 5)),
        "big-endian": values.reshape(4, 6).astype(">f4"),
        "bfloat16": values.reshape(4, 6).astype(tf.bfloat16.as_numpy_dtype),
        "no frames": np.zeros((4, 0, 3), np.float32),
        "no rows": np.zeros((0, 3), np.int32),
        "scalar": np.array(3, np.int64),
        **{
            f"{dtype}": np.ones((4, 3), dtype) for dtype in ("?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "d", "F")
        },
    }


def test_arrays_that_cannot_be_imported_are_copied() -> None:
    arrays = odd_arrays()
    for batch in stage([arrays] * 3):
        for name, array in arrays.items():
            assert isinstance(batch[name], tf.Tensor)
            np.testing.assert_array_equal(batch[name], array)
            if array.ndim > 1:
                np.testing.assert_array_equal(batch[name][1:], array[1:])  # unaligned imports would end the process
            assert batch[name].dtype.as_numpy_dtype == array.dtype.newbyteorder("=")


def test_what_is_no_number_stays_on_the_host() -> None:
    values = {
        "str": np.array(["a"]),
        "bytes": np.array([b"a"]),
        "object": np.array(["a"], object),
        "date": np.array(["2020-01-01"], "M8[D]"),
        "record": np.zeros(1, [("a", "f4")]),
        "list": [1, 2],
    }
    (batch,) = stage([values])
    assert batch.keys() == values.keys()
    for name, value in values.items():
        assert batch[name] is value
    assert list(stage([{}])) == [{}]


def test_keeps_the_order_of_names() -> None:
    values = {"b": np.ones(1), "tag": np.array(["x"], object), "a": np.zeros(1)}
    (batch,) = stage([values])
    assert list(batch) == ["b", "tag", "a"]
    assert float(batch["b"][0]) == 1


# -- going round, and stopping --


def test_iterates_again() -> None:
    staged = stage(small_batches(7))
    for _ in range(3):
        assert numbers(staged) == list(range(7))
    assert len(staged) == 7
    iterator = iter(staged)
    assert numbers(iterator) == list(range(7))
    assert next(iterator, None) is None
    assert next(iterator, None) is None


def test_an_empty_epoch() -> None:
    staged = stage([])
    assert list(staged) == list(staged) == []


@pytest.mark.parametrize("taken", [0, 1, 2, 6, 7])
def test_an_abandoned_iterator_leaves_no_thread(make_dataset: MakeDataset, taken: int) -> None:
    loader = Loader(make_dataset(sequences=8))
    staged = stage(loader, depth=3)
    iterator = iter(staged)
    for _ in range(min(taken, len(loader))):
        next(iterator)
    del iterator
    assert not wait_for_threads()


def test_abandoning_does_not_advance_the_epoch(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset(sequences=4), shuffle=True) as loader, stage(loader, depth=4) as staged:
        first = [plain(batch) for batch in staged]
        second = [plain(batch) for batch in staged]
        assert first != second
        assert len(first) <= 6
        third = iter(staged)
        begun = plain(next(third))
        until(lambda: loader.epoch == 3)  # read ahead to the end
        del third
        assert staged.state_dict()["epoch"] == 2
        assert plain(next(iter(staged))) == begun


def test_another_iter_ends_the_first() -> None:
    staged = stage(small_batches(9))
    first = iter(staged)
    next(first)
    second = iter(staged)
    assert numbers(second) == list(range(9))
    with pytest.raises(ClosedError, match="call iter"):
        next(first)


@pytest.mark.parametrize("taken", [0, 3])
def test_close_in_the_middle(make_dataset: MakeDataset, taken: int) -> None:
    with Loader(make_dataset()) as loader:
        staged = stage(loader, depth=2)
        iterator = iter(staged)
        kept = [next(iterator) for _ in range(taken)]
        until(lambda: staged.metrics().ready == 2)
        state = staged.state_dict()
        started = time.monotonic()
        staged.close()
        staged.close()
        assert time.monotonic() - started < 2
        assert not our_threads()
        with pytest.raises(ClosedError, match="call iter"):
            next(iterator)
        with pytest.raises(ClosedError, match="stage is closed"):
            iter(staged)
        assert staged.state_dict() == state == loader.state_at(taken)
        assert staged.metrics().ready == 0
        assert len(kept) == taken
        assert [len(batch["seq_idx"]) for batch in loader][:taken] == [len(batch["seq_idx"]) for batch in kept]


class Waiting:
    """Gives some batches, then waits until it's closed; or for good, without a close."""

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
def test_close_while_the_source_waits(staged_before: int) -> None:
    staged = stage(Waiting(small_batches(staged_before)), depth=4)
    iterator = iter(staged)
    until(lambda: staged.metrics().ready == staged_before)
    started = time.monotonic()
    staged.close()
    assert time.monotonic() - started < 0.5
    assert not our_threads()
    del iterator


def test_close_while_a_source_that_cannot_be_closed_waits() -> None:
    go_on = threading.Event()

    def batches() -> Iterator[Batch]:
        yield from small_batches(1)
        go_on.wait()

    staged = stage(batches(), depth=4)
    iterator = iter(staged)
    assert numbers([next(iterator)]) == [0]
    started = time.monotonic()
    staged.close()
    assert time.monotonic() - started < 2
    go_on.set()


def test_close_while_the_consumer_waits() -> None:
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
    staged.close()
    consumer.join(2)
    assert not consumer.is_alive()
    assert [type(error) for error in caught] == [ClosedError]


def test_an_interrupt_ends_a_wait() -> None:
    staged = stage(Waiting(small_batches(1)))
    iterator = iter(staged)
    next(iterator)
    interrupt = threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        next(iterator)
    staged.close()
    assert not our_threads()


def test_closes_against_a_running_consumer(make_dataset: MakeDataset) -> None:
    path = make_dataset()
    for delay in np.linspace(0, 0.02, 20):
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
            complete = staged.metrics().batches == len(loader)
            assert ends == ["end"] if complete else ["closed"]


def test_fifty_stages_opened_and_dropped(make_dataset: MakeDataset) -> None:
    made = NAMES.made
    with Loader(make_dataset()) as loader:
        for number in range(50):
            iterator = iter(stage(loader, depth=1 + number % 4))
            for _ in range(number % 5):
                next(iterator)
            del iterator
            if number % 3:
                assert not wait_for_threads()
    assert not wait_for_threads()
    assert NAMES.made - made < 20  # those that had ended by the time


def test_leaves_quietly_with_the_interpreter(make_dataset: MakeDataset) -> None:
    script = (
        "import seqprep, sys, time\nfrom seqprep.tensorflow import stage\n"
        "iterator = iter(stage(seqprep.Loader(sys.argv[1]), depth=3))\nnext(iterator)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(make_dataset())], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


# -- failing --


def test_an_error_of_the_source_comes_as_it_is() -> None:
    def broken_source() -> Iterator[Batch]:
        yield from small_batches(3)
        raise KeyError("shard 3 is gone")

    iterator = iter(stage(broken_source(), depth=2))
    assert numbers([next(iterator) for _ in range(3)]) == [0, 1, 2]
    with pytest.raises(KeyError, match="shard 3 is gone") as caught:
        next(iterator)
    assert "broken_source" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert next(iterator, None) is None


def test_an_error_of_the_loader_comes_as_it_is(make_dataset: MakeDataset) -> None:
    path = make_dataset()
    shard = sorted(path.glob("*.h5"))[4]
    shard.write_bytes(bytes(255 - byte for byte in shard.read_bytes()))
    with Loader(path) as loader, stage(loader) as staged:
        left = 0
        with pytest.raises(SeqprepError, match=shard.name):  # noqa: PT012 - where it fails is of interest
            for _ in staged:
                left += 1
        assert 0 < left < len(loader)
        assert staged.state_dict() == loader.state_dict() == loader.state_at(left)


def test_an_error_of_staging_reaches_the_consumer() -> None:
    class Odd(np.ndarray):
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("not today")

    memory = np.zeros(4096, np.uint8)
    start = -memory.ctypes.data % 64
    array = memory[start : start + 64].view(Odd)
    iterator = iter(stage([{"x": np.zeros((1, 1))}, {"x": array}]))
    next(iterator)
    with pytest.raises(BufferError, match="not today"):
        next(iterator)


def test_does_not_let_itself_be_traced() -> None:
    staged = stage(small_batches(2))
    iterator = iter(staged)

    @tf.function
    def traced() -> Any:
        return next(iterator)["x"]

    with pytest.raises(SeqprepError, match=r"inside a tf\.function"):
        traced()
    assert numbers(iterator) == [0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 0}, "depth is 0"),
        ({"device": "GPU:7"}, "'GPU:7', which isn't there; there are CPU:0"),
        ({"device": "CPU:1"}, "'CPU:1', which isn't there"),
        ({"device": "bogus"}, "device is 'bogus'"),
    ],
)
def test_refuses_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        stage([], **options)


def test_finds_the_device() -> None:
    assert stage([]).device.endswith("device:CPU:0")
    assert stage([], device="cpu").device == stage([], device="/device:CPU:0").device


def test_says_which_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(DependencyError, match=r"pip install 'seqprep\[tensorflow\]'"):
        stage([])


# -- state --


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "rank": 1, "world_size": 3, "even": "drop"}])
def test_state_is_that_of_the_loader_alone(make_dataset: MakeDataset, options: dict[str, Any]) -> None:
    path = make_dataset(sequences=12)
    with Loader(path, **options) as alone:
        states, batches = [alone.state_dict()], []
        for _ in range(2):  # epochs
            for batch in alone:
                batches.append(plain(batch))
                states.append(alone.state_dict())
            assert alone.state_dict() == states[-1]  # the last batch and the end are one position
    count = len(batches)
    with Loader(path, **options) as loader, stage(loader, depth=3) as staged:
        assert staged.state_dict() == states[0]
        taken = 0
        for _ in range(2):
            for batch in staged:
                assert plain(batch) == batches[taken]
                taken += 1
                assert staged.state_dict() == states[taken]
            assert staged.state_dict() == states[taken]
        assert taken == count > 3
    for taken in range(count + 1):
        with Loader(path, **options) as loader, stage(loader) as staged:
            staged.load_state_dict(states[taken])
            assert staged.state_dict() == states[taken]
            tail: list[Any] = []
            while len(tail) < count - taken:
                tail += [plain(batch) for batch in staged]
            assert tail[: count - taken] == batches[taken:]


def test_loading_a_state_in_the_middle(make_dataset: MakeDataset) -> None:
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


def test_sources_without_state_say_so() -> None:
    staged = stage(small_batches(2))
    with pytest.raises(ConfigError, match="list keeps no state"):
        staged.state_dict()
    with pytest.raises(ConfigError, match="list keeps no state"):
        staged.load_state_dict({})
    assert staged.metrics().source is None


# -- memory and depth --


def test_keeping_all_tensors_does_not_block(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset(), prefetch=1, threads=2) as loader, stage(loader, depth=4) as staged:
        expected = [plain(batch) for batch in loader]
        kept = list(staged)
        assert [plain(batch) for batch in kept] == expected
        assert staged.metrics().source.unpooled_buffers > 0


def test_dropped_tensors_give_their_buffers_back(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset(), prefetch=8) as loader, stage(loader, depth=2) as staged:
        for _ in range(3):
            for batch in staged:
                tf.reduce_sum(batch["data"])
        metrics = staged.metrics().source
        assert metrics.batches == 3 * len(loader) > 50
        assert metrics.unpooled_buffers < 20  # kept ones would make it all but the first ten


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_never_more_than_depth_staged(depth: int) -> None:
    pulled = 0

    def batches() -> Iterator[Batch]:
        nonlocal pulled
        for batch in small_batches(20):
            pulled += 1
            yield batch

    staged = stage(batches(), depth=depth)
    for left, _ in enumerate(staged, 1):
        until(lambda: staged.metrics().ready == min(depth, 20 - left))  # noqa: B023 - called at once
        time.sleep(0.005)
        assert staged.metrics().ready <= depth
        assert pulled <= left + depth


def test_measures_itself(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset()) as loader:
        measured = measure_staging(loader, least_step_seconds=0.001)
        assert measured.batches == len(loader)
        assert 0 <= measured.blocked_share < 1
        assert measured.step_seconds >= 0.001
        assert min(measured.read_seconds, measured.stage_seconds, measured.unstage_seconds) > 0


def test_waiting_is_counted() -> None:
    def slow() -> Iterator[Batch]:
        for batch in small_batches(5):
            time.sleep(0.02)
            yield batch

    staged = stage(slow())
    for _ in staged:
        pass
    assert 0.05 < staged.metrics().blocked_seconds < 1


def test_datasets_are_closed_with_their_folder(make_dataset: MakeDataset, tmp_path: Path) -> None:
    loader = Loader(make_dataset())
    staged = stage(loader)
    next(iter(staged))
    loader.close()
    with pytest.raises(ClosedError, match="the loader is closed"):
        iter(staged)
