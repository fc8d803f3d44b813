from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import seqprep
from seqprep import DataWorkers
from seqprep.errors import ClosedError, ConfigError, WorkerError
from seqprep.runtime import data_workers

from .conftest import our_threads
from .data_workers_helpers import Counting, endless, flat, numbered, taken, until

pytestmark = pytest.mark.usefixtures("bounded")
Fetch = Callable[[int, int], Any]


def once(*given: Any) -> Fetch:
    """Gives these, one a call, and then None."""
    left = list(given)

    def fetch(worker_id: int, batch_size: int) -> Any:
        return left.pop(0) if left else None

    return fetch


# -- batches --


def test_the_five_lines() -> None:
    def fetch(worker_id: int, batch_size: int) -> dict[str, np.ndarray]:
        return {"data": np.zeros((batch_size, 40)), "label": np.zeros(batch_size, int)}

    with seqprep.DataWorkers(fetch, batch_size=32, num_workers=4) as workers:
        for _, batch in zip(range(100), workers, strict=False):
            assert batch["data"].shape == (32, 40)
            assert batch["label"].shape == (32,)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_one_worker_keeps_the_order_and_the_last_batch_has_the_rest(num_workers: int) -> None:
    with DataWorkers(Counting(100), batch_size=16, num_workers=num_workers) as workers:
        for _ in range(3):
            batches = taken(workers)
            assert flat(batches) == list(range(100))
            assert [len(batch) for batch in batches] == [16] * 6 + [4]


def test_names_of_lists_are_given_and_those_of_mappings_found() -> None:
    arrays = [np.zeros((2, 3)), np.ones(2)]
    [listed] = DataWorkers(once(arrays), ["a", "b"], batch_size=9)
    [mapped] = DataWorkers(once({"b": arrays[1], "a": arrays[0]}), ["a", "b"], batch_size=9)
    [found] = DataWorkers(once({"b": arrays[1], "a": arrays[0]}), batch_size=9)
    assert list(listed) == list(mapped) == ["a", "b"]
    assert list(found) == ["b", "a"]
    assert (listed["b"] == 1).all()
    assert (mapped["b"] == 1).all()
    assert (found["b"] == 1).all()
    DataWorkers.stop_all()


@pytest.mark.parametrize("columns", [[1, 0], {"sequences": 1}, {"sequences": 1, "lengths": 0}])
def test_batch_columns_are_of_each_input(columns: Any) -> None:
    parts = [[np.full((5, rows, 2), rows), np.full(rows, rows)] for rows in (3, 4, 6)]
    with DataWorkers(once(*parts), ["sequences", "lengths"], batch_size=8, batch_columns=columns) as workers:
        first, second = workers
        assert workers.metrics().rows == 13
    assert first["sequences"].shape == (5, 8, 2)
    assert first["sequences"][0, :, 0].tolist() == first["lengths"].tolist() == [3] * 3 + [4] * 4 + [6]
    assert second["sequences"].shape == (5, 5, 2)


def test_one_batch_column_is_of_all_inputs() -> None:
    with DataWorkers(
        once([np.zeros((5, 3)), np.zeros((1, 3, 2))]), ["a", "b"], batch_size=2, batch_columns=1
    ) as workers:
        assert [(batch["a"].shape, batch["b"].shape) for batch in workers] == [((5, 2), (1, 2, 2)), ((5, 1), (1, 1, 2))]


def test_texts_may_differ_in_width_and_objects_come_along() -> None:
    parts = [
        [np.array(["a"] * 3), np.array([b"x"] * 3), np.array([None] * 3, object)],
        [np.array(["größer"]), np.array([b"longer"]), np.array([{}], object)],
    ]
    with DataWorkers(once(*parts), ["text", "bytes", "object"], batch_size=4) as workers:
        [batch] = workers
    assert batch["text"].tolist() == ["a", "a", "a", "größer"]
    assert batch["bytes"].tolist() == [b"x", b"x", b"x", b"longer"]
    assert batch["object"].tolist() == [None, None, None, {}]


def test_batches_are_the_callers_own() -> None:
    everything = np.arange(60.0).reshape(20, 3)

    def fetch(worker_id: int, batch_size: int) -> Any:
        return {"x": everything[:8]}  # a view of what the function keeps

    with DataWorkers(fetch, batch_size=8, num_workers=1) as workers:
        for _, batch in zip(range(5), workers, strict=False):
            assert batch["x"][0, 0] == 0
            batch["x"][:] = -1
    assert (everything == np.arange(60.0).reshape(20, 3)).all()


def test_arrays_that_fit_are_handed_on_without_a_copy() -> None:
    whole, twice = np.zeros((8, 3)), np.zeros((16, 3))
    with DataWorkers(once({"x": whole}, {"x": twice}), batch_size=8, num_workers=1) as workers:
        batches = list(workers)
    assert batches[0]["x"] is whole
    assert [np.shares_memory(batch["x"], twice) for batch in batches] == [False, True, True]


def test_what_is_put_together_lies_on_64_bytes_and_memory_is_used_again() -> None:
    places = set()
    with DataWorkers(Counting(4000, [7]), batch_size=32, num_workers=1) as workers:
        for batch in workers:
            for array in batch.values():
                assert array.ctypes.data % 64 == 0
            places.add(batch["x"].ctypes.data)
        del batch, array
        assert workers.metrics().unpooled_buffers == 0
        assert len(places) <= data_workers._POOLED_BUFFERS
        kept = list(workers)
        assert workers.metrics().unpooled_buffers == len(kept) - data_workers._POOLED_BUFFERS
        assert all(array.ctypes.data % 64 == 0 for batch in kept for array in batch.values())
        assert flat(taken(kept)) == list(range(4000))  # none was used again while it was kept


# -- what fetch gives --


class Tensor:
    pass


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([np.zeros(3)], r"fetch gave 1 arrays for the 2 inputs a, b$"),
        ([np.zeros(3)] * 3, r"fetch gave 3 arrays for the 2 inputs a, b$"),
        ([np.zeros(3), [1, 2, 3]], r"fetch gave a builtins.list for input 'b'; give numpy arrays$"),
        ([Tensor(), np.zeros(3)], r"fetch gave a .*\.Tensor for input 'a'; give numpy arrays$"),
        ([None, None], r"fetch gave a builtins.NoneType for input 'a'"),
        (np.zeros((2, 3)), r"fetch gave a ndarray; give a list of arrays, one per input, or a mapping$"),
        (7, r"fetch gave a int; give a list of arrays"),
        ("ab", r"fetch gave a str; give a list of arrays"),
        ({"a": np.zeros(3)}, r"fetch gave a for the inputs a, b$"),
        ({"a": np.zeros(3), "b": np.zeros(3), "c": np.zeros(3)}, r"fetch gave a, b, c for the inputs a, b$"),
        (
            [np.zeros((3, 2)), np.zeros(4)],
            r"input 'b' has 4 rows \(shape \(4,\), batch column 0\), but input 'a' has 3; give as many of each, or set rebatch",
        ),
        ([np.zeros(3), np.zeros(())], r"input 'b' has shape \(\), so no batch column 0$"),
        ([np.zeros((3, 2)), np.zeros(0)], r"input 'b' has 0 rows .* but input 'a' has 3"),
        (
            [np.zeros((1, 3)), np.zeros(1)],
            r"input 'a' has changed and can't be rebatched; .*\n  first  float64 \[rows, 2\]\n  now    float64 \[rows, 3\]$",
        ),
        ([np.zeros((1, 2), "f4"), np.zeros(1)], r"input 'a' has changed .*\n  first  float64 .*\n  now    float32 "),
        ([np.zeros((1, 2)), np.array(["a"])], r"input 'b' has changed .*\n  first  float64 .*\n  now    str "),
    ],
)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_what_is_no_chunk_is_refused_by_name(given: Any, message: str, num_workers: int) -> None:
    good = [np.zeros((2, 2)), np.zeros(2)]
    with DataWorkers(once(good, given), ["a", "b"], batch_size=2, num_workers=num_workers, source="dev") as workers:
        batches = iter(workers)
        next(batches)
        for _ in range(2):  # it is told each time
            with pytest.raises(WorkerError, match=rf"^source 'dev', worker {workers.worker_ids[0]}: {message}"):
                next(batches)


@pytest.mark.parametrize(
    ("given", "columns", "message"),
    [
        ([np.zeros(3)], 0, "fetch gave a list, but no names; set inputs, or give a mapping"),
        ({"a": np.zeros(3), 5: np.zeros(3)}, 0, r"inputs is \['a', 5\]: give a list of at least one name"),
        ({"data": np.zeros(3)}, {"dta": 0}, "batch_columns: there is no input 'dta'; did you mean 'data'?"),
    ],
)
def test_names_that_cannot_be_found_are_told(given: Any, columns: Any, message: str) -> None:
    with (
        DataWorkers(once(given), batch_size=2, batch_columns=columns) as workers,
        pytest.raises(WorkerError, match=message),
    ):
        next(iter(workers))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("empty", [[], (), {}, {"x": np.zeros((0, 3), np.float32), "y": np.zeros(0)}])
def test_no_rows_means_call_again(empty: Any, num_workers: int) -> None:
    numbers = iter([*range(0, 30, 10), None, None])
    lock, calls = threading.Lock(), [0]

    def fetch(worker_id: int, batch_size: int) -> Any:
        with lock:
            calls[0] += 1
            if calls[0] % 2:
                return empty
            first = next(numbers)
        return None if first is None else numbered(first, 10)

    with DataWorkers(fetch, ["x", "y"], batch_size=4, num_workers=num_workers) as workers:
        assert sorted(flat(taken(workers))) == list(range(30))
        assert workers.metrics().empty_fetches > 0


def test_a_fetch_that_has_nothing_is_called_ever_more_rarely() -> None:
    calls: list[float] = []

    def fetch(worker_id: int, batch_size: int) -> Any:
        calls.append(time.monotonic())
        return []

    with DataWorkers(fetch, ["x"], batch_size=4, num_workers=1) as workers:
        workers.start()
        until(lambda: len(calls) >= 9)
        assert calls[8] - calls[0] > 0.2  # 1, 2, 4, … ms; a loop without a pause would take microseconds
        began = time.monotonic()
        assert workers.stop()
        assert time.monotonic() - began < 5


def test_without_rebatching_scalars_and_unequal_rows_pass() -> None:
    arrays = [np.arange(5), np.array(7), np.zeros((0, 3))]
    empty = [np.zeros(0), np.zeros((4, 0)), np.zeros((0, 3))]
    with DataWorkers(once(empty, arrays), ["a", "b", "c"], batch_size=2, rebatch=False) as workers:
        [batch] = workers
        assert [batch[name] is array for name, array in zip("abc", arrays, strict=True)] == [True] * 3
        assert workers.metrics().rows == 5
        assert workers.metrics().empty_fetches == 1


# -- failures --


def test_a_failing_fetch_stops_the_source_and_raises_at_the_consumer() -> None:
    calls = Counting(24, [6])

    def read_the_file(number: int) -> None:
        raise OSError(f"file {number} is gone")

    def fetch(worker_id: int, batch_size: int) -> Any:
        given = calls(worker_id, batch_size)
        return given if given is not None else read_the_file(7)

    with DataWorkers(fetch, batch_size=10, num_workers=1) as workers:
        batches = iter(workers)
        until(lambda: len(calls.calls) == 5)
        assert taken([next(batches), next(batches)]) == [
            list(range(10)),
            list(range(10, 20)),
        ]  # what is whole comes out
        message = f"^source 'train', worker {workers.worker_ids[0]}: fetch raised OSError: file 7 is gone$"
        with pytest.raises(WorkerError, match=message) as caught:
            next(batches)
        assert isinstance(caught.value.__cause__, OSError)
        assert "read_the_file" in "".join(traceback.format_exception(caught.value))
        for again in (lambda: next(batches), lambda: next(iter(workers)), workers.have_more):
            with pytest.raises(WorkerError, match=message):
                again()
        until(lambda: not our_threads())
        calls._next = 0
        workers.start()
        assert workers.metrics().discarded_rows == 4
        assert taken([next(iter(workers))]) == [list(range(10))]


def test_all_workers_stop_and_all_instances_are_told_when_one_fails() -> None:
    failing = threading.Event()

    def fetch(worker_id: int, batch_size: int) -> Any:
        if worker_id == workers.worker_ids[2] and failing.wait():
            raise KeyError(worker_id)
        return endless(worker_id, batch_size)

    with DataWorkers(fetch, batch_size=10, num_workers=4, max_buffered_batches=2) as workers:
        other = workers.scoped("other")
        next(iter(other))
        failing.set()
        until(lambda: not our_threads())
        for instance in (workers, other):
            with pytest.raises(WorkerError, match="fetch raised KeyError"):
                taken(instance)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(), GeneratorExit()])
def test_whatever_a_fetch_raises_is_a_failure(error: BaseException) -> None:
    def fetch(worker_id: int, batch_size: int) -> Any:
        raise error

    with DataWorkers(fetch, batch_size=10) as workers:
        with pytest.raises(WorkerError, match=type(error).__name__) as caught:
            next(iter(workers))
        assert caught.value.__cause__ is error


def test_waiting_too_long_is_an_error_that_says_where_the_workers_are() -> None:
    let_go = threading.Event()

    def fetch(worker_id: int, batch_size: int) -> Any:
        if worker_id != workers.worker_ids[0]:
            return None
        let_go.wait()
        return numbered(0, 3)

    with DataWorkers(fetch, batch_size=3, num_workers=2, timeout_seconds=0.1) as workers:
        batches = iter(workers)
        with pytest.raises(
            WorkerError,
            match=rf"^source 'train': no batch for 0.1 s; inside fetch: workers {workers.worker_ids[0]}; make",
        ):
            next(batches)
        let_go.set()
        assert taken([next(batches)]) == [[0, 1, 2]]  # it isn't the end of anything


# -- epochs --


def test_an_epoch_ends_with_its_last_worker_and_the_next_begins_when_it_is_asked_for() -> None:
    calls = Counting(20)
    with DataWorkers(calls, batch_size=6, num_workers=3) as workers:
        assert workers.epoch == 0
        for epoch in range(4):
            batches = iter(workers)
            assert sorted(flat(taken(batches))) == list(range(20))
            assert workers.epoch == epoch
            called = len(calls.calls)
            assert next(batches, None) is None
            assert not workers.have_more()
            time.sleep(0.005)
            assert len(calls.calls) == called


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_have_more_knows(num_workers: int) -> None:
    with DataWorkers(Counting(25), batch_size=10, num_workers=num_workers) as workers:
        for _ in range(2):
            batches = iter(workers)
            seen = 0
            while workers.have_more():
                assert workers.have_more()  # asking takes nothing
                seen += len(next(batches)["y"])
            assert seen == 25
            assert next(batches, None) is None


def test_have_more_begins_the_first_epoch() -> None:
    with DataWorkers(Counting(25), batch_size=10) as workers:
        assert workers.have_more()
        assert sorted(flat(taken(workers))) == list(range(25))
        assert not workers.have_more()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_epoch_of_nothing(num_workers: int) -> None:
    with DataWorkers(Counting(0), batch_size=10, num_workers=num_workers) as workers:
        workers.start()
        assert not workers.have_more()
        for _ in range(3):
            assert list(workers) == []


def test_two_instances_in_step_see_as_many_epochs() -> None:
    with DataWorkers(Counting(50, [10]), batch_size=10, num_workers=1) as first:
        second = first.scoped("gpu_1")
        for _ in range(3):  # five batches: zip leaves one out, and the first instance isn't told of the end
            assert sum(1 for _ in zip(first, second, strict=False)) == 2
        assert first.epoch == second.epoch == 2


def test_an_instance_made_late_joins_the_epoch_that_goes_on() -> None:
    with DataWorkers(Counting(50, [10]), batch_size=10, num_workers=1) as first:
        taken(first)
        batches = iter(first)
        next(batches)
        second = first.scoped("late", 20)
        assert taken(second) == [list(range(10, 30)), list(range(30, 50))]
        assert next(batches, None) is None


def test_workers_start_themselves_and_fill_the_buffer_before_they_are_asked() -> None:
    calls = Counting(1000, [10])
    with DataWorkers(calls, batch_size=10, num_workers=2, max_buffered_batches=3) as workers:
        assert not our_threads()
        workers.start()
        workers.start()
        until(lambda: workers.metrics().ready == 3)
        assert len(our_threads()) == 2
        time.sleep(0.01)
        assert len(calls.calls) <= 3 + 2  # one more is in each worker's hands
        assert sorted(flat(taken(workers))) == list(range(1000))


def test_a_chunk_larger_than_the_buffer_passes() -> None:
    with DataWorkers(Counting(1000, [1000]), batch_size=3, num_workers=2, max_buffered_batches=1) as workers:
        assert flat(taken(workers)) == list(range(1000))


# -- sources, instances, functions --


def test_sources_are_never_mixed_and_worker_ids_are_unique() -> None:
    def fetch_from(first: int) -> Fetch:
        parts = iter([numbered(first + place, 7) for place in range(0, 700, 7)])
        lock = threading.Lock()

        def fetch(worker_id: int, batch_size: int) -> Any:
            with lock:
                return next(parts, None)

        return fetch

    train = DataWorkers(fetch_from(0), batch_size=10, num_workers=3)
    test = DataWorkers(fetch_from(1000), batch_size=25, num_workers=2, source="test")
    assert (train.dataset_name, test.dataset_name) == ("train", "test")
    assert len({*train.worker_ids, *test.worker_ids}) == 5
    seen: dict[str, list[int]] = {}
    threads = [
        threading.Thread(target=lambda workers=workers: seen.update({workers.dataset_name: flat(taken(workers))}))
        for workers in (train, test)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen["train"]) == list(range(700))
    assert sorted(seen["test"]) == list(range(1000, 1700))
    assert DataWorkers.stop_all()


def test_two_sources_of_one_name_are_two() -> None:
    with (
        DataWorkers(Counting(30), batch_size=4) as first,
        DataWorkers(Counting(30), batch_size=4) as second,
    ):
        for workers in (first, second):
            assert sorted(flat(taken(workers))) == list(range(30))


def test_init_comes_once_before_all_and_worker_init_once_in_each_thread() -> None:
    order: list[Any] = []
    threads: dict[int, set[int]] = {}

    def worker_init(worker_id: int) -> None:
        order.append(worker_id)
        threads[worker_id] = {threading.get_ident()}

    def fetch(worker_id: int, batch_size: int) -> Any:
        threads[worker_id].add(threading.get_ident())
        return calls(worker_id, batch_size)

    calls = Counting(100)
    with DataWorkers(fetch, batch_size=8, num_workers=3, init=order.append, worker_init=worker_init) as workers:
        workers.scoped("other")
        for _ in range(2):
            taken(workers)
        assert order[0] is workers
        assert sorted(order[1:]) == list(workers.worker_ids)
        assert all(len(idents) == 1 for idents in threads.values())
        workers.stop()
        taken(workers)
        assert order[4] is workers  # another start
        assert sorted(order[5:]) == list(workers.worker_ids)


def test_start_all_initialises_every_source_before_any_thread_begins() -> None:
    begun: list[str] = []

    def fetch(worker_id: int, batch_size: int) -> Any:
        begun.append("fetch")
        return None

    def init(workers: DataWorkers) -> None:
        assert not our_threads()
        begun.append(workers.dataset_name)

    made = [DataWorkers(fetch, batch_size=1, source=name, init=init) for name in ("train", "test")]
    DataWorkers.start_all(*made)
    until(lambda: begun.count("fetch") == 4)
    assert begun[:2] == ["train", "test"]
    DataWorkers.stop_all()


def test_functions_that_raise_name_themselves() -> None:
    def fail(*_: Any) -> None:
        raise ValueError("no licence")

    with pytest.raises(WorkerError, match=r"^source 'train': init raised ValueError: no licence$"):
        next(iter(DataWorkers(endless, batch_size=1, init=fail)))
    for num_workers in (0, 2):
        with (
            DataWorkers(endless, batch_size=1, num_workers=num_workers, worker_init=fail) as workers,
            pytest.raises(
                WorkerError, match=r"^source 'train', worker \d+: worker_init raised ValueError: no licence$"
            ),
        ):
            next(iter(workers))
    workers = DataWorkers(endless, batch_size=1, shutdown=fail)
    next(iter(workers))
    with pytest.raises(WorkerError, match=r"^source 'train': shutdown raised ValueError: no licence$"):
        workers.stop()
    assert not our_threads()
    workers.close()  # it has been called, and isn't again


def test_the_batch_size_is_told_to_fetch_and_can_be_changed() -> None:
    hints: list[int] = []

    def fetch(worker_id: int, batch_size: int) -> Any:
        hints.append(batch_size)
        return endless(worker_id, batch_size)

    with DataWorkers(fetch, batch_size=5, num_workers=1, max_buffered_batches=1) as workers:
        batches = iter(workers)
        assert len(next(batches)["y"]) == 5
        workers.set_batch_size(1000)  # larger than what the buffer held
        assert [len(next(batches)["y"]) for _ in range(3)] == [1000] * 3
        assert hints[-1] == 1000
        workers.set_batch_size(2)
        assert len(next(batches)["y"]) == workers.batch_size == 2
        with pytest.raises(ConfigError, match="batch_size is 0: it has to be at least 1"):
            workers.set_batch_size(0)
        assert workers.batch_size == 2


def test_a_smaller_batch_size_reaches_a_consumer_that_waits() -> None:
    parts = Counting(10, [10])
    let_go = threading.Event()

    def fetch(worker_id: int, batch_size: int) -> Any:
        return parts(worker_id, batch_size) or (let_go.wait() and None)

    with DataWorkers(fetch, batch_size=50, num_workers=1) as workers:
        seen: list[Any] = []
        batches = iter(workers)
        consumer = threading.Thread(target=lambda: seen.append(next(batches)))
        consumer.start()
        until(lambda: len(parts.calls) == 2)
        workers.set_batch_size(10)
        consumer.join()
        assert taken(seen) == [list(range(10))]
        let_go.set()


def test_a_consumer_that_waits_for_much_is_not_overtaken_for_ever() -> None:
    with DataWorkers(endless, batch_size=4, num_workers=1, max_buffered_batches=1) as small:
        large = small.scoped("large", 400)
        ended = threading.Event()

        def take_small() -> None:
            for _ in small:
                if ended.is_set():
                    break

        thread = threading.Thread(target=take_small)
        thread.start()
        for _, batch in zip(range(20), large, strict=False):
            assert len(batch["y"]) == 400
        ended.set()
        thread.join()


def test_instances_have_names_sizes_and_numbers_of_their_own() -> None:
    with DataWorkers(Counting(100, [10]), batch_size=10, num_workers=1) as first:
        second = first.scoped("gpu_1", 20)
        third = second.scoped("gpu_2")
        assert [each.scope for each in (first, second, third)] == ["", "gpu_1", "gpu_2"]
        assert [each.batch_size for each in (first, second, third)] == [10, 20, 20]
        assert first.worker_ids == second.worker_ids
        next(iter(first))
        next(iter(second))
        assert [each.metrics().rows for each in (first, second, third)] == [10, 20, 0]
        second.set_batch_size(7)
        assert first.batch_size == 10
        for scope in ("", "gpu_1"):
            with pytest.raises(
                ConfigError, match=f"source 'train' has an instance '{scope}' already; give another scope"
            ):
                first.scoped(scope)


# -- in the consumer's thread --


def test_without_workers_fetch_runs_in_the_consumers_thread() -> None:
    threads = set()

    def fetch(worker_id: int, batch_size: int) -> Any:
        threads.add(threading.get_ident())
        return calls(worker_id, batch_size)

    calls = Counting(40, [10])
    with DataWorkers(fetch, batch_size=10, num_workers=0) as workers:
        workers.start()
        assert calls.calls == []
        batches = iter(workers)
        next(batches)
        assert len(calls.calls) == 1  # no more than is needed
        assert not our_threads()
        taken(batches)
    assert threads == {threading.get_ident()}
    assert {worker_id for worker_id, _ in calls.calls} == set(workers.worker_ids)


def test_an_interrupted_fetch_in_the_consumers_thread_loses_nothing() -> None:
    calls = Counting(40, [8])

    def fetch(worker_id: int, batch_size: int) -> Any:
        if len(calls.calls) == 2 and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        return calls(worker_id, batch_size)

    interrupted: list[bool] = []
    with DataWorkers(fetch, batch_size=20, num_workers=0) as workers:
        batches = iter(workers)
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        assert flat(taken(batches)) == list(range(40))


# -- arguments --


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0: it has to be at least 1"),
        ({"num_workers": -1}, "num_workers is -1: it has to be at least 0"),
        ({"max_buffered_batches": 0}, "max_buffered_batches is 0: it has to be at least 1"),
        ({"log_seconds": 0}, "log_seconds is 0: it has to be more than 0"),
        ({"batch_size": 2.5}, "batch_size is 2.5: it has to be a whole number"),
        ({"num_workers": None}, "num_workers is None: it has to be a whole number"),
        ({"max_buffered_batches": "3"}, "max_buffered_batches is '3': it has to be a whole number"),
        ({"log_seconds": "1s"}, "log_seconds is '1s': it has to be a number of seconds"),
        ({"log_seconds": float("nan")}, "log_seconds is nan: it has to be more than 0"),
        ({"timeout_seconds": True}, "timeout_seconds is True: it has to be a number of seconds"),
        ({"source": None}, "source is None: it has to be a name"),
        ({"fetch": 5}, "fetch is 5: it has to be a function"),
        ({"init": "f"}, "init is 'f': it has to be a function"),
        ({"worker_init": 5}, "worker_init is 5: it has to be a function"),
        ({"shutdown": 5}, "shutdown is 5: it has to be a function"),
        ({"loggers": None}, "loggers is None: give a list of functions of a dict"),
        ({"loggers": {"a": print}}, "loggers is {'a': .*}: give a list"),
        ({"inputs": 5}, "inputs is 5: give a list of at least one name"),
        ({"batch_columns": 1.5}, "batch_columns is 1.5: give the number of an axis, a list of them"),
        ({"batch_columns": "01"}, "batch_columns is '01': give the number of an axis"),
        ({"timeout_seconds": -1}, "timeout_seconds is -1: it has to be more than 0"),
        ({"inputs": []}, r"inputs is \[\]: give a list of at least one name"),
        ({"inputs": "data"}, "inputs is 'data': give a list"),
        ({"inputs": ["a", "b", "a"]}, "inputs is a, b, a: a name is there twice"),
        ({"batch_columns": -1}, "batch_columns has -1: the number of an axis is 0 or more"),
        ({"batch_columns": {"a": True}}, "batch_columns has True"),
        ({"batch_columns": [0, 1]}, "batch_columns is a list, so inputs has to name"),
        ({"inputs": ["a"], "batch_columns": [0, 1]}, "batch_columns has 2 columns for the 1 inputs a"),
        ({"inputs": ["data"], "batch_columns": {"dta": 1}}, "there is no input 'dta'; did you mean 'data'?"),
        ({"loggers": [7]}, "loggers holds 7: give functions of a dict, or objects with such a method `log`"),
    ],
)
def test_impossible_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DataWorkers(**{"fetch": endless, "batch_size": 4} | options)


def test_integers_of_any_library_and_waits_beyond_any_clock_are_taken() -> None:
    options = {
        "batch_size": np.int32(4),
        "num_workers": np.int64(1),
        "max_buffered_batches": np.uint8(2),
        "inputs": iter("xy"),
    }
    for seconds in (float("inf"), 10**30, np.float32(1e30)):
        with DataWorkers(endless, **options | {"log_seconds": seconds, "timeout_seconds": seconds}) as workers:
            assert taken([next(iter(workers))]) == [[0, 1, 2, 3]]
        options["inputs"] = ["x", "y"]


def test_closed_workers_are_closed() -> None:
    with DataWorkers(endless, batch_size=3, source="dev") as workers:
        batches = iter(workers)
        next(batches)
    with pytest.raises(ClosedError, match=r"^source 'dev': the workers were stopped in the middle of this epoch$"):
        next(batches)
    with pytest.raises(ClosedError, match="were stopped"):
        workers.have_more()
    for use in (workers.start, lambda: iter(workers)):
        with pytest.raises(ClosedError, match=r"^source 'dev': these data workers are closed; make others$"):
            use()
    workers.close()
