from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.errors import SourceError
from seqprep.planning import KeyRule, Rules, check_lengths, expected_lengths
from seqprep.types import Tags
from tests.planning import reference
from tests.planning.reference import Case, cases

thorough = settings(max_examples=100, deadline=None)


def check(data: list[int], classes: list[int], rate: int = 3, align: str = "ceil") -> None:
    rules = Rules(keys=(KeyRule(name="data"), KeyRule(name="classes", rate=rate, align=align)))
    lengths = {"data": np.array(data), "classes": np.array(classes)}
    check_lengths(lengths, rules, Tags.of(f"s/{i}" for i in range(len(data))))


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
    check_lengths(case.lengths, case.rules, Tags.of(str(i) for i in range(len(case.lengths["data"]))))


@given(cases(), st.data())
@thorough
def test_any_other_length_is_refused(case: Case, data: st.DataObject) -> None:
    if len(case.rules.keys) == 1:
        return
    key = data.draw(st.sampled_from(case.rules.keys[1:]))
    place = data.draw(st.integers(0, len(case.lengths["data"]) - 1))
    case.lengths[key.name][place] += data.draw(st.sampled_from([-2, -1, 1, 2]))
    with pytest.raises(SourceError, match=rf"sequence '{place}': key '{key.name}' has "):
        check_lengths(case.lengths, case.rules, Tags.of(str(i) for i in range(len(case.lengths["data"]))))


def test_a_mismatch_names_the_first_sequence_both_lengths_and_the_remedy() -> None:
    check([7, 6, 0], [3, 2, 0])
    message = (
        r"^sequence 's/1': key 'classes' has 3 frames where 'data' has 6, which doesn't fit rate 3 with align ceil "
        r"\(2 such sequences\); correct keys\.classes\.rate or align, or the source$"
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
