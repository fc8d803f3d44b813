from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.planning import ChunkRule, KeyRule, Rules
from seqprep.planning.chunking import Cutting, cut, cut_sequences, jitter_offsets
from seqprep.planning.sizes import row_frames, sequence_frames
from tests.examples import examples
from tests.planning import reference
from tests.planning.reference import Case, Core, cases

thorough = settings(max_examples=examples(100), deadline=None)


# Worked out with plain integers, without numpy: seed, epoch, step, a second key's rate, offsets of sequences 0 to 9.
JITTERS: list[tuple[int, int, int, int, list[int]]] = [
    (0, 0, 25, 1, [5, 1, 2, 22, 7, 1, 16, 22, 2, 7]),
    (1, 0, 25, 1, [10, 22, 17, 7, 6, 0, 8, 0, 2, 22]),
    (1, 1, 25, 1, [17, 12, 24, 20, 9, 4, 23, 3, 23, 6]),
    (7, 3, 48, 3, [36, 36, 30, 45, 3, 21, 18, 3, 12, 45]),
    (18446744073709551615, 5, 1000, 4, [440, 404, 176, 592, 148, 572, 960, 684, 416, 136]),
]


def cutting_of(case: Case) -> Cutting:
    places = np.arange(len(case.lengths[case.rules.input.name]))
    return cut_sequences(case.lengths, case.rules, places, case.epoch)


def ranges(case: Case) -> list[list[dict[str, tuple[int, int]]]]:
    """What `cut_sequences` and `cut` make of each sequence: per chunk and key, (start, stop)."""
    cuts = cutting_of(case).cuts
    found = []
    for sequence, count in enumerate(cuts.count.tolist()):
        number, owner = np.arange(count), np.full(count, sequence)
        extents = {
            key.name: cut(case.lengths[key.name][owner], number, cuts.take(owner), key, case.rules)
            for key in case.rules.keys
        }
        found.append(
            [
                {name: (int(e.start[i]), int(e.start[i] + e.size[i])) for name, e in extents.items()}
                for i in range(count)
            ]
        )
    return found


def one_key(length: int, size: int, step: int, min_size: int = 0, **more: object) -> list[tuple[int, int]]:
    rule = KeyRule(name="data", chunk=ChunkRule(size_frames=size, step_frames=step, min_size_frames=min_size))
    case = Case(Rules(keys=(rule,), **more), {"data": np.array([length])})
    return [chunk["data"] for chunk in ranges(case)[0]]


@given(cases())
@thorough
def test_cuts_as_the_rules_say(case: Case) -> None:
    expected = [[dict(row.cores) for row in rows] for rows in reference.all_rows(case.lengths, case.rules, case.epoch)]
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


@given(cases(), st.data())
@thorough
def test_sums_in_closed_form(case: Case, data: st.DataObject) -> None:
    cuts = cutting_of(case).cuts
    rows = reference.all_rows(case.lengths, case.rules, case.epoch)
    for key in case.rules.keys:
        lengths = case.lengths[key.name]
        each = [
            [reference.frames_of(row.cores[key.name], int(n), key) for row in some]
            for n, some in zip(lengths, rows, strict=True)
        ]
        assert sequence_frames(lengths, cuts, key, case.rules).tolist() == [sum(some) for some in each]
        owner = np.repeat(np.arange(len(rows)), cuts.count)
        number = np.array([row.number for some in rows for row in some], np.int64)
        found = row_frames(lengths[owner], number, cuts.take(owner), key, case.rules)
        assert found.tolist() == [frames for some in each for frames in some]


@given(cases(whole=False))
@thorough
def test_what_is_left_out_is_counted(case: Case) -> None:
    """Chunks = those that the grid gives, less the short ones that are dropped, less those that lack context."""
    plain = replace(case.rules, tail="keep", keys=tuple(replace(key, pad="zero") for key in case.rules.keys))
    cutting = cutting_of(case)
    for sequence in range(len(case.lengths["data"])):
        lengths = {name: int(frames[sequence]) for name, frames in case.lengths.items()}
        offset = reference.jitter_offset(sequence, case.rules, case.epoch) if case.rules.jitter else 0
        if not reference.chunks_of(lengths, case.rules, offset):
            offset = 0
        before = len(reference.chunks_of(lengths, plain, offset))
        lost = int(cutting.short[sequence] + cutting.lacking[sequence])
        assert int(cutting.cuts.count[sequence]) == before - lost
        assert min(cutting.short[sequence], cutting.lacking[sequence], cutting.moved[sequence]) >= 0
        if case.rules.tail == "drop":
            full = replace(plain, tail="drop")
            assert int(cutting.short[sequence]) == before - len(reference.chunks_of(lengths, full, offset))


@given(cases(whole=False))
@thorough
def test_frames_lost_to_shifting_are_counted(case: Case) -> None:
    rules = replace(case.rules, keys=tuple(replace(key, pad="zero") for key in case.rules.keys), tail="shift")
    shifting = Case(rules, case.lengths, case.epoch)
    kept = reference.all_rows(case.lengths, replace(rules, tail="keep"), case.epoch)
    lost = cutting_of(shifting).lost
    for sequence, (chunks, before) in enumerate(zip(ranges(shifting), kept, strict=True)):
        if not before:
            assert all(frames[sequence] == 0 for frames in lost.values())
            continue
        last = before[-1].cores
        only_the_first = len(before) == 1 and last["data"].start == 0 and reference.is_full(
            {name: Core(*chunk) for name, chunk in chunks[0].items()}, rules
        )  # fmt: skip
        ends_short = not reference.is_full(last, rules) and not only_the_first
        for key in rules.keys:
            behind = int(case.lengths[key.name][sequence]) - chunks[-1][key.name][1]
            assert lost[key.name][sequence] == (behind if ends_short else 0)


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
    assert sequence_frames(case.lengths["data"], cutting_of(case).cuts, case.rules.input, case.rules).tolist() == [
        3,
        0,
        1,
    ]


@pytest.mark.parametrize("size", [2**31, 2**62, 2**63 - 1])
def test_a_size_beyond_any_sequence_makes_no_number_overflow(size: int) -> None:
    assert one_key(25, size, 10) == [(0, 25), (10, 25), (20, 25)]
    rules = Rules(keys=(KeyRule(name="data", chunk=ChunkRule(size_frames=size, step_frames=10)),))
    case = Case(rules, {"data": np.array([25])})
    assert sequence_frames(case.lengths["data"], cutting_of(case).cuts, rules.input, rules).tolist() == [45]


def test_long_sequences_are_summed_exactly() -> None:
    frames = 3_000_000_000
    rules = Rules(keys=(KeyRule(name="data", chunk=ChunkRule(size_frames=3, step_frames=1)),))
    case = Case(rules, {"data": np.array([frames])})
    cuts = cutting_of(case).cuts
    assert cuts.count.tolist() == [frames]
    assert sequence_frames(case.lengths["data"], cuts, rules.input, rules).tolist() == [3 * (frames - 2) + 2 + 1]


def documented_tables() -> list[tuple[int, int, int, int, list[list[tuple[int, int]]]]]:
    """Of docs/planning.md: size, step, min_size, T, and the chunks of each column."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")
    found = []
    for numbers in re.finditer(r"with size (\d+), step (\d+) and min_size (\d+)", text, re.I):
        table = re.search(r"(?:^\|.*\n)+", text[numbers.end() :], re.M)
        for length, row in re.findall(r"^\| (\d+)(?: \([^)]*\))? \| (.*) \|$", table[0], re.M):
            cells = [re.findall(r"(\d+)–(\d+)", cell) for cell in row.split("|")]
            columns = [[(int(start), int(stop)) for start, stop in cell] for cell in cells]
            found.append((*map(int, numbers.groups()), int(length), columns))
    return found


SIZE, STEP, LEAST = 10, 5, 3


def test_the_documented_tables_have_every_length_at_an_edge() -> None:
    settings = {row[:3] for row in documented_tables()}
    assert settings == {(SIZE, STEP, LEAST), (3, 5, 1)}
    for size, step, least in settings:
        lengths = [row[3] for row in documented_tables() if row[:3] == (size, step, least)]
        edges = {0, 1, least - 1, least, least + 1, step + least, size - 1, size, size + 1, 3 * step}
        assert set(lengths) >= edges
        assert len(set(lengths)) == len(lengths)


@pytest.mark.parametrize(("size", "step", "least", "length", "columns"), documented_tables())
def test_the_documented_tables_of_tails(
    size: int, step: int, least: int, length: int, columns: list[list[tuple[int, int]]]
) -> None:
    assert columns == [
        one_key(length, size, step, least),
        one_key(length, size, step, least, stop_when_covered=True),
        one_key(length, size, step, least, tail="drop"),
        one_key(length, size, step, least, tail="shift"),
    ]
    for tail, expected in (("drop", columns[2]), ("shift", columns[3])):
        assert one_key(length, size, step, least, tail=tail, stop_when_covered=True) == expected


@pytest.mark.parametrize("least", [0, 1, 3, 10, 12])
@pytest.mark.parametrize("step", [1, 3, 10, 13])
@pytest.mark.parametrize("size", [1, 4, 10])
def test_every_length_at_an_edge_under_every_tail(size: int, step: int, least: int) -> None:
    """As the rules say; and what each tail is, in a word."""
    near = {0, 1, 2, *(edge + off for edge in (least, size, step, step + least, step + size) for off in (-1, 0, 1))}
    for length in sorted((near | {n * step for n in range(5)}) - {-1}):
        for stop in (False, True):
            cut_by = {}
            for tail in ("keep", "drop", "shift"):
                rule = KeyRule(name="data", chunk=ChunkRule(size_frames=size, step_frames=step, min_size_frames=least))
                case = Case(Rules(keys=(rule,), tail=tail, stop_when_covered=stop), {"data": np.array([length])})
                chunks = [
                    (core["data"].start, core["data"].stop)
                    for _, _, core in reference.all_rows(case.lengths, case.rules)[0]
                ]
                cut_by[tail] = [chunk["data"] for chunk in ranges(case)[0]]
                assert cut_by[tail] == chunks
            assert bool(cut_by["keep"]) == bool(length)
            assert cut_by["drop"] == [(a, b) for a, b in cut_by["keep"] if b - a == size]
            assert all(b - a == min(size, length) for a, b in cut_by["shift"])
            assert bool(cut_by["shift"]) == bool(length)


@pytest.mark.parametrize(
    ("length", "tail", "expected"),
    [
        (0, "keep", []),
        (SIZE - 1, "keep", [(0, 9), (5, 9)]),
        (SIZE + 1, "keep", [(0, 10), (5, 11)]),
        (SIZE - 1, "drop", []),
        (SIZE, "drop", [(0, 10)]),
        (4 * STEP, "drop", [(0, 10), (5, 15), (10, 20)]),
        (SIZE - 1, "shift", [(0, 9)]),
        (SIZE + 1, "shift", [(0, 10), (1, 11)]),
        (14, "shift", [(0, 10), (4, 14)]),
    ],
)
def test_tails_by_hand(length: int, tail: str, expected: list[tuple[int, int]]) -> None:
    """So that table and code can't be wrong in the same way."""
    assert one_key(length, SIZE, STEP, LEAST, tail=tail) == expected


def rated(length: int, size: int, step: int, rate: int = 3, **more: object) -> list[dict[str, tuple[int, int]]]:
    data = KeyRule(name="data", chunk=ChunkRule(size_frames=size, step_frames=step))
    own = ChunkRule(size_frames=size // rate, step_frames=step // rate)
    classes = KeyRule(name="classes", rate=rate, chunk=own)
    lengths = {"data": np.array([length]), "classes": np.array([-(-length // rate)])}
    return ranges(Case(Rules(keys=(data, classes), **more), lengths))[0]


def test_a_shifted_chunk_starts_where_all_keys_can() -> None:
    assert rated(11, 6, 6, tail="shift") == [{"data": (0, 6), "classes": (0, 2)}, {"data": (3, 9), "classes": (1, 3)}]
    assert rated(8, 6, 6, tail="shift") == [{"data": (0, 6), "classes": (0, 2)}]  # it would be the first once more


def test_a_chunk_that_is_short_in_one_key_is_short() -> None:
    assert rated(8, 6, 6, tail="drop") == [{"data": (0, 6), "classes": (0, 2)}]
    assert rated(5, 6, 6, tail="drop") == []
    assert rated(5, 6, 6, tail="shift") == [{"data": (0, 5), "classes": (0, 2)}]


def test_a_chunk_is_covered_if_it_is_so_in_all_keys() -> None:
    data = KeyRule(name="data", chunk=ChunkRule(size_frames=10, step_frames=5))
    classes = KeyRule(name="classes", chunk=ChunkRule(size_frames=5, step_frames=5))
    rules = Rules(keys=(data, classes), stop_when_covered=True)
    found = ranges(Case(rules, {"data": np.array([10]), "classes": np.array([10])}))[0]
    assert found == [{"data": (0, 10), "classes": (0, 5)}, {"data": (5, 10), "classes": (5, 10)}]


def jittered(length: int, size: int, step: int, offset: int, **more: object) -> list[tuple[int, int]]:
    """Chunks of a sequence that draws this offset."""
    rule = KeyRule(name="data", chunk=ChunkRule(size_frames=size, step_frames=step))
    rules = Rules(keys=(rule,), jitter=True, **more)
    place = next(n for n in range(10_000) if jitter_offsets(np.array([n]), rules, 0)[0] == offset)
    cuts = cut_sequences({"data": np.array([length])}, rules, np.array([place])).cuts
    number = np.arange(int(cuts.count[0]))
    owner = number * 0
    found = cut(np.full(len(number), length), number, cuts.take(owner), rule, rules)
    return list(zip(found.start.tolist(), (found.start + found.size).tolist(), strict=True))


@pytest.mark.parametrize(
    ("length", "size", "step", "offset", "more", "expected"),
    [
        (12, 5, 5, 0, {}, [(0, 5), (5, 10), (10, 12)]),
        (12, 5, 5, 2, {}, [(0, 2), (2, 7), (7, 12)]),
        (12, 8, 4, 1, {}, [(0, 5), (1, 9), (5, 12), (9, 12)]),
        (12, 8, 4, 1, {"stop_when_covered": True}, [(0, 5), (1, 9), (5, 12)]),
        (12, 5, 5, 3, {"tail": "drop"}, [(3, 8)]),
        (12, 5, 5, 3, {"tail": "shift"}, [(0, 5), (3, 8), (7, 12)]),
        (5, 5, 5, 3, {"tail": "shift"}, [(0, 5)]),
        (4, 5, 5, 3, {"tail": "shift"}, [(0, 4)]),
        (7, 5, 5, 3, {"tail": "drop"}, [(0, 5)]),  # on the moved grid no chunk would be full
        (4, 5, 5, 3, {"tail": "drop"}, []),
        (2, 5, 5, 3, {}, [(0, 2)]),
        (9, 2, 6, 5, {}, [(0, 1), (5, 7)]),
        (9, 2, 6, 3, {}, [(3, 5)]),  # the chunk before it lies outside
        (3, 2, 6, 3, {}, [(0, 2)]),  # and where there is none then, the grid isn't moved
        (0, 5, 5, 3, {}, []),
    ],
)
def test_jitter_by_hand(
    length: int, size: int, step: int, offset: int, more: dict[str, object], expected: list[tuple[int, int]]
) -> None:
    assert jittered(length, size, step, offset, **more) == expected


@pytest.mark.parametrize(("seed", "epoch", "step", "rate", "expected"), JITTERS)
def test_jitter_never_changes(seed: int, epoch: int, step: int, rate: int, expected: list[int]) -> None:
    """Written out: a release that changed them would change every dataset made with its seed."""
    chunk = ChunkRule(size_frames=step, step_frames=step)
    keys = KeyRule(name="data", chunk=chunk), KeyRule(name="classes", rate=rate, chunk=chunk)
    assert jitter_offsets(np.arange(10), Rules(keys=keys, seed=seed), epoch).tolist() == expected


def test_every_offset_is_drawn_about_equally_often() -> None:
    rule = KeyRule(name="data", chunk=ChunkRule(size_frames=5, step_frames=5))
    counts = np.bincount(jitter_offsets(np.arange(5000), Rules(keys=(rule,)), 0), minlength=5)
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(5000 * 0.2 * 0.8)


def test_epochs_and_sequences_are_jittered_on_their_own() -> None:
    rule = KeyRule(name="data", chunk=ChunkRule(size_frames=1000, step_frames=1000))
    rules = Rules(keys=(rule,))
    drawn = {tuple(jitter_offsets(np.arange(4), rules, epoch)) for epoch in range(50)}
    assert len(drawn) == 50
    places = np.array([7, 3, 7])
    assert jitter_offsets(places, rules, 2)[[0, 1]].tolist() == jitter_offsets(np.arange(8), rules, 2)[[7, 3]].tolist()


@pytest.mark.parametrize(
    ("left", "right", "tail", "expected"),
    [
        (0, 0, "keep", [(0, 4), (2, 6), (4, 8), (6, 10), (8, 11), (10, 11)]),
        (2, 0, "keep", [(2, 6), (4, 8), (6, 10), (8, 11), (10, 11)]),
        (3, 0, "keep", [(4, 8), (6, 10), (8, 11), (10, 11)]),
        (0, 1, "keep", [(0, 4), (2, 6), (4, 8), (6, 10)]),
        (0, 2, "keep", [(0, 4), (2, 6), (4, 8)]),
        (3, 2, "keep", [(4, 8)]),
        (8, 8, "keep", []),
        (2, 0, "shift", [(2, 6), (4, 8), (6, 10), (7, 11)]),
        (7, 0, "shift", [(7, 11)]),
        (0, 1, "shift", [(0, 4), (2, 6), (4, 8), (6, 10)]),
    ],
)
def test_chunks_whose_context_is_real(left: int, right: int, tail: str, expected: list[tuple[int, int]]) -> None:
    chunk = ChunkRule(size_frames=4, step_frames=2)
    rule = KeyRule(name="data", chunk=chunk, left_frames=left, right_frames=right, pad="drop")
    case = Case(Rules(keys=(rule,), tail=tail), {"data": np.array([11])})
    assert [found["data"] for found in ranges(case)[0]] == expected
