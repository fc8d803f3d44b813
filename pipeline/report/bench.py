"""Measures how fast a dataset is read, beside what the machine can do, in one run.

All readers take turns, round by round, since a machine's speed drifts; the figures are medians over the rounds. Each
batch is copied once into one fixed buffer that stands for the device, except where staging itself brings it there.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from seqprep.files import read_exactly
from seqprep.runtime import Loader
from seqprep.runtime.pool import lease_once
from seqprep.shards import Dataset
from seqprep.types import UInt8

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
    """From opening a dataset to its first batch; median. The other figures are of datasets that are open already."""


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """All readers over the same batches."""

    batches: int
    bytes: int
    """Of the arrays read in a round."""
    rounds: int
    readings: list[Reading]


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
    options: dict[str, Any] = {"rank": 0, "world_size": 1, "threads": threads}
    timings: dict[str, list[float]] = {}
    firsts: dict[str, list[float]] = {}
    with ExitStack() as stack:
        readers: dict[str, Reader] = {
            LIMIT: _Raw(ranges, buffer),
            "loader": _Loaded(path, options | {"verify": "never"}, len(ranges), buffer),
            "loader, verified": _Loaded(path, options, len(ranges), buffer),
        }
        if staging:
            readers["loader, verified, staged in TensorFlow"] = _Staged(path, options, len(ranges), device)
        for name, reader in readers.items():
            stack.callback(reader.close)
            reader.epoch()
            timings[name], firsts[name] = [], []
        for _ in range(rounds):
            for name, reader in readers.items():
                firsts[name] += reader.first_batch()
                timings[name].append(reader.epoch())
    return BenchResult(
        batches=len(ranges),
        bytes=size,
        rounds=rounds,
        readings=[
            _reading(name, times, timings[LIMIT], firsts[name], size, len(ranges), rows)
            for name, times in timings.items()
        ],
    )


def _reading(
    name: str, times: list[float], limit: list[float], firsts: list[float], size: int, batches: int, rows: int
) -> Reading:
    seconds = statistics.median(times)
    return Reading(
        name=name,
        gigabytes_per_second=size / seconds / 1e9,
        batches_per_second=batches / seconds,
        rows_per_second=rows / seconds,
        share_of_limit=statistics.median(other / own for own, other in zip(times, limit, strict=True)),
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


class Reader(Protocol):
    """Reads the same batches again and again."""

    def epoch(self) -> float:
        """Reads them all; seconds."""

    def first_batch(self) -> list[float]:
        """Opens the dataset anew and reads one batch; seconds, if there is anything to open."""

    def close(self) -> None:
        """Closes files."""


class _Raw:
    """The limit: each range by one preadv into one warm buffer, then the device copy."""

    def __init__(self, ranges: list[list[tuple[Path, int, int]]], device: UInt8) -> None:
        self._files = {path: os.open(path, os.O_RDONLY) for path in {path for batch in ranges for path, _, _ in batch}}
        self._ranges = [[(self._files[path], offset, length) for path, offset, length in batch] for batch in ranges]
        self._target, self._device = lease_once(len(device)), device
        self._target[:] = 0

    def epoch(self) -> float:
        target, device = self._target, self._device
        started = time.perf_counter()
        for batch in self._ranges:
            for descriptor, offset, length in batch:
                read_exactly(descriptor, target[:length], offset)
                device[:length] = target[:length]
        return time.perf_counter() - started

    def first_batch(self) -> list[float]:
        return []

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)


class _Loaded:
    """The loader, each array copied to the device."""

    def __init__(self, path: str | Path, options: dict[str, Any], batches: int, device: UInt8) -> None:
        self._path, self._options, self._batches, self._device = path, options, batches, device
        self._loader = Loader(path, **options)

    def epoch(self) -> float:
        keys, device = list(self._loader.keys), self._device
        started = time.perf_counter()
        for batch in islice(iter(self._loader), self._batches):
            for key in keys:
                flat = batch[key].reshape(-1).view(np.uint8)
                device[: len(flat)] = flat
        return time.perf_counter() - started

    def first_batch(self) -> list[float]:
        started = time.perf_counter()
        with Loader(self._path, **self._options) as loader:
            next(iter(loader))
            return [time.perf_counter() - started]

    def close(self) -> None:
        self._loader.close()


class _Staged:
    """The loader through the staging area, which brings the batches to the device."""

    def __init__(self, path: str | Path, options: dict[str, Any], batches: int, device: str | None) -> None:
        self._path, self._options, self._batches, self._device = path, options, batches, device
        self._open = ExitStack()
        self._stage = self._staged(self._open)

    def _staged(self, stack: ExitStack) -> Any:
        from seqprep.tensorflow import stage

        loader = stack.enter_context(Loader(self._path, **self._options))
        return stack.enter_context(stage(loader, device=self._device))

    def epoch(self) -> float:
        started = time.perf_counter()
        for _ in islice(iter(self._stage), self._batches):
            pass
        return time.perf_counter() - started

    def first_batch(self) -> list[float]:
        started = time.perf_counter()
        with ExitStack() as stack:
            next(iter(self._staged(stack)))
            return [time.perf_counter() - started]

    def close(self) -> None:
        self._open.close()
