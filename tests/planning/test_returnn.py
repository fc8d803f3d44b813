"""Orders and partitions beside those of the package returnn, where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seqprep.planning import KeyRule, OrderRule, Rules, make_plan

returnn = pytest.importorskip("returnn.datasets.basic", reason="the package returnn isn't installed")

pytestmark = [pytest.mark.returnn, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

CASES = 200


class Drawn:
    """Stands for numpy's generator, so that both toolkits get the same draw."""

    order: np.ndarray

    def __init__(self, seed: int) -> None:
        assert isinstance(seed, int)

    def permutation(self, count: int) -> np.ndarray:
        assert count == len(self.order)
        return self.order.copy()


def theirs(lengths: np.ndarray, by: str, partition: tuple[int, int] = (1, 1)) -> list[int]:
    """What the other package makes of it; its epochs count from 1, and a partition is that of an epoch."""
    dataset = returnn.Dataset(seq_ordering=by, partition_epoch=partition[1])
    order = dataset.get_seq_order_for_epoch(partition[0], len(lengths), lambda place: int(lengths[place]))
    return [int(place) for place in order]


def ours(lengths: np.ndarray, by: str, seed: int, partition: tuple[int, int] = (1, 1)) -> list[int]:
    name, _, number = by.partition(":")
    size = int(number[1:]) if number.startswith(".") else None
    groups = int(number) if number and size is None else None
    how = OrderRule(groups=groups, group_size=size, partition=partition)
    rules = Rules(keys=(KeyRule(name="data"),), order=name, order_rule=how, seed=seed)
    return make_plan({"data": lengths}, rules).order.tolist()


@pytest.fixture
def same_draw(monkeypatch: pytest.MonkeyPatch) -> Any:
    def give(order: list[int]) -> None:
        Drawn.order = np.array(order)
        monkeypatch.setattr(np.random, "RandomState", Drawn)

    return give


@pytest.mark.parametrize("by", ["sorted", "sorted_reverse", "reverse", "laplace"])
def test_orders_are_the_same(by: str, same_draw: Any) -> None:
    random = np.random.default_rng(7)
    for seed in range(CASES):
        count = int(random.integers(1, 60))
        lengths = random.integers(1, int(random.choice([3, 20, 1000])), count, endpoint=True)
        name = by
        if by == "laplace":
            number = int(random.integers(1, 14))
            name = f"laplace:{'.' if random.random() < 0.3 else ''}{number}"
        same_draw(ours(lengths, "random", seed))
        assert ours(lengths, name, seed) == theirs(lengths, name), (lengths.tolist(), name)


def test_partitions_are_the_same(same_draw: Any) -> None:
    random = np.random.default_rng(8)
    for seed in range(CASES):
        parts = int(random.integers(1, 9))
        lengths = random.integers(1, 20, int(random.integers(parts, 60)))
        part = int(random.integers(1, parts, endpoint=True))
        same_draw(ours(lengths, "random", seed))
        for name in ("random", "sorted", "laplace:3"):
            assert ours(lengths, name, seed, (part, parts)) == theirs(lengths, name, (part, parts))
