"""Orders are written out here: a release that changed one would change every dataset made with its seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.planning import ChunkRule, KeyRule, OrderRule, Rules, make_plan
from seqprep.planning.ordering import order_rows, order_sequences
from tests.examples import examples
from tests.planning import reference

thorough = settings(max_examples=examples(100), deadline=None)

SEQUENCES = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 3])
NUMBERS = np.array([0, 1, 2, 0, 1, 0, 0, 1, 2, 3])

# Worked out with plain integers, without numpy.
SEQUENCE_ORDERS = [
    (0, 0, [10, 0, 7, 8, 4, 3, 1, 2, 11, 9, 5, 6]),
    (1, 0, [7, 9, 10, 11, 5, 3, 2, 4, 0, 1, 6, 8]),
    (1, 1, [5, 2, 1, 10, 7, 0, 9, 8, 3, 11, 4, 6]),
    (2, 0, [7, 6, 11, 1, 9, 10, 4, 2, 5, 3, 0, 8]),
    (18446744073709551615, 5, [8, 11, 0, 9, 2, 1, 5, 3, 6, 7, 4, 10]),
]
ROW_ORDERS = [
    (0, 0, [6, 2, 5, 3, 1, 4, 7, 8, 9, 0]),
    (1, 0, [0, 8, 4, 3, 1, 2, 5, 7, 6, 9]),
    (1, 1, [8, 5, 0, 6, 4, 7, 3, 2, 1, 9]),
    (18446744073709551615, 5, [2, 3, 5, 6, 8, 0, 9, 7, 1, 4]),
]
LENGTHS = [5, 3, 9, 3, 7, 5, 1, 3, 8, 2, 9, 4]
ORDERS_BY_LENGTH = [
    ("sorted", OrderRule(), 0, 0, [6, 9, 1, 3, 7, 11, 0, 5, 4, 8, 2, 10]),
    ("sorted_reverse", OrderRule(), 0, 0, [2, 10, 8, 4, 0, 5, 11, 1, 3, 7, 9, 6]),
    ("laplace", OrderRule(groups=1), 1, 0, [6, 9, 7, 3, 1, 11, 5, 0, 4, 8, 10, 2]),
    ("laplace", OrderRule(groups=3), 1, 0, [9, 7, 11, 10, 2, 4, 5, 3, 6, 1, 0, 8]),
    ("laplace", OrderRule(groups=3), 1, 1, [1, 5, 2, 10, 8, 0, 7, 9, 6, 3, 11, 4]),
    ("laplace", OrderRule(groups=5), 7, 0, [9, 10, 11, 3, 6, 0, 4, 2, 1, 7, 5, 8]),
    ("laplace", OrderRule(group_size=5), 7, 0, [6, 9, 3, 11, 4, 10, 2, 8, 0, 5, 1, 7]),
    ("laplace", OrderRule(group_size=99), 7, 0, [6, 9, 3, 11, 4, 10, 2, 8, 0, 5, 1, 7]),
]
GLOBAL_ORDERS = [
    (1, 0, [(0, 0), (4, 0), (0, 1), (4, 2), (4, 1), (2, 2), (2, 0), (2, 1), (4, 3), (3, 0)]),
    (1, 1, [(2, 0), (4, 2), (0, 0), (4, 1), (3, 0), (4, 0), (2, 2), (4, 3), (2, 1), (0, 1)]),
    (9, 0, [(4, 3), (2, 2), (0, 0), (0, 1), (4, 0), (4, 2), (4, 1), (2, 0), (3, 0), (2, 1)]),
]
PLAN_ORDER = [2, 4, 3, 1, 0]
PLAN_ROWS = [(3, 0), (0, 2), (0, 1), (0, 0), (4, 0), (3, 1), (1, 0)]


def ordered(count: int, rules: Rules, epoch: int = 0) -> list[int]:
    """The order of sequences 0, 1, …, all of one length."""
    return order_sequences(np.arange(count), np.ones(count, np.int64), rules, epoch).tolist()


def rules(by: str = "random", seed: int = 1, **more: object) -> Rules:
    chunk = ChunkRule(size_frames=3, step_frames=3)
    return Rules(keys=(KeyRule(name="data", chunk=chunk, frame_bytes=1),), order=by, seed=seed, **more)


@pytest.mark.parametrize(("seed", "epoch", "expected"), SEQUENCE_ORDERS)
def test_orders_of_sequences_never_change(seed: int, epoch: int, expected: list[int]) -> None:
    assert ordered(12, rules(seed=seed), epoch) == expected


@pytest.mark.parametrize(("seed", "epoch", "expected"), ROW_ORDERS)
def test_orders_of_rows_never_change(seed: int, epoch: int, expected: list[int]) -> None:
    assert order_rows(SEQUENCES, NUMBERS, rules(seed=seed), epoch).tolist() == expected


def test_a_plan_never_changes() -> None:
    plan = make_plan({"data": np.array([7, 2, 0, 5, 3])}, rules(seed=7, max_sequences=3), epoch=3)
    assert plan.order.tolist() == PLAN_ORDER
    shard = plan.shard(0)
    assert list(zip(shard.sequence.tolist(), shard.number.tolist(), strict=True)) == PLAN_ROWS
    assert shard.bounds.tolist() == [0, 3, 6, 7]


@pytest.mark.parametrize(("by", "how", "seed", "epoch", "expected"), ORDERS_BY_LENGTH)
def test_orders_by_length_never_change(by: str, how: OrderRule, seed: int, epoch: int, expected: list[int]) -> None:
    found = order_sequences(np.arange(12), np.array(LENGTHS), rules(by, seed, order_rule=how), epoch)
    assert found.tolist() == expected


@pytest.mark.parametrize("bytes_of_a_shard", [10**9, 7, 3, 1])
@pytest.mark.parametrize(("seed", "epoch", "expected"), GLOBAL_ORDERS)
def test_orders_of_all_rows_never_change(
    seed: int, epoch: int, expected: list[tuple[int, int]], bytes_of_a_shard: int
) -> None:
    """Nor do they depend on where shards are cut."""
    how = rules(seed=seed, order_rule=OrderRule(all_rows=True), shard_bytes=bytes_of_a_shard)
    plan = make_plan({"data": np.array([6, 0, 9, 3, 12])}, how, epoch)
    found = [plan.shard(i) for i in range(len(plan))]
    rows = [row for shard in found for row in zip(shard.sequence.tolist(), shard.number.tolist(), strict=True)]
    assert rows == expected
    assert len(plan) == {10**9: 1, 7: 5, 3: 10, 1: 10}[bytes_of_a_shard]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 12), st.integers(0, 99), st.integers(0, 3))
@thorough
def test_laplace_sorts_its_groups_up_and_down(lengths: list[int], groups: int, seed: int, epoch: int) -> None:
    drawn = ordered(len(lengths), rules(seed=seed), epoch)
    how = rules("laplace", seed, order_rule=OrderRule(groups=groups))
    found = order_sequences(np.arange(len(lengths)), np.array(lengths), how, epoch).tolist()
    assert found == reference.laplace(drawn, lengths, groups)


@pytest.mark.parametrize("groups", [7, 8, 10**6, 10**15 - 1])
def test_more_groups_than_sequences_leave_the_drawn_order(groups: int) -> None:
    how = rules("laplace", order_rule=OrderRule(groups=groups))
    found = order_sequences(np.arange(7), np.array([5, 1, 4, 1, 5, 9, 2]), how)
    assert found.tolist() == ordered(7, rules())


@given(st.lists(st.integers(0, 9), max_size=60))
@thorough
def test_sorting_is_stable_in_both_directions(lengths: list[int]) -> None:
    places = np.arange(len(lengths)) * 3  # of a selection
    for by, sign in (("sorted", 1), ("sorted_reverse", -1)):
        found = order_sequences(places, np.array(lengths, np.int64), rules(by)).tolist()
        assert found == sorted(places.tolist(), key=lambda place: sign * lengths[place // 3])
    assert order_sequences(places, np.array(lengths), rules("reverse")).tolist() == places.tolist()[::-1]


@pytest.mark.parametrize("by", ["random", "laplace"])
def test_a_selection_keeps_its_relative_order(by: str) -> None:
    """A draw belongs to a sequence, not to its neighbours; laplace then sorts in groups of its own."""
    how = rules(by, order_rule=OrderRule(groups=1))
    some = np.array([3, 4, 8, 15, 16, 23, 42])
    whole = order_sequences(np.arange(50), np.ones(50, np.int64), how).tolist()
    assert order_sequences(some, np.ones(7, np.int64), how).tolist() == [place for place in whole if place in some]


@pytest.mark.parametrize("by", ["source", "reverse", "sorted", "sorted_reverse", "laplace"])
def test_only_random_shuffles_rows_inside_a_shard(by: str) -> None:
    assert order_rows(SEQUENCES, NUMBERS, rules(by)).tolist() == list(range(10))
    plan = make_plan({"data": np.array([7, 2, 9])}, rules(by, order_rule=OrderRule(groups=2)))
    shard = plan.shard(0)
    rows = list(zip(shard.sequence.tolist(), shard.number.tolist(), strict=True))
    assert rows == [(place, number) for place in plan.order.tolist() for number in range([3, 1, 3][place])]


def test_the_sources_order_is_kept() -> None:
    assert ordered(4, rules("source"), epoch=3) == [0, 1, 2, 3]
    assert order_rows(SEQUENCES, NUMBERS, rules("source")).tolist() == list(range(10))


@given(st.integers(0, 500), st.integers(-(2**70), 2**70), st.integers(0, 100))
@thorough
def test_every_order_is_a_permutation(count: int, seed: int, epoch: int) -> None:
    order = ordered(count, rules(seed=seed), epoch)
    assert sorted(order) == list(range(count))
    sequence, number = np.arange(count) // 5, np.arange(count) % 5
    assert sorted(order_rows(sequence, number, rules(seed=seed), epoch).tolist()) == list(range(count))


def test_seeds_and_epochs_give_orders_of_their_own() -> None:
    drawn = {tuple(ordered(30, rules(seed=seed), epoch)) for seed in range(20) for epoch in range(20)}
    assert len(drawn) == 400
    rows = np.arange(30)
    drawn = {tuple(order_rows(rows, rows * 0, rules(seed=seed), epoch)) for seed in range(20) for epoch in range(20)}
    assert len(drawn) == 400


def test_sequences_and_rows_are_ordered_independently() -> None:
    places = np.arange(50)
    assert ordered(50, rules()) != order_rows(places, places * 0, rules()).tolist()


def test_orders_are_even() -> None:
    """Each of 5 sequences comes first about as often as any other: within 5 standard deviations."""
    first = np.bincount([ordered(5, rules(seed=seed))[0] for seed in range(2000)], minlength=5)
    assert np.abs(first - 400).max() < 5 * np.sqrt(2000 * 0.2 * 0.8)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), unique=True, max_size=60), st.randoms())
@thorough
def test_rows_keep_their_relative_order_whatever_stands_with_them(rows: list[tuple[int, int]], random: object) -> None:
    def laid(some: list[tuple[int, int]]) -> list[tuple[int, int]]:
        sequence, number = (np.array([row[k] for row in some], np.int64) for k in (0, 1))
        return [some[i] for i in order_rows(sequence, number, rules(), epoch=2)]

    whole = laid(rows)
    some = [row for row in rows if random.random() < 0.5]
    random.shuffle(some)
    assert laid(some) == [row for row in whole if row in set(some)]


def test_shard_sizes_dont_change_the_order_of_sequences() -> None:
    lengths = {"data": np.arange(1, 40)}
    plans = [make_plan(lengths, rules(shard_bytes=size), epoch=1) for size in (20, 100, 10**9)]
    assert len({tuple(plan.order) for plan in plans}) == 1
    assert len({len(plan) for plan in plans}) == 3
