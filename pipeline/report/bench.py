"""Measures how fast a dataset is read, beside what the machine can do, in one run.

All readers take turns, round by round, since a machine's speed drifts; the figures are medians over the rounds. Each
batch is copied once into one fixed buffer that stands for the device, except where staging itself brings it there.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.files import read_exactly
from seqprep.runtime import Loader
from seqprep.runtime.pool import lease_once
from seqprep.shards import Dataset

LIMIT = "raw read limit"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How one reader fared."""

    name: str
    gigabytes_per_second: float
    batches_per_second: float
    rows_per_second: float
    share_of_limit: float
    """Median, over the rounds, of its speed against the limit's in the same round."""
    first_batch_ms: float | None
    """From opening to the first batch; median."""


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """All readers over the same batches."""

    batches: int
    bytes: int
    """Of the arrays read in a round."""
    rounds: int
    readings: list[Reading]
    staging_wait_share: float | None
    """Share of the staged round that the consumer was blocked because nothing was staged, doing no work itself."""


def bench(
    path: str | Path,
    *,
    rounds: int = 5,
    max_bytes: int = 1 << 30,
    threads: int = 1,
    staging: bool = True,
    device: str | None = None,
) -> BenchResult:
    """Reads a dataset through every reader, several times.

    Args:
        path: the dataset.
        rounds: how often each reader reads it; one more round in front warms the page cache and is not counted.
        max_bytes: read no more than the first batches of so many bytes.
        threads: reading threads of the loader.
        staging: also through the TensorFlow staging area.
        device: where to stage.

    Raises:
        DatasetError: the dataset can't be read.
        DependencyError: staging is wanted and TensorFlow isn't installed.
    """
    dataset = Dataset(path)
    ranges, rows = _ranges(dataset, max_bytes)
    size = sum(length for batch in ranges for _, _, length in batch)
    buffer = np.zeros(max((sum(length for _, _, length in batch) for batch in ranges), default=1) + 1, np.uint8)
    waited: list[float] = []
    readers: dict[str, Callable[[], tuple[float, float | None]]] = {
        LIMIT: lambda: (_read_raw(ranges, buffer), None),
        "loader": lambda: _read_loader(path, len(ranges), threads, "never", buffer),
        "loader, verified": lambda: _read_loader(path, len(ranges), threads, "always", buffer),
    }
    if staging:
        readers["loader, verified, staged in TensorFlow"] = lambda: _read_staged(
            path, len(ranges), threads, device, waited
        )
    for read in readers.values():
        read()
    waited.clear()
    timings: dict[str, list[tuple[float, float | None]]] = {name: [] for name in readers}
    for _ in range(rounds):
        for name, read in readers.items():
            timings[name].append(read())
    return BenchResult(
        batches=len(ranges),
        bytes=size,
        rounds=rounds,
        readings=[_reading(name, times, timings[LIMIT], size, len(ranges), rows) for name, times in timings.items()],
        staging_wait_share=statistics.median(waited) if waited else None,
    )


def _reading(
    name: str,
    times: list[tuple[float, float | None]],
    limit: list[tuple[float, float | None]],
    size: int,
    batches: int,
    rows: int,
) -> Reading:
    seconds = statistics.median(time for time, _ in times)
    firsts = [first for _, first in times if first is not None]
    return Reading(
        name=name,
        gigabytes_per_second=size / seconds / 1e9,
        batches_per_second=batches / seconds,
        rows_per_second=rows / seconds,
        share_of_limit=statistics.median(other[0] / own[0] for own, other in zip(times, limit, strict=True)),
        first_batch_ms=statistics.median(firsts) * 1e3 if firsts else None,
    )


def _ranges(dataset: Dataset, max_bytes: int) -> tuple[list[list[tuple[Path, int, int]]], int]:
    """File, offset and size of every array of the first pass's first batches, and how many rows those have."""
    ranges: list[list[tuple[Path, int, int]]] = []
    rows = total = 0
    for shard, record in enumerate(dataset.index.shards):
        if record.epoch:
            break  # an epoch of the loader reads one pass
        sidecar = dataset.sidecar(shard)
        sizes = {key: sidecar.table.array_bytes(key).tolist() for key in sidecar.table.keys}
        for batch, count in enumerate(sidecar.table.batch_rows.tolist()):
            arrays = [(dataset.shard_path(shard), int(sidecar.offsets[key][batch]), sizes[key][batch]) for key in sizes]
            total += sum(length for _, _, length in arrays)
            if total > max_bytes and ranges:
                return ranges, rows
            ranges.append(arrays)
            rows += count
    return ranges, rows


def _read_raw(ranges: list[list[tuple[Path, int, int]]], device: np.ndarray[Any, Any]) -> float:
    """The limit: each range by one preadv into one warm buffer, then the device copy."""
    target = lease_once(len(device))
    target[:] = 0
    open_files = {path: os.open(path, os.O_RDONLY) for path in {path for batch in ranges for path, _, _ in batch}}
    plan = [[(open_files[path], offset, length) for path, offset, length in batch] for batch in ranges]
    started = time.perf_counter()
    for batch in plan:
        for descriptor, offset, length in batch:
            read_exactly(descriptor, target[:length], offset)
            device[:length] = target[:length]
    seconds = time.perf_counter() - started
    for descriptor in open_files.values():
        os.close(descriptor)
    return seconds


def _read_loader(
    path: str | Path, batches: int, threads: int, verify: Any, device: np.ndarray[Any, Any]
) -> tuple[float, float]:
    started = time.perf_counter()
    with Loader(path, rank=0, world_size=1, threads=threads, verify=verify) as loader:
        keys = list(loader.keys)
        first = None
        for batch in islice(iter(loader), batches):
            first = first or time.perf_counter() - started
            for key in keys:
                flat = batch[key].reshape(-1).view(np.uint8)
                device[: len(flat)] = flat
        seconds = time.perf_counter() - started
    return seconds, first or seconds


def _read_staged(
    path: str | Path, batches: int, threads: int, device: str | None, waited: list[float]
) -> tuple[float, float]:
    from seqprep.tensorflow import stage

    started = time.perf_counter()
    first = None
    with Loader(path, rank=0, world_size=1, threads=threads) as loader, stage(loader, device=device) as staged:
        iterator: Iterable[Any] = iter(staged)
        for _ in islice(iterator, batches):
            first = first or time.perf_counter() - started
        seconds = time.perf_counter() - started
        waited.append(staged.metrics().blocked_seconds / seconds)
    return seconds, first or seconds
