"""Packed rows, narrow dtypes and data workers through the stages of PyTorch and JAX."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqprep
from seqprep.runtime.staging import Stage

from .conftest import write_corpus
from .data_workers_helpers import Counting, flat, taken
from .resumable import plain

pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture(params=["torch", "jax"])
def stage(request: pytest.FixtureRequest) -> Callable[..., Stage]:
    pytest.importorskip(request.param)
    made: Callable[..., Stage] = importlib.import_module(f"seqprep.{request.param}").stage
    return made


def make(folder: Path, **changes: Any) -> Path:
    write_corpus(folder / "corpus.hdf")
    settings: dict[str, Any] = {
        "source": {"type": "hdf5", "path": str(folder / "corpus.hdf")},
        "batch": {"max_sequences": 3},
        "output": {"path": str(folder / "out"), "shard_size": 5000},
    }
    seqprep.chunk(settings | changes)
    return folder / "out"


def test_packed_batches(stage: Callable[..., Stage], tmp_path: Path) -> None:
    with seqprep.Loader(make(tmp_path, batch={"max_sequences": 3, "pack": True, "row_frames": 70})) as loader:
        expected = [dict(batch) for batch in loader]
        assert any(len(batch["segment_row"]) != len(batch["data"]) for batch in expected)
        with stage(loader, device="cpu") as staged:
            for batch, arrays in zip(staged, expected, strict=True):
                for name in ("data", "data/segment_ids", "classes/positions", "segment_row"):
                    assert plain({name: batch[name]}) == plain({name: arrays[name]})


def test_bfloat16(stage: Callable[..., Stage], tmp_path: Path) -> None:
    pytest.importorskip("ml_dtypes")
    with seqprep.Loader(make(tmp_path, keys={"data": {"dtype": "bfloat16"}, "classes": {}})) as loader:
        expected = [batch["data"] for batch in loader]
        for batch, array in zip(stage(loader, device="cpu"), expected, strict=True):
            assert array.dtype.name == "bfloat16"
            assert str(batch["data"].dtype).removeprefix("torch.") == "bfloat16"
            wide = batch["data"].float() if hasattr(batch["data"], "float") else batch["data"].astype("float32")
            np.testing.assert_array_equal(np.asarray(wide), array.astype(np.float32))


def test_data_workers_feed_it(stage: Callable[..., Stage]) -> None:
    with (
        seqprep.DataWorkers(Counting(200), batch_size=16, num_workers=3) as workers,
        stage(workers, device="cpu", depth=2) as staged,
    ):
        for epoch in range(1, 4):
            batches = [{name: np.asarray(value) for name, value in batch.items()} for batch in staged]
            assert sorted(flat(taken(batches))) == list(range(200))
            assert [len(batch["y"]) for batch in batches] == [16] * 12 + [8]
            assert staged.metrics().source.rows == 200 * epoch
