"""Length classes, and batches that hold rows of one class."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.errors import ConfigError
from seqprep.planning import BatchRule, ChunkRule, KeyRule, Rules, Selected, make_plan, plan_parts
from seqprep.planning.batching import NO_ROW, Budget, make_batches
from seqprep.planning.buckets import Histogram, LengthClasses, class_widths, equal_mass_boundaries, given_boundaries
from seqprep.planning.passes import length_classes
from seqprep.types import Tags
from tests.examples import examples
from tests.planning import reference
from tests.planning.reference import Case, cases, has_rows

thorough = settings(max_examples=examples(100), deadline=None)

lengths_of_rows = st.lists(st.integers(0, 30), min_size=1, max_size=25)


def boundaries_of(lengths: list[int], classes: int) -> list[int]:
    histogram = Histogram()
    histogram.add(np.array(lengths, np.int64))
    return equal_mass_boundaries(histogram.lengths, histogram.counts, classes).tolist()


@given(st.lists(st.lists(st.integers(0, 9), max_size=20), max_size=6))
@thorough
def test_a_histogram_of_blocks_is_that_of_all(blocks: list[list[int]]) -> None:
    histogram = Histogram()
    for block in blocks:
        histogram.add(np.array(block, np.int64))
    expected = np.unique([length for block in blocks for length in block], return_counts=True)
    assert histogram.lengths.tolist() == expected[0].tolist()
    assert histogram.counts.tolist() == expected[1].tolist()


@given(st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 13, 21]), min_size=1, max_size=25), st.integers(1, 9))
@thorough
def test_classes_are_of_equal_padded_mass(lengths: list[int], classes: int) -> None:
    """The largest rows · boundary is as small as any choice makes it, and while single lengths weigh most, the next too."""
    boundaries = boundaries_of(lengths, classes)
    assert boundaries == sorted(set(boundaries))
    assert len(boundaries) <= classes
    assert boundaries[-1] == max(lengths)
    assert set(boundaries) <= set(lengths)
    of = LengthClasses(np.array(boundaries), {}).of(np.array(lengths))
    masses = sorted((np.bincount(of) * boundaries).tolist(), reverse=True)
    best = reference.least_masses(lengths, classes)
    single = {lengths.count(length) * length for length in set(lengths)}
    shared = next((place for place, mass in enumerate(best) if mass not in single), len(best))
    assert masses[: shared + 1] == best[: shared + 1]


@pytest.mark.parametrize(
    ("lengths", "classes", "expected"),
    [
        ([5], 3, [5]),
        ([0, 0], 2, [0]),
        ([1] * 100 + [100], 2, [1, 100]),
        ([1] * 50 + [2] * 25 + [50], 3, [1, 2, 50]),
        ([10, 20, 30, 40], 2, [20, 40]),
        ([10, 20, 30, 40], 3, [20, 30, 40]),
        ([10, 20, 30, 40], 9, [10, 20, 30, 40]),
        ([60] * 1000 + list(range(10, 60)), 3, [39, 59, 60]),  # full chunks, and tails of every length
        (list(range(1, 101)), 4, [40, 65, 84, 100]),
    ],
)
def test_boundaries_by_hand(lengths: list[int], classes: int, expected: list[int]) -> None:
    assert boundaries_of(lengths, classes) == expected


def test_boundaries_of_ten_million_rows_are_exact() -> None:
    lengths = np.arange(1, 200_001)
    boundaries = equal_mass_boundaries(lengths, np.full(len(lengths), 50), 64)
    masses = np.diff(boundaries, prepend=0) * 50 * boundaries
    assert len(boundaries) == 64
    assert masses.max() / masses.mean() < 1.01


@pytest.mark.parametrize("classes", [4, 5, 2**31, 2**53])
def test_more_classes_than_lengths_are_as_many_as_these(classes: int) -> None:
    assert boundaries_of([10, 20, 30, 40, 40], classes) == [10, 20, 30, 40]


@pytest.mark.parametrize(
    "batch", [BatchRule(boundaries=(5, 9)), BatchRule(auto_classes=2), BatchRule(auto_classes=2, pad_to_class=True)]
)
@pytest.mark.parametrize("lengths", [[0, 0], [3], []])
def test_classes_of_no_rows_are_no_reason_for_another_error(batch: BatchRule, lengths: list[int]) -> None:
    rules = Rules(keys=(KeyRule(name="data", chunk=ChunkRule(size_frames=4, step_frames=4)),), tail="drop", batch=batch)
    named, tags = {"data": np.array(lengths, np.int64)}, Tags.of(map(str, range(len(lengths))))
    with pytest.raises(ConfigError, match=r"gives a row|there are no sequences"):
        plan_parts(named, tags, Selected(np.arange(len(lengths)), {}), rules, None)


def test_given_boundaries_go_on_to_the_longest_row() -> None:
    assert given_boundaries([3, 7], np.array([1, 5])).tolist() == [3, 7]
    assert given_boundaries([3, 7], np.array([1, 7])).tolist() == [3, 7]
    assert given_boundaries([3, 7], np.array([1, 9])).tolist() == [3, 7, 9]


def test_a_length_equal_to_a_boundary_belongs_to_the_class_below_it() -> None:
    classes = LengthClasses(np.array([3, 7, 9]), {})
    assert classes.of(np.array([0, 1, 3, 4, 7, 8, 9])).tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_other_keys_are_as_wide_as_their_longest_row_in_the_class() -> None:
    blocks = [
        {"data": np.array([2, 3]), "text": np.array([9, 1])},
        {"data": np.array([7, 4]), "text": np.array([2, 5])},
    ]
    widths = class_widths(np.array([3, 8]), ["data", "text"], blocks)
    assert {name: width.tolist() for name, width in widths.items()} == {"data": [3, 8], "text": [9, 5]}


@st.composite
def rows_in_classes(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[int | None], int | None]:
    keys, rows = draw(st.integers(1, 3)), draw(st.integers(0, 50))
    lengths = [draw(st.lists(st.integers(0, 20), min_size=rows, max_size=rows)) for _ in range(keys)]
    classes = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    limits = [draw(st.none() | st.integers(1, 80)) for _ in range(keys)]
    return lengths, classes, limits, draw(st.none() | st.integers(1, 9))


@given(rows_in_classes(), st.sampled_from(["", "drop_last", "pad_rows"]), st.booleans())
@thorough
def test_batches_of_classes_as_the_rules_say(
    case: tuple[list[list[int]], list[int], list[int | None], int | None], at_the_end: str, one_class: bool
) -> None:
    lengths, classes, limits, most = case
    classes = [0] * len(classes) if one_class else classes
    how = {at_the_end: True} if at_the_end else {}
    rows = list(zip(*lengths, strict=True))
    expected, dropped = reference.class_batches(rows, classes, limits, most, **how)
    found = make_batches(
        [np.array(frames, np.int64) for frames in lengths],
        None if one_class else np.array(classes, np.int64),
        Budget(max_frames=limits, max_sequences=most),
        **how,
    )
    batches = [found.rows[a:b].tolist() for a, b in itertools.pairwise(found.bounds.tolist())]
    assert batches == [[NO_ROW if row is None else row for row in batch] for batch in expected]
    assert sorted(found.dropped.tolist()) == sorted(dropped)
    kept = [row for row in found.rows.tolist() if row != NO_ROW]
    assert sorted(kept + dropped) == list(range(len(rows)))
    for batch in batches:
        real = [row for row in batch if row != NO_ROW]
        assert len({classes[row] for row in real}) == 1
        assert most is None or len(batch) <= most
        for frames, limit in zip(lengths, limits, strict=True):
            assert limit is None or len(batch) * max(frames[row] for row in real) <= limit or len(batch) == 1


def test_when_batches_come() -> None:
    """When the first row that no longer fits does; at the end the classes in order."""
    found = make_batches(
        [np.ones(9, np.int64)], np.array([1, 0, 1, 1, 0, 0, 2, 1, 1]), Budget(max_frames=[None], max_sequences=2)
    )
    batches = [found.rows[a:b].tolist() for a, b in itertools.pairwise(found.bounds.tolist())]
    assert batches == [[0, 2], [1, 4], [3, 7], [5], [8], [6]]


bucketed = st.sampled_from(
    [
        BatchRule(auto_classes=1),
        BatchRule(auto_classes=3),
        BatchRule(boundaries=(5, 12, 30)),
        BatchRule(auto_classes=3, pad_to_class=True),
        BatchRule(boundaries=(5, 12, 30), pad_to_class=True, pad_rows=True),
        BatchRule(auto_classes=2, pad_to_class=True, pad_rows=True),
        BatchRule(auto_classes=4, pad_to_class=True, drop_last=True),
        BatchRule(sort_rows=True),
        BatchRule(sort_rows=True, pad_rows=True),
        BatchRule(drop_last=True),
        BatchRule(pad_rows=True),
    ]
)


@given(cases(), bucketed, st.sampled_from([1, 1, 4]))
@thorough
def test_shards_of_length_classes(case: Case, batch: BatchRule, multiple: int) -> None:
    """Every row once or counted as dropped; budgets kept; padding accounted; no more shapes than classes."""
    if not has_rows(case):
        return
    multiple = 1 if batch.pad_to_class else multiple
    keys = tuple(KeyRule(**{**key.__dict__, "pad_multiple": multiple}) for key in case.rules.keys)
    rules = Rules(**{**case.rules.__dict__, "batch": batch, "keys": keys})
    plan = make_plan(case.lengths, rules)
    classes = length_classes(case.lengths, np.arange(len(case.lengths["data"])), rules)
    rows = {(row.sequence, row.number): row for some in reference.all_rows(case.lengths, rules) for row in some}
    seen, dropped, shapes = [], 0, set()
    for i in range(len(plan)):
        shard = plan.shard(i)
        dropped += shard.dropped.rows
        places = list(zip(shard.sequence.tolist(), shard.number.tolist(), strict=True))
        seen += [place for place in places if place[0] != NO_ROW]
        begins = shard.bounds.tolist()
        for number, (a, b) in enumerate(itertools.pairwise(begins)):
            assert shard.batch_rows[number] == b - a
            real = [rows[place] for place in places[a:b] if place[0] != NO_ROW]
            assert real
            padded = {}
            for key in keys:
                frames = [
                    reference.frames_of(row.cores[key.name], int(case.lengths[key.name][row.sequence]), key)
                    for row in real
                ]
                assert shard.keys[key.name].frames[a : a + len(real)].tolist() == frames
                assert not shard.keys[key.name].frames[a + len(real) : b].any()
                longest = max(frames)
                if batch.pad_to_class:
                    of = next(c for c, boundary in enumerate(classes.boundaries.tolist())
                              if max(reference.frames_of(row.cores["data"], int(case.lengths["data"][row.sequence]), keys[0]) for row in real) <= boundary)  # fmt: skip
                    longest = int(classes.widths[key.name][of])
                padded[key.name] = -(-longest // multiple) * multiple
                assert shard.batch_frames(key.name)[number] == padded[key.name]
                assert key.max_frames is None or (b - a) * padded[key.name] <= key.max_frames or b - a == 1
            shapes.add((b - a, *padded.values()))
    assert sorted(seen) == sorted(set(seen))
    assert set(seen) <= set(rows)
    assert len(seen) + dropped == len(rows)
    assert not dropped or batch.drop_last
    bounded = rules.max_sequences is not None or keys[0].max_frames is not None
    if batch.pad_to_class and batch.pad_rows and bounded and classes.widths["data"].min() > 0:
        assert len(shapes) <= len(classes)


def test_the_budget_counts_rows_as_they_are_padded() -> None:
    chunk = ChunkRule(size_frames=100, step_frames=100)
    rule = KeyRule(name="data", chunk=chunk, max_frames=64, pad_multiple=8)
    shard = make_plan({"data": np.full(9, 9)}, Rules(keys=(rule,))).shard(0)
    assert shard.batch_rows.tolist() == [4, 4, 1]
    assert shard.batch_frames("data").tolist() == [16, 16, 16]


def test_a_shard_whose_rows_fill_no_batch_is_empty() -> None:
    rule = KeyRule(name="data", frame_bytes=1)
    rules = Rules(keys=(rule,), max_sequences=3, batch=BatchRule(drop_last=True), shard_bytes=4)
    plan = make_plan({"data": np.array([1, 1, 1, 1, 4])}, rules)
    shards = [plan.shard(i) for i in range(len(plan))]
    assert [shard.batch_rows.tolist() for shard in shards] == [[3], []]
    assert [(shard.dropped.rows, shard.dropped.frames) for shard in shards] == [(1, 1), (1, 4)]
    assert shards[1].batch_frames("data").tolist() == []
