"""Checks every byte of a dataset against its checksums."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqprep.errors import DatasetError
from seqprep.files import read_exactly
from seqprep.shards.checksum import checksum
from seqprep.shards.dataset import Dataset
from seqprep.shards.sidecar import Sidecar

_BLOCK_BYTES = 1 << 22


@dataclass(frozen=True)
class Fault:
    """A stretch of a shard that isn't what was written."""

    shard: str
    what: str
    """The batch and key, or the part between arrays."""
    offset: int
    """First byte of the stretch whose checksum differs."""
    size: int
    """Bytes of the stretch."""

    def __str__(self) -> str:
        return f"{self.shard}: {self.what}: bytes {self.offset} to {self.offset + self.size} differ from their checksum"


def verify_dataset(dataset: Dataset, threads: int | None = None) -> Iterator[tuple[int, list[Fault]]]:
    """Reads every shard whole and compares every checksum.

    Args:
        dataset: the dataset.
        threads: how many shards at a time; the number of cores unless told.

    Yields:
        For each shard in order, the bytes checked and the faults found.

    Raises:
        DatasetError: a shard or sidecar can't be read at all.
    """
    with ThreadPoolExecutor(threads or os.cpu_count() or 1, thread_name_prefix="seqprep-verify") as pool:
        shards = range(len(dataset.index.shards))
        yield from pool.map(lambda shard: verify_shard(dataset.shard_path(shard), dataset.sidecar(shard)), shards)


def verify_shard(path: Path, sidecar: Sidecar) -> tuple[int, list[Fault]]:
    """Compares every checksum of one shard.

    Returns:
        The bytes checked, and the faults found.

    Raises:
        DatasetError: the shard can't be read at all.
    """
    faults, checked = [], 0
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DatasetError(f"{path}: the shard can't be opened: {error.strerror}; make the dataset again") from error
    try:
        if os.fstat(descriptor).st_size != sidecar.file_bytes:
            faults.append(
                Fault(path.name, "its size differs from what its sidecar says", 0, os.fstat(descriptor).st_size)
            )
        for what, offset, size, crc in _ranges(sidecar):
            checked += size
            if _range_crc(descriptor, offset, size) != crc:
                faults.append(Fault(path.name, what, offset, size))
    except OSError as error:
        raise DatasetError(f"{path}: can't be read: {error.strerror}; check the disk") from error
    finally:
        os.close(descriptor)
    return checked, faults


def _ranges(sidecar: Sidecar) -> Iterator[tuple[str, int, int, int]]:
    """Every stretch with a checksum: what it is, offset, size, CRC; in the order of the file."""
    names: list[str] = []
    columns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for key in sidecar.table.keys:
        names += [f"batch {batch}, key {key!r}" for batch in range(len(sidecar.table.batch_rows))]
        columns.append((sidecar.offsets[key], sidecar.table.array_bytes(key), sidecar.crcs[key]))
    regions = sidecar.regions
    names += ["the part between its arrays"] * len(regions.offset)
    columns.append((regions.offset, regions.size, regions.crc))
    offset, size, crc = (np.concatenate(column) for column in zip(*columns, strict=True))
    for place in np.argsort(offset, kind="stable").tolist():
        yield names[place], int(offset[place]), int(size[place]), int(crc[place])


def _range_crc(descriptor: int, offset: int, size: int) -> int:
    """CRC32C of a stretch; that of fewer bytes if the file ends before."""
    crc, done = 0, 0
    buffer = np.empty(min(size, _BLOCK_BYTES), np.uint8)
    while done < size:
        want = min(size - done, len(buffer))
        got = read_exactly(descriptor, buffer[:want], offset + done)
        crc = checksum(buffer[:got], crc)
        done += got
        if got < want:
            return crc ^ 0xFFFFFFFF  # the file is cut off: never equal by chance of an empty rest
    return crc
