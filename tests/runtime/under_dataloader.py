"""Checks of seqprep.torch.dataset under DataLoaders with workers, in a process that nothing else has made threads in.

Run as `python under_dataloader.py fork|spawn DATASET DATASET_OF_PASSES`; tests/runtime/test_torch_dataset.py does.
"""

import functools
import gc
import itertools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from seqprep import Loader
from seqprep.errors import ConfigError, CorruptError
from seqprep.torch import dataset

Plain = tuple[dict[str, Any], dict[str, Any] | None]


def plain(batch: Mapping[str, Any], state: dict[str, Any] | None) -> Plain:
    values = {}
    for name, value in batch.items():
        array = np.asarray(value)
        values[name] = list(value) if name == "seq_tag" else (array.dtype.name, array.shape, array.tobytes())
    return values, state


def expected(path: Path, epochs: int, **options: Any) -> list[list[Plain]]:
    with Loader(path, **options) as loader:
        return [[plain(batch, loader.state_dict()) for batch in loader] for _ in range(epochs)]


def got(batches: Iterable[Any]) -> list[Plain]:
    kept = list(batches)  # all of them at once: none may change when another comes
    assert all(type(value) is torch.Tensor for batch in kept for name, value in batch.items() if name != "seq_tag")
    return [plain(batch, batch.state) for batch in kept]


def under(workers: int, start: str, data: Any, **options: Any) -> Any:
    return DataLoader(data, batch_size=None, num_workers=workers, multiprocessing_context=start, **options)


def epochs_are_the_loaders(start: str, path: Path, workers: int, persistent: bool) -> None:
    wanted = expected(path, 3, shuffle=True, seed=2)
    data = dataset(path, shuffle=True, seed=2)
    loader = under(workers, start, data, persistent_workers=persistent)
    assert len(loader) == len(wanted[0]) > 3 * workers
    for epoch, batches in enumerate(wanted[:2]):
        assert got(loader) == batches
        assert data.epoch == epoch + 1
    state = wanted[1][4][1]
    assert state is not None
    data.load_state_dict(state)
    assert got(loader) == wanted[1][5:]
    assert got(loader) == wanted[2]


def resumes_at_every_batch(start: str, path: Path) -> None:
    options = {"shuffle": True, "rank": 1, "world_size": 2, "even": "pad"}
    wanted = expected(path, 2, **options)
    states = [state for _, state in wanted[0]]
    for taken, state in enumerate(states, 1):
        data = dataset(path, **options)
        assert state is not None
        data.load_state_dict(state)
        assert got(under(2, start, data)) == (wanted[0][taken:] or wanted[1])
        assert data.epoch == 1 + (taken == len(states))


def ranks_and_workers_share_exactly(start: str, path: Path) -> None:
    count = len(Loader(path, rank=0, world_size=1))
    for world_size, even, workers in ((2, "pad", 3), (3, "drop", 2), (3, "none", 2), (3, "pad", 1)):
        seen = []
        for rank in range(world_size):
            options = {"shuffle": True, "rank": rank, "world_size": world_size, "even": even}
            batches = got(under(workers, start, dataset(path, **options)))
            assert batches == expected(path, 1, **options)[0]
            seen += [values["data"] for values, _ in batches]
        if even == "none":
            assert len(seen) == len(set(seen)) == count


def passes_of_different_lengths(start: str, path: Path) -> None:
    wanted = expected(path, 3, shuffle=True)
    assert len({len(batches) for batches in wanted}) > 1
    data = dataset(path, shuffle=True)
    loader = under(2, start, data, persistent_workers=True)
    for batches in wanted:
        assert len(loader) == len(batches)
        assert got(loader) == batches


def more_workers_than_batches(start: str, path: Path) -> None:
    wanted = expected(path, 2, rank=0, world_size=12)
    data = dataset(path, rank=0, world_size=12)
    loader = under(5, start, data, persistent_workers=True)
    assert len(wanted[0]) < 5
    assert [got(loader) for _ in range(2)] == wanted


def who_counts_batches_gets_the_next_epoch(start: str, path: Path) -> None:
    wanted = expected(path, 2, shuffle=True)
    loader = under(2, start, dataset(path, shuffle=True))
    for batches in wanted:
        assert got(itertools.islice(loader, len(loader))) == batches


def who_leaves_early_gets_the_epoch_again(start: str, path: Path) -> None:
    wanted = expected(path, 1, shuffle=True)
    for persistent in (False, True):
        data = dataset(path, shuffle=True)
        loader = under(2, start, data, persistent_workers=persistent)
        for taken in (0, 1, 3):
            assert got(itertools.islice(loader, taken)) == wanted[0][:taken]
        assert got(loader) == wanted[0]


def louder(factor: int, batch: Any) -> Any:
    batch["data"] = batch["data"] * factor
    batch["half"] = batch["classes"][:, ::2]
    batch["worker"] = torch.utils.data.get_worker_info().id
    return batch


def what_workers_do_to_a_batch_arrives(start: str, path: Path) -> None:
    (wanted,) = expected(path, 1)
    loader = under(2, start, dataset(path), collate_fn=functools.partial(louder, 3))
    for number, (batch, (values, state)) in enumerate(zip(loader, wanted, strict=True)):
        dtype, shape, content = values["data"]
        np.testing.assert_array_equal(batch["data"], np.frombuffer(content, dtype).reshape(shape) * 3, strict=True)
        np.testing.assert_array_equal(batch["half"], batch["classes"].numpy()[:, ::2], strict=True)
        assert (batch["worker"], batch.state) == (number % 2, state)


def end_workers() -> None:
    """Ends them at once, where PyTorch would take five seconds to give each of them up after an error."""
    for worker in multiprocessing.active_children():
        worker.terminate()


def a_damaged_shard_is_named(start: str, path: Path) -> None:
    shard = sorted(path.glob("*.h5"))[4]
    content = shard.read_bytes()
    shard.write_bytes(bytes(255 - byte for byte in content))
    try:
        list(under(2, start, dataset(path)))
        raise AssertionError("nobody has noticed")
    except CorruptError as error:
        assert shard.name in str(error)  # noqa: PT017
        assert "batch" in str(error)  # noqa: PT017
    finally:
        shard.write_bytes(content)
        end_workers()


def an_open_loader_is_not_shared(start: str, path: Path) -> None:
    with Loader(path) as loader:
        try:
            list(under(2, start, dataset(loader)))
            raise AssertionError("it was shared")
        except ConfigError as error:
            assert "give seqprep.torch.dataset the path" in str(error)  # noqa: PT017
        end_workers()


def forking_while_a_loader_reads(start: str, path: Path) -> None:
    (wanted,) = expected(path, 1)
    with Loader(path, threads=2) as loader:
        iterator = iter(loader)
        next(iterator)
        assert got(under(2, start, dataset(path))) == wanted
        child = os.fork()
        if not child:
            os._exit([plain(batch, loader.state_dict()) for batch in loader] != wanted)
        assert os.waitpid(child, 0)[1] == 0
        assert [plain(batch, None)[0] for batch in iterator] == [values for values, _ in wanted[1:]]


CHECKS: dict[str, list[Callable[[str, Path], None]]] = {
    "fork": [
        *(functools.partial(epochs_are_the_loaders, workers=workers, persistent=persistent)
          for workers, persistent in ((1, False), (3, False), (3, True))),
        resumes_at_every_batch,
        ranks_and_workers_share_exactly,
        passes_of_different_lengths,
        more_workers_than_batches,
        who_counts_batches_gets_the_next_epoch,
        who_leaves_early_gets_the_epoch_again,
        what_workers_do_to_a_batch_arrives,
        a_damaged_shard_is_named,
        an_open_loader_is_not_shared,
        forking_while_a_loader_reads,
    ],
    "spawn": [  # each worker imports torch anew, so few of them
        functools.partial(epochs_are_the_loaders, workers=1, persistent=True),
        functools.partial(epochs_are_the_loaders, workers=3, persistent=True),
        an_open_loader_is_not_shared,
    ],
}  # fmt: skip


if __name__ == "__main__":
    for check in CHECKS[sys.argv[1]]:
        check(sys.argv[1], Path(sys.argv[3 if check is passes_of_different_lengths else 2]))
        gc.collect()
        assert multiprocessing.active_children() == []
    print("all checks passed")
