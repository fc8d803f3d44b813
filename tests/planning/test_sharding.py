from __future__ import annotations

import pickle
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings

from seqprep.errors import ConfigError
from seqprep.planning import ChunkRule, KeyRule, Plan, Rules, ShardPlan, make_plan
from seqprep.planning.chunking import cut_sequences
from seqprep.planning.sizes import chunk_bytes, sequence_bytes
from tests.examples import examples
from tests.planning import reference
from tests.planning.reference import Case, Row, cases, has_rows

thorough = settings(max_examples=examples(100), deadline=None)


def rows_of(shard: ShardPlan) -> list[tuple[int, int]]:
    """(sequence, number of the chunk) of each row."""
    return list(zip(shard.sequence.tolist(), shard.number.tolist(), strict=True))


def rows_in_order(case: Case) -> list[list[Row]]:
    return reference.all_rows(case.lengths, case.rules, case.epoch)


def plan_of(case: Case) -> Plan:
    assume(has_rows(case))
    return make_plan(case.lengths, case.rules, case.epoch)


def one_key_plan(lengths: Sequence[int], limit: int, size: int | None = None, frame_bytes: int = 1) -> Plan:
    chunk = None if size is None else ChunkRule(size_frames=size, step_frames=size)
    rule = KeyRule(name="data", chunk=chunk, frame_bytes=frame_bytes)
    return make_plan({"data": np.array(lengths)}, Rules(keys=(rule,), shard_bytes=limit))


@given(cases())
@thorough
def test_bytes_in_closed_form(case: Case) -> None:
    rows = rows_in_order(case)
    places = np.arange(len(rows))
    cuts = cut_sequences(case.lengths, case.rules, places, case.epoch).cuts
    bytes_of = [[reference.bytes_of(row, case.lengths, case.rules) for row in sequence] for sequence in rows]
    assert sequence_bytes(case.lengths, cuts, case.rules, {}).tolist() == [sum(some) for some in bytes_of]
    sequence = np.repeat(places, cuts.count)
    number = np.array([row.number for some in rows for row in some], np.int64)
    each = chunk_bytes(sequence, number, case.lengths, cuts, case.rules, {})
    assert each.tolist() == [size for some in bytes_of for size in some]


@given(cases())
@thorough
def test_shards_as_the_rules_say(case: Case) -> None:
    plan = plan_of(case)
    rows = rows_in_order(case)
    expected = reference.shards(rows, plan.order.tolist(), case.lengths, case.rules)
    found = [plan.shard(i) for i in range(len(plan))]
    same = list if case.rules.order == "source" else sorted
    assert [same(rows_of(shard)) for shard in found] == [
        same([(row.sequence, row.number) for row in shard]) for shard in expected
    ]


@given(cases())
@thorough
def test_shards_hold_all_rows_once_and_keep_their_size(case: Case) -> None:
    plan = plan_of(case)
    by_place = {(row.sequence, row.number): row for some in rows_in_order(case) for row in some}
    seen = []
    for i in range(len(plan)):
        rows = rows_of(plan.shard(i))
        assert rows, "a shard without rows"
        assert plan.task(i).rows == len(rows)
        sizes = [reference.bytes_of(by_place[row], case.lengths, case.rules) for row in rows]
        assert sum(sizes) <= case.rules.shard_bytes or sum(size > 0 for size in sizes) == 1
        seen += rows
    assert sorted(seen) == sorted(by_place)
    assert plan.rows == len(seen)


@given(cases())
@thorough
def test_rows_and_batches_of_a_shard(case: Case) -> None:
    plan = plan_of(case)
    by_place = {(row.sequence, row.number): row for some in rows_in_order(case) for row in some}
    keys = case.rules.keys
    for i in range(len(plan)):
        task, shard = plan.task(i), plan.shard(i)
        rows = [by_place[row] for row in rows_of(shard)]
        assert task.sequence[shard.owner].tolist() == shard.sequence.tolist()
        lengths = [{key.name: int(case.lengths[key.name][row.sequence]) for key in keys} for row in rows]
        frames = [
            [reference.frames_of(row.cores[key.name], own[key.name], key) for key in keys]
            for row, own in zip(rows, lengths, strict=True)
        ]
        for place, key in enumerate(keys):
            found = shard.keys[key.name]
            cores = [row.cores[key.name] for row in rows]
            assert found.start.tolist() == [core.start for core in cores]
            assert found.core.tolist() == [core.stop - core.start for core in cores]
            assert found.frames.tolist() == [some[place] for some in frames]
            own = [some[key.name] for some in lengths]
            assert found.left.tolist() == [reference.context_of(*some, key)[0] for some in zip(cores, own, strict=True)]
            assert found.length.tolist() == own
        sizes = reference.batches(frames, [key.max_frames for key in keys], case.rules.max_sequences)
        assert shard.batch_rows.tolist() == sizes
        begin = np.cumsum([0, *sizes]).tolist()
        for place, key in enumerate(keys):
            longest = [max(some[place] for some in frames[a : a + n]) for a, n in zip(begin, sizes, strict=False)]
            assert shard.batch_frames(key.name).tolist() == longest


@given(cases())
@thorough
def test_a_shards_task_needs_no_other_shard(case: Case) -> None:
    plan = plan_of(case)
    for i in reversed(range(len(plan))):
        alone = pickle.loads(pickle.dumps(plan.task(i))).plan()
        assert rows_of(alone) == rows_of(plan.shard(i))
        assert alone.bounds.tolist() == plan.shard(i).bounds.tolist()


@pytest.mark.parametrize(
    ("lengths", "limit", "size", "expected"),
    [
        ([4, 4, 4], 8, None, [[(0, 0), (1, 0)], [(2, 0)]]),
        ([4, 4, 4], 12, None, [[(0, 0), (1, 0), (2, 0)]]),
        ([4, 4, 4], 11, None, [[(0, 0), (1, 0)], [(2, 0)]]),
        ([9, 1, 9], 8, None, [[(0, 0)], [(1, 0)], [(2, 0)]]),
        ([1, 6, 3], 8, 2, [[(0, 0), (1, 0), (1, 1), (1, 2)], [(2, 0), (2, 1)]]),
        ([1, 9, 3], 8, 2, [[(0, 0)], [(1, 0), (1, 1), (1, 2), (1, 3)], [(1, 4), (2, 0), (2, 1)]]),
        ([9, 9], 4, 2, [[(0, 0), (0, 1)], [(0, 2), (0, 3)], [(0, 4)], [(1, 0), (1, 1)], [(1, 2), (1, 3)], [(1, 4)]]),
        ([6], 1, 2, [[(0, 0)], [(0, 1)], [(0, 2)]]),
        ([7], 3, 2, [[(0, 0)], [(0, 1)], [(0, 2), (0, 3)]]),
    ],
)
def test_where_shards_are_cut(
    lengths: list[int], limit: int, size: int | None, expected: list[list[tuple[int, int]]]
) -> None:
    plan = one_key_plan(lengths, limit, size)
    assert [rows_of(plan.shard(i)) for i in range(len(plan))] == expected


@pytest.mark.parametrize(
    ("lengths", "limit", "shards"),
    [
        ([0, 40], 20, 2),
        ([20, 0], 3, 1),
        ([0, 20], 3, 1),
        ([0, 0, 20, 0, 0, 20, 0], 20, 2),
        ([20, 0, 40, 0], 20, 3),
    ],
)
def test_sequences_without_rows_make_no_shard(lengths: list[int], limit: int, shards: int) -> None:
    plan = one_key_plan(lengths, limit, size=20)
    assert [plan.shard(i).batch_rows.tolist() for i in range(len(plan))] == [[1]] * shards


def test_empty_whole_sequences_are_kept_as_rows() -> None:
    plan = one_key_plan([0, 3, 0], 100)
    shard = plan.shard(0)
    assert rows_of(shard) == [(0, 0), (1, 0), (2, 0)]
    assert shard.keys["data"].frames.tolist() == [0, 3, 0]
    assert shard.batch_frames("data").tolist() == [3]
    nothing = one_key_plan([0, 0], 100).shard(0)
    assert nothing.batch_rows.tolist() == [2]
    assert nothing.batch_frames("data").tolist() == [0]


def test_a_size_beyond_64_bits_makes_one_shard() -> None:
    assert len(one_key_plan([5, 50], 10**30, size=5)) == 1


def test_nothing_to_plan_is_said() -> None:
    with pytest.raises(
        ConfigError, match=r"none of the 2 sequences gives a row: 2 without frames in key 'data' \(check"
    ):
        one_key_plan([0, 0], 100, size=5)
    with pytest.raises(ConfigError, match=r"^there are no sequences; check what the source's settings name$"):
        one_key_plan([], 100)
    rule = KeyRule(name="data", chunk=ChunkRule(size_frames=4, step_frames=4))
    message = (
        r"none of the 3 sequences gives a row: 1 without frames .*, 2 without a full chunk \(chunk.size is 4; lower it"
    )
    with pytest.raises(ConfigError, match=message):
        make_plan({"data": np.array([0, 1, 3])}, Rules(keys=(rule,), tail="drop"))
