"""A finished dataset, opened for reading: its index, and the sidecars of its shards as they are needed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from seqprep.errors import CorruptError, DatasetError
from seqprep.files import unreadable
from seqprep.shards.index import Index, read_index
from seqprep.shards.sidecar import Sidecar, read_sidecar, sidecar_path
from seqprep.types import Int64


class Dataset:
    """A folder of shards. Safe to use from several threads; picklable.

    Args:
        path: the folder.

    Raises:
        DatasetError: it is no dataset (UnfinishedError: not a finished one), or a shard is missing.
        CorruptError: a shard's size isn't what the index says.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.index: Index = read_index(self.path)
        for shard in self.index.shards:
            self._check_size(shard.name, shard.bytes)

    def _check_size(self, name: str, expected: int) -> None:
        try:
            size = (self.path / name).stat().st_size
        except OSError as error:
            raise DatasetError(f"{self.path / name}: the shard can't be opened: {unreadable(error)}") from error
        if size != expected:
            raise CorruptError(
                f"{self.path / name}: the shard has {size} bytes where the index says {expected} "
                f"({'cut off' if size < expected else 'replaced or appended to'}?); seqprep repair makes it again"
            )

    def check_files(self) -> None:
        """Looks whether every sidecar is there, beyond the shards' sizes.

        Raises:
            DatasetError: one is missing.
        """
        for number in range(len(self.index.shards)):
            path = sidecar_path(self.shard_path(number))
            if not path.is_file():
                raise DatasetError(f"{path}: the sidecar is missing; seqprep repair makes it again")

    def __getstate__(self) -> Path:
        return self.path

    def __setstate__(self, path: Path) -> None:
        self.__init__(path)  # type: ignore[misc]

    def batches_before(self) -> Int64:
        """Batches of all earlier shards together; int64 [shards + 1]."""
        return np.concatenate(
            [np.zeros(1, np.int64), np.cumsum([shard.batches for shard in self.index.shards], dtype=np.int64)]
        )

    def pass_bounds(self) -> list[int]:
        """Where each pass over the input begins: pass e holds batches bounds[e] up to bounds[e + 1]."""
        epochs = [shard.epoch for shard in self.index.shards]
        first = np.searchsorted(epochs, np.arange(self.index.epochs + 1))
        return [int(before) for before in self.batches_before()[first]]

    def shard_bounds(self) -> list[Int64]:
        """For each pass over the input, int64 [shards + 1]: where its shards begin among the batches of the dataset."""
        before = self.batches_before()
        epochs = np.array([shard.epoch for shard in self.index.shards], np.int64)
        first = np.searchsorted(epochs, np.arange(self.index.epochs + 1))
        return [before[begin : end + 1] for begin, end in pairwise(first.tolist())]

    def shard_path(self, shard: int) -> Path:
        """Path of a shard's file."""
        return self.path / self.index.shards[shard].name

    def sidecar(self, shard: int) -> Sidecar:
        """Reads the sidecar of a shard.

        Raises:
            DatasetError: it is missing.
            CorruptError: it is damaged.
        """
        return read_sidecar(self.shard_path(shard), self.index.shards[shard].sidecar_crc32c)
