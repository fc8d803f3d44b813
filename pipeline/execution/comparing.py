"""Compares the batches of a dataset with those that its source gives now."""

from __future__ import annotations

import numpy as np

from seqprep.config import Config
from seqprep.errors import MismatchError
from seqprep.execution.gather import ShardGatherer
from seqprep.execution.planning import plan_source
from seqprep.execution.resume import differences
from seqprep.execution.run import describe_run
from seqprep.execution.task import shard_table, tags_of_rows
from seqprep.shards import Dataset, Fault, ShardReader, ShardTable
from seqprep.sources import Source
from seqprep.types import Array


class SourceComparison:
    """A dataset beside the plan that its source gives. Safe to use from several threads.

    Args:
        dataset: the dataset.
        config: what made it.
        source: opened.

    Raises:
        MismatchError: the source gives other keys, or another number of batches.
    """

    def __init__(self, dataset: Dataset, config: Config, source: Source) -> None:
        self._dataset, self._source, self._config = dataset, source, config
        planned = plan_source(config, source)
        part = dataset.index.configuration.get("part", "")
        if part not in planned.parts:
            raise MismatchError(f"{dataset.path}: is part {part!r} of a split, which the configuration doesn't have")
        self._plan, self._stored, self._normalizers = planned.parts[part], planned.stored, planned.normalizers
        self.shards = range(len(self._plan))
        """Shards of the plan; those of the dataset, unless it was converted to others."""
        counts = [len(self._plan.shard(shard).batch_rows) for shard in self.shards]
        self._first = np.cumsum([0, *counts])
        self._before = dataset.batches_before()
        if self._first[-1] != self._before[-1] or dict(self._stored) != dict(dataset.index.keys):
            now = describe_run(config, planned, part)
            raise MismatchError(
                f"{dataset.path}: has {self._before[-1]} batches of {list(dataset.index.keys)} where the source gives "
                f"{self._first[-1]} of {list(self._stored)}:\n{differences(dataset.index, now)}"
            )

    def compare(self, shard: int) -> tuple[int, list[Fault]]:
        """Compares the batches of one shard of the plan.

        Returns:
            The rows compared, and where the dataset holds something else.

        Raises:
            SourceError: a sequence can't be read.
            CorruptError: a shard is damaged.
        """
        task = self._plan.task(shard)
        plan = task.plan()
        table = shard_table(plan, task, self._stored, tags_of_rows(plan, self._source.tags))
        pads = {name: key.pad_value for name, key in self._config.keys.items()}
        gatherer = ShardGatherer(self._source, task, plan, self._stored, pads, self._normalizers)
        gatherer.read()
        faults: list[Fault] = []
        readers: dict[int, ShardReader] = {}
        for batch, arrays in enumerate(gatherer.batches()):
            number = int(self._first[shard]) + batch
            stored = int(np.searchsorted(self._before, number, side="right")) - 1
            if stored not in readers:
                readers = {stored: ShardReader(self._dataset.shard_path(stored), self._dataset.sidecar(stored))}
            place = number - int(self._before[stored])
            faults += _compare_rows(readers[stored], place, table.part(batch, batch + 1))
            faults += _compare_arrays(readers[stored], place, arrays)
        return task.rows, faults


def _compare_rows(reader: ShardReader, batch: int, expected: ShardTable) -> list[Fault]:
    """Compares what is known of a batch's rows."""
    found = reader.sidecar.table.part(batch, batch + 1)
    if found.equals(expected):
        return []
    wrong = [name for name, values in expected.fields.items() if not np.array_equal(values, found.fields[name])]
    wrong += ["seq_tag"] if found.tags != expected.tags else []
    offset, size = reader.region_before(batch)
    return [_fault(reader, batch, None, ", ".join(wrong) or "number of rows or frames", offset, size)]


def _compare_arrays(reader: ShardReader, batch: int, expected: dict[str, Array]) -> list[Fault]:
    faults = []
    for key, array in reader.batch(batch).items():
        if array.shape != expected[key].shape:
            continue  # told by the rows
        stored, due = (np.ascontiguousarray(values).reshape(-1).view(np.uint8) for values in (array, expected[key]))
        differ = np.flatnonzero(stored != due)
        if len(differ):
            offset, size = reader.file_range(key, batch, int(differ[0]), int(differ[-1]) + 1)
            faults.append(_fault(reader, batch, key, "", offset, size))
    return faults


def _fault(reader: ShardReader, batch: int, key: str | None, part: str, offset: int, size: int) -> Fault:
    return Fault(
        file=reader.path.name,
        what="hold something else than the source gives",
        offset=offset,
        size=size,
        batch=batch,
        key=key,
        part=part,
    )
