"""Packed rows: where segments lie, and that they come out again."""

from __future__ import annotations

import itertools
from math import lcm

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.execution.gather import ShardGatherer
from seqprep.planning import BatchRule, KeyRule, Rules, make_plan, positions, segment_ids
from seqprep.planning.packing import assign_rows, pack
from tests.examples import examples
from tests.planning import reference
from tests.planning.reference import Case, cases, has_rows
from tests.planning.test_gathering import PAD_VALUE, source_of

thorough = settings(max_examples=examples(100), deadline=None)


def rows_of(sizes: list[int], row_frames: int) -> list[list[int]]:
    found = assign_rows(np.array(sizes, np.int64), row_frames).tolist()
    return [[i for i, row in enumerate(found) if row == number] for number in range(max(found, default=-1) + 1)]


@given(st.lists(st.integers(0, 12), max_size=200), st.integers(1, 10))
@thorough
def test_rows_as_the_rules_say(sizes: list[int], row_frames: int) -> None:
    expected = reference.packed(sizes, row_frames)
    assert rows_of(sizes, row_frames) == expected
    for row in expected:
        assert sum(sizes[number] for number in row) <= row_frames or len(row) == 1


def test_more_open_rows_than_there_are() -> None:
    """70 rows that are more than half full, then what fills each of the last 64."""
    sizes = [6] * 70 + [4] * 70
    assert rows_of(sizes, 10) == reference.packed(sizes, 10)
    assert sum(len(row) == 2 and sizes[row[0]] == 6 for row in rows_of(sizes, 10)) == 64


def test_rows_fill_up() -> None:
    """Lengths as sentences have them fill rows of twice the longest to 99 %."""
    lengths = np.exp(np.random.default_rng(1).normal(5.5, 0.7, 20_000)).clip(1, 1000).astype(np.int64)
    rows = assign_rows(lengths, 2000)
    assert lengths.sum() / (2000 * (rows.max() + 1)) > 0.985


def test_packing_never_changes() -> None:
    sizes = np.array([5, 3, 9, 2, 7, 4, 1, 8, 6, 10, 11, 3, 2, 5])
    assert assign_rows(sizes, 10).tolist() == [0, 0, 1, 0, 2, 3, 1, 4, 3, 5, 6, 2, 4, 7]


@given(
    cases(contexts=True), st.integers(1, 40), st.sampled_from([1, 4]), st.sampled_from(["", "drop_last", "pad_rows"])
)
@thorough
def test_what_is_packed_comes_out_again(case: Case, units: int, multiple: int, at_the_end: str) -> None:
    if not has_rows(case):
        return
    grid = lcm(*(key.rate for key in case.rules.keys if key.rate is not None))
    keys = tuple(KeyRule(**{**key.__dict__, "pad_multiple": multiple}) for key in case.rules.keys)
    batch = BatchRule(row_frames=units * grid, drop_last=at_the_end == "drop_last", pad_rows=at_the_end == "pad_rows")
    rules = Rules(**{**case.rules.__dict__, "batch": batch, "keys": keys})
    source = source_of(case, vectors=True)
    rows = {(row.sequence, row.number): row for some in reference.all_rows(case.lengths, rules) for row in some}
    plan, seen, dropped = make_plan(case.lengths, rules), [], 0
    for i in range(len(plan)):
        task, shard = plan.task(i), plan.shard(i)
        dropped += shard.dropped.rows
        assert (shard.segments.start["data"] % grid == 0).all()
        gatherer = ShardGatherer(source, task, shard, source.keys, dict.fromkeys(source.keys, PAD_VALUE))
        gatherer.read()
        bounds = shard.bounds.tolist()
        for number, ((a, b), arrays) in enumerate(zip(itertools.pairwise(bounds), gatherer.batches(), strict=True)):
            assert len(arrays["speaker"]) == b - a
            row = shard.segments.row[a:b]
            assert row.tolist() == sorted(row.tolist())
            for key in keys:
                frames = shard.keys[key.name].frames[a:b]
                start = shard.segments.start[key.name][a:b]
                assert key.rate is None or (start * key.rate == shard.segments.start["data"][a:b]).all()
                check_batch(arrays[key.name], frames, row, start, multiple)
                assert shard.batch_frames(key.name)[number] == arrays[key.name].shape[1]
                for place, segment in enumerate(range(a, b)):
                    chunk = rows[int(shard.sequence[segment]), int(shard.number[segment])]
                    values = source.values[key.name][chunk.sequence]
                    expected = reference.content(values, chunk.cores[key.name], key)
                    begin = int(start[place])
                    found = arrays[key.name][row[place], begin : begin + len(expected)]
                    assert found.tobytes() == expected.tobytes()
                    if place == 0 or row[place] != row[place - 1]:
                        assert start[place] == 0
            for place, segment in enumerate(range(a, b)):
                assert arrays["speaker"][place].tolist() == source.vectors[shard.sequence[segment]].tolist()
            check_rows(shard, a, b, keys, units * grid)
            seen += zip(shard.sequence[a:b].tolist(), shard.number[a:b].tolist(), strict=True)
    assert len(seen) == len(set(seen))
    assert set(seen) <= set(rows)
    assert len(seen) + dropped == len(rows)
    assert not dropped or batch.drop_last


def check_batch(array: np.ndarray, frames: np.ndarray, row: np.ndarray, start: np.ndarray, multiple: int) -> None:
    """Segments don't overlap, the rest is padding, and ids and positions say so."""
    ids, place = np.zeros(array.shape[:2], np.int32), np.zeros(array.shape[:2], np.int32)
    count: dict[int, int] = {}
    for segment in range(len(frames)):
        count[int(row[segment])] = count.get(int(row[segment]), 0) + 1
        stretch = int(row[segment]), slice(int(start[segment]), int(start[segment] + frames[segment]))
        assert not ids[stretch].any()
        assert ids[stretch].shape == (frames[segment],)
        ids[stretch] = count[int(row[segment])]
        place[stretch] = np.arange(frames[segment])
    assert (array[ids == 0] == PAD_VALUE).all()
    longest = max((start + frames).tolist())
    assert array.shape[1] == -(-longest // multiple) * multiple
    out = np.full(array.shape[:2], 99, np.int32)
    assert segment_ids(frames, row, start, out).tolist() == ids.tolist()
    assert positions(frames, row, start, out).tolist() == place.tolist()


def check_rows(shard: object, a: int, b: int, keys: tuple[KeyRule, ...], row_frames: int) -> None:
    """Rows keep their length, unless one segment alone is longer; batches keep their budgets."""
    row = shard.segments.row[a:b]
    number = shard.bounds.tolist().index(a)
    for one in np.unique(row):
        members = np.flatnonzero(row == one) + a
        start, shared = shard.segments.start["data"][members], [key for key in keys if key.rate is not None]
        ends = [(start + shard.keys[key.name].frames[members] * key.rate).max() for key in shared]
        assert max(ends) <= row_frames or (shard.keys[keys[0].name].frames[members] > 0).sum() <= 1
    count = int(shard.batch_rows[number])
    assert count >= len(np.unique(row))
    for key in keys:
        assert key.max_frames is None or count * shard.batch_frames(key.name)[number] <= key.max_frames or count == 1


def test_segments_begin_at_the_same_moment_in_every_key() -> None:
    frames = {"data": np.array([10, 7, 6]), "classes": np.array([4, 3, 2])}
    packing = pack(frames, {"data": 1, "classes": 3}, 30)
    assert packing.order.tolist() == [0, 1, 2]
    assert packing.row.tolist() == [0, 0, 0]
    assert packing.start["data"].tolist() == [0, 12, 21]
    assert pack(frames, {"data": 1, "classes": 3}, 24).row.tolist() == [0, 0, 1]  # 12 + 9 + 6 > 24
    assert pack({"data": np.array([2, 2]), "classes": np.array([4, 1])}, {"data": 1, "classes": 3}, 15).start[
        "data"
    ].tolist() == [0, 12]


def test_a_time_axis_of_its_own_is_packed_without_gaps() -> None:
    frames = {"data": np.array([10, 7, 6]), "text": np.array([40, 0, 3]), "classes": np.array([4, 3, 2])}
    packing = pack(frames, {"data": 1, "text": None, "classes": 3}, 24)
    assert packing.row.tolist() == [0, 0, 1]
    assert {name: start.tolist() for name, start in packing.start.items()} == {
        "data": [0, 12, 0],
        "text": [0, 40, 0],
        "classes": [0, 4, 0],
    }


def test_a_seed_decides_the_packing_through_the_order() -> None:
    lengths = {"data": np.arange(1, 60)}
    rule = KeyRule(name="data")
    plans = [
        make_plan(
            lengths, Rules(keys=(rule,), order="random", seed=seed, max_sequences=4, batch=BatchRule(row_frames=100))
        )
        for seed in (1, 1, 2)
    ]
    first, again, other = (plan.shard(0) for plan in plans)
    assert first.sequence.tolist() == again.sequence.tolist()
    assert first.segments.start["data"].tolist() == again.segments.start["data"].tolist()
    assert first.sequence.tolist() != other.sequence.tolist()


@pytest.mark.parametrize("rows", [[0, 0, 1], [0, 1, 2]])
def test_ids_count_from_1_in_every_row(rows: list[int]) -> None:
    out = np.empty((3, 5), np.int32)
    ids = segment_ids(np.array([2, 1, 3]), np.array(rows), np.array([0, 3, 0]), out)
    assert {number for row in ids.tolist() for number in row} == ({0, 1, 2} if rows == [0, 0, 1] else {0, 1})
