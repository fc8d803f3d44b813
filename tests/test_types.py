from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqprep import hashing
from seqprep.types import KeySpec, Tags

TAGS = st.lists(st.text(max_size=12) | st.text("ab/é", max_size=3), max_size=30)


@pytest.mark.parametrize(
    ("spec", "nbytes"),
    [
        (KeySpec(dtype="float32", shape=(40,)), 160),
        (KeySpec(dtype="int32"), 4),
        (KeySpec(dtype="uint8", shape=(3, 5)), 15),
        (KeySpec(dtype="float64", shape=(0,)), 0),
    ],
)
def test_bytes_of_a_frame(spec: KeySpec, nbytes: int) -> None:
    assert spec.nbytes == nbytes
    assert type(spec.nbytes) is int


@given(TAGS)
def test_tags_are_a_sequence_of_strings(texts: list[str]) -> None:
    tags = Tags.of(texts)
    assert len(tags) == len(texts)
    assert list(tags) == texts
    assert [tags[place] for place in range(len(texts))] == texts
    assert [tags[place - len(texts)] for place in range(len(texts))] == texts
    assert tags == Tags.of(text.encode() for text in texts)
    assert pickle.loads(pickle.dumps(tags)) == tags


@given(TAGS)
def test_starts_and_sizes_lay_out_the_bytes(texts: list[str]) -> None:
    tags = Tags.of(texts)
    encoded = [text.encode() for text in texts]
    assert tags.data.tobytes() == b"".join(encoded)
    assert tags.sizes.tolist() == [len(text) for text in encoded]
    whole = tags.data.tobytes()
    spans = zip(tags.starts.tolist(), tags.ends.tolist(), strict=True)
    assert [whole[start:end] for start, end in spans] == encoded


@given(TAGS, st.data())
def test_take(texts: list[str], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=40)) if texts else []
    assert list(Tags.of(texts).take(np.array(places, np.int64))) == [texts[place] for place in places]


@given(TAGS, st.slices(20))
def test_slices(texts: list[str], where: slice) -> None:
    assert list(Tags.of(texts)[where]) == texts[where]


@given(st.lists(st.binary(max_size=6), max_size=10))
def test_bytes_that_are_no_text_survive(raw: list[bytes]) -> None:
    tags = Tags.of(raw)
    assert [tag.encode("utf-8", "surrogateescape") for tag in tags] == raw
    assert Tags.of(list(tags)) == tags


@pytest.mark.parametrize("place", [3, -4, 100])
def test_a_place_beyond_the_tags(place: int) -> None:
    with pytest.raises(IndexError, match=rf"tag {place} of 3"):
        Tags.of(["a", "b", "c"])[place]


def test_equality_sees_where_tags_end() -> None:
    assert Tags.of(["ab", "c"]) != Tags.of(["a", "bc"])
    assert Tags.of(["a"]) != Tags.of(["a", ""])
    assert Tags.of(["a"]) != ["a"]


def test_repr_shows_the_first_few() -> None:
    assert repr(Tags.of(["a", "b"])) == "Tags(2: 'a', 'b')"
    assert repr(Tags.of("abcd")) == "Tags(4: 'a', 'b', 'c', …)"
    assert repr(Tags.of([])) == "Tags(0: )"


@given(TAGS, TAGS)
def test_a_hash_depends_on_its_tag_alone(texts: list[str], others: list[str]) -> None:
    alone = {text: int(Tags.of([text]).hashes()[0]) for text in texts}
    among = Tags.of([*others, *texts]).hashes()[len(others) :]
    assert among.tolist() == [alone[text] for text in texts]
    assert len(set(alone.values())) == len(alone)


def test_hashes_never_change() -> None:
    assert [hex(value) for value in Tags.of(["a", "", "é", b"\xff", "ab"]).hashes().tolist()] == [
        "0x55d138ab8968a404",
        "0x238275bc38fcbe91",
        "0x35ed1ec044b605f2",
        "0xb6b1eacc876d3b7c",
        "0x6ebc82fee0fc4f0c",
    ]


@given(TAGS)
def test_duplicate(texts: list[str]) -> None:
    firsts: dict[str, int] = {}
    pairs = [(firsts[text], place) for place, text in enumerate(texts) if firsts.setdefault(text, place) != place]
    expected = min(pairs, default=None)
    assert Tags.of(texts).duplicate() == expected


@given(st.lists(st.binary(max_size=9), max_size=9), st.integers(0, 3000))
def test_a_tags_hash_is_its_own_wherever_it_stands(tags: list[bytes], size: int) -> None:
    tags = [*tags, b"x" * size, *tags]

    def alone(tag: bytes) -> int:
        terms = (hashing.mix_int(place * 256 + byte) for place, byte in enumerate(tag))
        whole = sum(terms) % 2**64 ^ hashing.mix_int(len(tag))
        return hashing.mix_int(hashing.mix_int(whole))

    assert Tags.of(tags).hashes().tolist() == [alone(tag) for tag in tags]


def test_tags_of_many_blocks_are_hashed_as_one_by_one() -> None:
    tags = [f"tag-{number % 977}" for number in range(40_000)]
    found = Tags.of(tags).hashes()
    assert found[:977].tolist() == Tags.of(tags[:977]).hashes().tolist()
    assert np.array_equal(found[977:], found[:-977])
