"""What rows hold: through the plan, the frames a shard reads, and the places they are gathered from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seqprep.errors import ConfigError
from seqprep.execution.gather import ShardGatherer
from seqprep.planning import ChunkRule, KeyRule, Plan, Rules, align_lengths, make_plan, needed_frames
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags
from tests.examples import examples
from tests.planning import reference
from tests.planning.reference import Case, Core, cases, has_rows

thorough = settings(max_examples=examples(100), deadline=None)

PAD_VALUE = -7


class ArraySource:
    """A source that holds its sequences, and counts the frames that are read of each."""

    def __init__(self, values: Mapping[str, list[Array]], vectors: Array | None = None) -> None:
        self.values, self.vectors = values, vectors
        self.keys = {name: KeySpec(dtype="float64", shape=(2,)) for name in values}
        self.read_ranges: list[tuple[str, int, FrameRange]] = []
        if vectors is not None:
            self.keys["speaker"] = KeySpec(dtype="float64", shape=vectors.shape[1:], has_time=False)

    @property
    def tags(self) -> Tags:
        return Tags.of(f"sequence {i}" for i in range(len(next(iter(self.values.values())))))

    def lengths(self, key: str) -> Int64:
        return np.array([len(values) for values in self.values[key]], np.int64)

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        if key == "speaker":
            return self.vectors[sequence]
        assert frames is not None
        assert 0 <= frames.start < frames.stop <= len(self.values[key][sequence])
        self.read_ranges.append((key, sequence, frames))
        found = self.values[key][sequence][frames.start : frames.stop]
        if out is not None:
            out[...] = found
        return found

    def fingerprint(self) -> Mapping[str, str]:
        return {}

    def close(self) -> None:
        pass


def rows_by_place(case: Case) -> dict[tuple[int, int], reference.Row]:
    rows = reference.all_rows(case.lengths, case.rules, case.epoch)
    return {(row.sequence, row.number): row for some in rows for row in some}


def source_of(case: Case, *, vectors: bool = False) -> ArraySource:
    """Whole numbers below 2^20, so that sums of products are exact whatever their order."""
    random = np.random.default_rng(5)
    values = {
        name: [random.integers(1, 1000, (n, 2)).astype(float) for n in lengths.tolist()]
        for name, lengths in case.lengths.items()
    }
    count = len(case.lengths["data"])
    return ArraySource(values, random.integers(1, 1000, (count, 3)).astype(float) if vectors else None)


def gathered(plan: Plan, source: ArraySource) -> list[tuple[int, int, dict[str, Array], dict[str, Core]]]:
    """Every row of every batch of all shards: sequence, number, padded values per key, and where its core lies."""
    found = []
    for i in range(len(plan)):
        task, shard = plan.task(i), plan.shard(i)
        gatherer = ShardGatherer(source, task, shard, source.keys, dict.fromkeys(source.keys, PAD_VALUE))
        gatherer.read()
        for (begin, end), arrays in zip(pairwise(shard.bounds.tolist()), gatherer.batches(), strict=True):
            for row in range(begin, end):
                cores = {
                    name: Core(int(rows.left[row]), int(rows.left[row] + rows.core[row]))
                    for name, rows in shard.keys.items()
                }
                values = {name: array[row - begin].copy() for name, array in arrays.items()}
                found.append((int(shard.sequence[row]), int(shard.number[row]), values, cores))
    return found


def one_key(length: int, size: int | None, left: int, right: int, pad: str) -> list[list[int]]:
    """The valid frames of each row of a sequence 1, 2, 3, …."""
    chunk = None if size is None else ChunkRule(size_frames=size, step_frames=size)
    constant = 9.0 if pad == "constant" else 0.0
    rule = KeyRule(name="data", chunk=chunk, left_frames=left, right_frames=right, pad=pad, pad_constant=constant)
    plan = make_plan({"data": np.array([length])}, Rules(keys=(rule,), max_sequences=1))
    values = np.repeat(np.arange(1.0, length + 1)[:, None], 2, axis=1)
    return [row["data"][:, 0].astype(int).tolist() for _, _, row, _ in gathered(plan, ArraySource({"data": [values]}))]


def test_the_documented_table_of_context() -> None:
    """Frames of docs/planning.md are numbered from 0; z is a zero, x a constant; what is bold is the chunk."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| (?:`(zero|edge|reflect|clip)`|a (number) x.*?) \|.*?\| ([^|]*) \| ([^|]*) \|$", text, re.M)
    assert len(found) == 5
    for mode, number, *cells in found:
        pad = mode or number.replace("number", "constant")
        for cell, length in zip(cells, (6, 1), strict=True):
            shown = cell.replace("**", "").split()
            outside = {"z": 0, "x": 9}
            expected = [outside[frame] if frame in outside else int(frame) + 1 for frame in shown]
            assert one_key(length, 2, 3, 1, pad)[0] == expected, pad


@pytest.mark.parametrize("pad", ["zero", "edge", "reflect", "constant", "clip", "drop"])
@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 40), st.integers(1, 5))
@thorough
def test_every_way_to_pad_against_numpy(pad: str, length: int, left: int, right: int, size: int) -> None:
    """Also where one frame is all there is, and where the context is longer than the sequence."""
    values = np.arange(1.0, length + 1)
    rule = KeyRule(name="data", left_frames=left, right_frames=right, pad=pad, pad_constant=9.0 * (pad == "constant"))
    padded = reference.padded(values, rule, left, right) if pad not in ("clip", "drop") else values
    if pad == "reflect":
        assert padded.tolist() == np.pad(values, (left, right), mode="reflect").tolist()
    expected = []
    for start in range(0, length, size):
        stop = min(start + size, length)
        if pad == "clip":
            expected.append(values[max(start - left, 0) : stop + right])
        elif pad != "drop" or (start >= left and stop + right <= length):
            begin = start - left if pad == "drop" else start
            expected.append(padded[begin : begin + stop - start + left + right])
    if expected:
        assert one_key(length, size, left, right, pad) == [row.tolist() for row in expected]
    else:
        with pytest.raises(ConfigError, match="none of the 1 sequences gives a row: 1 without a chunk whose context"):
            one_key(length, size, left, right, pad)


@pytest.mark.parametrize(
    ("length", "size", "pad", "expected"),
    [
        (5, 2, "zero", [[0, 0, 0, 1, 2, 3], [2, 3, 4, 5], [4, 5]]),
        (5, 2, "reflect", [[4, 3, 2, 1, 2, 3], [2, 3, 4, 5], [4, 5]]),
        (6, 3, "edge", [[1, 1, 1, 1, 2, 3, 4], [3, 4, 5, 6]]),
        (2, 4, "zero", [[0, 0, 0, 1, 2]]),
    ],
)
def test_other_context_at_a_sequences_ends(length: int, size: int, pad: str, expected: list[list[int]]) -> None:
    rule = KeyRule(
        name="data",
        chunk=ChunkRule(size_frames=size, step_frames=size),
        left_frames=1,
        right_frames=1,
        left_initial_frames=3,
        right_final_frames=0,
        pad=pad,
    )
    plan = make_plan({"data": np.array([length])}, Rules(keys=(rule,), max_sequences=1))
    values = np.repeat(np.arange(1.0, length + 1)[:, None], 2, axis=1)
    rows = [row["data"][:, 0].astype(int).tolist() for _, _, row, _ in gathered(plan, ArraySource({"data": [values]}))]
    assert rows == expected


def test_frames_that_alignment_added_hold_the_pad_value_and_context_lies_outside_of_them() -> None:
    keys = (
        KeyRule(name="data", left_frames=1, right_frames=2),
        KeyRule(name="classes", tolerance_frames=2, on_mismatch="pad", right_frames=3, pad="edge"),
    )
    rules = Rules(keys=keys, max_sequences=9)
    values = {"data": [np.full((3, 2), 5.0)] * 2, "classes": [np.full((n, 2), 6.0) for n in (2, 5)]}
    source = ArraySource(values)
    aligned = align_lengths({name: source.lengths(name) for name in values}, rules, source.tags)
    rows = [
        {name: array[:, 0].tolist() for name, array in row.items()}
        for _, _, row, _ in gathered(make_plan(aligned.lengths, rules), source)
    ]
    assert rows == [
        {"data": [0, 5, 5, 5, 0, 0, PAD_VALUE, PAD_VALUE], "classes": [6, 6, PAD_VALUE, PAD_VALUE, PAD_VALUE, PAD_VALUE, PAD_VALUE, PAD_VALUE]},
        {"data": [0, 5, 5, 5, PAD_VALUE, PAD_VALUE, 0, 0], "classes": [6, 6, 6, 6, 6, 6, 6, 6]},
    ]  # fmt: skip


@given(cases())
@thorough
def test_rows_hold_what_the_rules_say(case: Case) -> None:
    assume(has_rows(case))
    source = source_of(case, vectors=True)
    rows = rows_by_place(case)
    found = gathered(make_plan(case.lengths, case.rules, case.epoch), source)
    assert sorted((sequence, number) for sequence, number, _, _ in found) == sorted(rows)
    for sequence, number, values, _ in found:
        assert values["speaker"].tolist() == source.vectors[sequence].tolist()
        for key in case.rules.keys:
            expected = reference.content(source.values[key.name][sequence], rows[sequence, number].cores[key.name], key)
            valid = len(expected)
            assert values[key.name][:valid].tolist() == expected.tolist()
            assert (values[key.name][valid:] == PAD_VALUE).all()


@given(cases(whole=False, tiling=True, order="source"))
@thorough
def test_cores_join_to_the_input_bit_for_bit(case: Case) -> None:
    assume(has_rows(case))
    assume(all(key.align != "floor" for key in case.rules.keys))
    source = source_of(case)
    found = gathered(make_plan(case.lengths, case.rules, case.epoch), source)
    for name, sequences in source.values.items():
        joined = [row[name][slice(*cores[name])] for _, _, row, cores in found]
        assert np.concatenate(joined).tobytes() == np.concatenate(sequences).tobytes()


@given(cases(whole=False, tiling=True, order="source"))
@thorough
def test_a_convolution_over_rows_stitched_is_that_over_the_padded_sequence(case: Case) -> None:
    assume(has_rows(case))
    assume(all(key.align != "floor" for key in case.rules.keys))
    even = [replace(key, left_initial_frames=None, right_final_frames=None) for key in case.rules.keys]
    case = replace(case, rules=replace(case.rules, keys=tuple(even)))
    source = source_of(case)
    found = gathered(make_plan(case.lengths, case.rules, case.epoch), source)
    for key in case.rules.keys:
        kernel = np.arange(1.0, key.left_frames + key.right_frames + 2)
        for sequence, values in enumerate(source.values[key.name]):
            if not len(values):
                continue
            left, right = key.left_frames, key.right_frames
            whole = np.convolve(reference.padded(values, key, left, right)[:, 0], kernel, mode="valid")
            parts = []
            for owner, _, row, cores in found:
                if owner == sequence:
                    valid = row[key.name][: cores[key.name].stop + right, 0]
                    parts.append(np.convolve(valid, kernel, mode="valid"))
            assert np.concatenate(parts).tobytes() == whole.tobytes()


def numbered(key: KeyRule) -> str:
    """How to pad frame numbers so that none stands for what is outside: −1 does."""
    return "constant" if key.pad in ("zero", "constant", "clip", "drop") else key.pad


@given(cases())
@thorough
def test_each_sequence_is_read_once_per_shard_and_no_more_of_it_than_needed(case: Case) -> None:
    assume(has_rows(case))
    source = source_of(case)
    plan = make_plan(case.lengths, case.rules, case.epoch)
    rows = rows_by_place(case)
    for i in range(len(plan)):
        task, shard = plan.task(i), plan.shard(i)
        source.read_ranges.clear()
        ShardGatherer(source, task, shard, source.keys, {}).read()
        expected = {}
        for key in case.rules.keys:
            for place in zip(shard.sequence.tolist(), shard.number.tolist(), strict=True):
                core, length = rows[place].cores[key.name], int(case.lengths[key.name][place[0]])
                touched = reference.content(np.arange(length), core, replace(key, pad_constant=-1.0, pad=numbered(key)))
                touched = touched[touched >= 0]
                if len(touched):
                    first, last = expected.get((key.name, place[0]), (length, 0))
                    expected[key.name, place[0]] = min(first, *touched), max(last, *(touched + 1))
        assert len(source.read_ranges) == len(expected)
        assert {(name, sequence): tuple(frames) for name, sequence, frames in source.read_ranges} == expected


@pytest.mark.parametrize(
    ("length", "size", "left", "right", "pad", "expected"),
    [
        (5, 2, 1, 1, "zero", [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 0]]),
        (5, 2, 1, 1, "edge", [[1, 1, 2, 3], [2, 3, 4, 5], [4, 5, 5]]),
        (5, 2, 0, 3, "zero", [[1, 2, 3, 4, 5], [3, 4, 5, 0, 0], [5, 0, 0, 0]]),
        (5, 2, 3, 0, "edge", [[1, 1, 1, 1, 2], [1, 1, 2, 3, 4], [2, 3, 4, 5]]),
        (1, 4, 2, 3, "zero", [[0, 0, 1, 0, 0, 0]]),
        (1, 4, 2, 3, "edge", [[1, 1, 1, 1, 1, 1]]),
        (2, 1, 4, 4, "zero", [[0, 0, 0, 0, 1, 2, 0, 0, 0], [0, 0, 0, 1, 2, 0, 0, 0, 0]]),
        (2, 1, 4, 4, "edge", [[1, 1, 1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 2, 2, 2, 2, 2]]),
        (3, None, 1, 2, "zero", [[0, 1, 2, 3, 0, 0]]),
        (3, None, 0, 0, "zero", [[1, 2, 3]]),
        (3, None, 2, 5, "reflect", [[3, 2, 1, 2, 3, 2, 1, 2, 3, 2]]),
        (5, 2, 1, 1, "reflect", [[2, 1, 2, 3], [2, 3, 4, 5], [4, 5, 4]]),
        (5, 2, 3, 0, "reflect", [[4, 3, 2, 1, 2], [2, 1, 2, 3, 4], [2, 3, 4, 5]]),
        (1, 4, 2, 3, "reflect", [[1, 1, 1, 1, 1, 1]]),
        (2, 1, 4, 4, "reflect", [[1, 2, 1, 2, 1, 2, 1, 2, 1], [2, 1, 2, 1, 2, 1, 2, 1, 2]]),
        (2, 1, 2, 1, "constant", [[9, 9, 1, 2], [9, 1, 2, 9]]),
        (1, 4, 2, 3, "constant", [[9, 9, 1, 9, 9, 9]]),
        (5, 2, 1, 1, "clip", [[1, 2, 3], [2, 3, 4, 5], [4, 5]]),
        (1, 4, 2, 3, "clip", [[1]]),
        (2, 1, 4, 4, "clip", [[1, 2], [1, 2]]),
        (5, 2, 1, 1, "drop", [[2, 3, 4, 5]]),
        (5, 1, 2, 1, "drop", [[1, 2, 3, 4], [2, 3, 4, 5]]),
        (0, None, 2, 2, "edge", [[]]),
        (0, None, 2, 2, "reflect", [[]]),
        (0, None, 0, 0, "zero", [[]]),
    ],
)
def test_context_by_hand(
    length: int, size: int | None, left: int, right: int, pad: str, expected: list[list[int]]
) -> None:
    assert one_key(length, size, left, right, pad) == expected


def test_what_a_shard_reads_of_a_split_sequence() -> None:
    rule = KeyRule(
        name="data", chunk=ChunkRule(size_frames=4, step_frames=4), left_frames=2, right_frames=1, frame_bytes=1
    )
    plan = make_plan({"data": np.array([18])}, Rules(keys=(rule,), shard_bytes=14))
    shards = [plan.shard(i) for i in range(len(plan))]
    needed = [needed_frames(shard.keys["data"], shard.owner, np.ones(1, np.int64), rule) for shard in shards]
    assert [(some.start.tolist(), some.stop.tolist()) for some in needed] == [([0], [9]), ([6], [17]), ([14], [18])]
    assert [some.total for some in needed] == [2 + 9, 2 + 11, 2 + 4]
