"""The batches of a dataset's shards, as a stock that epochs are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seqprep.lazy import cached_property
from seqprep.runtime.options import LoaderOptions
from seqprep.runtime.order import GlobalOrder
from seqprep.runtime.ranges import BatchReader
from seqprep.runtime.tables import batch_rows, batch_setting, batch_shapes, pad_values
from seqprep.shards import Dataset
from seqprep.types import Int64, KeySpec


class StoredBatches(BatchReader):
    """A `Stock` over shards; what `BatchReader` says holds, too."""

    def __init__(
        self, dataset: Dataset, keys: Sequence[str] | None = None, *, verify: bool = True, least_opened: int = 1
    ) -> None:
        super().__init__(dataset, keys, verify=verify, least_opened=least_opened)
        self._dataset = dataset

    @property
    def name(self) -> str:
        """The dataset's folder."""
        return str(self._dataset.path)

    @property
    def specs(self) -> Mapping[str, KeySpec]:
        """Of the keys that are read."""
        return {name: self._dataset.index.keys[name] for name in self.keys}

    @property
    def fingerprint(self) -> str:
        """Of the run that made the dataset."""
        return self._dataset.index.fingerprint

    @property
    def passes(self) -> int:
        """Those that the dataset holds."""
        return self._dataset.index.epochs

    @property
    def packed(self) -> bool:
        """Whether several sequences share a row."""
        return bool(batch_setting(self._dataset, "pack"))

    @property
    def pads(self) -> Mapping[str, float]:
        """What rows of each key hold beyond their valid frames."""
        return pad_values(self._dataset)

    def order(self, options: LoaderOptions) -> GlobalOrder:
        """The order of all passes' batches."""
        shapes = batch_shapes(self._dataset, self.keys) if options.same_shape else None
        return options.order(self._dataset.shard_bounds(), shapes)

    @cached_property
    def _batch_rows(self) -> Int64:
        return batch_rows(self._dataset)

    def rows_of(self, batches: Int64) -> Int64:
        """Rows of batches, those left out that only fill one up; int64 [batches]."""
        return self._batch_rows[batches]

    def numbers(self, epoch: int) -> range:
        """Those of all passes."""
        return range(len(self))
