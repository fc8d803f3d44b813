"""Packed rows and several passes in TensorFlow's adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqprep
from seqprep.tensorflow import dataset, stage
from tests.runtime.conftest import write_corpus

pytestmark = pytest.mark.usefixtures("bounded")


def make(folder: Path, **changes: Any) -> Path:
    write_corpus(folder / "corpus.hdf")
    settings: dict[str, Any] = {
        "source": {"type": "hdf5", "path": str(folder / "corpus.hdf")},
        "batch": {"max_sequences": 3},
        "order": {"by": "random", "seed": 3},
        "output": {"path": str(folder / "out"), "shard_size": 5000},
    }
    seqprep.chunk(settings | changes)
    return folder / "out"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    return make(tmp_path, batch={"max_sequences": 3, "pack": True, "row_frames": 70})


def plain(loader: seqprep.Loader) -> list[dict[str, np.ndarray]]:
    return [{name: np.array(array) for name, array in batch.items()} for batch in loader]


def test_packed_batches_as_a_dataset(packed: Path) -> None:
    with seqprep.Loader(packed) as loader:
        expected = plain(loader)
        found = list(dataset(loader))
    assert len({batch["data"].shape for batch in expected}) > 1
    for batch, one in zip(found, expected, strict=True):
        assert {name.replace("/", "_") for name in one} == set(batch)
        for name, array in one.items():
            if name != "seq_tag":
                np.testing.assert_array_equal(batch[name.replace("/", "_")].numpy(), array)


def test_packed_batches_are_staged(packed: Path) -> None:
    with seqprep.Loader(packed) as loader:
        expected = plain(loader)
        with stage(loader, device="/CPU:0") as staged:
            for batch, one in zip(staged, expected, strict=True):
                for name in ("data", "data/segment_ids", "classes/positions", "segment_row"):
                    np.testing.assert_array_equal(batch[name].numpy(), one[name])


def test_passes_of_different_lengths_leave_the_cardinality_open(tmp_path: Path) -> None:
    output = make(tmp_path, epochs=2, batch={"max_frames": 100})
    with seqprep.Loader(output) as loader:
        lengths = loader.lengths
        made = dataset(loader, inputs="data")
        assert [sum(1 for _ in made) for _ in range(3)] == [lengths[0], lengths[1], lengths[0]]
        assert int(made.cardinality()) == -2  # unknown
    assert lengths[0] != lengths[1]
