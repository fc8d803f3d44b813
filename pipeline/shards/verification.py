"""Checks every byte of a dataset against its checksums, and its parts against each other."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from seqprep.errors import CorruptError, DatasetError
from seqprep.files import read_exactly
from seqprep.shards.checksum import checksum
from seqprep.shards.index import INDEX_NAME, Index, is_as_written, parse_index
from seqprep.shards.reading import ShardReader
from seqprep.shards.rebuilding import rebuild_sidecar
from seqprep.shards.sidecar import Sidecar, read_sidecar, sidecar_path
from seqprep.shards.writing import ShardRecord, record_of

_BLOCK_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something in a dataset that isn't what was written."""

    file: str
    """Its name in the dataset's folder."""
    what: str
    """What is wrong with the bytes."""
    offset: int
    """The first byte of the stretch that is wrong."""
    size: int
    """Bytes of the stretch."""
    batch: int | None = None
    """Number of the batch in its shard, if the stretch belongs to one."""
    key: str | None = None
    """The key, if the stretch belongs to one's array."""
    part: str = ""
    """What else the stretch is."""

    def __str__(self) -> str:
        place = [
            f"batch {self.batch}" if self.batch is not None else "",
            f"key {self.key!r}" if self.key else "",
            self.part,
        ]
        named = "".join(f"{part}: " for part in [", ".join(part for part in place if part)] if part)
        return f"{self.file}: {named}bytes {self.offset} to {self.offset + self.size} {self.what}"


_DIFFER = "differ from their checksum"
_UNREADABLE = (errno.EIO, errno.EBADMSG, errno.EILSEQ, errno.ENODATA, errno.EUCLEAN)
"""What a disk or file system answers that has lost bytes; anything else says nothing of the file."""


def _lost(error: BaseException | None) -> str:
    """What a fault says of bytes that the disk has lost; empty if that isn't the error."""
    lost = isinstance(error, OSError) and error.errno in _UNREADABLE
    return f"can't be read: {error.strerror}" if lost and isinstance(error, OSError) else ""


@dataclass(frozen=True)
class _Stretch:
    """Bytes of a shard that have a checksum."""

    offset: int
    size: int
    crc: int
    batch: int | None = None
    key: str | None = None
    part: str = ""

    def fault(self, path: Path, what: str = _DIFFER) -> Fault:
        return Fault(
            file=path.name,
            what=what,
            offset=self.offset,
            size=self.size,
            batch=self.batch,
            key=self.key,
            part=self.part,
        )


def verify_index(folder: Path) -> tuple[Index | None, list[Fault]]:
    """Checks the index by itself.

    Returns:
        The index, None if it is of no use; and the faults found.

    Raises:
        DatasetError: it is of a newer version, or can't be read; UnfinishedError: there is none.
    """
    path = folder / INDEX_NAME
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None, [Fault(file=INDEX_NAME, what="are missing", offset=0, size=0)]
    except OSError as error:
        if _lost(error):
            return None, [Fault(file=INDEX_NAME, what=_lost(error), offset=0, size=path.stat().st_size)]
        raise DatasetError(f"{path}: can't be read: {error.strerror}; check the disk") from error
    whole = Fault(file=INDEX_NAME, what=_DIFFER, offset=0, size=len(text))
    try:
        index = parse_index(text, path)
    except CorruptError:
        return None, [whole]
    return index, [] if is_as_written(text, index) else [whole]


def verify_record(folder: Path, record: ShardRecord) -> tuple[int, list[Fault]]:
    """Checks one shard with its sidecar against what the index says of it.

    Returns:
        The bytes checked, and the faults found.

    Raises:
        DatasetError: a file can't be opened, or is of a newer version.
    """
    path = folder / record.name
    checked, faults = _verify_pair(path, record)
    return checked, [replace(fault, file=str(Path(record.name).with_name(fault.file))) for fault in faults]


def _verify_pair(path: Path, record: ShardRecord) -> tuple[int, list[Fault]]:
    beside = sidecar_path(path)
    if not path.is_file():
        return 0, [Fault(file=path.name, what="are missing", offset=0, size=record.bytes)]
    if not beside.is_file():
        return _verify_alone(path, record, Fault(file=beside.name, what="are missing", offset=0, size=0))
    try:
        sidecar = read_sidecar(path, record.sidecar_crc32c)
    except DatasetError as error:
        what = _DIFFER if isinstance(error, CorruptError) else _lost(error.__cause__)
        if not what:
            raise
        fault = Fault(file=beside.name, what=what, offset=0, size=beside.stat().st_size)
        return _verify_alone(path, record, fault)
    checked, faults = verify_shard(path, sidecar)
    if record_of(record.name, sidecar, record.sidecar_crc32c) != record:
        what = f"hold other numbers of bytes, batches, rows or frames than {INDEX_NAME} says"
        faults.append(Fault(file=path.name, what=what, offset=0, size=sidecar.file_bytes))
    return checked, faults


def _verify_alone(path: Path, record: ShardRecord, fault: Fault) -> tuple[int, list[Fault]]:
    """Checks a shard whose sidecar is of no use: the one that its bytes give has to be the one that the index names."""
    try:
        encoded = rebuild_sidecar(path)[0].encode()
    except CorruptError:
        encoded = b""
    size = path.stat().st_size
    if int.from_bytes(encoded[-4:], "little") == record.sidecar_crc32c:
        return size, [fault]
    return size, [
        fault,
        Fault(file=path.name, what="hold something wrong, the sidecar would say where", offset=0, size=size),
    ]


def verify_shard(path: Path, sidecar: Sidecar) -> tuple[int, list[Fault]]:
    """Compares every checksum of one shard.

    Returns:
        The bytes checked, and the faults found.

    Raises:
        DatasetError: the shard can't be read at all.
    """
    reader = ShardReader(path, sidecar)
    faults, checked, actual = [], 0, reader.file_bytes
    stretches = list(_stretches(sidecar))
    if actual < sidecar.file_bytes:
        first = next(stretch for stretch in stretches if stretch.offset + stretch.size > actual)
        missing = _Stretch(actual, sidecar.file_bytes - actual, 0, first.batch, first.key, first.part)
        faults.append(missing.fault(path, "are missing: the shard is cut off"))
    elif actual > sidecar.file_bytes:
        behind = _Stretch(sidecar.file_bytes, actual - sidecar.file_bytes, 0)
        faults.append(behind.fault(path, "stand behind the shard's end"))
    buffer = np.empty(_BLOCK_BYTES, np.uint8)
    for stretch in stretches:
        if stretch.offset + stretch.size <= actual:
            checked += stretch.size
            try:
                if _range_crc(reader.descriptor, stretch.offset, stretch.size, buffer) != stretch.crc:
                    faults.append(stretch.fault(path))
            except OSError as error:
                if not _lost(error):
                    raise DatasetError(f"{path}: can't be read: {error.strerror}; check the disk") from error
                faults.append(stretch.fault(path, _lost(error)))
    if sidecar.pieces is not None and not faults:
        faults = _verify_decoded(reader, sidecar)
    return checked, faults


def _stretches(sidecar: Sidecar) -> Iterator[_Stretch]:
    """Every stretch with a checksum, in the order of the file; together they are the file."""
    owners: list[tuple[int | None, str | None]] = []
    columns = []
    pieces, table = sidecar.pieces, sidecar.table
    batches = range(len(table.batch_rows))
    if pieces is not None:
        owners += _owners_of_pieces(sidecar)
        columns.append((pieces.offset, pieces.size, pieces.crc))
    else:
        for key in table.keys:
            owners += [(batch, key) for batch in batches]
            columns.append((sidecar.offsets[key], table.array_bytes(key), sidecar.crcs[key]))
    owners += [(None, None)] * len(sidecar.regions.offset)
    columns.append((sidecar.regions.offset, sidecar.regions.size, sidecar.regions.crc))
    offset, size, crc = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.argsort(offset, kind="stable")
    following = _following([owners[place][0] for place in order], len(batches) - 1)
    for place, behind in zip(order.tolist(), following, strict=True):
        batch, key = owners[place]
        where = (int(offset[place]), int(size[place]), int(crc[place]))
        if batch is not None:
            yield _Stretch(*where, batch, key)
        elif sidecar.format == "tfrecord":
            yield _Stretch(*where, behind, part="its framing and row fields")
        else:
            yield _Stretch(*where, part="the header and tables")


def _following(batches: list[int | None], last: int) -> list[int]:
    """For each stretch the batch of the next one that has any: the one that framing in front of an array belongs to."""
    following = []
    for batch in reversed(batches):
        last = last if batch is None else batch
        following.append(last)
    return following[::-1]


def _owners_of_pieces(sidecar: Sidecar) -> list[tuple[int | None, str | None]]:
    """The batch of each piece, and its key if it holds one key's array alone."""
    assert sidecar.pieces is not None
    starts = sidecar.pieces.bounds[:-1]
    key_list = list(sidecar.table.keys)
    begins = np.stack([sidecar.offsets[key] for key in key_list], axis=1).reshape(-1)  # ascending: batch by batch
    found = np.searchsorted(begins, starts, side="right") - 1
    if sidecar.format == "tfrecord":
        return [(batch, None) for batch in range(len(starts))]
    return [(int(place) // len(key_list), key_list[int(place) % len(key_list)]) for place in found]


def _verify_decoded(reader: ShardReader, sidecar: Sidecar) -> list[Fault]:
    """Decodes every array of a shard whose stored bytes are right."""
    faults = []
    for batch in range(len(sidecar.table.batch_rows)):
        try:
            reader.batch(batch)
        except CorruptError as error:
            faults.append(
                Fault(
                    file=reader.path.name, what=f"don't decode: {error}", offset=0, size=reader.file_bytes, batch=batch
                )
            )
    return faults


def _range_crc(descriptor: int, offset: int, size: int, buffer: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> int:
    """CRC32C of a stretch, which lies inside the file."""
    crc, done = 0, 0
    while done < size:
        want = min(size - done, len(buffer))
        got = read_exactly(descriptor, buffer[:want], offset + done)
        crc = checksum(buffer[:got], crc)
        done += got
        if got < want:
            return crc ^ 0xFFFFFFFF  # it has been cut off just now: never equal by chance of an empty rest
    return crc
