from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.errors import SourceError
from seqprep.planning import KeyRule, Rules, align_lengths, expected_lengths
from seqprep.types import Tags
from tests.examples import examples
from tests.planning import reference
from tests.planning.reference import Case, cases

thorough = settings(max_examples=examples(100), deadline=None)


def aligned(lengths: dict[str, list[int]], *others: KeyRule) -> tuple[dict[str, list[int]], list[bool], dict[str, Any]]:
    """Lengths that fit, which sequences are dropped, and the counts."""
    rules = Rules(keys=(KeyRule(name="data"), *others))
    count = len(lengths["data"])
    found = align_lengths(
        {name: np.array(some) for name, some in lengths.items()}, rules, Tags.of(map(str, range(count)))
    )
    return {name: some.tolist() for name, some in found.lengths.items()}, found.dropped.tolist(), dict(found.counts)


def brought_together(lengths: dict[str, int], rules: Rules) -> dict[str, int] | str:
    """One sequence's lengths, by trying one input length after the other; or "drop", or "error"."""
    frames, others = lengths["data"], [key for key in rules.keys[1:] if key.rate is not None]
    misfits = [key for key in others if reference.expected_length(frames, key.rate, key.align) != lengths[key.name]]
    for key in misfits:
        have = lengths[key.name]
        low, high = frames // key.rate, -(-frames // key.rate)
        right = {"ceil": high, "floor": low, "exact": high if have * key.rate < frames else low}[key.align]
        if key.on_mismatch == "error" or abs(have - right) > key.tolerance_frames:
            return "error"
    modes = {key.on_mismatch for key in misfits}
    if "drop" in modes:
        return "drop"

    def lengths_for(frames: int) -> dict[str, int | None]:
        return {key.name: reference.expected_length(frames, key.rate, key.align) for key in others}

    for mode, step in (("trim", -1), ("pad", 1)):
        while mode in modes:
            own = lengths_for(frames)
            asked = [(own[key.name], lengths[key.name]) for key in misfits if key.on_mismatch == mode]
            if None not in own.values() and all(step * (new - have) >= 0 for new, have in asked):
                return lengths | {"data": frames} | own
            frames += step
    return lengths


@st.composite
def misfitting(draw: Any) -> tuple[Rules, dict[str, list[int]]]:
    """Keys whose lengths differ by up to 3 frames from what they should be."""
    keys = [KeyRule(name="data")]
    for name in ("classes", "align")[: draw(st.integers(1, 2))]:
        mode = draw(st.sampled_from(["trim", "pad", "drop", "error"]))
        rate = draw(st.sampled_from([1, 2, 3, None]))
        keys.append(
            KeyRule(
                name=name,
                rate=rate,
                align=draw(st.sampled_from(["ceil", "floor", "exact"])),
                on_mismatch=mode,
                tolerance_frames=0 if mode == "error" else draw(st.integers(1, 3)),
            )
        )
    lengths: dict[str, list[int]] = {key.name: [] for key in keys}
    for _ in range(draw(st.integers(1, 6))):
        frames = draw(st.integers(0, 40))
        lengths["data"].append(frames)
        for key in keys[1:]:
            off = draw(st.sampled_from([0, 0, 1, -1, 2, 3]))
            lengths[key.name].append(max(frames // (key.rate or 1) + off, 0))
    return Rules(keys=tuple(keys)), lengths


def check(data: list[int], classes: list[int], rate: int = 3, align: str = "ceil") -> None:
    rules = Rules(keys=(KeyRule(name="data"), KeyRule(name="classes", rate=rate, align=align)))
    lengths = {"data": np.array(data), "classes": np.array(classes)}
    align_lengths(lengths, rules, Tags.of(f"s/{i}" for i in range(len(data))))


@given(st.lists(st.integers(0, 200), max_size=20), st.integers(1, 9), st.sampled_from(["ceil", "floor", "exact"]))
@thorough
def test_expected_lengths(frames: list[int], rate: int, align: str) -> None:
    found = expected_lengths(np.array(frames, np.int64), KeyRule(name="classes", rate=rate, align=align))
    expected = [reference.expected_length(n, rate, align) for n in frames]
    assert found.tolist() == [-1 if n is None else n for n in expected]


@pytest.mark.parametrize(
    ("align", "expected"),
    [("ceil", [0, 1, 1, 1, 2, 2, 2, 3]), ("floor", [0, 0, 0, 1, 1, 1, 2, 2]), ("exact", [0, -1, -1, 1, -1, -1, 2, -1])],
)
def test_rate_three_by_hand(align: str, expected: list[int]) -> None:
    rule = KeyRule(name="classes", rate=3, align=align)
    assert expected_lengths(np.arange(8), rule).tolist() == expected


@given(cases())
@thorough
def test_right_lengths_pass(case: Case) -> None:
    align_lengths(case.lengths, case.rules, Tags.of(str(i) for i in range(len(case.lengths["data"]))))


@given(cases(), st.data())
@thorough
def test_any_other_length_is_refused(case: Case, data: st.DataObject) -> None:
    others = [key for key in case.rules.keys[1:] if key.rate is not None]
    if not others:
        return
    key = data.draw(st.sampled_from(others))
    place = data.draw(st.integers(0, len(case.lengths["data"]) - 1))
    case.lengths[key.name][place] += data.draw(st.sampled_from([-2, -1, 1, 2]))
    with pytest.raises(SourceError, match=rf"sequence '{place}': key '{key.name}' has "):
        align_lengths(case.lengths, case.rules, Tags.of(str(i) for i in range(len(case.lengths["data"]))))


@given(misfitting())
@settings(max_examples=examples(300), deadline=None)
def test_lengths_are_brought_together_as_the_rules_say(case: tuple[Rules, dict[str, list[int]]]) -> None:
    rules, lengths = case
    count = len(lengths["data"])
    each = [{name: some[i] for name, some in lengths.items()} for i in range(count)]
    expected = [brought_together(one, rules) for one in each]
    tags = Tags.of(str(i) for i in range(count))
    arrays = {name: np.array(some, np.int64) for name, some in lengths.items()}
    if "error" in expected:
        with pytest.raises(
            SourceError, match=rf"^sequence '[{''.join(str(i) for i in range(count) if expected[i] == 'error')}]': key "
        ):
            align_lengths(arrays, rules, tags)
        return
    found = align_lengths(arrays, rules, tags)
    assert found.dropped.tolist() == [one == "drop" for one in expected]
    after = [old if new == "drop" else new for old, new in zip(each, expected, strict=True)]
    assert {name: some.tolist() for name, some in found.lengths.items()} == {
        name: [one[name] for one in after] for name in lengths
    }
    changes = [{name: new[name] - old[name] for name in lengths} for old, new in zip(each, after, strict=True)]
    counts = {"sequences_trimmed": 0, "sequences_padded": 0, "frames_trimmed": {}, "frames_padded": {}} | found.counts
    assert counts == {
        "sequences_trimmed": sum(min(change.values()) < 0 for change in changes),
        "sequences_padded": sum(max(change.values()) > 0 for change in changes),
        "frames_trimmed": {n: t for n in lengths if (t := -sum(min(change[n], 0) for change in changes))},
        "frames_padded": {n: t for n in lengths if (t := sum(max(change[n], 0) for change in changes))},
    }


def other(name: str, mode: str, rate: int = 1, align: str = "ceil", tolerance: int = 2) -> KeyRule:
    return KeyRule(name=name, rate=rate, align=align, on_mismatch=mode, tolerance_frames=tolerance)


@pytest.mark.parametrize(
    ("mode", "data", "classes"),
    [
        ("trim", [9, 10, 10], [9, 10, 10]),
        ("pad", [10, 10, 11], [10, 10, 11]),
    ],
)
def test_one_key_by_hand(mode: str, data: list[int], classes: list[int]) -> None:
    found, dropped, _ = aligned({"data": [10, 10, 10], "classes": [9, 10, 11]}, other("classes", mode))
    assert found == {"data": data, "classes": classes}
    assert dropped == [False] * 3


def test_a_sparser_key_by_hand() -> None:
    """The documentation's example: 10 frames make 4 labels of 3; there are 3, or 5."""
    lengths = {"data": [10, 10], "classes": [3, 5]}
    assert aligned(lengths, other("classes", "trim", rate=3))[0] == {"data": [9, 10], "classes": [3, 4]}
    assert aligned(lengths, other("classes", "pad", rate=3))[0] == {"data": [10, 13], "classes": [4, 5]}
    assert aligned(lengths, other("classes", "drop", rate=3))[1] == [True, True]


def test_other_keys_follow_and_everything_is_counted() -> None:
    lengths = {"data": [10, 10], "classes": [9, 10], "align": [10, 10]}
    found, _, counts = aligned(lengths, other("classes", "trim"), KeyRule(name="align"))
    assert found == {"data": [9, 10], "classes": [9, 10], "align": [9, 10]}
    assert counts == {
        "sequences_trimmed": 1,
        "sequences_padded": 0,
        "frames_trimmed": {"data": 1, "align": 1},
        "frames_padded": {},
    }


def test_trim_goes_before_pad_and_drop_before_both() -> None:
    lengths = {"data": [10], "classes": [9], "align": [11]}
    found, dropped, _ = aligned(lengths, other("classes", "trim"), other("align", "pad"))
    assert (found, dropped) == ({"data": [9], "classes": [9], "align": [9]}, [False])
    found, dropped, _ = aligned(lengths, other("classes", "drop"), other("align", "pad"))
    assert (found, dropped) == (lengths, [True])


def test_a_key_with_a_time_of_its_own_is_left_alone() -> None:
    text = KeyRule(name="text", rate=None)
    found, _, _ = aligned({"data": [10, 3], "classes": [9, 3], "text": [4, 70]}, other("classes", "trim"), text)
    assert found == {"data": [9, 3], "classes": [9, 3], "text": [4, 70]}
    with pytest.raises(SourceError, match="sequence '0': key 'text' has -1 frames; the source's lengths are damaged"):
        aligned({"data": [10], "text": [-1]}, text)


def test_beyond_the_tolerance() -> None:
    message = (
        r"^sequence '1': key 'classes' has 7 frames where 'data' has 10, which doesn't fit rate 1 with align ceil; correct "
        r"keys\.classes\.rate or align, or the source, or raise keys\.classes\.tolerance, which is 2 where 3 are needed$"
    )
    with pytest.raises(SourceError, match=message):
        aligned({"data": [10, 10], "classes": [8, 7]}, other("classes", "trim"))


def test_a_mismatch_names_the_first_sequence_both_lengths_and_the_remedy() -> None:
    check([7, 6, 0], [3, 2, 0])
    message = (
        r"^sequence 's/1': key 'classes' has 3 frames where 'data' has 6, which doesn't fit rate 3 with align ceil "
        r"\(2 such sequences\); correct keys\.classes\.rate or align, or the source, "
        r"or allow it with keys\.classes\.tolerance and on_mismatch$"
    )
    with pytest.raises(SourceError, match=message):
        check([7, 6, 1], [3, 3, 0])


def test_one_mismatch_counts_no_others() -> None:
    with pytest.raises(SourceError, match=r"has 2 frames where 'data' has 7, .* align ceil; correct"):
        check([7, 6], [2, 2])
    with pytest.raises(SourceError, match=r"has 2 frames where 'data' has 7, .* align exact; correct"):
        check([7, 6], [2, 2], align="exact")


def test_negative_lengths_are_damage() -> None:
    with pytest.raises(
        SourceError, match=r"sequence 's/1': key 'data' has -3 frames; the source's lengths are damaged"
    ):
        check([3, -3], [1, -1])
    with pytest.raises(SourceError, match=r"key 'classes' has -1 frames; the source's lengths are damaged"):
        check([4], [-1], align="exact")
