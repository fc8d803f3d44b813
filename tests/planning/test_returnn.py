"""Orders and partitions beside those of the package returnn, where it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from seqprep.planning import KeyRule, OrderRule, Rules, make_plan

pytestmark = [
    pytest.mark.returnn,
    pytest.mark.skipif(find_spec("returnn") is None, reason="the package returnn isn't installed"),
]

CASES = 200

# What the other package makes of each case, with our draw in place of its own; its epochs count from 1, and a partition
# is that of an epoch. In a process of its own, for it changes how TensorFlow works.
THEIRS = """
import json, sys
import numpy
from returnn.datasets.basic import Dataset

class Drawn:
    def __init__(self, seed): pass
    def permutation(self, count): return numpy.array(case["draw"])

orders = []
for case in json.load(sys.stdin):
    numpy.random.RandomState = Drawn
    part, parts = case["partition"]
    dataset = Dataset(seq_ordering=case["by"], partition_epoch=parts)
    order = dataset.get_seq_order_for_epoch(part, len(case["lengths"]), lambda place: case["lengths"][place])
    orders.append([int(place) for place in order])
json.dump(orders, open(sys.argv[1], "w"))
"""


def theirs(cases: list[dict[str, Any]], path: Any) -> list[list[int]]:
    done = subprocess.run(
        [sys.executable, "-c", THEIRS, str(path)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[list[int]] = json.loads(path.read_text())
    return found


def ours(case: dict[str, Any], by: str | None = None) -> list[int]:
    name, _, number = (by or case["by"]).partition(":")
    size = int(number[1:]) if number.startswith(".") else None
    groups = int(number) if number and size is None else None
    partition = (1, 1) if by else tuple(case["partition"])
    how = OrderRule(groups=groups, group_size=size, partition=partition)
    rules = Rules(keys=(KeyRule(name="data"),), order=name, order_rule=how, seed=case["seed"])
    return make_plan({"data": np.array(case["lengths"])}, rules).order.tolist()


def random_cases(by: str) -> list[dict[str, Any]]:
    random, cases = np.random.default_rng(7), []
    for seed in range(CASES):
        count = int(random.integers(1, 60))
        lengths = random.integers(1, int(random.choice([3, 20, 1000])), count, endpoint=True).tolist()
        parts = int(random.integers(1, min(count, 8), endpoint=True)) if by == "partition" else 1
        name = str(random.choice(["random", "sorted", "laplace"])) if by == "partition" else by
        if name == "laplace":
            name += f":{'.' if random.random() < 0.3 else ''}{random.integers(1, 14)}"
        case = {
            "lengths": lengths,
            "by": name,
            "seed": seed,
            "partition": [int(random.integers(1, parts, endpoint=True)), parts],
        }
        cases.append(case | {"draw": ours(case, "random")})
    return cases


def test_orders_and_partitions_are_the_same(tmp_path: Any) -> None:
    kinds = ("sorted", "sorted_reverse", "reverse", "laplace", "partition")
    cases = [case for by in kinds for case in random_cases(by)]
    for case, order in zip(cases, theirs(cases, tmp_path / "orders.json"), strict=True):
        assert ours(case) == order, case
