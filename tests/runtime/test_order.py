"""The global order: what each shuffle keeps together, and what `even` promises, from numbers alone."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqprep.errors import ConfigError
from seqprep.runtime.order import GlobalOrder, group_by_shape, parse_shuffle, shards_together
from seqprep.runtime.positions import Iteration
from seqprep.types import Int64

SHUFFLES = [False, "global", "shards", "window:2", "window:5"]
SIZES = [3, 2, 4, 1, 4]


def bounds(sizes: Sequence[int], begin: int = 0) -> Int64:
    return begin + np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def make(sizes: Sequence[int], **options: Any) -> GlobalOrder:
    defaults = {"passes": [bounds(sizes)], "shuffle": False, "seed": 0, "rank": 0, "world_size": 1, "even": "pad"}
    return GlobalOrder(**defaults | options)


# -- shuffles --


@pytest.mark.parametrize(
    ("shuffle", "seed", "epoch", "expected"),
    [
        (False, 7, 3, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
        ("global", 0, 0, [12, 0, 11, 3, 2, 5, 6, 1, 8, 7, 10, 13, 4, 9]),
        ("global", 0, 1, [9, 12, 2, 11, 13, 10, 1, 6, 4, 0, 8, 3, 5, 7]),
        ("global", 7, 0, [2, 10, 5, 8, 11, 0, 4, 3, 9, 12, 13, 7, 6, 1]),
        ("shards", 0, 0, [0, 2, 1, 5, 6, 8, 7, 12, 11, 10, 13, 3, 4, 9]),
        ("shards", 0, 1, [9, 6, 8, 5, 7, 4, 3, 2, 1, 0, 12, 11, 13, 10]),
        ("shards", 7, 0, [10, 11, 12, 13, 4, 3, 2, 0, 1, 5, 8, 7, 6, 9]),
        ("window:2", 0, 0, [0, 2, 5, 6, 1, 8, 7, 12, 11, 3, 10, 13, 4, 9]),
        ("window:2", 0, 1, [9, 6, 8, 5, 7, 2, 1, 4, 0, 3, 12, 11, 13, 10]),
        ("window:2", 7, 0, [10, 11, 4, 3, 12, 13, 2, 5, 8, 0, 7, 6, 1, 9]),
    ],
)
def test_orders_are_the_same_for_good(shuffle: Any, seed: int, epoch: int, expected: list[int]) -> None:
    assert make(SIZES, shuffle=shuffle, seed=seed).whole(epoch).tolist() == expected


sizes_of_shards = st.lists(st.integers(1, 6), min_size=1, max_size=12)


@given(sizes_of_shards, st.sampled_from(SHUFFLES), st.integers(-9, 9), st.integers(0, 5))
def test_every_order_has_every_batch_once(sizes: list[int], shuffle: Any, seed: int, epoch: int) -> None:
    whole = make(sizes, shuffle=shuffle, seed=seed).whole(epoch)
    assert sorted(whole.tolist()) == list(range(sum(sizes)))


@given(sizes_of_shards, st.integers(1, 14), st.integers(0, 3))
def test_a_window_opens_few_shards(sizes: list[int], together: int, epoch: int) -> None:
    shuffle = parse_shuffle(f"window:{together}")
    whole = make(sizes, shuffle=shuffle).whole(epoch)
    shard = np.searchsorted(bounds(sizes), whole, side="right") - 1
    place = {int(number): place // together for place, number in enumerate(dict.fromkeys(shard.tolist()))}
    windows = [place[int(number)] for number in shard]
    groups: list[set[int]] = []
    for number in dict.fromkeys(shard.tolist()):  # in the order in which they are opened
        if not groups or len(groups[-1]) == together:
            groups.append(set())
        groups[-1].add(number)
    for group in groups:
        positions = np.flatnonzero(np.isin(shard, list(group)))
        assert positions[-1] - positions[0] == len(positions) - 1  # no other shard is read meanwhile
    assert windows == sorted(windows)
    if together >= len(sizes):
        np.testing.assert_array_equal(whole, make(sizes, shuffle="global").whole(epoch))


def test_a_window_mixes_its_shards_and_shards_change_places() -> None:
    sizes = [50] * 8
    for shuffle, mixed in (("shards", 1), ("window:4", 4)):
        shard = make(sizes, shuffle=shuffle).whole(0) // 50
        assert {len(set(shard[begin : begin + 50 * mixed])) for begin in range(0, 400, 50 * mixed)} == {mixed}
        if mixed > 1:
            assert (np.diff(shard) != 0).mean() > 0.5
        assert len({tuple(dict.fromkeys(make(sizes, shuffle=shuffle).whole(epoch) // 50)) for epoch in range(9)}) == 9


def test_seeds_and_epochs_give_other_orders() -> None:
    for shuffle in SHUFFLES[1:]:
        orders = {
            tuple(make([9] * 9, shuffle=shuffle, seed=seed).whole(epoch)) for seed in range(4) for epoch in range(4)
        }
        assert len(orders) == 16


def test_epochs_read_the_passes_in_turn() -> None:
    passes = [bounds([3, 2]), bounds([4], 5), bounds([1, 1, 1], 9)]
    for shuffle in SHUFFLES:
        order = make([], passes=passes, shuffle=shuffle, world_size=2)
        for epoch in range(7):
            of = passes[epoch % 3]
            assert sorted(order.whole(epoch)) == list(range(of[0], of[-1]))
            assert order.steps(epoch, 0) == -(-order.batches(epoch) // 2)
    first, again = (make([], passes=passes, shuffle="global").whole(epoch) for epoch in (0, 3))
    assert first.tolist() != again.tolist()


@pytest.mark.parametrize(
    ("given", "name", "together"),
    [
        (False, False, 1), (True, "global", None), (np.True_, "global", None), ("global", "global", None),
        ("shards", "shards", 1), ("window:1", "shards", 1), ("window:08", "window:8", 8),
    ],
)  # fmt: skip
def test_names_of_shuffles(given: Any, name: Any, together: int | None) -> None:
    assert parse_shuffle(given) == name
    assert parse_shuffle(parse_shuffle(given)) == name
    assert shards_together(parse_shuffle(given)) == together


@pytest.mark.parametrize(
    "given", ["shard", "window", "window:", "window:0", "window:-2", "window:x", "global:3", 3, None, ""]
)
def test_no_such_shuffle(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"shuffle is .*'shards', or 'window:N'"):
        parse_shuffle(given)


# -- even --


@pytest.mark.parametrize("most", [20, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("even", ["pad", "drop", "none"])
def test_what_even_promises(even: str, most: int) -> None:
    """For every number of batches and ranks up to so many."""
    passes = [bounds([batches]) for batches in range(most + 1)]  # epoch n has n batches
    for world_size in range(1, most + 1):
        ranks = [make([], passes=passes, even=even, rank=rank, world_size=world_size) for rank in range(world_size)]
        for batches in range(most + 1):
            first = int(passes[batches][0])
            got = [order.of_epoch(batches, 0) for order in ranks]
            steps = [len(of) for of in got]
            assert steps == [order.steps(batches, 0) for order in ranks]
            counts = np.bincount(np.concatenate(got) - first, minlength=batches)
            full, rest = divmod(batches, world_size)
            if even == "pad":  # complete, equal steps, few repeats
                assert set(steps) == {full + (rest > 0)}
                assert counts.min(initial=1) >= 1
                assert counts.sum() - batches <= world_size - 1
                assert counts.max(initial=1) - counts.min(initial=99) <= 1  # none is repeated more often than another
            elif even == "drop":  # disjoint, equal steps
                assert set(steps) == {full}
                assert counts.max(initial=0) <= 1
            else:  # disjoint, complete, nearly equal steps
                assert counts.tolist() == [1] * batches
                assert steps == [full + (rank < rest) for rank in range(world_size)]


@given(
    sizes_of_shards, st.sampled_from(SHUFFLES), st.integers(1, 9), st.sampled_from(["pad", "drop", "none"]),
    st.integers(0, 2), st.data(),
)  # fmt: skip
def test_ranks_together_read_the_global_order(
    sizes: list[int], shuffle: Any, world_size: int, even: str, epoch: int, data: st.DataObject
) -> None:
    whole = make(sizes, shuffle=shuffle).whole(epoch)
    begin = data.draw(st.integers(0, len(whole)))
    ranks = [make(sizes, shuffle=shuffle, rank=rank, world_size=world_size, even=even) for rank in range(world_size)]
    got = [order.of_epoch(epoch, begin).tolist() for order in ranks]
    together = [of[step] for step in range(max(map(len, got))) for of in got if step < len(of)]
    left = len(whole) - begin
    expected = (
        np.append(whole[begin:], whole)[: -(-left // world_size) * world_size] if even == "pad" else whole[begin:]
    )
    if even == "drop":
        expected = expected[: left // world_size * world_size]
    assert together[: len(expected)] == expected[: len(together)].tolist()
    assert len(together) == max(-(-left // world_size) * world_size if even == "pad" else len(expected), 0)


@given(
    sizes_of_shards, st.sampled_from(SHUFFLES), st.integers(1, 9), st.integers(1, 9),
    st.sampled_from(["pad", "drop", "none"]), st.integers(0, 2), st.data(),
)  # fmt: skip
def test_another_world_size_goes_on_where_one_stopped(
    sizes: list[int], shuffle: Any, before: int, after: int, even: str, epoch: int, data: st.DataObject
) -> None:
    whole = make(sizes, shuffle=shuffle).whole(epoch).tolist()
    old = [make(sizes, shuffle=shuffle, rank=rank, world_size=before, even=even) for rank in range(before)]
    taken = data.draw(st.integers(0, min(order.steps(epoch, 0) for order in old)))
    states = [Iteration(order, {}, epoch, 0).state_at(taken) for order in old]
    assert all(state == states[0] for state in states)
    if states[0]["epoch"] != epoch:
        assert old[0].ended(epoch, taken * before)
        return
    begin = states[0]["position"]
    new = [make(sizes, shuffle=shuffle, rank=rank, world_size=after, even=even) for rank in range(after)]
    got = [order.of_epoch(epoch, begin).tolist() for order in new]
    seen = [number for order in old for number in order.of_epoch(epoch, 0).tolist()[:taken]]
    assert Counter(seen) == Counter(whole[:begin])
    rest = Counter(number for of in got for number in of)
    if even == "none":
        assert rest == Counter(whole[begin:])
    elif even == "pad":
        assert set(whole[begin:]) <= set(rest)
        assert rest.total() - len(whole[begin:]) < after
    else:
        assert rest == Counter(whole[begin : begin + (len(whole) - begin) // after * after])


# -- same_shape --

shapes_of_batches = st.lists(st.integers(0, 4), min_size=0, max_size=40)


@given(
    shapes_of_batches, st.integers(1, 9), st.sampled_from(["pad", "drop"]), st.sampled_from(SHUFFLES), st.integers(0, 2)
)
def test_ranks_get_one_shape_in_a_step(shapes: list[int], world_size: int, even: str, shuffle: Any, epoch: int) -> None:
    options = {"shapes": np.array(shapes, np.int64), "world_size": world_size, "even": even, "shuffle": shuffle}
    ranks = [make([len(shapes)], rank=rank, **options) for rank in range(world_size)]
    got = np.array([order.of_epoch(epoch, 0) for order in ranks])
    assert got.shape == (world_size, ranks[0].steps(epoch, 0))
    assert ranks[0].ended(epoch, got.size)
    of = np.array(shapes, np.int64)[got]
    assert (of == of[:1]).all()
    counts = Counter(got.reshape(-1).tolist())
    for shape, members in Counter(shapes).items():
        numbers = [counts[number] for number, other in enumerate(shapes) if other == shape]
        if even == "pad":
            assert min(numbers) >= 1
            assert sum(numbers) - members < world_size
        else:
            assert max(numbers) <= 1
            assert members - sum(numbers) < world_size


def test_groups_stand_where_their_first_batch_stood() -> None:
    order, shapes = np.arange(10, 18), np.array([0, 1, 0, 1, 1, 0, 2, 0])
    assert group_by_shape(order, shapes, 2, "pad").tolist() == [10, 12, 11, 13, 14, 11, 15, 17, 16, 16]
    assert group_by_shape(order, shapes, 2, "drop").tolist() == [10, 12, 11, 13, 15, 17]
    assert group_by_shape(order, shapes, 1, "pad").tolist() == order.tolist()


def test_same_shape_is_the_same_for_good() -> None:
    shapes = np.array([0, 1, 0, 2, 1, 0, 0, 1, 1, 0, 2, 0, 1, 0])
    order = make(SIZES, shuffle="global", world_size=3, shapes=shapes)
    assert order.whole(0).tolist() == [12, 1, 8, 0, 11, 2, 3, 10, 3, 5, 6, 13, 7, 4, 12, 9, 0, 11]


@given(shapes_of_batches, st.integers(1, 5), st.sampled_from(["pad", "drop"]), st.data())
def test_same_shape_goes_on_where_it_stopped(
    shapes: list[int], world_size: int, even: Any, data: st.DataObject
) -> None:
    options = {"shapes": np.array(shapes, np.int64), "world_size": world_size, "even": even, "shuffle": "global"}
    for rank in range(world_size):
        order = make([len(shapes)], rank=rank, **options)
        whole = order.of_epoch(2, 0)
        taken = data.draw(st.integers(0, len(whole)))
        np.testing.assert_array_equal(order.of_epoch(2, taken * world_size), whole[taken:])
