from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.planning import ChunkRule, KeyRule, Rules
from seqprep.planning.chunking import core_frames, count_chunks, cut, row_frames
from tests.planning import reference
from tests.planning.reference import Case, cases

thorough = settings(max_examples=100, deadline=None)


def ranges(case: Case) -> list[list[dict[str, tuple[int, int]]]]:
    """What `count_chunks` and `cut` make of each sequence: per chunk and key, (start, stop)."""
    counts = count_chunks(case.lengths, case.rules)
    found = []
    for sequence, count in enumerate(counts.tolist()):
        number = np.arange(count)
        extents = {
            key.name: cut(np.repeat(case.lengths[key.name][sequence], count), number, key.chunk)
            for key in case.rules.keys
        }
        found.append(
            [
                {name: (int(e.start[i]), int(e.start[i] + e.size[i])) for name, e in extents.items()}
                for i in range(count)
            ]
        )
    return found


def one_key(length: int, size: int, step: int, min_size: int = 0) -> list[tuple[int, int]]:
    rule = KeyRule(name="data", chunk=ChunkRule(size_frames=size, step_frames=step, min_size_frames=min_size))
    case = Case(Rules(keys=(rule,)), {"data": np.array([length])})
    return [chunk["data"] for chunk in ranges(case)[0]]


@given(cases())
@thorough
def test_cuts_as_the_rules_say(case: Case) -> None:
    expected = [[dict(row.cores) for row in rows] for rows in reference.all_rows(case.lengths, case.rules)]
    assert ranges(case) == expected


@given(cases(whole=False))
@thorough
def test_keys_start_at_the_same_moment(case: Case) -> None:
    for sequence in ranges(case):
        for chunk in sequence:
            for key in case.rules.keys:
                assert chunk["data"][0] == key.rate * chunk[key.name][0]


@given(cases())
@thorough
def test_no_key_of_a_row_is_empty_unless_its_sequence_is(case: Case) -> None:
    for sequence, chunks in enumerate(ranges(case)):
        for chunk in chunks:
            for name, (start, stop) in chunk.items():
                length = case.lengths[name][sequence]
                assert (0 <= start < stop <= length) or (start == stop == length == 0)


@given(cases(whole=False, tiling=True))
@thorough
def test_cores_of_step_size_join_to_the_sequence(case: Case) -> None:
    rules = case.rules
    for sequence, chunks in enumerate(ranges(case)):
        for key in rules.keys:
            values = np.random.default_rng(sequence).normal(size=(case.lengths[key.name][sequence], 2))
            joined = [values[slice(*chunk[key.name])] for chunk in chunks]
            whole = np.concatenate(joined) if joined else values[:0]
            if any(other.align == "floor" for other in rules.keys):  # the rest of a frame of that key is no chunk
                assert whole.tobytes() == values[: len(whole)].tobytes()
                assert len(values) - len(whole) < max(other.rate for other in rules.keys)
            else:
                assert whole.tobytes() == values.tobytes()


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=20),
    st.integers(1, 40),
    st.integers(1, 40),
)
@thorough
def test_every_frame_is_covered_if_steps_are_no_larger_than_chunks(lengths: list[int], step: int, overlap: int) -> None:
    for length in lengths:
        covered = set()
        for start, stop in one_key(length, step + overlap - 1, step):
            covered |= set(range(start, stop))
        assert covered == set(range(length))


@given(cases())
@thorough
def test_sums_in_closed_form(case: Case) -> None:
    counts = count_chunks(case.lengths, case.rules)
    for key in case.rules.keys:
        expected = [sum(stop - start for start, stop in (c[key.name] for c in chunks)) for chunks in ranges(case)]
        assert core_frames(case.lengths[key.name], counts, key.chunk).tolist() == expected


@pytest.mark.parametrize("min_size", [1, 3, 12])
def test_a_chunk_starts_only_where_more_than_min_size_is_left(min_size: int) -> None:
    for length in range(200):
        chunks = one_key(length, 10, 4, min_size)
        assert len(chunks) == (0 if length == 0 else 1 + max(0, -(-(length - min_size) // 4) - 1))
        assert all(length - start > min_size for start, _ in chunks[1:])
        assert length == 0 or length - (chunks[-1][0] + 4) <= min_size


@pytest.mark.parametrize(
    ("length", "size", "step", "min_size", "expected"),
    [
        (0, 10, 5, 0, []),
        (1, 10, 5, 0, [(0, 1)]),
        (9, 10, 10, 0, [(0, 9)]),
        (10, 10, 10, 0, [(0, 10)]),
        (11, 10, 10, 0, [(0, 10), (10, 11)]),
        (9, 10, 5, 0, [(0, 9), (5, 9)]),
        (10, 10, 5, 0, [(0, 10), (5, 10)]),
        (11, 10, 5, 0, [(0, 10), (5, 11), (10, 11)]),
        (11, 10, 5, 1, [(0, 10), (5, 11)]),
        (14, 10, 5, 0, [(0, 10), (5, 14), (10, 14)]),
        (15, 10, 5, 0, [(0, 10), (5, 15), (10, 15)]),
        (16, 10, 5, 0, [(0, 10), (5, 15), (10, 16), (15, 16)]),
        (16, 10, 5, 1, [(0, 10), (5, 15), (10, 16)]),
        (16, 10, 5, 6, [(0, 10), (5, 15)]),
        (0, 4, 4, 3, []),
        (1, 4, 4, 3, [(0, 1)]),
        (2, 4, 4, 3, [(0, 2)]),
        (3, 4, 4, 3, [(0, 3)]),
        (4, 4, 4, 3, [(0, 4)]),
        (7, 4, 4, 3, [(0, 4)]),
        (8, 4, 4, 3, [(0, 4), (4, 8)]),
        (10, 3, 5, 0, [(0, 3), (5, 8)]),
        (11, 3, 5, 0, [(0, 3), (5, 8), (10, 11)]),
        (4, 1, 1, 0, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        (4, 1, 1, 9, [(0, 1)]),
    ],
)
def test_lengths_at_the_edges(
    length: int, size: int, step: int, min_size: int, expected: list[tuple[int, int]]
) -> None:
    assert one_key(length, size, step, min_size) == expected


def test_the_shortest_key_ends_a_sequence() -> None:
    data = KeyRule(name="data", chunk=ChunkRule(size_frames=6, step_frames=3))
    classes = KeyRule(
        name="classes", rate=3, align="floor", chunk=ChunkRule(size_frames=2, step_frames=1, min_size_frames=1)
    )
    case = Case(Rules(keys=(data, classes)), {"data": np.array([11, 2]), "classes": np.array([3, 0])})
    assert ranges(case) == [
        [{"data": (0, 6), "classes": (0, 2)}, {"data": (3, 9), "classes": (1, 3)}],
        [{"data": (0, 2), "classes": (0, 0)}],
    ]


def test_whole_sequences_are_one_chunk_each_empty_ones_too() -> None:
    case = Case(Rules(keys=(KeyRule(name="data"),)), {"data": np.array([3, 0, 1])})
    assert ranges(case) == [[{"data": (0, 3)}], [{"data": (0, 0)}], [{"data": (0, 1)}]]
    assert core_frames(case.lengths["data"], np.ones(3, np.int64), None).tolist() == [3, 0, 1]


def test_an_empty_row_has_no_context() -> None:
    rule = KeyRule(name="data", left_frames=4, right_frames=2)
    assert row_frames(np.array([0, 1, 5]), rule).tolist() == [0, 7, 11]


@pytest.mark.parametrize("size", [2**31, 2**62, 2**63 - 1])
def test_a_size_beyond_any_sequence_makes_no_number_overflow(size: int) -> None:
    assert one_key(25, size, 10) == [(0, 25), (10, 25), (20, 25)]
    assert core_frames(np.array([25]), np.array([3]), ChunkRule(size_frames=size, step_frames=10)).tolist() == [45]


def test_long_sequences_are_summed_exactly() -> None:
    frames = 3_000_000_000
    rule = ChunkRule(size_frames=3, step_frames=1)
    counts = count_chunks({"data": np.array([frames])}, Rules(keys=(KeyRule(name="data", chunk=rule),)))
    assert counts.tolist() == [frames]
    assert core_frames(np.array([frames]), counts, rule).tolist() == [3 * (frames - 2) + 2 + 1]
