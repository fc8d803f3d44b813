from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.planning import batching
from seqprep.planning.batching import greedy_batches
from tests.examples import examples
from tests.planning import reference

thorough = settings(max_examples=examples(100), deadline=None)

BLOCK = 1 << 14


@st.composite
def row_lengths(draw: st.DrawFn) -> tuple[list[list[int]], list[int | None], int | None]:
    keys = draw(st.integers(1, 3))
    rows = draw(st.integers(0, 60))
    lengths = [draw(st.lists(st.integers(0, 20), min_size=rows, max_size=rows)) for _ in range(keys)]
    for follower in range(1, keys):
        rate = draw(st.sampled_from([None, 1, 2, 3]))
        if rate is not None:  # nowhere longer than the first key, so that one budget may imply the other
            lengths[follower] = [-(-frames // rate) for frames in lengths[0]]
    limits = [draw(st.none() | st.integers(1, 100)) for _ in range(keys)]
    return lengths, limits, draw(st.none() | st.integers(1, 12))


def run(lengths: list[list[int]], limits: list[int | None], most: int | None) -> list[int]:
    """Rows of each batch; the bounds are checked on the way."""
    bounds = greedy_batches([np.array(frames, np.int64) for frames in lengths], limits, most)
    assert bounds.dtype == np.int64
    assert bounds[0] == 0
    assert bounds[-1] == len(lengths[0])
    return np.diff(bounds).tolist()


@given(row_lengths(), st.sampled_from([1, 2, 3, 7, BLOCK]))
@thorough
def test_batches_as_the_rules_say(case: tuple[list[list[int]], list[int | None], int | None], block: int) -> None:
    lengths, limits, most = case
    expected = reference.batches(list(zip(*lengths, strict=True)), limits, most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "_BLOCK_ROWS", block)
        assert run(lengths, limits, most) == expected


@given(row_lengths())
@thorough
def test_batches_keep_their_budgets_and_are_as_large_as_they_may_be(
    case: tuple[list[list[int]], list[int | None], int | None],
) -> None:
    lengths, limits, most = case
    sizes = run(lengths, limits, most)
    assert sum(sizes) == len(lengths[0])
    assert all(sizes)

    def fits(begin: int, end: int) -> bool:
        within = all(
            limit is None or max(frames[begin:end]) * (end - begin) <= limit
            for frames, limit in zip(lengths, limits, strict=True)
        )
        return within and (most is None or end - begin <= most)

    bounds = np.cumsum([0, *sizes]).tolist()
    for begin, end in pairwise(bounds):
        assert fits(begin, end) or end == begin + 1
        assert end == len(lengths[0]) or not fits(begin, end + 1)


@pytest.mark.parametrize(
    ("frames", "limit", "most", "expected"),
    [
        ([], 10, 3, []),
        ([5], 10, None, [1]),
        ([5, 5], 10, None, [2]),
        ([5, 5], 9, None, [1, 1]),
        ([5, 6], 10, None, [1, 1]),
        ([11], 10, None, [1]),
        ([1, 11, 1], 10, None, [1, 1, 1]),
        ([1, 1, 1, 1, 2], 5, None, [4, 1]),
        ([2, 1, 1, 1, 1], 5, None, [2, 3]),
        ([1] * 7, None, 3, [3, 3, 1]),
        ([1] * 6, None, 3, [3, 3]),
        ([9] * 3, None, 1, [1, 1, 1]),
        ([0, 0, 0], 1, None, [3]),
        ([0, 0, 2, 0], 4, None, [2, 2]),
        ([0, 0, 7, 0, 0], 4, None, [2, 1, 2]),
        ([3] * 4, 10**30, 10**30, [4]),
    ],
)
def test_examples(frames: list[int], limit: int | None, most: int | None, expected: list[int]) -> None:
    assert run([frames], [limit], most) == expected


def test_the_tightest_key_closes_a_batch() -> None:
    assert run([[4, 4, 4, 4], [1, 3, 1, 1]], [100, 6], None) == [2, 2]
    assert run([[4, 4, 4, 4], [1, 3, 1, 1]], [8, None], None) == [2, 2]
    assert run([[4, 4, 4, 4], [1, 3, 1, 1]], [12, 6], 2) == [2, 2]


def test_budgets_that_follow_from_others_are_left_out() -> None:
    features, labels, text = ([9, 6, 3], [3, 2, 1], [3, 2, 4])
    assert decisive([features, labels, text], [50, 50, 50]) == [(features, 50), (text, 50)]
    assert decisive([labels, features], [50, 50]) == [(features, 50)]
    assert decisive([features, labels], [50, 49]) == [(labels, 49), (features, 50)]
    assert decisive([features, features], [50, 70]) == [(features, 50)]


def decisive(lengths: list[list[int]], limits: list[int]) -> list[tuple[list[int], int]]:
    budgets = zip(map(np.array, lengths), limits, strict=True)
    return [(frames.tolist(), limit) for frames, limit in batching._decisive(list(budgets))]


@pytest.mark.parametrize("most", [None, 1, 7, 5000, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
@pytest.mark.parametrize("limit", [None, 300, 10**6])
def test_many_blocks_of_rows(most: int | None, limit: int | None) -> None:
    frames = np.random.default_rng(1).integers(0, 60, 3 * BLOCK + 17).tolist()
    assert run([frames], [limit], most) == reference_of_one_key(frames, limit, most)


def test_a_batch_that_spans_many_blocks_between_small_ones() -> None:
    frames = [9] * 10 + [0] * (3 * BLOCK + 5) + [9] * 10
    assert run([frames], [18], None) == [2] * 5 + [3 * BLOCK + 5] + [2] * 5
    assert run([[0] * (4 * BLOCK)], [1], None) == [4 * BLOCK]
    assert run([[0] * (4 * BLOCK)], [1], 4 * BLOCK - 1) == [4 * BLOCK - 1, 1]


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_batches_that_end_near_a_blocks_end(extra: int) -> None:
    frames = [1] * (BLOCK + extra) + [3] * 5 + [1] * BLOCK
    limit = BLOCK + extra
    assert run([frames], [limit], None) == reference_of_one_key(frames, limit, None)


def reference_of_one_key(frames: list[int], limit: int | None, most: int | None) -> list[int]:
    """`reference.batches` for one key, with a running maximum, for it has to go over many rows."""
    sizes, count, longest = [], 0, 0
    for length in frames:
        longest = max(longest, length)
        if count and ((limit is not None and limit < (count + 1) * longest) or count == most):
            sizes.append(count)
            count, longest = 0, length
        count += 1
    return [*sizes, count]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=40), st.integers(1, 60), st.none() | st.integers(1, 9))
@thorough
def test_the_short_reference_is_the_long_one(frames: list[int], limit: int, most: int | None) -> None:
    assert reference_of_one_key(frames, limit, most) == reference.batches([(n,) for n in frames], [limit], most)
