"""`seqprep.mix`: whose batch comes next, where epochs end, positions, ranks, failures."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seqprep
from seqprep import Loader, mix
from seqprep.errors import ClosedError, ConfigError, CorruptError, MismatchError
from seqprep.runtime.mixed_order import Draws
from tests.examples import examples
from tests.execution.small import QUICK

from .conftest import our_threads, write_corpus
from .resumable import assert_resumable, plain

pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Datasets of 4, 7 and 13 batches or so, told apart by their tags."""
    folder, made = tmp_path_factory.mktemp("mixed"), []
    for number, sequences in enumerate((6, 12, 20)):
        write_corpus(folder / f"{number}.hdf", sequences, seed=number)
        made.append(
            seqprep.chunk(
                {
                    "source": {"type": "hdf5", "path": str(folder / f"{number}.hdf")},
                    "batch": {"max_sequences": 2},
                    "output": {"path": str(folder / f"set{number}"), "shard_size": 3000},
                },
                storage=QUICK,
            ).path
        )
    return made


def loaders(paths: list[Path], **options: Any) -> list[tuple[Loader, float]]:
    return [(Loader(path, **options), weight) for path, weight in zip(paths, (1.0, 2.0, 3.0), strict=True)]


def names(batches: Any) -> list[str]:
    return [batch["dataset_name"] for batch in batches]


# -- draws --


@given(
    weights=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5),
    seed=st.integers(0, 2**63),
    epoch=st.integers(0, 99),
    begin=st.integers(0, 5000),
)
def test_draws_depend_on_nothing_but_their_place(weights: list[float], seed: int, epoch: int, begin: int) -> None:
    draws = Draws(weights=weights, seed=seed)
    whole = draws.of(epoch, 0, begin + 50)
    np.testing.assert_array_equal(draws.of(epoch, begin, 50), whole[begin:])
    assert ((whole >= 0) & (whole < len(weights))).all()


@settings(max_examples=examples(20))
@given(weights=st.lists(st.integers(1, 20), min_size=2, max_size=4), seed=st.integers(0, 2**32))
def test_draws_are_in_proportion_to_the_weights(weights: list[int], seed: int) -> None:
    counts = np.bincount(Draws(weights=weights, seed=seed).of(0, 0, 20_000), minlength=len(weights))
    shares = np.array(weights) / sum(weights)
    assert (np.abs(counts - 20_000 * shares) <= 6 * np.sqrt(20_000 * shares * (1 - shares))).all()


def test_draws_never_change() -> None:
    assert Draws(weights=[1, 2, 3], seed=5).of(1, 0, 16).tolist() == GOLDEN


GOLDEN = [0, 2, 1, 2, 0, 1, 1, 2, 2, 0, 1, 2, 2, 2, 2, 0]


# -- epochs --


def test_each_sources_batches_come_in_its_own_order(paths: list[Path]) -> None:
    with mix(loaders(paths, shuffle=True), seed=1) as mixed:
        assert list(mixed.names) == ["set0", "set1", "set2"]
        batches = [(batch["dataset_name"], plain({name: batch[name] for name in batch if name != "dataset_name"}))
                   for batch in mixed]  # fmt: skip
    for path in paths:
        own = [batch for name, batch in batches if name == path.name]
        with Loader(path, shuffle=True) as loader:
            assert own == [plain(batch) for batch in itertools.islice(loader, len(own))]


def test_an_epoch_ends_with_the_first_source_that_does(paths: list[Path]) -> None:
    with mix(loaders(paths), seed=1) as mixed:
        lengths = {path.name: len(Loader(path)) for path in paths}
        seen = names(mixed)
        ended = [name for name in lengths if seen.count(name) == lengths[name]]
        assert ended == [seen[-1]]
        assert mixed.epoch == 1
        following = names(mixed)  # the others go on where they were
        assert following != seen
        assert all(
            (seen + following).count(name) >= seen.count(name) + (0 if name in ended else 1) for name in set(following)
        )


def test_with_repeat_every_source_is_read_through(paths: list[Path]) -> None:
    sources = [loader for loader, _ in loaders(paths)]
    with mix(list(zip(sources, (5.0, 2.0, 1.0), strict=True)), seed=1, repeat=True) as mixed:
        for epoch in range(2):
            seen = names(mixed)
            counts = {name: seen.count(name) for name in mixed.names}
            assert all(counts[loader.dataset_name] >= len(loader) for loader in sources)
            assert counts["set0"] > 2 * len(sources[0])  # over and over, until the largest is through
            assert counts["set2"] == len(sources[2])
            assert mixed.epoch == epoch + 1


# -- positions --


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize("options", [{}, {"shuffle": True, "seed": 3}, {"rebatch": {"rows": 3, "window": 2}}])
def test_every_position_can_be_restored(paths: list[Path], repeat: bool, options: dict[str, Any]) -> None:
    assert_resumable(lambda: mix(loaders(paths, **options), seed=2, repeat=repeat), 2)


def test_a_mix_of_mixes(paths: list[Path]) -> None:
    def nested() -> Any:
        inner = mix(loaders(paths)[:2], seed=1, repeat=True)
        return mix([(inner, 1.0), (Loader(paths[2]), 1.0)], seed=2, names=["both", "third"])

    assert_resumable(nested, 2)
    with nested() as mixed:
        assert set(names(mixed)) == {"both/set0", "both/set1", "third"}


def test_ranks_draw_the_same_source_in_each_step(paths: list[Path]) -> None:
    seen = []
    for rank in range(3):
        with mix(loaders(paths, rank=rank, world_size=3, shuffle=True), seed=4) as mixed:
            seen.append(names(itertools.islice(mixed, 12)))
    assert seen[0] == seen[1] == seen[2]


def test_a_position_of_another_mix_is_refused(paths: list[Path]) -> None:
    with mix(loaders(paths), seed=1) as mixed, mix(loaders(paths), seed=2) as other:
        with pytest.raises(MismatchError, match=r"seed +saved: 2 +now: 1"):
            mixed.load_state_dict(other.state_dict())
        with pytest.raises(ConfigError, match="not a state of this: 'sources' is missing or damaged"):
            mixed.load_state_dict(mixed.state_dict() | {"sources": [{}]})
        list(itertools.islice(mixed, 3))
        with pytest.raises(ConfigError, match="consumed is 9: this iteration has given 3 batches"):
            mixed.state_at(9)


def test_a_copy_goes_on_where_it_was(paths: list[Path]) -> None:
    with mix(loaders(paths, shuffle=True), seed=1) as mixed:
        iterator = iter(mixed)
        for _ in range(4):
            next(iterator)
        with pickle.loads(pickle.dumps(mixed)) as copy:
            assert [plain(batch) for batch in copy] == [plain(batch) for batch in iterator]


# -- what it says, and ends --


def test_what_was_drawn_is_counted(paths: list[Path]) -> None:
    with mix(loaders(paths), seed=1) as mixed:
        seen = names(itertools.islice(mixed, 5)) + names(itertools.islice(mixed, 4))
        metrics = mixed.metrics()
        assert metrics.batches == {name: seen.count(name) for name in mixed.names}
        assert metrics.sources["set0"].batches == metrics.batches["set0"]


@pytest.mark.parametrize(
    ("weights", "options", "message"),
    [
        ([1.0, 0.0, 1.0], {}, r"the weight of source 1 is 0\.0"),
        ([1.0, float("nan"), 1.0], {}, r"the weight of source 1 is nan"),
        ([1.0, "much", 1.0], {}, r"the weight of source 1 is 'much'"),
        ([1.0, 1.0, 1.0], {"names": ["a", "b"]}, r"give each of 3 sources one of its own"),
        ([1.0, 1.0, 1.0], {"names": ["a", "b", "a"]}, r"give each of 3 sources one of its own"),
        ([1.0, 1.0, 1.0], {"seed": "x"}, r"seed is 'x'"),
        ([], {}, r"sources is empty"),
    ],
)
def test_what_is_refused(paths: list[Path], weights: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mix([(Loader(path), weight) for path, weight in zip(paths, weights, strict=False)], **options)


def test_one_source_twice_is_refused(paths: list[Path]) -> None:
    loader = Loader(paths[0])
    with pytest.raises(ConfigError, match="a source stands in the mix twice"):
        mix([(loader, 1), (loader, 2)])


def test_a_failure_of_a_source_reaches_the_consumer(paths: list[Path], tmp_path: Path) -> None:
    import shutil

    shutil.copytree(paths[2], tmp_path / "damaged")
    shard = sorted((tmp_path / "damaged").glob("*.h5"))[-1]
    content = bytearray(shard.read_bytes())
    for place in range(len(content) // 3, len(content), 7):
        content[place] ^= 1
    shard.write_bytes(content)
    with mix([(Loader(paths[0]), 1), (Loader(tmp_path / "damaged", prefetch=1), 9)], seed=1, repeat=True) as mixed:
        iterator = iter(mixed)
        with pytest.raises(CorruptError, match=shard.name):
            list(iterator)
        with pytest.raises(ClosedError, match=r"ended, by close\(\) or an error; call iter\(\) again"):
            next(iterator)
    assert not our_threads()


def test_closed_is_closed(paths: list[Path]) -> None:
    sources = loaders(paths)
    mixed = mix(sources)
    iterator = iter(mixed)
    next(iterator)
    mixed.close()
    assert not our_threads()
    with pytest.raises(ClosedError, match="closed"):
        next(iterator)
    with pytest.raises(ClosedError, match="the mix is closed"):
        iter(mixed)
    with pytest.raises(ClosedError, match="the loader is closed"):
        iter(sources[0][0])


class Counted:
    """A source of one's own, without a position."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter([{"x": np.array([number])} for number in range(self.count)])


def test_sources_of_ones_own(paths: list[Path]) -> None:
    with mix([(Counted(5), 1), (Loader(paths[0]), 1)], seed=1, names=["own", "set0"]) as mixed:
        seen = [int(batch["x"][0]) for batch in mixed if batch["dataset_name"] == "own"]
        assert seen == list(range(len(seen)))
        with pytest.raises(ConfigError, match="source 'own' keeps no state"):
            mixed.state_dict()
    with mix([(Counted(0), 1)], names=["none"]) as mixed, pytest.raises(ConfigError, match="'none' has no batch"):
        list(mixed)
