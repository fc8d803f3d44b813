"""`seqprep.verify`: every byte of a dataset against its checksums, and its batches against the source."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seqprep.config import Config, load_config
from seqprep.errors import CorruptError, DatasetError
from seqprep.execution.comparing import SourceComparison
from seqprep.execution.resume import MARKER_NAME
from seqprep.execution.run import Progress
from seqprep.execution.stored import stored_config
from seqprep.execution.threads import side_by_side
from seqprep.shards import (
    Dataset,
    Fault,
    ShardRecord,
    find_shards,
    read_index,
    read_sidecar,
    record_of,
    sidecar_path,
    stored_crc32c,
    verify_index,
    verify_record,
)
from seqprep.sources import open_source

Against = Literal[True] | Config | Mapping[str, Any] | str | Path | None
"""A configuration; True for the one that the dataset holds."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was checked, and what is wrong."""

    shards: int
    bytes: int
    """Of the shards, checked against checksums."""
    compared: int
    """Batches compared with the source."""
    faults: list[Fault]


def verify(
    path: str | Path,
    *,
    workers: int | None = None,
    against_source: Against = None,
    progress: Callable[[Progress], None] | None = None,
) -> Verification:
    """Checks every byte of a dataset: shards, sidecars and index, each by itself and against the others.

    Args:
        path: the dataset's folder.
        workers: shards checked at a time, in threads; the number of cores unless told.
        against_source: if the checksums are right, also read the source again, and compare every batch with what it
            gives: by this configuration, or by the dataset's own if it is True.
        progress: told after each shard how far it is.

    Raises:
        DatasetError: there is no dataset, or a file of it can't be opened.
        MismatchError: the source gives other batches than the dataset has.
        SourceError, ConfigError: the source can't be read.
    """
    folder, workers = Path(path), workers or os.cpu_count() or 1
    index, faults = verify_index(folder)
    if index is None:
        records, more = _records_alone(folder)
        faults += more
    else:
        records = list(index.shards)
    rows, checked = sum(record.rows for record in records), 0
    told = _Told(rows * (1 if against_source is None else 2), progress)
    checks = side_by_side(lambda record: verify_record(folder, record), records, workers)
    for record, (size, found) in zip(records, checks, strict=True):
        faults += found
        checked += size
        told(record.rows, size)
    compared = 0
    if against_source is not None and not faults:
        compared, faults = _compare(folder, against_source, workers, told)
    return Verification(shards=len(records), bytes=checked, compared=compared, faults=faults)


def _compare(folder: Path, against: Against, workers: int, told: _Told) -> tuple[int, list[Fault]]:
    """Compares all batches with the source; gives their number, and the faults."""
    dataset = Dataset(folder)
    config = load_config(against) if isinstance(against, Mapping | str | Path) else against
    config = config if isinstance(config, Config) else stored_config(dataset.index, folder)
    source = open_source(config.source, config.document)
    faults: list[Fault] = []
    try:
        comparison = SourceComparison(dataset, config, source)
        for rows, found in side_by_side(comparison.compare, comparison.shards, workers):
            faults += found
            told(rows, 0)
    finally:
        source.close()
    return dataset.index.batches, faults


class _Told:
    """Adds up how far it is."""

    def __init__(self, rows_total: int, progress: Callable[[Progress], None] | None) -> None:
        self._rows = self._bytes = 0
        self._total, self._progress = rows_total, progress

    def __call__(self, rows: int, size: int) -> None:
        self._rows += rows
        self._bytes += size
        if self._progress is not None:
            self._progress(Progress(rows=self._rows, rows_total=self._total, bytes=self._bytes))


def _records_alone(folder: Path) -> tuple[list[ShardRecord], list[Fault]]:
    """What the shards are by their own sidecars, where the index doesn't say; and which have none.

    Raises:
        DatasetError: there are none, or their run isn't finished.
    """
    paths = find_shards(folder)
    if not paths or (folder / MARKER_NAME).exists():
        read_index(folder)
    records, faults = [], []
    for path in paths:
        beside = sidecar_path(path)
        size = beside.stat().st_size if beside.is_file() else 0
        try:
            sidecar = read_sidecar(path)
            records.append(record_of(path.name, sidecar, stored_crc32c(path)))
        except CorruptError:
            faults.append(Fault(file=beside.name, what="differ from their checksum", offset=0, size=size))
        except DatasetError:
            if beside.is_file():
                raise
            faults.append(Fault(file=beside.name, what="are missing", offset=0, size=0))
    return records, faults
