"""`seqprep.convert`: the same batches in another format, compression, or size of shards."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.errors import ClosedError, ConfigError
from seqprep.execution.resume import bytes_there, finished_dataset, make_dataset
from seqprep.execution.run import Progress, Summary, run_fingerprint, summarize
from seqprep.execution.space import check_space
from seqprep.execution.stored import CONVERTED, MERGED
from seqprep.execution.task import finished_shard
from seqprep.execution.threads import side_by_side
from seqprep.shards import (
    Dataset,
    Index,
    ShardReader,
    ShardRecord,
    ShardTable,
    SharedLock,
    Storage,
    codec_release,
    shard_name,
    write_shard,
)
from seqprep.types import Array, Int64


@dataclass(frozen=True)
class _Stretch:
    """Neighbouring batches of one shard."""

    shard: int
    begin: int
    end: int


def convert(
    source: str | Path,
    output: str | Path,
    *,
    format: str | None = None,
    compression: str | None = None,
    shard_bytes: int | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
    storage: Storage | None = None,
) -> Summary:
    """Writes the batches of a dataset again: same batches, same order, another wrapping.

    Memory holds one batch of each worker, and the tables of its shard. With the size of the shards left alone, the
    result is what `seqprep.chunk` with that format and compression would have written, byte for byte.

    Args:
        source: the dataset.
        output: the folder to make.
        format: hdf5 or tfrecord; the dataset's unless given.
        compression: none, gzip or zstd; the dataset's unless given.
        shard_bytes: bytes of a shard's batches, padding included; shards stay as they are unless given.
        workers: shards written at a time, in threads; the number of cores unless given.
        overwrite: replace what the output holds, if it is something else.
        progress: told after each shard how far it is.
        storage: the file layer; local files unless told.

    Raises:
        ConfigError: an argument is impossible.
        DatasetError: the dataset can't be used; CorruptError: it is damaged.
        OutputError: the output can't be written; MismatchError: it holds something else.
    """
    started = time.monotonic()
    dataset, folder = Dataset(source), Path(output)
    if dataset.path.resolve() == folder.resolve():
        raise ConfigError(f"{folder}: is the input and the output; choose another output")
    expected = _index(dataset.index, format, compression, shard_bytes)
    conversion = _Conversion(dataset, folder, expected, _parts(dataset, shard_bytes), storage or Storage())
    if expected.compression == "none" and finished_dataset(folder, expected, overwrite) is None:
        sizes = (_batch_bytes(dataset.sidecar(shard).table).sum() for shard in range(len(dataset.index.shards)))
        check_space({folder: int(sum(sizes)) - bytes_there(folder)})

    def make_shards(_: SharedLock) -> list[ShardRecord]:
        records: list[ShardRecord] = []
        numbers = range(len(conversion.parts))
        for record in side_by_side(conversion.run, numbers, workers or os.cpu_count() or 1, conversion.stop):
            records.append(record)
            if progress is not None:
                done = sum(record.rows for record in records), sum(record.bytes for record in records)
                progress(Progress(rows=done[0], rows_total=dataset.index.rows, bytes=done[1]))
        return records

    index, before = make_dataset(folder, expected, len(conversion.parts), conversion.storage, overwrite, make_shards)
    return summarize(folder, index, time.monotonic() - started, before)


class _Conversion:
    """Writes the shards of the output; safe to use from several threads."""

    def __init__(
        self, dataset: Dataset, folder: Path, index: Index, parts: list[list[_Stretch]], storage: Storage
    ) -> None:
        self._dataset, self._folder, self._index = dataset, folder, index
        self.parts, self.storage = parts, storage
        self._stopped = threading.Event()
        self.stop = self._stopped.set

    def run(self, number: int) -> ShardRecord:
        """Writes one shard, unless it is there."""
        stretches, index = self.parts[number], self._index
        tables = [self._dataset.sidecar(at.shard).table.part(at.begin, at.end) for at in stretches]
        table = ShardTable.joined(tables)
        path = self._folder / shard_name(number, len(self.parts), index.format)
        made = finished_shard(path, index.fingerprint, table) or write_shard(
            path,
            index.format,
            table,
            self._batches(stretches),
            index.fingerprint,
            self.storage,
            compression=index.compression,
            description=index.describe(),
        )
        return made if isinstance(made, ShardRecord) else made.commit()

    def _batches(self, stretches: list[_Stretch]) -> Iterator[dict[str, Array]]:
        for at in stretches:
            reader = ShardReader(self._dataset.shard_path(at.shard), self._dataset.sidecar(at.shard))
            for batch in range(at.begin, at.end):
                if self._stopped.is_set():
                    raise ClosedError(f"{self._folder}: the conversion was stopped")
                yield reader.batch(batch)


def _index(old: Index, format: str | None, compression: str | None, shard_bytes: int | None) -> Index:
    """What the converted dataset's index says, without its shards."""
    format, compression = format or old.format, compression or old.compression
    if format == "tfrecord" and compression == "zstd":
        raise ConfigError("compression is zstd, which no reader of TFRecord knows; use gzip or none, or format hdf5")
    configuration: dict[str, Any] = dict(old.configuration)
    changes: dict[str, Any] = {} if shard_bytes is None else {"from": old.fingerprint, "shard_bytes": shard_bytes}
    if MERGED in configuration:
        changes = {"from": old.fingerprint, "format": format, "compression": compression, **changes}
    else:
        configuration["output"] = {**configuration["output"], "format": format, "compression": compression}
    if changes:
        configuration[CONVERTED] = changes
    codec = codec_release(compression)
    return replace(
        old.without_shards(),
        format=format,
        compression=compression,
        codec=codec,
        configuration=configuration,
        fingerprint=run_fingerprint(configuration, old.source, codec),
    )


def _parts(dataset: Dataset, shard_bytes: int | None) -> list[list[_Stretch]]:
    """Which batches each shard of the output holds."""
    counts = [shard.batches for shard in dataset.index.shards]
    if shard_bytes is None:
        return [[_Stretch(shard, 0, count)] for shard, count in enumerate(counts)]
    sizes = np.concatenate([_batch_bytes(dataset.sidecar(shard).table) for shard in range(len(counts))])
    starts: list[int] = []
    for begin, end in pairwise(dataset.pass_bounds()):  # a shard holds batches of one pass
        starts += [begin + start for start in _greedy_starts(np.cumsum(sizes[begin:end]), shard_bytes)]
    before = dataset.batches_before()
    parts = []
    for start, stop in zip(starts, [*starts[1:], len(sizes)], strict=True):
        first, last = (int(np.searchsorted(before, batch, side="right")) - 1 for batch in (start, stop - 1))
        parts.append(
            [
                _Stretch(shard, max(start - int(before[shard]), 0), min(stop - int(before[shard]), counts[shard]))
                for shard in range(first, last + 1)
            ]
        )
    return parts


def _batch_bytes(table: ShardTable) -> Int64:
    total = np.zeros(len(table.batch_rows), np.int64)
    for key in table.keys:
        total += table.array_bytes(key)
    return total


def _greedy_starts(ends: Int64, limit: int) -> list[int]:
    """Where shards begin: each is closed before the batch that would take it past the limit."""
    starts = [0]
    while True:
        before = int(ends[starts[-1] - 1]) if starts[-1] else 0
        following = max(int(np.searchsorted(ends, before + limit, side="right")), starts[-1] + 1)
        if following >= len(ends):
            return starts
        starts.append(following)
