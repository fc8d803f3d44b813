"""Orders are written out here: a release that changed one would change every dataset made with its seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.planning import ChunkRule, KeyRule, Rules, make_plan
from seqprep.planning.ordering import order_rows, order_sequences

thorough = settings(max_examples=100, deadline=None)

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
