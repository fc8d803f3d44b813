"""A loader goes on exactly where it was, for every shuffle and world size, and refuses what isn't its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seqprep
from seqprep import Loader
from seqprep.errors import ConfigError, MismatchError
from tests.examples import examples

from .conftest import write_corpus
from .resumable import assert_resumable, plain

pytestmark = pytest.mark.usefixtures("bounded")

SHUFFLES: list[Any] = [False, True, "shards", "window:3"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 19 batches in 13 shards."""
    folder = tmp_path_factory.mktemp("resume")
    return chunked(folder, 30)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 11 batches in 8 shards."""
    return chunked(tmp_path_factory.mktemp("short"), 18)


def chunked(folder: Path, sequences: int, **settings: Any) -> Path:
    write_corpus(folder / f"{sequences}.hdf", sequences)
    output = folder / f"shards{sequences}"
    seqprep.chunk(
        {
            "source": {"type": "hdf5", "path": str(folder / f"{sequences}.hdf")},
            "chunk": {"size": 20, "step": 10},
            "context": 2,
            "batch": {"max_frames": 240, "max_sequences": 8},
            "order": {"by": "random", "seed": 3},
            "output": {"path": str(output), "shard_size": 5000},
        }
        | settings
    )
    return output


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_every_point_of_three_epochs(short: Path, shuffle: Any, world_size: int) -> None:
    for rank in {0, world_size - 1}:
        even = "none" if rank else "pad"
        setup = {"shuffle": shuffle, "seed": 5, "rank": rank, "world_size": world_size, "even": even}
        assert_resumable(lambda setup=setup: Loader(short, prefetch=2, **setup), epochs=3, least=3)  # type: ignore[misc]


@pytest.mark.parametrize(
    "setup",
    [
        {"even": "drop", "rank": 1, "world_size": 4},
        {"same_shape": True, "rank": 1, "world_size": 3, "shuffle": True},
        {"same_shape": True, "even": "drop", "rank": 0, "world_size": 2, "shuffle": "window:2", "keys": ["data"]},
    ],
)
def test_every_point_with_other_dealings(path: Path, setup: dict[str, Any]) -> None:
    assert_resumable(lambda: Loader(path, threads=2, **setup), epochs=3)


def identity(batch: Any) -> tuple[int, ...]:
    return tuple(batch["seq_idx"].tolist()) + tuple(batch["data/start"].tolist())


def read_steps(path: Path, world_size: int, state: Any, steps: int | None, **setup: Any) -> tuple[list[Any], Any]:
    """What ranks read in turn, from a state on, and the state behind it."""
    got, states = [], []
    for rank in range(world_size):
        with Loader(path, rank=rank, world_size=world_size, prefetch=1, verify="never", **setup) as loader:
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
            batches: Iterator[Any] = iter(loader)
            read = [
                identity(batch)
                for _, batch in zip(range(len(loader) if steps is None else steps), batches, strict=False)
            ]
            got.append(read)
            states.append(loader.state_dict())
    assert len({json.dumps(one) for one in states}) == 1
    longest = max(map(len, got))
    return [of[step] for step in range(longest) for of in got if step < len(of)], states[0]


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(SHUFFLES), st.integers(1, 8), st.integers(1, 8), st.integers(0, 2), st.data())
def test_any_world_size_goes_on_where_another_stopped(
    path: Path, shuffle: Any, before: int, after: int, epoch: int, data: st.DataObject
) -> None:
    with Loader(path, shuffle=shuffle, rank=0, world_size=1) as loader:
        start = loader.state_dict() | {"epoch": epoch}
        loader.load_state_dict(start)
        whole = [identity(batch) for batch in loader]
    steps = data.draw(st.integers(0, (len(whole) - 1) // before))
    read, state = read_steps(path, before, start, steps, shuffle=shuffle)
    assert read == whole[: steps * before]
    rest, state = read_steps(path, after, state, None, shuffle=shuffle)
    assert rest[: len(whole) - len(read)] == whole[len(read) :]
    assert len(rest) - (len(whole) - len(read)) < after
    assert (state["epoch"], state["position"]) == (epoch + 1, 0)


def test_what_drop_leaves_out_ends_the_epoch_for_a_larger_world(path: Path) -> None:
    with Loader(path, even="drop", rank=0, world_size=2) as loader:
        batches = iter(loader)
        for _ in range(8):
            next(batches)
        state = loader.state_dict()
    assert state["position"] == 16
    with Loader(path, even="drop", rank=3, world_size=4) as loader:  # 3 batches are left, for 4 ranks
        loader.load_state_dict(state)
        assert loader.epoch == 1
        assert len(list(loader)) == 4


# -- refusals --

OTHERS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"seed": 1}, {"seed": 2}, r"of another order:\n  seed  saved: 1  now: 2\n"),
    ({"shuffle": True}, {"shuffle": "shards"}, r"shuffle  saved: global  now: shards"),
    ({"shuffle": "window:2"}, {}, r"shuffle  saved: window:2  now: False"),
    ({}, {"same_shape": True}, r"same_shape\.world_size  saved: None  now: 1"),
    ({"same_shape": True, "rank": 1, "world_size": 2}, {"same_shape": True, "rank": 0, "world_size": 3},
     r"same_shape\.world_size  saved: 2  now: 3\n.*depends on the number of ranks"),
    ({"same_shape": True}, {"same_shape": True, "even": "drop"}, r"same_shape\.even  saved: pad  now: drop"),
    ({"same_shape": True}, {"same_shape": True, "keys": ["data"]}, r"same_shape\.keys  saved: .*classes.*now: \['data'\]"),
    ({"rebatch": {"rows": 3, "window": 2}}, {"rebatch": {"rows": 4, "window": 5}},
     r"rebatch\.rows    saved: 3  now: 4\n  rebatch\.window  saved: 2  now: 5\n"),
    ({"rebatch": {"rows": 3, "window": 2}, "rank": 0, "world_size": 2}, {"rebatch": {"rows": 3, "window": 2}},
     r"rebatch\.world_size  saved: 2  now: 1\n.*depends on the number of ranks"),
]  # fmt: skip


@pytest.mark.parametrize(("saved", "now", "message"), OTHERS)
def test_another_order_is_refused(path: Path, saved: dict[str, Any], now: dict[str, Any], message: str) -> None:
    with Loader(path, **saved) as loader:
        state = json.loads(json.dumps(loader.state_dict()))
        loader.load_state_dict(state)
    with Loader(path, **now) as loader:
        with pytest.raises(MismatchError, match=message):
            loader.load_state_dict(state)
        assert loader.state_dict() == loader.state_at(0)  # it is as it was
        assert len(list(loader)) == len(loader)


def test_another_dataset_is_refused(path: Path, tmp_path: Path) -> None:
    with Loader(path) as loader:
        state = loader.state_dict()
    with Loader(chunked(tmp_path, 20)) as loader:
        mine = loader.state_dict()["fingerprint"]
        with pytest.raises(
            MismatchError, match=rf"another dataset:\n  fingerprint  saved: {state['fingerprint']}  now: {mine}"
        ):
            loader.load_state_dict(state)


@pytest.mark.parametrize(
    "damage",
    [
        {"epoch": -1},
        {"position": "3"},
        {"position": 2.0},
        {"epoch": None},
        {"epoch": True},
        {"seed": ...},
        {"position": ...},
    ],
)
def test_no_state(path: Path, damage: dict[str, Any]) -> None:
    with Loader(path) as loader:
        state = {name: value for name, value in (loader.state_dict() | damage).items() if value is not ...}
        with pytest.raises(ConfigError, match="not a state of this"):
            loader.load_state_dict(state)


# -- same_shape and rebatch, from files --


@pytest.mark.parametrize("keys", [None, ["data"], ["classes"]])
@pytest.mark.parametrize("even", ["pad", "drop"])
def test_ranks_have_one_shape_in_every_step(path: Path, even: Any, keys: Any) -> None:
    shapes = []
    for rank in range(3):
        with Loader(path, rank=rank, world_size=3, same_shape=True, even=even, shuffle=True, keys=keys) as loader:
            shapes.append([[batch[key].shape for key in loader.keys] for _ in range(2) for batch in loader])
            assert len(shapes[-1]) == 2 * len(loader)
    assert shapes[0] == shapes[1] == shapes[2]
    assert len({str(shape) for shape in shapes[0]}) > 1


def test_same_shape_promises_what_even_none_cant(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"same_shape is set and even is 'none'.*set even to 'pad'.*or to 'drop'"):
        Loader(path, same_shape=True, even="none")
    with pytest.raises(ConfigError, match="same_shape and rebatch are both set"):
        Loader(path, same_shape=True, rebatch={"rows": 2, "window": 2})


def test_a_loaded_epoch_has_its_own_shuffle(path: Path) -> None:
    with Loader(path, shuffle=True) as loader:
        epochs = [[plain(batch) for batch in loader] for _ in range(3)]
        assert epochs[0] != epochs[1] != epochs[2]
        loader.load_state_dict(loader.state_dict() | {"epoch": 1})
        assert [plain(batch) for batch in loader] == epochs[1]
