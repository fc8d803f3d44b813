"""Measures how fast a dataset is read, or a stream made, beside what the machine can do, in one run.

All readers take turns, round by round, since a machine's speed drifts; the figures are medians over the rounds. Each
batch is copied once into one fixed buffer that stands for the device, except where staging itself brings it there.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from seqprep.files import read_exactly
from seqprep.runtime import Epochs, Loader
from seqprep.runtime.pool import lease_once
from seqprep.shards import Dataset
from seqprep.streaming import Stream
from seqprep.types import UInt8

LIMIT = "raw read limit"
COPY_LIMIT = "memory copy limit"


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
    """Reads a dataset through every reader, several times; or makes the batches of a configuration, without shards.

    The limit of a dataset is reading its arrays by one call each; of a stream, copying arrays of the same sizes.

    Args:
        path: the dataset; or the YAML file of a configuration.
        rounds: how often each reader reads it; one more round in front warms the page cache and is not counted.
        max_bytes: read no more than the first batches of so many bytes.
        threads: reading threads of the loader.
        staging: also through the TensorFlow staging area.
        device: where to stage.

    Raises:
        DatasetError: the dataset can't be read.
        ConfigError, SourceError: the configuration is wrong, or its source can't be read.
        DependencyError: staging is wanted and TensorFlow isn't installed.
    """
    options: dict[str, Any] = {"rank": 0, "world_size": 1, "threads": threads}
    timings: dict[str, list[float]] = {}
    firsts: dict[str, list[float]] = {}
    with ExitStack() as stack:
        work: _Work = (_of_stream if os.path.isfile(path) else _of_dataset)(path, options, max_bytes, staging, device)
        readers, batches, size, rows = work.readers, work.batches, work.bytes, work.rows
        limit = next(iter(readers))
        for name, reader in readers.items():
            stack.callback(reader.close)
            reader.epoch()
            timings[name], firsts[name] = [], []
        for _ in range(rounds):
            for name, reader in readers.items():
                firsts[name] += reader.first_batch()
                timings[name].append(reader.epoch())
    return BenchResult(
        batches=batches,
        bytes=size,
        rounds=rounds,
        readings=[
            _reading(name, times, timings[limit], firsts[name], size, batches, rows) for name, times in timings.items()
        ],
    )


@dataclass(frozen=True)
class _Work:
    """What is measured: the limit first."""

    readers: dict[str, Reader]
    batches: int
    bytes: int
    rows: int


def _of_dataset(path: str | Path, options: dict[str, Any], max_bytes: int, staging: bool, device: str | None) -> _Work:
    ranges, rows = _ranges(Dataset(path), max_bytes)
    sizes = [sum(length for _, _, length in batch) for batch in ranges]
    buffer = np.zeros(max(sizes, default=1) + 1, np.uint8)
    unverified = options | {"verify": "never"}
    readers: dict[str, Reader] = {
        LIMIT: _Raw(ranges, buffer),
        "loader": _Loaded(lambda: Loader(path, **unverified), len(ranges), buffer),
        "loader, verified": _Loaded(lambda: Loader(path, **options), len(ranges), buffer),
    }
    if staging:
        opened = _Staged(lambda: Loader(path, **options), len(ranges), device)
        readers["loader, verified, staged in TensorFlow"] = opened
    return _Work(readers, len(ranges), sum(sizes), rows)


def _of_stream(path: str | Path, options: dict[str, Any], max_bytes: int, staging: bool, device: str | None) -> _Work:
    def opened(threads: int) -> Epochs:
        return Stream(path, **options | {"threads": threads})

    sizes: list[list[int]] = []
    rows = 0
    with opened(0) as stream:
        for batch in stream:
            sizes.append([batch[key].nbytes for key in stream.keys])
            rows += len(batch[next(iter(stream.keys))])
            if sum(map(sum, sizes)) > max_bytes:
                break
    buffer = np.zeros(max(map(sum, sizes)) + 1, np.uint8)
    readers: dict[str, Reader] = {
        COPY_LIMIT: _Copied(sizes, buffer),
        "stream, without threads": _Loaded(lambda: opened(0), len(sizes), buffer),
        "stream": _Loaded(lambda: opened(options["threads"]), len(sizes), buffer),
    }
    if staging:
        readers["stream, staged in TensorFlow"] = _Staged(lambda: opened(options["threads"]), len(sizes), device)
    return _Work(readers, len(sizes), sum(map(sum, sizes)), rows)


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


class _Copied:
    """The limit of what makes its batches: arrays of their sizes, copied out of one warm buffer."""

    def __init__(self, sizes: list[list[int]], device: UInt8) -> None:
        self._sizes, self._held, self._device = sizes, np.ones_like(device), device

    def epoch(self) -> float:
        held, device = self._held, self._device
        started = time.perf_counter()
        for batch in self._sizes:
            for size in batch:
                device[:size] = held[:size]
        return time.perf_counter() - started

    def first_batch(self) -> list[float]:
        return []

    def close(self) -> None:
        pass


class _Loaded:
    """A loader or stream, each array copied to the device."""

    def __init__(self, opened: Callable[[], Epochs], batches: int, device: UInt8) -> None:
        self._opened, self._batches, self._device = opened, batches, device
        self._loader = opened()

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
        with self._opened() as loader:
            next(iter(loader))
            return [time.perf_counter() - started]

    def close(self) -> None:
        self._loader.close()


class _Staged:
    """A loader or stream through the staging area, which brings the batches to the device."""

    def __init__(self, opened: Callable[[], Epochs], batches: int, device: str | None) -> None:
        self._opened, self._batches, self._device = opened, batches, device
        self._open = ExitStack()
        self._stage = self._staged(self._open)

    def _staged(self, stack: ExitStack) -> Any:
        from seqprep.runtime.frameworks import import_framework, without_notes
        from seqprep.tensorflow import stage

        if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "3":  # its notes aren't wanted, but begin before it knows
            with without_notes():
                import_framework("tensorflow")
        loader = stack.enter_context(self._opened())
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
