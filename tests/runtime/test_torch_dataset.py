import copy
import itertools
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqprep import Loader, chunk
from seqprep.errors import ClosedError, ConfigError, DependencyError, MismatchError, UnfinishedError
from seqprep.torch import dataset

from .conftest import MakeDataset
from .resumable import plain

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("bounded")


def under_dataloader(data: Any) -> Any:
    return torch.utils.data.DataLoader(data, batch_size=None)


@pytest.mark.parametrize("output_format", ["hdf5", "tfrecord"])
@pytest.mark.parametrize("wrap", [iter, under_dataloader])
def test_gives_what_the_loader_gives(make_dataset: MakeDataset, output_format: str, wrap: Any) -> None:
    path = make_dataset(output_format)
    data = dataset(path, shuffle=True, seed=3)
    assert isinstance(data, torch.utils.data.IterableDataset)
    with Loader(path, shuffle=True, seed=3) as loader:
        assert len(data) == len(loader)
        for epoch in range(2):
            for batch, arrays in zip(wrap(data), loader, strict=True):
                assert list(batch) == list(arrays)
                assert plain(batch) == plain(arrays)
                assert isinstance(batch["data"], torch.Tensor)
                assert batch["seq_tag"] == list(arrays["seq_tag"])
                assert batch.state == loader.state_dict()
            assert data.epoch == epoch + 1
    data.close()


@pytest.mark.parametrize("options", [{}, {"rank": 2, "world_size": 3, "even": "pad"}])
def test_resumes_at_every_batch(make_dataset: MakeDataset, options: dict[str, Any]) -> None:
    path = make_dataset(sequences=14)
    data = dataset(path, shuffle=True, **options)
    epochs = [[(plain(batch), batch.state) for batch in under_dataloader(data)] for _ in range(2)]
    batches = [batch for epoch in epochs for batch, _ in epoch]
    assert len(epochs[0]) > 2
    for taken, (_, state) in enumerate(epochs[0], 1):
        data = dataset(path, shuffle=True, **options)
        data.load_state_dict(state)
        rest = batches[taken : len(epochs[0])] or batches[taken:]
        assert [plain(batch) for batch in data] == rest
        with Loader(path, shuffle=True, **options) as loader:  # the same state serves a loader
            loader.load_state_dict(state)
            assert [plain(batch) for batch in loader] == rest
    with pytest.raises(MismatchError, match="another dataset"):
        data.load_state_dict(state | {"fingerprint": "other"})


def test_batches_stay_what_they_are(make_dataset: MakeDataset) -> None:
    data = dataset(make_dataset(), prefetch=1, threads=2)
    kept = list(data)
    copies = [plain(batch) for batch in kept]
    for _ in range(2):
        list(data)
    assert [plain(batch) for batch in kept] == copies


def test_leaving_early_does_not_advance_the_epoch(make_dataset: MakeDataset) -> None:
    data = dataset(make_dataset(), shuffle=True)
    first = [plain(batch) for batch in itertools.islice(data, 3)]
    assert data.epoch == 0
    assert [plain(batch) for batch in itertools.islice(data, len(data))][:3] == first
    assert data.epoch == 1  # who counts batches doesn't ask for what comes behind the last
    assert next(iter(data)).state["epoch"] == 1
    begun = iter(data)
    next(begun)
    next(iter(data))
    with pytest.raises(ClosedError, match="iterated anew"):
        next(begun)


def test_a_batch_goes_to_another_process_in_one_piece(make_dataset: MakeDataset) -> None:
    batch = next(iter(dataset(make_dataset())))
    batch["weight"] = torch.ones(2, requires_grad=True)
    batch["columns"] = batch["data"].transpose(0, 1)
    batch["none"] = torch.zeros(3, 0)
    sent = pickle.loads(pickle.dumps(batch))
    places = {value.untyped_storage().data_ptr() for value in sent.values() if isinstance(value, torch.Tensor)}
    assert len(places) == 2  # all of them, and the one with a gradient
    for other in (sent, copy.deepcopy(batch), copy.copy(batch)):
        assert type(other) is type(batch)
        assert list(other) == list(batch)
        assert other.state == batch.state
        assert other["weight"].requires_grad
        for name, value in batch.items():
            if isinstance(value, torch.Tensor):
                assert (other[name].dtype, other[name].shape) == (value.dtype, value.shape)
                assert torch.equal(other[name], value)
            else:
                assert other[name] == value


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_under_a_dataloader_with_workers(make_dataset: MakeDataset, tmp_path: Path, start: str) -> None:
    path, passes, script = make_dataset(), tmp_path / "passes", Path(__file__).with_name("under_dataloader.py")
    chunk(
        {
            "source": {"type": "hdf5", "path": str(tmp_path / "corpus30.hdf")},
            "batch": {"max_frames": 100},
            "order": {"by": "random", "seed": 3},
            "epochs": 2,
            "output": {"path": str(passes), "shard_size": 5000},
        }
    )
    done = subprocess.run(
        [sys.executable, str(script), start, str(path), str(passes)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all checks passed\n"


def test_of_an_open_loader(make_dataset: MakeDataset) -> None:
    path = make_dataset()
    with Loader(path, shuffle=True) as loader, Loader(path, shuffle=True) as alone:
        data = dataset(loader)
        assert len(data) == len(loader)
        for _ in range(2):
            for batch, arrays in zip(under_dataloader(data), alone, strict=True):
                assert plain(batch) == plain(arrays)
                assert batch.state == alone.state_dict()
        assert loader.epoch == 2
        with pytest.raises(ConfigError, match=r"a Loader that is open can't be shared with .* give .* the path"):
            pickle.dumps(data)


def test_of_anything_that_gives_batches() -> None:
    def batches() -> Iterator[dict[str, Any]]:
        yield {"x": np.ones(2, np.float32), "name": "a"}

    (batch,) = under_dataloader(dataset(batches()))
    assert batch["x"].tolist() == [1, 1]
    assert batch["name"] == "a"
    assert batch.state is None


def test_refuses_what_cannot_be(make_dataset: MakeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_dataset()
    with pytest.raises(ConfigError, match="prefetch is 0"):
        dataset(path, prefetch=0)
    with pytest.raises(UnfinishedError, match=r"no index\.json"):
        dataset(tmp_path)
    with Loader(path) as loader, pytest.raises(ConfigError, match="shuffle, seed: options are for a folder"):
        dataset(loader, shuffle=True, seed=1)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DependencyError, match=r"pip install 'seqprep\[torch\]'"):
        dataset(path)
