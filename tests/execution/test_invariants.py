"""What must hold of every dataset: random sequences go through `seqprep.chunk` and the loader, and what comes out is held
against the sequences themselves, by arithmetic on plain integers; nothing of the planning is called."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import seqprep
from seqprep.types import Array
from tests.examples import examples

from .made_up import FILLING, PAD_VALUES, Case, KeySetting, Made, Row, cases, made, made_if_any, wavelike

thorough = settings(max_examples=examples(40), deadline=None)


def dataset(case: Case) -> Made:
    found = made_if_any(case)
    assume(found is not None)
    assert found is not None
    return found


# -- frames --


def context_sizes(row: Row, key: KeySetting) -> tuple[int, int]:
    """Frames of context that a row should have in front of its core and behind."""
    if not row.core:
        return 0, 0
    behind = row.length - row.start - row.core
    if key.context["pad"] == "clip":
        return min(key.context["left"], row.start), min(key.context["right"], behind)
    left = key.context.get("left_initial") if row.start == 0 else None
    right = key.context.get("right_final") if behind == 0 else None
    return (
        key.context["left"] if left is None else left,
        key.context["right"] if right is None else right,
    )


def expected_frame(sequence: Array, position: int, pad: Any) -> Array:
    """What stands at a position of a sequence, or outside of it."""
    if 0 <= position < len(sequence):
        return sequence[position]
    assert pad not in ("clip", "drop"), "a frame outside the sequence"
    if pad == "edge":
        return sequence[0 if position < 0 else -1]
    if pad == "reflect":
        return sequence[wavelike(position, len(sequence))]
    return np.full_like(sequence[0], 0 if pad == "zero" else pad["constant"])


@given(cases() | cases(whole=False, pads=("drop", "clip"), layouts=False))
@settings(max_examples=examples(120), deadline=None)
def test_rows_hold_their_core_and_the_neighbours_of_it(case: Case) -> None:
    for sequence, rows in dataset(case).rows():
        for name, row in rows.items():
            key, values = case.keys[name], case.values[name][sequence]
            left, right = context_sizes(row, key)
            assert row.length == len(values)
            assert 0 <= row.start <= row.start + row.core <= row.length
            assert (row.begin, len(row.values) - row.begin - row.core) == (left, right)
            assert row.values.dtype == values.dtype
            for place, frame in enumerate(row.values):
                expected = expected_frame(values, row.start - row.begin + place, key.context["pad"])
                assert frame.tobytes() == expected.tobytes()


@given(cases(whole=False))
@thorough
def test_keys_start_at_the_same_moment_and_chunks_are_no_longer_than_they_may_be(case: Case) -> None:
    for _, rows in dataset(case).rows():
        for name, row in rows.items():
            assert rows["data"].start == case.keys[name].rate * row.start
            assert row.core <= case.keys[name].size


@given(cases(tiling=True, whole=False, align=("ceil", "exact")))
@thorough
def test_cores_of_step_size_join_to_the_sequence_bit_for_bit(case: Case) -> None:
    parts: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    assume(all(key.context["pad"] != "drop" for key in case.keys.values()))
    for sequence, rows in dataset(case.changed(batch={"drop_last": False})).rows():
        for name, row in rows.items():
            core = row.values[row.begin : row.begin + row.core]
            parts.setdefault((name, sequence), []).append((row.start, core.tobytes()))
    for name, sequences in case.values.items():
        for number, values in enumerate(sequences):
            joined = b"".join(core for _, core in sorted(parts.get((name, number), [])))
            assert joined == values.tobytes()


@given(cases(covering=True, whole=False, align=("ceil", "exact"), pads=(*FILLING, "clip")))
@thorough
def test_every_frame_is_covered_if_steps_are_no_larger_than_chunks(case: Case) -> None:
    covered: dict[tuple[str, int], set[int]] = {}
    for sequence, rows in dataset(case.changed(batch={"drop_last": False})).rows():
        for name, row in rows.items():
            covered.setdefault((name, sequence), set()).update(range(row.start, row.start + row.core))
    for name, sequences in case.values.items():
        for number, values in enumerate(sequences):
            assert covered.get((name, number), set()) == set(range(len(values)))


@given(cases(covering=True, whole=False, align=("ceil", "exact"), pads=FILLING, at_the_ends=False, whole_numbers=True))
@thorough
def test_a_convolution_over_rows_stitched_is_that_over_the_padded_sequence(case: Case) -> None:
    """In whole numbers, so that sums are exact. Packed rows have neighbours, so they are taken apart first."""
    assume("pack" not in case.settings["batch"])
    try:
        found = made(case.changed(batch={"drop_last": False}))
        with found as dataset:
            for name, key in case.keys.items():
                left, right = key.context["left"], key.context["right"]
                outputs = ((batch, convolved(batch[name], left, right)) for batch in dataset.batches)
                stitched = {one.seq_idx: one.outputs for one in seqprep.stitch(outputs, key=name, context="removed")}
                for number, values in enumerate(case.values[name]):
                    places = range(-left, len(values) + right) if len(values) else ()
                    padded = [expected_frame(values, place, key.context["pad"]) for place in places]
                    assert (number in stitched) == bool(padded)
                    if padded:
                        expected = convolved(np.array(padded)[None], left, right)[0]
                        assert stitched[number].tolist() == expected.tolist()
    except seqprep.errors.ConfigError as error:
        assert "gives a row" in str(error)  # noqa: PT017


def convolved(values: Array, left: int, right: int) -> Array:
    """A valid convolution over left + 1 + right frames; [B, T, …] to [B, max(T − left − right, 0)]."""
    flat = values.astype(np.int64).reshape(*values.shape[:2], -1).sum(axis=2)
    frames = max(flat.shape[1] - left - right, 0)
    taps = [(tap + 1) * flat[:, tap : tap + frames] for tap in range(left + 1 + right)]
    return np.sum(taps, axis=0) if frames else flat[:, :0]


# -- counts --


def grid_chunks(lengths: Mapping[str, int], case: Case) -> int:
    """Chunks of a sequence, in closed form, before any is left out."""
    keys = case.keys.items()
    if not lengths["data"]:
        return 0
    count = max(min(-(-(lengths[name] - key.min_size) // key.step) for name, key in keys), 1)
    if case.settings["chunk"]["stop_when_covered"]:
        count = min(count, 1 + max(max(-(-(lengths[name] - key.size) // key.step) for name, key in keys), 0))
    return count


def full_chunks(lengths: Mapping[str, int], case: Case) -> int:
    """How many of them are full in every key."""
    found = min((lengths[name] - key.size) // key.step + 1 for name, key in case.keys.items())
    return min(max(found, 0), grid_chunks(lengths, case))


def is_real(start: int, lengths: Mapping[str, int], case: Case) -> bool:
    """Whether all context of a chunk is, in keys that want it so."""
    for name, key in case.keys.items():
        own = start // key.rate
        end = min(own + key.size, lengths[name])
        if key.context["pad"] == "drop" and (own < key.context["left"] or end + key.context["right"] > lengths[name]):
            return False
    return True


@given(cases(whole=False, jitter=False) | cases(whole=False, jitter=False, pads=("drop", "zero"), layouts=False))
@settings(max_examples=examples(120), deadline=None)
def test_rows_are_the_chunks_of_the_grid_less_what_is_counted(case: Case) -> None:
    found = dataset(case)
    cut, left_out = found.summary.report["cut"], found.summary.report["left_out"]
    last = left_out.get("batch.drop_last", {"rows": 0})["rows"]
    sequences = [case.lengths(number) for number in range(len(case.values["data"]))]
    step, tail = case.keys["data"].step, case.settings["chunk"]["tail"]
    grid = sum(grid_chunks(lengths, case) for lengths in sequences)
    starts = Counter((sequence, rows["data"].start) for sequence, rows in found.rows())
    assert starts.total() == grid - cut["chunks_dropped_short"] - cut["chunks_dropped_context"] - last
    assert max(starts.values()) == 1
    if tail == "shift":
        return
    count = full_chunks if tail == "drop" else grid_chunks
    expected = Counter(
        (number, chunk * step)
        for number, lengths in enumerate(sequences)
        for chunk in range(count(lengths, case))
        if is_real(chunk * step, lengths, case)
    )
    assert starts <= expected
    assert (expected - starts).total() == last
    assert last == 0 or case.settings["batch"]["drop_last"]
    short = sum(grid_chunks(lengths, case) - count(lengths, case) for lengths in sequences)
    assert cut["chunks_dropped_short"] == short
    assert cut["chunks_dropped_context"] == grid - short - expected.total()


@given(cases(whole=True))
@thorough
def test_whole_sequences_come_once_empty_ones_too(case: Case) -> None:
    found = dataset(case)
    last = found.summary.report["left_out"].get("batch.drop_last", {"rows": 0})["rows"]
    seen = [sequence for sequence, _ in found.rows()]
    assert len(seen) == len(set(seen)) == len(case.values["data"]) - last
    for sequence, rows in found.rows():
        assert {name: (row.start, row.core) for name, row in rows.items()} == {
            name: (0, len(values[sequence])) for name, values in case.values.items()
        }


# -- batches --


@given(cases())
@settings(max_examples=examples(80), deadline=None)
def test_budgets_are_kept_padding_is_padding_and_its_frames_are_counted(case: Case) -> None:
    found, batch_settings = dataset(case), case.settings["batch"]
    padding = dict.fromkeys(case.keys, 0)
    for batch in found.batches:
        for name, key in case.keys.items():
            count, longest = batch[name].shape[:2]
            assert key.max_frames is None or count * longest <= key.max_frames or count == 1
            assert count <= batch_settings.get("max_sequences", count)
            check_length(batch, name, case)
            valid = np.zeros((count, longest), bool)
            packed = "segment_row" in batch
            rows = batch["segment_row"] if packed else np.arange(count)
            starts = batch.get(f"{name}/segment_start", batch["segment_start"]) if packed else np.zeros(count, np.int64)
            for row, start, size in zip(rows, starts, batch[f"{name}/size0"], strict=True):
                assert not valid[row, start : start + size].any()
                valid[row, start : start + size] = True
            assert valid.sum() == batch[f"{name}/size0"].sum()
            assert (batch[name][~valid] == PAD_VALUES[name]).all()
            padding[name] += int((~valid).sum())
    assert found.summary.padding == padding


def check_length(batch: Mapping[str, Any], name: str, case: Case) -> None:
    """Rows are as long as the longest, or the next multiple; packed ones at most as long as they may be."""
    pad_to, longest, rate = case.settings["batch"].get("pad_to", "longest"), batch[name].shape[1], case.keys[name].rate
    ends = batch[f"{name}/size0"].astype(np.int64)
    if "segment_row" in batch:
        ends = ends + batch.get(f"{name}/segment_start", batch["segment_start"])
        crowded = np.bincount(batch["segment_row"][batch["data/size0"] > 0], minlength=len(batch[name])) > 1
        inside = ends * rate <= case.settings["batch"]["row_frames"] if rate else np.ones(len(ends), bool)
        assert (inside | ~crowded[batch["segment_row"]]).all()
    if pad_to == "bucket":
        assert longest >= ends.max()
        return
    multiple = pad_to // (rate or 1) if isinstance(pad_to, int) else 1
    assert longest == -(-int(ends.max()) // multiple) * multiple


@given(cases(), st.integers(1, 5))
@thorough
def test_batches_hold_exactly_as_many_rows_as_they_may(case: Case, most: int) -> None:
    """Where nothing else bounds them: all but the last of each shard."""
    plain = case.changed(batch={"max_frames": None, "max_sequences": most, "bucket": None, "pack": False,
                                "row_frames": None, "pad_to": "longest"})  # fmt: skip
    found = dataset(plain)
    sizes = [len(batch["seq_idx"]) for batch in found.batches]
    for a, b in itertools.pairwise(itertools.accumulate(found.shards, initial=0)):
        assert sizes[a : max(b - 1, a)] == [most] * max(b - 1 - a, 0)
        assert all(1 <= size <= most for size in sizes[b - 1 : b])
        if plain.settings["batch"].get("drop_last") or plain.settings["batch"].get("pad_rows"):
            assert set(sizes[a:b]) <= {most}


@given(cases(layouts=False), st.integers(1, 60))
@thorough
def test_what_is_packed_is_what_isnt(case: Case, frames: int) -> None:
    """The same rows, bit for bit, and the same fields."""
    rates = [key.rate for key in case.keys.values() if key.rate]
    row_frames = frames * int(np.lcm.reduce(rates))
    case = case.changed(batch={"max_frames": None, "max_sequences": 3})
    packing = case.changed(batch={"pack": True, "row_frames": row_frames})
    plain, packed = dataset(case), made_if_any(packing)
    assert packed is not None
    assert packed.contents() == plain.contents()
    for batch in packed.batches:
        assert (batch["segment_start"] % int(np.lcm.reduce(rates)) == 0).all()
        for name, key in case.keys.items():
            check_length(batch, name, packing)
            if key.rate and f"{name}/segment_start" in batch:
                assert (batch[f"{name}/segment_start"] * key.rate == batch["segment_start"]).all()


# -- the whole in parts --


@given(cases(), st.integers(1, 8))
@settings(max_examples=examples(20), deadline=None)
def test_partitions_are_disjoint_complete_and_even(case: Case, parts: int) -> None:
    case = case.changed(batch={"drop_last": False})
    whole = dataset(case)
    found = [made_if_any(case.changed(partition=f"{part}/{parts}")) for part in range(1, parts + 1)]
    there = [part for part in found if part is not None]
    assert sorted((row for part in there for row in part.contents()), key=repr) == whole.contents()
    is_global = case.settings["order"].get("scope") == "global"
    total = len(whole.contents()) if is_global else len(case.values["data"])
    for number, part in enumerate(found):
        if part is not None:
            size = len(part.contents()) if is_global else part.summary.sequences
            assert size == total // parts + (number < total % parts)
