"""`seqprep.Loader`: streams the batches of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqprep.runtime.epochs import Epochs, Metrics
from seqprep.runtime.options import LoaderOptions, Verify
from seqprep.runtime.order import Even, Shuffle, shards_together
from seqprep.runtime.reporting import OnMetrics
from seqprep.runtime.row_order import RebatchOptions
from seqprep.runtime.stored import StoredBatches
from seqprep.shards import Dataset

__all__ = ["Loader", "Metrics"]


class Loader(Epochs):
    """Streams a dataset's batches, read ahead by threads into recycled, aligned buffers.

    Iterating gives one epoch. A batch maps names to numpy arrays, batch first: for every key its array [B, T, …] and
    `<key>/size0` int32 [B], `<key>/start` int64 [B], `<key>/core` int32 [B, 2], `<key>/length` int64 [B]; and `seq_idx`
    int64 [B], `seq_tag` `Tags` [B]. Where rows are packed, all but the first have an entry per segment [S], and the batch
    holds `segment_row` and `segment_start` int32 [S], and for every key `<key>/segment_ids` and `<key>/positions` int32
    [B, T]; `seqprep.unpack` takes it apart. The arrays are the caller's: their memory is used again only when the last
    reference to them is gone.

    A dataset of several passes gives another one in each epoch: epoch e reads pass e modulo their number.

    A loader can be pickled: the copy opens the dataset anew, with the same options, at the same position. One that was
    opened before a fork can be iterated in the child; its iterators belong to the process that made them.

    Args:
        path: the folder of the dataset.
        keys: read only these.
        shuffle: order the batches anew in every epoch, by seed and epoch: True or "global" all of them; "shards" shard by
            shard; "window:N" N shards together, so that no more of them are open at a time.
        seed: of the shuffle and of `rebatch`.
        rank: which of `world_size` equal readers this is; RANK and WORLD_SIZE of the environment if both are set.
        world_size: how many there are.
        even: what ranks do when the batches don't divide by them: `pad` (equal steps, up to world_size − 1 batches
            twice), `drop` (equal steps, the rest left out), `none` (every batch once, steps may differ by 1).
        same_shape: in each step, all ranks get batches of one shape; `even` then holds for the batches of each shape.
        rebatch: {"rows": R, "window": W} mixes the rows of W batches, and makes batches of R rows of them.
        prefetch: batches read ahead.
        threads: reading threads; with 0, each batch is read in the thread that asks for it.
        verify: compare checksums `always`, in the `first` epoch, or `never`.
        on_metrics: a function, and seconds: it is called with the `Metrics` so often, in the thread that takes batches,
            and at the end of each epoch.

    Raises:
        ConfigError: an argument is impossible.
        DatasetError: the folder is no finished dataset, or damaged.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        keys: Sequence[str] | None = None,
        shuffle: Shuffle = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        even: Even = "pad",
        same_shape: bool = False,
        rebatch: Mapping[str, int] | RebatchOptions | None = None,
        prefetch: int = 8,
        threads: int = 1,
        verify: Verify = "always",
        on_metrics: OnMetrics | None = None,
    ) -> None:
        self._path = path
        options = LoaderOptions.parse(
            rank, world_size, shuffle, rebatch, keys=keys, seed=seed, even=even, same_shape=same_shape,
            prefetch=prefetch, threads=threads, verify=verify, on_metrics=on_metrics,
        )  # fmt: skip
        together = shards_together(options.shuffle) or 1
        super().__init__(
            StoredBatches(Dataset(path), keys, verify=options.verify != "never", least_opened=together), options
        )

    @property
    def path(self) -> Path:
        """The folder of the dataset."""
        return Path(self._path)

    @property
    def dataset_name(self) -> str:
        """Name of the dataset's folder."""
        return self.path.name

    def _arguments(self) -> dict[str, Any]:
        return {"path": self._path, **vars(self._options)}
