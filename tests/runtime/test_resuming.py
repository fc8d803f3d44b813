"""Whatever has a position can be saved and restored at every batch, and goes on exactly there."""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from seqprep import Loader

from .conftest import MakeDataset
from .resumable import assert_resumable, plain

pytestmark = pytest.mark.usefixtures("bounded")

SETUPS: list[dict[str, Any]] = [
    {},
    {"shuffle": True, "seed": 4, "rank": 1, "world_size": 3, "even": "pad"},
]


@pytest.mark.parametrize("output_format", ["hdf5", "tfrecord"])
@pytest.mark.parametrize("setup", SETUPS)
def test_loader(make_dataset: MakeDataset, output_format: str, setup: dict[str, Any]) -> None:
    path = make_dataset(output_format, sequences=14)
    assert_resumable(lambda: Loader(path, **setup))


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.parametrize("framework", ["tensorflow", "torch", "jax"])
def test_stage(make_dataset: MakeDataset, framework: str, setup: dict[str, Any]) -> None:
    pytest.importorskip(framework)
    adapter: Any = importlib.import_module(f"seqprep.{framework}")
    path = make_dataset(sequences=14)

    @contextlib.contextmanager
    def staged() -> Iterator[Any]:
        with Loader(path, **setup) as loader, adapter.stage(loader, depth=3) as batches:
            yield batches

    batches = assert_resumable(staged)
    with Loader(path, **setup) as loader:
        expected = [plain(batch) for _ in range(2) for batch in loader]
    for batch, wanted in zip(batches, expected, strict=True):
        assert batch.keys() == wanted.keys()
        if framework != "jax":  # which keeps 64 bits as 32
            assert batch == wanted
