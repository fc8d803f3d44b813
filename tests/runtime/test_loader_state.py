import itertools
from typing import Any

import numpy as np
import pytest

from seqprep import Loader
from seqprep.errors import ConfigError

from .conftest import MakeDataset, our_threads

pytestmark = pytest.mark.usefixtures("bounded")

SETUPS: list[dict[str, Any]] = [
    {},
    {"shuffle": True},
    *({"rank": 1, "world_size": 4, "even": even} for even in ("pad", "drop", "none")),
    {"rank": 0, "world_size": 4, "even": "none"},
]


def rows(batch: dict[str, Any]) -> list[tuple[int, int]]:
    return list(zip(batch["seq_idx"].tolist(), batch["data/start"].tolist(), strict=True))


@pytest.mark.parametrize("setup", SETUPS)
def test_state_at_is_the_state_after_so_many(make_dataset: MakeDataset, setup: dict[str, Any]) -> None:
    path = make_dataset()
    with Loader(path, **setup) as loader:
        for epoch in range(2):
            states = [loader.state_dict()]
            assert loader.state_at(0)["epoch"] in (epoch, epoch - 1)  # before iter(): the last iteration's start
            batches = []
            for batch in loader:
                batches.append(rows(batch))
                states.append(loader.state_dict())
                assert loader.state_at(0) == states[0]
            assert len(batches) > 3
            for consumed, state in enumerate(states):
                assert loader.state_at(consumed) == state  # also after the end
            assert loader.epoch == epoch + 1
            assert loader.state_dict() == {**states[0], "epoch": epoch + 1, "position": 0}
        for consumed, state in enumerate(states[:-1]):
            loader.load_state_dict(state)
            assert loader.state_dict() == loader.state_at(0) == state
            assert [rows(batch) for batch in loader] == batches[consumed:]
            assert loader.state_at(len(batches) - consumed) == states[-1]


def test_all_batches_give_the_next_epochs_start(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset()) as loader:
        iterator = iter(loader)
        for _ in range(len(loader)):
            next(iterator)
        assert loader.state_dict() == loader.state_at(len(loader)) == {**loader.state_at(0), "epoch": 1}
        assert loader.epoch == 0  # nobody has asked for more yet
        assert next(iterator, None) is None
        assert loader.epoch == 1


def test_ranks_agree_at_every_step(make_dataset: MakeDataset) -> None:
    path = make_dataset()
    with Loader(path) as loader:
        count = len(loader)
    assert count % 4
    ranks = [Loader(path, rank=rank, world_size=4, even="none") for rank in range(4)]
    for step in range(count // 4 + 1):
        assert len({str(loader.state_at(step)) for loader in ranks}) == 1
    for loader in ranks:
        loader.close()


@pytest.mark.parametrize("consumed", [-1, 1000])
def test_refuses_more_than_there_are(make_dataset: MakeDataset, consumed: int) -> None:
    with Loader(make_dataset()) as loader, pytest.raises(ConfigError, match=rf"consumed is {consumed}: .* lies in \[0"):
        loader.state_at(consumed)


def test_how_far_an_epoch_is(make_dataset: MakeDataset) -> None:
    path = make_dataset()
    with Loader(path) as loader:
        count = len(loader)
        assert (loader.complete_fraction, loader.have_more(), loader.dataset_name) == (0.0, True, path.name)
        for _ in range(2):
            for done, _ in enumerate(loader, 1):
                assert loader.complete_fraction == done / count
                assert loader.have_more() == (done < count)
            assert (loader.complete_fraction, loader.have_more()) == (1.0, False)
        loader.load_state_dict({**loader.state_dict(), "epoch": 1, "position": count - 1})
        assert (loader.complete_fraction, loader.have_more()) == ((count - 1) / count, True)
        assert sum(1 for _ in loader) == 1
        assert (loader.complete_fraction, loader.have_more()) == (1.0, False)


def test_epoch_after_epoch(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset(), shuffle=True) as loader, Loader(loader.path, shuffle=True) as other:
        count = len(loader)
        own = [batch["seq_idx"].tolist() for batch in itertools.islice(loader.endless(), 3 * count)]
        assert own == [batch["seq_idx"].tolist() for _ in range(3) for batch in other]
    with (
        Loader(loader.path, rank=count, world_size=count + 1, even="none") as idle,
        pytest.raises(ConfigError, match=f"epoch 0 has no batch for rank {count}.*set even to 'pad'"),
    ):
        next(idle.endless())


def test_plain_dictionaries(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset(), threads=0) as loader, Loader(loader.path) as other:
        for plain, batch in zip(loader.feed(), other, strict=True):
            assert type(plain) is dict
            assert all(type(value) is np.ndarray for value in plain.values())
            assert plain["seq_tag"].tolist() == list(batch["seq_tag"])
            for name in set(batch) - {"seq_tag"}:
                np.testing.assert_array_equal(plain[name], batch[name])


def test_without_threads_the_consumer_reads(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset(), threads=0, shuffle=True) as loader, Loader(loader.path, shuffle=True) as other:
        iterator = iter(loader)
        own = [next(iterator)["seq_idx"].tolist()]
        assert not our_threads()
        own += [batch["seq_idx"].tolist() for batch in iterator]
        assert own == [batch["seq_idx"].tolist() for batch in other]
