import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from seqprep import Loader
from seqprep.errors import ConfigError, SeqprepError
from seqprep.runtime.tensorflow_measuring import measure_staging
from seqprep.tensorflow import stage

from .conftest import MakeDataset

pytestmark = pytest.mark.usefixtures("bounded", "every_stage_was_unstaged")

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


# -- content --


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


def test_an_empty_epoch() -> None:
    staged = stage([])
    assert list(staged) == list(staged) == []


# -- failing --


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


# -- measuring --


def test_measures_itself(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset()) as loader:
        measured = measure_staging(loader, least_step_seconds=0.001)
        assert measured.batches == len(loader)
        assert 0 <= measured.blocked_share < 1
        assert measured.step_seconds >= 0.001
        assert min(measured.read_seconds, measured.stage_seconds, measured.unstage_seconds) > 0


needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="no GPU here")]


@pytest.mark.parametrize("depth", [pytest.param(depth, marks=needs_gpu) for depth in (1, 2, 5)])
def test_gpu_gives_what_the_loader_gives(make_dataset: MakeDataset, depth: int) -> None:
    with Loader(make_dataset(), prefetch=2) as loader, stage(loader, depth=depth) as staged:
        assert staged.device.endswith("GPU:0")
        expected = [plain(batch) for batch in loader]
        for _ in range(3):
            kept = []
            for batch in staged:
                assert batch["data"].device.endswith("GPU:0")
                kept.append(batch)
            assert [plain(batch) for batch in kept] == expected
