"""Whatever fetch gives, in whatever parts and from however many workers: every row comes out once, with its inputs."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqprep import DataWorkers
from seqprep.errors import ClosedError, WorkerError
from tests.examples import examples

from .conftest import our_threads

pytestmark = pytest.mark.usefixtures("bounded")

quick = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass
class Case:
    """Parts that each worker gives in each epoch, and how they are taken."""

    parts: list[list[list[int]]]  # [epoch][worker]: rows of each call; 0 is an empty one
    columns: list[int]
    batch_size: int
    capacity: int
    threads: bool
    mapping: bool

    @property
    def workers(self) -> int:
        return len(self.parts[0])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    threads = draw(st.booleans())
    workers = draw(st.integers(1, 4)) if threads else 1
    call = st.one_of(st.integers(1, 9), st.just(0), st.integers(10, 60))
    epoch = st.lists(st.lists(call, max_size=6), min_size=workers, max_size=workers)
    return Case(
        parts=draw(st.lists(epoch, min_size=1, max_size=3)),
        columns=[draw(st.integers(0, 2)), draw(st.integers(0, 1)), 0],
        batch_size=draw(st.integers(1, 40)),
        capacity=draw(st.one_of(st.integers(1, 4), st.just(500))),
        threads=threads,
        mapping=draw(st.booleans()),
    )


def identified(worker: int, first: int, rows: int, columns: list[int]) -> list[np.ndarray]:
    """Rows whose every value says which they are; a float, an int and a text input."""
    numbers = worker * 10_000 + np.arange(first, first + rows)
    wide = np.broadcast_to(numbers[:, None, None].astype(np.float64), (rows, 2, 3))
    narrow = np.repeat(numbers[:, None].astype(np.int32), 2, axis=1)
    texts = np.array([f"row {number}" for number in numbers], dtype=str)
    return [np.moveaxis(wide, 0, columns[0]), np.moveaxis(narrow, 0, columns[1]), texts]


class Scripted:
    """Gives the parts of a case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.ids: tuple[int, ...] = ()
        self._calls = [iter(self._script(worker)) for worker in range(case.workers)]

    def _script(self, worker: int) -> Any:
        first = 0
        for epoch in self.case.parts:
            for rows in epoch[worker]:
                arrays = identified(worker, first, rows, self.case.columns)
                first += rows
                if not rows and first % 2:
                    yield {} if self.case.mapping else []
                elif self.case.mapping:
                    yield dict(zip(("wide", "narrow", "text"), arrays, strict=True))
                else:
                    yield arrays
            yield None
        while True:  # epochs of nothing
            yield None

    def __call__(self, worker_id: int, batch_size: int) -> Any:
        return next(self._calls[self.ids.index(worker_id)])

    def open(self, **options: Any) -> DataWorkers:
        case = self.case
        workers = DataWorkers(
            self,
            ["wide", "narrow", "text"],
            batch_size=case.batch_size,
            num_workers=case.workers if case.threads else 0,
            max_buffered_batches=case.capacity,
            batch_columns=case.columns,
            **options,
        )
        self.ids = workers.worker_ids
        return workers


def rows_of(batch: dict[str, np.ndarray], columns: list[int]) -> list[int]:
    """The numbers of a batch's rows; all inputs have to agree about them."""
    assert list(batch) == ["wide", "narrow", "text"]
    wide = np.moveaxis(batch["wide"], columns[0], 0)
    narrow = np.moveaxis(batch["narrow"], columns[1], 0)
    numbers = [int(text.removeprefix("row ")) for text in batch["text"]]
    assert wide.shape == (len(numbers), 2, 3)
    assert narrow.shape == (len(numbers), 2)
    assert (wide == np.array(numbers)[:, None, None]).all()
    assert (narrow == np.array(numbers)[:, None]).all()
    return numbers


def check_rows(rows: list[int], case: Case, epoch: int) -> None:
    """Each row of the epoch once, those of a worker in their order."""
    by_worker: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        by_worker[row // 10_000].append(row % 10_000)
    for worker in range(case.workers):
        begin = sum(sum(parts[worker]) for parts in case.parts[:epoch])
        assert by_worker[worker] == list(range(begin, begin + sum(case.parts[epoch][worker])))


@quick
@given(cases())
def test_every_row_comes_out_once_in_whole_batches_and_a_last_one(case: Case) -> None:
    with Scripted(case).open() as workers:
        for epoch in range(len(case.parts)):
            batches = [rows_of(batch, case.columns) for batch in workers]
            check_rows([row for batch in batches for row in batch], case, epoch)
            assert all(len(batch) == case.batch_size for batch in batches[:-1])
            assert all(1 <= len(batch) <= case.batch_size for batch in batches[-1:])
        total = sum(sum(part) for epoch in case.parts for part in epoch)
        metrics = workers.metrics()
        assert metrics.rows == total
        assert metrics.discarded_rows == 0
        assert metrics.fetches == sum(rows > 0 for epoch in case.parts for part in epoch for rows in part)


@quick
@given(cases(), st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_changing_the_batch_size_loses_nothing_and_holds_from_the_next_batch(case: Case, sizes: list[int]) -> None:
    with Scripted(case).open() as workers:
        for epoch in range(len(case.parts)):
            batches = []
            wanted = []
            for number, batch in enumerate(workers):
                batches.append(rows_of(batch, case.columns))
                wanted.append(workers.batch_size)
                workers.set_batch_size(sizes[number % len(sizes)])
            check_rows([row for batch in batches for row in batch], case, epoch)
            assert [len(batch) for batch in batches[:-1]] == wanted[:-1]


@quick
@given(cases(), st.integers(1, 50))
def test_instances_of_a_source_share_its_rows(case: Case, other_size: int) -> None:
    script = Scripted(case)
    with script.open() as first:
        second = first.scoped("second", other_size)
        seen: dict[str, list[list[list[int]]]] = {"": [], "second": []}

        def consume(instance: DataWorkers) -> None:
            for _ in case.parts:
                seen[instance.scope].append([rows_of(batch, case.columns) for batch in instance])

        threads = [threading.Thread(target=consume, args=[instance]) for instance in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        total = 0
        for instance in (first, second):
            assert len(seen[instance.scope]) == len(case.parts)
            for batches in seen[instance.scope]:
                assert all(len(batch) == instance.batch_size for batch in batches[:-1])
            assert instance.metrics().rows == sum(len(rows) for epoch in seen[instance.scope] for rows in epoch)
            total += instance.metrics().rows
        assert total == sum(sum(part) for epoch in case.parts for part in epoch)
        for epoch in range(len(case.parts)):
            rows = [row for scope in ("", "second") for batch in seen[scope][epoch] for row in batch]
            assert sorted(rows) == sorted(
                worker * 10_000 + number
                for worker in range(case.workers)
                for begin in [sum(sum(parts[worker]) for parts in case.parts[:epoch])]
                for number in range(begin, begin + sum(case.parts[epoch][worker]))
            )


@quick
@given(cases(), st.lists(st.integers(0, 12), max_size=3))
def test_leaving_an_iteration_and_coming_back_loses_nothing(case: Case, limits: list[int]) -> None:
    case.parts = case.parts[:1]
    with Scripted(case).open() as workers:
        rows: list[int] = []
        for limit in limits:
            for _, batch in zip(range(limit), workers, strict=False):
                rows += rows_of(batch, case.columns)
        for batch in workers:
            rows += rows_of(batch, case.columns)
        check_rows(rows, case, 0)


@quick
@given(st.lists(st.integers(1, 30), max_size=20), st.integers(1, 3), st.integers(1, 5))
def test_without_rebatching_each_fetch_is_a_batch(parts: list[int], num_workers: int, capacity: int) -> None:
    lock, left = threading.Lock(), list(enumerate(parts))

    def fetch(worker_id: int, batch_size: int) -> list[np.ndarray] | None:
        with lock:
            if not left:
                return None
            number, rows = left.pop(0)
        return [np.full((rows, number + 1), number), np.array([number])]  # of different widths and rows

    with DataWorkers(
        fetch, ["a", "b"], batch_size=8, num_workers=num_workers, rebatch=False, max_buffered_batches=capacity
    ) as workers:
        seen = {int(batch["b"][0]): batch["a"] for batch in workers}
        assert sorted(seen) == list(range(len(parts)))
        for number, array in seen.items():
            assert array.shape == (parts[number], number + 1)
            assert (array == number).all()
        assert workers.metrics().batches == len(parts)
        assert workers.metrics().rows == sum(parts)


@quick
@given(st.lists(st.integers(1, 30), max_size=8), st.integers(1, 20), st.integers(1, 5), st.booleans())
def test_what_was_whole_before_a_failure_comes_out_and_no_more(
    parts: list[int], batch_size: int, capacity: int, threads: bool
) -> None:
    left = list(parts)
    first = [0]

    def fetch(worker_id: int, batch_size: int) -> list[np.ndarray]:
        if not left:
            raise OSError("the disk is gone")
        rows = left.pop(0)
        first[0] += rows
        return [np.arange(first[0] - rows, first[0])]

    found: list[list[int]] = []
    options: dict[str, Any] = {"num_workers": int(threads), "max_buffered_batches": capacity}
    with DataWorkers(fetch, ["number"], batch_size=batch_size, **options) as workers:
        with pytest.raises(WorkerError, match="fetch raised OSError: the disk is gone"):
            found.extend(batch["number"].tolist() for batch in workers)
        with pytest.raises(WorkerError, match="the disk is gone"):
            workers.have_more()
    assert [len(batch) for batch in found] == [batch_size] * (sum(parts) // batch_size)
    assert [row for batch in found for row in batch] == list(range(len(found) * batch_size))
    assert workers.metrics().discarded_rows == sum(parts) % batch_size


@quick
@given(cases(), st.integers(0, 6), st.integers(0, 3))
def test_stopped_at_any_moment_no_row_has_come_twice(case: Case, taken: int, micros: int) -> None:
    """What came out is whole, and of each worker a beginning in its order; nothing comes behind it."""
    rows: list[int] = []
    with Scripted(case).open() as workers:
        batches = iter(workers)
        for _, batch in zip(range(taken), batches, strict=False):
            rows += rows_of(batch, case.columns)
        time.sleep(micros * 1e-4)
        assert workers.stop()
        assert not our_threads()
        with pytest.raises(ClosedError, match="were stopped"):
            next(batches)
        metrics = workers.metrics()
    assert metrics.rows == len(rows)
    assert len(rows) + metrics.discarded_rows <= sum(sum(part) for part in case.parts[0])
    for worker in range(case.workers):
        own = [row % 10_000 for row in rows if row // 10_000 == worker]
        assert own == list(range(len(own)))
