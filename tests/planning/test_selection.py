"""Which sequences are taken, and how they are divided."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.errors import ConfigError
from seqprep.planning import Count, SelectRule, SplitRule, select
from seqprep.planning.selection import REST, split
from seqprep.types import Tags
from tests.examples import examples

thorough = settings(max_examples=examples(100), deadline=None)

TAGS = [f"spk{i % 4}-utt{i:02d}" for i in range(20)]
# Worked out with plain integers, without numpy.
PARTS = {"train": [1, 2, 6, 9, 10, 13, 14, 15, 16, 17], "dev": [3, 4, 5, 7, 8, 11, 12, 18], REST: [0, 19]}
GROUPED = {"a": [0, 1, 4, 5, 8, 9, 12, 13, 16, 17], "b": [2, 3, 6, 7, 10, 11, 14, 15, 18, 19], REST: []}

names = st.lists(st.text("ab/ß-0", max_size=5), unique=True, min_size=1, max_size=30)


def divided(tags: list[str], shares: dict[str, float], by: str | None = None) -> dict[str, list[int]]:
    found = split(np.arange(len(tags)), Tags.of(tags), SplitRule(shares, by))
    return {name: places.tolist() for name, places in found.items()}


@given(names, st.data())
@thorough
def test_what_passes_every_test_is_taken_and_the_rest_is_counted(tags: list[str], data: st.DataObject) -> None:
    numbers = st.lists(st.integers(0, 9), min_size=len(tags), max_size=len(tags))
    lengths, counts = data.draw(numbers), data.draw(numbers)
    rule = SelectRule(
        include=data.draw(st.none() | st.just(("a",)) | st.just(("a", "^b"))),
        exclude=data.draw(st.sampled_from([(), ("ß",), ("ß", "0$")])),
        min_frames=data.draw(st.none() | st.integers(0, 5)),
        max_frames=data.draw(st.none() | st.integers(4, 9)),
        wanted=data.draw(st.none() | st.just(Tags.of([*tags[::2], "not there"]))),
    )
    tests = {
        "select.tags_file": lambda i: rule.wanted is None or tags[i] in list(rule.wanted),
        "select.include": lambda i: rule.include is None or any(re.search(p, tags[i]) for p in rule.include),
        "select.exclude": lambda i: not any(re.search(p, tags[i]) for p in rule.exclude),
        "select.min_frames": lambda i: rule.min_frames is None or lengths[i] >= rule.min_frames,
        "select.max_frames": lambda i: rule.max_frames is None or lengths[i] <= rule.max_frames,
    }
    reasons = [next((name for name, passes in tests.items() if not passes(i)), None) for i in range(len(tags))]
    taken = [i for i, reason in enumerate(reasons) if reason is None]
    arguments = np.array(lengths), np.array(counts), Tags.of(tags), rule
    if not taken:
        with pytest.raises(ConfigError, match=rf"^select leaves none of the {len(tags)} sequences: "):
            select(*arguments)
        return
    found = select(*arguments)
    assert found.places.tolist() == taken
    expected: dict[str, Count] = {}
    for i, reason in enumerate(reasons):
        if reason is not None:
            one = Count(sequences=1, rows=counts[i], frames=lengths[i])
            expected[reason] = expected.get(reason, Count()) + one
    assert found.left_out == expected


def test_everything_filtered_away_is_said_with_the_reasons() -> None:
    rule = SelectRule(include=("spk[01]",), max_frames=4)
    lengths = np.full(20, 5)
    message = (
        "select leaves none of the 20 sequences: 10 by select.include ('spk[01]'), 10 by select.max_frames (4) were left out; "
        "loosen that"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        select(lengths, lengths, Tags.of(TAGS), rule)


def test_a_source_without_sequences_is_not_the_selections_fault() -> None:
    nothing = np.zeros(0, np.int64)
    assert len(select(nothing, nothing, Tags.of([]), SelectRule(min_frames=3)).places) == 0


def test_parts_never_change() -> None:
    assert divided(TAGS, {"train": 0.7, "dev": 0.2}) == PARTS
    assert divided(TAGS, {"a": 0.5, "b": 0.5}, r"^(spk\d)") == GROUPED


@given(names, st.lists(st.integers(1, 50), min_size=1, max_size=4))
@thorough
def test_parts_are_disjoint_and_complete(tags: list[str], weights: list[int]) -> None:
    shares = {f"part{i}": weight / 200 for i, weight in enumerate(weights)}
    try:
        found = divided(tags, shares)
    except ConfigError as error:
        assert "gives none of the" in str(error)  # noqa: PT017 - either is right, by chance
        return
    assert sorted(place for places in found.values() for place in places) == list(range(len(tags)))
    assert list(found) == [*shares, REST]


def test_parts_have_about_their_shares() -> None:
    """Within 5 standard deviations."""
    tags = [f"{i}" for i in range(20_000)]
    found = divided(tags, {"train": 0.7, "dev": 0.2, "test": 0.1})
    assert not found[REST]
    for name, share in (("train", 0.7), ("dev", 0.2), ("test", 0.1)):
        assert abs(len(found[name]) - 20_000 * share) < 5 * np.sqrt(20_000 * share * (1 - share))


@given(names)
@thorough
def test_a_sequence_stays_in_its_part_when_others_come_and_go(tags: list[str]) -> None:
    def part_of(some: list[str]) -> dict[str, str]:
        found = split(
            np.arange(len(some)), Tags.of([*some, *map(str, range(99))]), SplitRule({"a": 0.5, "b": 0.5}, None)
        )
        return {some[place]: name for name, places in found.items() for place in places.tolist()}

    try:
        whole, half = part_of(tags), part_of(tags[::2])
    except ConfigError:
        return
    assert all(whole[tag] == part for tag, part in half.items())


def test_a_group_stays_on_one_side() -> None:
    tags = [f"corpus/speaker{i % 50}/sentence{i}" for i in range(1000)]
    found = divided(tags, {"train": 0.8, "dev": 0.2}, r"/(speaker\d+)/")
    speakers = {name: {tags[place].split("/")[1] for place in places} for name, places in found.items()}
    assert not speakers["train"] & speakers["dev"]
    assert all(len(places) % 20 == 0 for places in found.values())


def test_only_the_selected_are_divided() -> None:
    some = np.array([1, 4, 7, 9, 19])
    found = split(some, Tags.of(TAGS), SplitRule({"train": 0.7, "dev": 0.2}, None))
    assert {name: places.tolist() for name, places in found.items()} == {
        name: [place for place in places if place in some] for name, places in PARTS.items()
    }


def test_an_empty_part_is_an_error() -> None:
    message = (
        "split.dev is 0.001, which gives none of the 20 sequences; raise it, or split by something finer than split.by"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        divided(TAGS, {"train": 0.9, "dev": 0.001})


@pytest.mark.parametrize("pattern", ["^(spk[0-2])", "^spk(?:3|([0-2]))"])
def test_a_tag_without_the_group_is_an_error(pattern: str) -> None:
    message = (
        f"split.by is {pattern!r}, whose group isn't found in tag 'spk3-utt03' (nor in 4 others); change the pattern"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        divided(TAGS, {"a": 1.0}, pattern)
