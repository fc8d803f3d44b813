"""Data workers feed the staging of TensorFlow as a loader does."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from seqprep import DataWorkers
from seqprep.errors import ClosedError, ConfigError, WorkerError
from seqprep.runtime.tensorflow_area import NAMES
from seqprep.tensorflow import stage

from .conftest import our_threads
from .data_workers_helpers import Counting, endless, flat, taken, until

pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture(autouse=True)
def areas_are_empty_after() -> Iterator[None]:
    yield
    until(lambda: NAMES.free == NAMES.made)


@pytest.mark.parametrize("num_workers", [0, 3])
@pytest.mark.parametrize("depth", [1, 3])
def test_epochs_come_out_of_the_stage_whole(num_workers: int, depth: int) -> None:
    with (
        DataWorkers(Counting(200), batch_size=16, num_workers=num_workers) as workers,
        stage(workers, device="CPU:0", depth=depth) as staged,
    ):
        for epoch in range(1, 4):
            batches = list(staged)
            assert all(isinstance(tensor, tf.Tensor) for batch in batches for tensor in batch.values())
            assert sorted(flat(taken(batches))) == list(range(200))
            assert [len(batch["y"]) for batch in batches] == [16] * 12 + [8]
            assert staged.metrics().source.rows == 200 * epoch
        with pytest.raises(ConfigError, match="DataWorkers keeps no state"):
            staged.state_dict()


def test_what_is_put_together_is_not_copied_again() -> None:
    places = []

    class Spy:
        def __iter__(self) -> Iterator[Any]:
            for batch in workers:
                places.append(batch["x"].ctypes.data)
                yield batch

    with (
        DataWorkers(Counting(300, [7]), batch_size=32, num_workers=1) as workers,
        stage(Spy(), device="CPU:0") as staged,
    ):
        for number, batch in enumerate(staged):
            assert np.asarray(memoryview(batch["x"])).ctypes.data == places[number]


def test_texts_stay_on_the_host() -> None:
    def fetch(worker_id: int, batch_size: int) -> Any:
        return {"x": np.zeros((3, 2), np.float32), "tag": np.array(["a", "b", "c"])}

    with DataWorkers(fetch, batch_size=4) as workers, stage(workers, device="CPU:0") as staged:
        batch = next(iter(staged))
        assert batch["x"].shape == (4, 2)
        assert batch["tag"].tolist() == ["a", "b", "c", "a"]


def test_a_failing_fetch_reaches_the_stages_consumer() -> None:
    calls = Counting(40, [10])

    def fetch(worker_id: int, batch_size: int) -> Any:
        given = calls(worker_id, batch_size)
        if given is None:
            raise OSError("gone")
        return given

    with DataWorkers(fetch, batch_size=10, num_workers=1) as workers, stage(workers, device="CPU:0") as staged:
        batches = iter(staged)
        assert taken(next(batches) for _ in range(4)) == [list(range(n, n + 10)) for n in range(0, 40, 10)]
        with pytest.raises(WorkerError, match="fetch raised OSError: gone") as caught:
            next(batches)
        assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("close", ["stage", "workers"])
def test_closing_while_the_stage_waits_for_a_batch(close: str) -> None:
    let_go = threading.Event()
    given = iter([endless(0, 4)])

    def fetch(worker_id: int, batch_size: int) -> Any:
        return next(given, None) or (let_go.wait() and None)

    workers = DataWorkers(fetch, batch_size=4, num_workers=1, shutdown=let_go.set)
    staged = stage(workers, device="CPU:0")
    batches = iter(staged)
    next(batches)
    if close == "stage":
        staged.close()
        with pytest.raises(ClosedError, match="was ended, by close"):
            next(batches)
        assert [name for name in our_threads() if name != f"seqprep-train-{workers.worker_ids[0]}"] == []
        let_go.set()
        assert list(workers) == []  # the workers are still there
    else:
        workers.close()
        with pytest.raises(ClosedError, match="source 'train': the workers were stopped"):
            next(batches)
    staged.close()
    workers.close()


def test_two_devices_take_from_one_source() -> None:
    with DataWorkers(Counting(400, [9]), batch_size=10, num_workers=2) as workers:
        stages = [stage(each, device="CPU:0") for each in (workers, workers.scoped("second"))]
        for _ in range(2):
            rows: list[int] = []
            for both in itertools.zip_longest(*stages):  # each batch goes to the stage that asks first
                rows += flat(taken(batch for batch in both if batch is not None))
            assert sorted(rows) == list(range(400))
