"""Partitions, passes, shuffles of all rows, whole datasets: nothing is lost, nothing comes twice."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seqprep.errors import ConfigError
from seqprep.planning import (
    BatchRule,
    ChunkRule,
    KeyRule,
    OrderRule,
    PassPlan,
    Rules,
    Selected,
    ShardPlan,
    SplitRule,
    make_plan,
    plan_parts,
)
from seqprep.planning.report import ROW_FRAMES, OverBudget
from seqprep.types import Tags
from tests.examples import examples
from tests.planning import reference
from tests.planning.reference import Case, cases, has_rows

thorough = settings(max_examples=examples(60), deadline=None)


def rows_of(shard: ShardPlan) -> list[tuple[int, int]]:
    return list(zip(shard.sequence.tolist(), shard.number.tolist(), strict=True))


def all_rows_of(plan: PassPlan) -> list[tuple[int, int]]:
    return [row for i in range(len(plan)) for row in rows_of(plan.shard(i))]


def changed(rules: Rules, **changes: object) -> Rules:
    return Rules(**{**rules.__dict__, **changes})


def whole(case: Case) -> Selected:
    return Selected(np.arange(len(case.lengths["data"])), {})


def tags_of(case: Case) -> Tags:
    return Tags.of(f"s{i}" for i in range(len(case.lengths["data"])))


@given(cases(), st.integers(1, 12), st.booleans())
@thorough
def test_partitions_are_disjoint_complete_and_even(case: Case, parts: int, all_rows: bool) -> None:
    assume(has_rows(case))
    order = "random" if all_rows else case.rules.order
    expected = all_rows_of(
        make_plan(case.lengths, changed(case.rules, order=order, order_rule=OrderRule(all_rows=all_rows)))
    )
    found, sizes = [], []
    for part in range(1, parts + 1):
        rules = changed(case.rules, order=order, order_rule=OrderRule(all_rows=all_rows, partition=(part, parts)))
        try:
            plan = make_plan(case.lengths, rules)
        except ConfigError as error:
            assert "so this part is empty" in str(error) or "gives a row" in str(error)  # noqa: PT017
            sizes += [0] * ("empty" in str(error))
            continue
        rows = all_rows_of(plan)
        found += rows
        sizes.append(plan.rows if all_rows else plan.sequences)
        assert plan.rows == len(rows)
        if all_rows:
            assert plan.sequences == len({sequence for sequence, _ in rows})
            assert rows == expected[len(found) - len(rows) : len(found)]  # contiguous in the order
    assert sorted(found) == sorted(expected)
    if all_rows:
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("count", "parts"), [(10, 3), (3, 3), (7, 2), (9, 4)])
def test_sizes_of_partitions_differ_by_at_most_1(count: int, parts: int) -> None:
    lengths = {"data": np.full(count, 5)}
    plans = [
        make_plan(lengths, Rules(keys=(KeyRule(name="data"),), order_rule=OrderRule(partition=(part, parts))))
        for part in range(1, parts + 1)
    ]
    orders = [plan.order.tolist() for plan in plans]
    assert [place for order in orders for place in order] == list(range(count))
    sizes = [len(order) for order in orders]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


def test_an_empty_partition_is_an_error() -> None:
    rules = Rules(keys=(KeyRule(name="data"),), order_rule=OrderRule(partition=(4, 5)))
    with pytest.raises(ConfigError, match=r"^partition is 4/5, but there are only 3 sequences, so this part is empty"):
        make_plan({"data": np.full(3, 5)}, rules)


@given(cases())
@thorough
def test_a_shuffle_of_all_rows_keeps_rows_shards_and_their_size(case: Case) -> None:
    assume(has_rows(case))
    rules = changed(case.rules, order="random", order_rule=OrderRule(all_rows=True))
    by_place = {(row.sequence, row.number): row for some in reference.all_rows(case.lengths, rules) for row in some}
    plan, seen = make_plan(case.lengths, rules), []
    for i in range(len(plan)):
        rows = rows_of(plan.shard(i))
        sizes = [reference.bytes_of(by_place[row], case.lengths, rules) for row in rows]
        assert sum(sizes) <= rules.shard_bytes or len(rows) == 1 or sum(size > 0 for size in sizes) == 1
        assert all(
            sum(sizes) + reference.bytes_of(by_place[row], case.lengths, rules) > rules.shard_bytes
            for row in first_row(plan, i + 1)
        )
        alone = pickle.loads(pickle.dumps(plan.task(i))).plan()
        assert rows_of(alone) == rows
        seen += rows
    assert sorted(seen) == sorted(by_place)
    assert plan.rows == len(seen)


def first_row(plan: PassPlan, shard: int) -> list[tuple[int, int]]:
    """The first row of a shard in the order of all rows, before it was put into batches."""
    if shard >= len(plan):
        return []
    number = int(plan.order[plan.cuts[shard]])
    sequence = int(plan.owner[number])
    return [(sequence, number - int(plan.before[sequence]))]


def test_neighbouring_chunks_are_read_as_one_piece() -> None:
    chunk = ChunkRule(size_frames=2, step_frames=2)
    rules = Rules(keys=(KeyRule(name="data", chunk=chunk),), order="random", order_rule=OrderRule(all_rows=True))
    task = make_plan({"data": np.array([10, 0, 4])}, rules).task(0)
    assert task.sequence.tolist() == [0, 2]
    assert task.first.tolist() == [0, 0]
    assert task.stop.tolist() == [5, 2]


@given(cases(), st.integers(1, 4), st.sampled_from(["random", "source"]))
@thorough
def test_every_pass_holds_every_row(case: Case, epochs: int, order: str) -> None:
    assume(has_rows(case))
    rules = changed(case.rules, epochs=epochs, order=order)
    plan = plan_parts(case.lengths, tags_of(case), whole(case), rules, None)[""]
    passes: list[list[tuple[int, int]]] = [[] for _ in range(epochs)]
    numbers = []
    for i in range(len(plan)):
        numbers.append(plan.task(i).epoch)
        passes[numbers[-1]] += rows_of(plan.shard(i))
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(epochs))
    for epoch, rows in enumerate(passes):
        expected = [row for some in reference.all_rows(case.lengths, rules, epoch) for row in some]
        assert sorted(rows) == [(row.sequence, row.number) for row in expected]
    assert plan.rows == sum(map(len, passes))
    assert passes == [all_rows_of(make_plan(case.lengths, rules, epoch)) for epoch in range(epochs)]


def test_passes_differ() -> None:
    rules = Rules(keys=(KeyRule(name="data"),), order="random", epochs=5)
    lengths = {"data": np.arange(1, 30)}
    plan = plan_parts(lengths, Tags.of(map(str, range(29))), Selected(np.arange(29), {}), rules, None)[""]
    assert len({tuple(one.order.tolist()) for one in plan.passes}) == 5


@given(cases(), st.sampled_from([None, 2]), st.booleans())
@thorough
def test_parts_hold_every_row_once_and_share_their_classes(case: Case, classes: int | None, rest: bool) -> None:
    assume(has_rows(case))
    rules = changed(case.rules, batch=BatchRule(auto_classes=classes))
    shares = {"a": 0.5, "b": 0.25 if rest else 0.5}
    try:
        parts = plan_parts(case.lengths, tags_of(case), whole(case), rules, SplitRule(shares, None))
    except ConfigError:
        return
    assert list(parts) == ["a", "b"]
    found = [row for plan in parts.values() for row in all_rows_of(plan)]
    left = parts["a"].report.left_out.get("split")
    expected = [(row.sequence, row.number) for some in reference.all_rows(case.lengths, rules) for row in some]
    assert len(found) == len(set(found))
    assert len(found) + (left.rows if left else 0) == len(expected)
    assert set(found) <= set(expected)
    boundaries = [plan.passes[0].classes.boundaries.tolist() for plan in parts.values() if plan.passes[0].classes]
    assert not boundaries or boundaries[0] == boundaries[1] == boundaries_over_all(case, rules, 2)


def boundaries_over_all(case: Case, rules: Rules, classes: int) -> list[int]:
    return make_plan(case.lengths, changed(rules, batch=BatchRule(auto_classes=classes))).classes.boundaries.tolist()


def test_boundaries_are_those_of_the_selected_alone() -> None:
    rules = Rules(keys=(KeyRule(name="data"),), batch=BatchRule(auto_classes=2))
    lengths = {"data": np.array([10, 20, 30, 40, 1000])}
    selected = Selected(np.arange(4), {})
    plan = plan_parts(lengths, Tags.of("abcde"), selected, rules, None)[""]
    assert plan.passes[0].classes.boundaries.tolist() == [20, 40]


def over(rules: Rules, lengths: list[int]) -> dict[str, OverBudget]:
    selected = Selected(np.arange(len(lengths)), {})
    named = {rule.name: np.array(lengths) for rule in rules.keys}
    return dict(plan_parts(named, Tags.of(map(str, range(len(lengths)))), selected, rules, None)[""].report.over_budget)


def test_rows_over_a_budget_are_counted_by_key() -> None:
    data = KeyRule(name="data", max_frames=8, left_frames=1)
    classes = KeyRule(name="classes", max_frames=20)
    assert over(Rules(keys=(data, classes)), [3, 7, 8, 12]) == {
        "data": OverBudget(rows=2, longest_frames=13, limit_frames=8)
    }
    assert over(Rules(keys=(data, classes)), [3, 7]) == {}
    chunk = ChunkRule(size_frames=8, step_frames=4)
    cut = KeyRule(name="data", max_frames=8, left_frames=1, chunk=chunk)
    assert over(Rules(keys=(cut,)), [3, 12])["data"] == OverBudget(rows=2, longest_frames=9, limit_frames=8)
    rounded = KeyRule(name="data", max_frames=8, pad_multiple=10)
    assert over(Rules(keys=(rounded,)), [3, 0])["data"] == OverBudget(rows=1, longest_frames=10, limit_frames=8)
    packed = Rules(keys=(KeyRule(name="data"), KeyRule(name="classes", left_frames=3)), batch=BatchRule(row_frames=9))
    assert over(packed, [3, 7, 20]) == {ROW_FRAMES: OverBudget(rows=2, longest_frames=23, limit_frames=9)}


@given(cases(), st.sampled_from([BatchRule(), BatchRule(auto_classes=2, pad_to_class=True), BatchRule(row_frames=12)]))
@thorough
def test_counted_rows_are_those_that_stand_alone(case: Case, batch: BatchRule) -> None:
    assume(has_rows(case))
    rules = changed(case.rules, batch=batch)
    plan = plan_parts(case.lengths, tags_of(case), whole(case), rules, None)[""]
    found = {name: some.rows for name, some in plan.report.over_budget.items()}
    expected: dict[str, int] = {}
    rows = [row for some in reference.all_rows(case.lengths, rules) for row in some]
    classes = plan.passes[0].classes
    for row in rows:
        frames = {
            key.name: reference.frames_of(row.cores[key.name], int(case.lengths[key.name][row.sequence]), key)
            for key in rules.keys
        }
        if batch.row_frames:
            if max(frames[key.name] * key.rate for key in rules.keys if key.rate is not None) > batch.row_frames:
                expected[ROW_FRAMES] = expected.get(ROW_FRAMES, 0) + 1
            continue
        for key in rules.keys:
            padded = frames[key.name]
            if batch.pad_to_class:
                of = sum(boundary < frames["data"] for boundary in classes.boundaries.tolist())
                padded = int(classes.widths[key.name][of])
            if key.max_frames is not None and padded > key.max_frames:
                expected[key.name] = expected.get(key.name, 0) + 1
    assert found == expected
    assert len(plan.report.warnings()) == len(expected)


def test_a_warning_names_key_number_longest_and_remedy() -> None:
    rules = Rules(keys=(KeyRule(name="data", max_frames=8),))
    selected = Selected(np.arange(3), {})
    report = plan_parts({"data": np.array([9, 10, 3])}, Tags.of("abc"), selected, rules, None)[""].report
    assert report.warnings() == [
        "key 'data': 2 rows are longer than batch.max_frames 8 (the longest has 10 frames) and made into batches of their "
        "own; raise batch.max_frames, set chunk.size, or leave them out with select.max_frames"
    ]
    assert report.as_dict()["over_budget"] == {"data": {"rows": 2, "longest_frames": 10, "limit_frames": 8}}
