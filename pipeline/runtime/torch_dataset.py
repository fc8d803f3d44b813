"""A dataset's batches as an IterableDataset of PyTorch, alone or under a DataLoader with workers.

Every worker opens a loader of its own and reads its share: worker w of n takes the steps w, w + n, … of its rank, which
is the order in which a DataLoader asks them. So all workers together give what one loader would, in its order.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from seqprep.errors import ConfigError
from seqprep.runtime.frameworks import import_framework
from seqprep.runtime.loader import Loader
from seqprep.runtime.protocol import BatchSource, ResumableSource
from seqprep.runtime.torch_tensors import is_plain, lay_out, pack, split_batch, unpack
from seqprep.types import Tags

_MOST_WORKERS = 1024
_EPOCH, _BEGIN, _BEGIN_EPOCH, _ENDS = range(4)  # places in the shared numbers


class TensorBatch(dict[str, Any]):
    """A batch: names to torch.Tensor, and to what is no number (`seq_tag`: a list of str).

    To another process it goes as one piece of shared memory, not as one per tensor.
    """

    state: Mapping[str, Any] | None = None
    """The position behind this batch, for `load_state_dict` of a dataset, loader or stage; None if there is none."""

    def __copy__(self) -> TensorBatch:
        """Copies the names, not the tensors; a DataLoader does so."""
        return _with_state(TensorBatch(self), self.state)

    def __reduce__(self) -> tuple[Any, ...]:
        torch = import_framework("torch")
        tensors = {name: value for name, value in self.items() if is_plain(torch, value)}
        places, size = lay_out(tensors)
        block = torch.empty(size, dtype=torch.uint8)
        pack(torch, tensors, places, block)
        rest = {name: None if name in tensors else value for name, value in self.items()}
        return _restore, (block, places, rest, self.state)


def _restore(block: Any, places: Any, rest: dict[str, Any], state: Mapping[str, Any] | None) -> TensorBatch:
    return _with_state(TensorBatch(rest | unpack(block, places)), state)


def _with_state(batch: TensorBatch, state: Mapping[str, Any] | None) -> TensorBatch:
    batch.state = state
    return batch


def _tensor_batch(torch: Any, batch: Mapping[str, Any], state: Mapping[str, Any] | None) -> TensorBatch:
    tensors, rest = split_batch(torch, batch)
    for name, value in rest.items():
        if isinstance(value, Tags):
            rest[name] = list(value)
    return _with_state(TensorBatch({name: tensors.get(name, rest.get(name)) for name in batch}), state)


class _Progress:
    """Where the next iteration begins, in memory that a DataLoader's workers share with the process that made them.

    The numbers are the epoch, the position in it that was loaded and the epoch that this belongs to, and for every
    worker the epoch behind the last one whose batches it has taken. An epoch is over when all workers of an iteration
    are at its end; by then, each of them has begun it.
    """

    def __init__(self, torch: Any) -> None:
        self._numbers = torch.zeros(_ENDS + _MOST_WORKERS, dtype=torch.int64).share_memory_()

    @property
    def start(self) -> tuple[int, int]:
        """Epoch and global position."""
        epoch, begin, begin_epoch = self._numbers[:_ENDS].tolist()
        return epoch, begin if epoch == begin_epoch else 0

    def load(self, epoch: int, begin: int) -> None:
        """Sets where the next iteration begins."""
        self._numbers[_ENDS:] = epoch
        self._numbers[_BEGIN], self._numbers[_BEGIN_EPOCH] = begin, epoch
        self._numbers[_EPOCH] = epoch

    def finish(self, worker: int, workers: int, epoch: int) -> None:
        """Notes that a worker has taken its last batch of an epoch."""
        self._numbers[_ENDS + worker] = epoch + 1
        if bool((self._numbers[_ENDS : _ENDS + workers] == epoch + 1).all()):
            self._numbers[_EPOCH] = epoch + 1


class _FolderBatches:
    """The batches in a folder: for a DataLoader's worker its share, for any other process all."""

    def __init__(self, path: str | Path, options: Mapping[str, Any], progress: _Progress) -> None:
        self._path, self._options, self._progress = path, dict(options), progress
        self._loaders: dict[tuple[int, int, int], Loader] = {}  # by process, worker and number of workers
        self._whole()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._path, self._options, self._progress)

    def __len__(self) -> int:
        """Batches of the whole epoch that is being read or comes next, for this rank."""
        return self._whole().order.steps(self.epoch, 0)

    @property
    def epoch(self) -> int:
        """Number of the epoch that is being read or comes next."""
        return self._progress.start[0]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved position at the next iteration, also in workers that are there already.

        Args:
            state: of a batch, a loader or a stage.

        Raises:
            MismatchError: the state belongs to another dataset or order; shows both sides.
            ConfigError: it is no state of a loader.
        """
        whole = self._whole()
        whole.load_state_dict(state)
        started = whole.state_dict()
        self._progress.load(started["epoch"], started["position"])

    def close(self) -> None:
        """Closes this process' files; batches handed out stay valid."""
        for loader in self._loaders.values():
            loader.close()

    def __iter__(self) -> Iterator[TensorBatch]:
        """Gives an epoch, or this worker's share of it, from the loaded position or the epoch's start on.

        Raises:
            SeqprepError: reading failed; names shard, batch and bytes.
        """
        torch = import_framework("torch")
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        epoch, begin = self._progress.start
        whole, own = self._whole(), self._share(worker, workers)
        start = whole.state_dict() | {"epoch": epoch, "position": begin}
        whole.load_state_dict(start)
        own.load_state_dict(start)
        batches = iter(own)
        steps = range(worker, whole.order.steps(epoch, begin), workers)
        if not steps:
            self._progress.finish(worker, workers, epoch)
        for step in steps:
            batch = _tensor_batch(torch, next(batches), whole.state_at(step + 1))
            if step == steps[-1]:  # not behind it, for who counts batches doesn't ask for what comes then
                self._progress.finish(worker, workers, epoch)
            yield batch
            del batch
        batches.close()

    def _whole(self) -> Loader:
        """This process' loader of all batches of the rank."""
        return self._open(0, 1, self._options)

    def _share(self, worker: int, workers: int) -> Loader:
        """This process' loader of a worker's share: the worker counts as a rank among all workers of all ranks."""
        if workers == 1:
            return self._whole()
        if workers > _MOST_WORKERS:
            raise ConfigError(f"num_workers is {workers}: at most {_MOST_WORKERS} can share a dataset")
        for name in ("same_shape", "rebatch"):
            if self._options.get(name):
                raise ConfigError(
                    f"num_workers is {workers}, and {name} is set, whose order depends on the number of readers; "
                    "use at most one worker, or leave it out"
                )
        order = self._whole().order
        rank, world_size = worker * order.world_size + order.rank, workers * order.world_size
        # "pad" goes on behind the epoch's last batch where the ranks do; where they don't, nobody asks for those steps
        share = {"rank": rank, "world_size": world_size, "even": "pad"}
        return self._open(worker, workers, self._options | share)

    def _open(self, worker: int, workers: int, options: Mapping[str, Any]) -> Loader:
        place = os.getpid(), worker, workers  # a forked child opens its own: locks may have been held at the fork
        if place not in self._loaders:
            self._loaders[place] = Loader(self._path, **options)
        return self._loaders[place]


class _SourceBatches:
    """The batches of a source that is open already, in the process that opened it."""

    def __init__(self, source: BatchSource) -> None:
        self._source = source

    def __reduce__(self) -> tuple[Any, ...]:
        raise ConfigError(_no_workers(self._source))

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return len(cast(Any, self._source))

    def __iter__(self) -> Iterator[TensorBatch]:
        """Gives an epoch of the source.

        Raises:
            ConfigError: this is a worker of a DataLoader.
        """
        torch = import_framework("torch")
        if torch.utils.data.get_worker_info() is not None:
            raise ConfigError(_no_workers(self._source))
        source = self._source
        for consumed, batch in enumerate(source, 1):
            yield _tensor_batch(
                torch, batch, source.state_at(consumed) if isinstance(source, ResumableSource) else None
            )


def _no_workers(source: object) -> str:
    return (
        f"a {type(source).__name__} that is open can't be shared with the workers of a DataLoader: give "
        "seqprep.torch.dataset the path, and each worker opens its own; or set num_workers=0, for a loader reads ahead "
        "in threads as it is"
    )


def dataset(source: str | Path | BatchSource, **options: Any) -> Any:
    """Makes a torch.utils.data.IterableDataset of batches; each iteration of it is one epoch.

    It is for `DataLoader(dataset, batch_size=None, num_workers=n)`: the batches are made already, so `batch_size` has to
    be None. The loader of a dataset reads ahead in threads, so workers are of use only where each batch is to be
    worked on in Python (`collate_fn`). With any number of workers, forked or spawned, persistent or not, the batches are
    those of one loader, in its order; `rank` and `world_size` hold as for a loader, and workers share what is a rank's.
    An epoch counts as read when the workers have taken its last batches, a few before they reach the consumer. Let one
    iteration end before the next begins.

    Each batch carries the position behind it, however far workers have read ahead: save `batch.state`, and give it to
    `load_state_dict` of the dataset, which takes effect at the next iteration.

    Args:
        source: the folder of a dataset; or a `seqprep.Loader`, or anything else that gives batches (see
            `seqprep.runtime.protocol`), which can't be read in workers.
        options: as for `seqprep.Loader`, if a folder is given.

    Returns:
        A dataset of `TensorBatch`, dicts of name to torch.Tensor in CPU memory; `seq_tag` is a list of str. Given a
        folder, it also has `load_state_dict(state)`, `epoch` and `close()`.

    Raises:
        DependencyError: PyTorch isn't installed.
        ConfigError: an option is impossible.
        DatasetError: the folder is no finished dataset, or damaged.
    """
    torch = import_framework("torch")
    if isinstance(source, str | Path):
        return _kind(_FolderBatches)(source, options, _Progress(torch))
    if options:
        raise ConfigError(f"{', '.join(options)}: options are for a folder; set them where the loader is opened")
    return _kind(_SourceBatches)(source)


@functools.cache
def _kind(batches: type) -> Any:
    """The class of PyTorch for some batches; made when it is first used, for it derives from PyTorch's own."""
    base = import_framework("torch").utils.data.IterableDataset
    return type("Dataset", (batches, base), {"__doc__": batches.__doc__})


def _reopen(path: str | Path, options: Mapping[str, Any], progress: _Progress) -> Any:
    """Makes the dataset again, in a worker that was spawned."""
    return _kind(_FolderBatches)(path, options, progress)
