from __future__ import annotations

import hashlib
import json
import pickle
import tracemalloc
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest

from seqprep.errors import ConfigError
from seqprep.sources import Source, open_source
from seqprep.types import FrameRange

from .source_contract import SourceContract, Truth, assert_same


def make(**options: Any) -> Source:
    return open_source({"type": "synthetic", **options})


@cache
def frame_by_frame(options: str) -> Truth:
    """Everything, without asking for a range longer than one frame."""
    source = make(**json.loads(options))
    truth: dict[str, list[Any]] = {}
    for key, spec in source.keys.items():
        truth[key] = []
        for sequence, length in enumerate(source.lengths(key).tolist()):
            whole = np.empty((length, *spec.shape), spec.dtype)
            for place in range(length):
                source.read(key, sequence, FrameRange(place, place + 1), whole[place : place + 1])
            truth[key].append(whole)
    return truth


class TestSynthetic(SourceContract):
    reader = "synthetic"
    options: ClassVar[dict[str, Any]] = {
        "sequences": 12,
        "mean_frames": 300,
        "max_frames": 1500,
        "features": 8,
        "label_rate": 3,
    }

    @pytest.fixture
    def source(self) -> Source:
        return make(**self.options)

    @pytest.fixture
    def truth(self) -> Truth:
        return frame_by_frame(json.dumps(self.options))

    @pytest.fixture
    def reopen(self) -> Callable[[], Source]:
        return lambda: make(**self.options)

    @pytest.fixture
    def changed(self) -> Callable[[], Source]:
        return lambda: make(**self.options, seed=1)


class TestTiny(TestSynthetic):
    options: ClassVar[dict[str, Any]] = {
        "sequences": 9,
        "min_frames": 0,
        "mean_frames": 2,
        "max_frames": 9,
        "features": 1,
        "classes": 3,
    }


def test_values_never_change() -> None:
    """Written out once: another machine, or another numpy, has to come to the same."""
    source = make(sequences=50, seed=7)
    assert source.lengths("data")[:8].tolist() == [84, 351, 451, 304, 447, 611, 190, 199]
    assert source.read("classes", 3, FrameRange(40, 60)).tolist() == [12] * 6 + [4] * 10 + [17] * 4
    values = source.read("data", 3, FrameRange(40, 41))[0, :3].tolist()
    assert [value.hex() for value in values] == [
        "-0x1.6f5f820000000p+0",
        "0x1.8a8edc0000000p-4",
        "0x1.89bc380000000p+0",
    ]
    digest = hashlib.sha256()
    for sequence in range(50):
        digest.update(source.read("data", sequence).astype("<f4").tobytes())
    assert digest.hexdigest()[:16] == "e5182bb3bc54f8b9"


@pytest.mark.parametrize("mean", [21, 60, 400, 1000, 1700, 1999])
def test_mean_length(mean: int) -> None:
    lengths = make(sequences=20000, mean_frames=mean).lengths("data")
    assert lengths.min() >= 20
    assert lengths.max() <= 2000
    assert lengths.mean() == pytest.approx(mean, rel=0.02)


def test_lengths_are_skewed_like_speech() -> None:
    lengths = make(sequences=20000).lengths("data")
    low, middle, high = np.percentile(lengths, [10, 50, 99])
    assert middle < lengths.mean()
    assert high - middle > 3 * (middle - low)


def test_one_length() -> None:
    source = make(sequences=3, min_frames=5, mean_frames=5, max_frames=5)
    assert source.lengths("data").tolist() == [5, 5, 5]


def test_segments() -> None:
    source = make(sequences=300, classes=3)
    runs = []
    for sequence in range(300):
        classes = source.read("classes", sequence)
        edges = np.flatnonzero(np.diff(classes)) + 1
        runs += np.diff([0, *edges, len(classes)]).tolist()
        assert classes.min() >= 0
        assert classes.max() < 3
    assert min(runs) == 3
    assert 15 <= max(runs) <= 20


def test_labels_stand_for_the_first_of_their_frames() -> None:
    fine, coarse = make(sequences=5), make(sequences=5, label_rate=4)
    for sequence in range(5):
        assert_same(coarse.read("classes", sequence), fine.read("classes", sequence)[::4])


def test_frames_show_their_class() -> None:
    """The middles of two segments of one class are alike, those of different classes are not."""
    source = make(sequences=40)
    data = np.concatenate([source.read("data", sequence) for sequence in range(40)])
    classes = np.concatenate([source.read("classes", sequence) for sequence in range(40)])
    means = np.stack([data[classes == number].mean(axis=0) for number in range(20)])
    nearest = ((data[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == classes).mean() > 0.8


def test_seed_changes_everything() -> None:
    one, other = make(sequences=5), make(sequences=5, seed=1)
    assert one.lengths("data").tolist() != other.lengths("data").tolist()
    frames = FrameRange(0, 20)
    assert not np.array_equal(one.read("classes", 0, frames), other.read("classes", 0, frames))
    assert not np.array_equal(one.read("data", 0, frames), other.read("data", 0, frames))


def test_more_sequences_leave_the_first_as_they_are() -> None:
    few, many = make(sequences=3), make(sequences=30)
    for sequence in range(3):
        assert_same(few.read("data", sequence), many.read("data", sequence))


def test_a_range_of_a_huge_sequence_costs_its_own_frames() -> None:
    source = make(sequences=1, min_frames=10**9, mean_frames=10**9, max_frames=10**9)
    tracemalloc.start()
    try:
        source.read("data", 0, FrameRange(10**9 - 50, 10**9))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_tags() -> None:
    source = make(sequences=1_000_001)
    assert [source.tags[place] for place in (0, 123, 1_000_000)] == [
        "synthetic-0000000",
        "synthetic-0000123",
        "synthetic-1000000",
    ]
    assert make(sequences=124).tags[123] == "synthetic-000123"
    assert len(pickle.dumps(source)) < 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_frames": 500}, r"min_frames, mean_frames and max_frames are 500, 400 and 2000.*ascending"),
        ({"mean_frames": 3000}, r"are 20, 3000 and 2000: give them in ascending order"),
        ({"sequences": 0}, r"source.sequences is 0: it has to be greater than or equal to 1"),
        ({"classes": 2}, r"source.classes is 2: it has to be greater than or equal to 3"),
        ({"label_rate": 0}, r"source.label_rate is 0"),
        ({"frames": 3}, r"source.frames is not a setting"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**options)
