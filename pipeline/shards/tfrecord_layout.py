"""Finds out from a TFRecord shard alone what it holds and where, by the few protobuf messages that tfrecord.py writes."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.errors import CorruptError
from seqprep.files import read_exactly
from seqprep.shards.checksum import checksum, masked
from seqprep.shards.index import Index, parse_description
from seqprep.shards.sidecar import NO_REGIONS, Pieces, Sidecar
from seqprep.shards.table import ShardTable, parse_numbers
from seqprep.shards.tfrecord import DESCRIPTION, TAGS
from seqprep.types import TENSOR_DTYPES, Array, Tags, numpy_dtype

_DTYPE_NAMES = {number: name for name, number in TENSOR_DTYPES.items()}
_BLOCK_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class _Tensor:
    dtype: str
    shape: tuple[int, ...]
    begin: int
    """Where its bytes begin in the record's Example."""
    end: int


@dataclass
class _Record:
    """One batch, parsed."""

    tensors: dict[str, _Tensor] = field(default_factory=dict)
    lists: dict[str, list[bytes]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Member:
    """A gzip member."""

    offset: int
    size: int
    decoded: bytes


def tfrecord_layout(path: Path) -> tuple[Sidecar, Index]:
    """Describes a shard, the checksums of its arrays left at 0; those that the records carry are compared.

    Returns:
        What its sidecar holds, but for checksums, regions and size; and its dataset's index, without shards.

    Raises:
        CorruptError: it is no whole shard of ours; names the record and its bytes.
    """
    reading = _Reading(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.pread(descriptor, 2, 0) == _GZIP_MAGIC:
                reading.read_members(descriptor)
            else:
                reading.read_records(descriptor)
        finally:
            os.close(descriptor)
        return reading.result()
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise CorruptError(
            f"{path}: record {reading.records} can't be understood: {error}; seqprep repair makes the shard again"
        ) from error


class _Reading:
    """Collects what the records of a shard hold."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.records = 0
        self._members: list[tuple[int, int, int]] = []
        self._about: Index | None = None
        self._numbers: dict[str, int] = {}
        self._segments: list[int] = []
        self._sizes: dict[str, list[tuple[int, ...]]] = {}
        self._rows: list[int] = []
        self._frames: dict[str, list[int]] = {}
        self._offsets: dict[str, list[int]] = {}
        self._fields: dict[str, list[Array]] = {}
        self._tags: list[bytes] = []

    def read_records(self, descriptor: int) -> None:
        position, size = 0, os.fstat(descriptor).st_size
        while position < size:
            head = bytearray(12)
            read_exactly(descriptor, head, position)
            length = self._length(head, position)
            record = bytearray(12 + length + 4)
            if position + len(record) > size or read_exactly(descriptor, record, position) < len(record):
                raise ValueError(f"the shard ends inside it, at byte {size}")
            self._take(record, position)
            position += len(record)

    def read_members(self, descriptor: int) -> None:
        position = 0
        for member in _gzip_members(descriptor):
            self._members.append((member.offset, member.size, len(member.decoded)))
            if self._length(member.decoded[:12], member.offset) + 16 != len(member.decoded):
                raise ValueError(f"the gzip member at byte {member.offset} isn't one record")
            self._take(member.decoded, position)
            position += len(member.decoded)

    def _length(self, head: bytes | bytearray, position: int) -> int:
        if masked(checksum(head[:8])).to_bytes(4, "little") != head[8:12]:
            raise ValueError(f"its length differs from its checksum at bytes {position} to {position + 12}")
        return int.from_bytes(head[:8], "little")

    def _take(self, record: bytes | bytearray, position: int) -> None:
        """Parses a record that begins at a position of the stream."""
        data = memoryview(record)[12:-4]
        if masked(checksum(data)).to_bytes(4, "little") != record[-4:]:
            raise ValueError(f"its data differ from their checksum at bytes {position} to {position + len(record)}")
        parsed = _parse_example(data)
        if self._about is None:
            self._about = parse_description(parsed.lists[DESCRIPTION][0], self._path)
            self._numbers = parse_numbers(parsed.lists[DESCRIPTION][0])
        for name, tensor in parsed.tensors.items():
            if name in self._about.keys:
                self._take_key(name, tensor, position + 12)
            else:
                values = np.frombuffer(data[tensor.begin : tensor.end], numpy_dtype(tensor.dtype).newbyteorder("<"))
                self._fields.setdefault(name, []).append(values.reshape(tensor.shape).copy())
        if "segment_row" in parsed.tensors:
            self._segments.append(len(parsed.lists[TAGS]))
        self._tags += parsed.lists[TAGS]
        self.records += 1

    def _take_key(self, name: str, tensor: _Tensor, position: int) -> None:
        spec = self._about.keys[name]  # type: ignore[union-attr]
        axes = 1 + spec.has_time
        own = tensor.shape[axes:]
        fits = len(own) == len(spec.shape) and all(
            due in (None, size) for due, size in zip(spec.shape, own, strict=True)
        )
        if tensor.dtype != spec.dtype or not fits or len(tensor.shape) < axes:
            raise ValueError(f"key {name!r} is {tensor.dtype} {list(tensor.shape)}, which isn't what the dataset holds")
        self._offsets.setdefault(name, []).append(position + tensor.begin)
        if not spec.has_time:
            return
        self._frames.setdefault(name, []).append(tensor.shape[1])
        if spec.ragged:
            self._sizes.setdefault(name, []).append(tuple(own[axis] for axis in spec.ragged))
        if len(self._rows) == self.records:
            self._rows.append(tensor.shape[0])

    def result(self) -> tuple[Sidecar, Index]:
        if self._about is None:
            raise ValueError("the shard holds no record")
        about = self._about
        table = ShardTable(
            keys=about.keys,
            batch_rows=np.array(self._rows, np.int64),
            batch_frames={
                key: np.array(self._frames[key], np.int64) for key, spec in about.keys.items() if spec.has_time
            },
            batch_sizes={key: np.array(self._sizes[key], np.int64) for key, spec in about.keys.items() if spec.ragged},
            fields={name: np.concatenate(parts) for name, parts in self._fields.items()},
            tags=Tags.of(self._tags),
            batch_segments=np.array(self._segments, np.int64) if self._segments else None,
            **self._numbers,
        )
        offsets = {key: np.array(self._offsets[key], np.int64) for key in about.keys}
        crcs = {key: np.zeros(self.records, np.uint32) for key in about.keys}
        pieces = None
        if self._members:
            pieces = Pieces.of("gzip", self._members)
        return Sidecar("tfrecord", 0, about.fingerprint, table, offsets, crcs, NO_REGIONS, pieces), about


def _gzip_members(descriptor: int) -> Iterator[_Member]:
    """Decodes a gzip file member by member.

    Raises:
        ValueError: it isn't one, or is cut off.
    """
    begin = position = 0
    block = b""
    while True:
        decompressor, parts = zlib.decompressobj(31), []
        while not decompressor.eof:
            if not block:
                block = os.pread(descriptor, _BLOCK_BYTES, position)
                position += len(block)
            if not block:
                if begin == position:
                    return
                raise ValueError(f"the gzip member at byte {begin} is cut off")
            try:
                parts.append(decompressor.decompress(block))
            except zlib.error as error:
                raise ValueError(f"the gzip member at byte {begin} can't be decompressed: {error}") from error
            block = decompressor.unused_data
        end = position - len(block)
        yield _Member(begin, end - begin, b"".join(parts))
        begin = end


def _parse_example(data: memoryview) -> _Record:
    """Parses a tf.train.Example whose features are bytes lists: serialized tensors, or lists of byte strings."""
    record = _Record()
    for _, begin, end in _fields(data, 0, len(data), wanted=1):  # Example.features
        for _, entry, entry_end in _fields(data, begin, end, wanted=1):  # Features.feature
            parts = {number: (start, stop) for number, start, stop in _fields(data, entry, entry_end)}
            name = bytes(data[slice(*parts[1])]).decode()
            values = [
                (start, stop)
                for _, inner, inner_end in _fields(data, *parts[2], wanted=1)  # Feature.bytes_list
                for _, start, stop in _fields(data, inner, inner_end, wanted=1)
            ]
            if name in (TAGS, DESCRIPTION):
                record.lists[name] = [bytes(data[start:stop]) for start, stop in values]
            else:
                record.tensors[name] = _parse_tensor(data, *values[0])
    return record


def _parse_tensor(data: memoryview, begin: int, end: int) -> _Tensor:
    """Parses a TensorProto with tensor_content."""
    dtype, shape, content = "", [], (end, end)
    for number, start, stop in _fields(data, begin, end):
        if number == 1:
            dtype = _DTYPE_NAMES[start]
        elif number == 2:
            for _, dim, dim_end in _fields(data, start, stop, wanted=2):
                shape.append(next((size for number, size, _ in _fields(data, dim, dim_end) if number == 1), 0))
        elif number == 4:
            content = (start, stop)
    tensor = _Tensor(dtype, tuple(shape), *content)
    if tensor.end - tensor.begin != numpy_dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64)):
        raise ValueError(f"a tensor of {tensor.end - tensor.begin} bytes is said to be {dtype} {shape}")
    return tensor


def _fields(data: Any, begin: int, end: int, wanted: int | None = None) -> Iterator[tuple[int, int, int]]:
    """The fields of a message: number, and begin and end of its bytes; of a varint, its value twice.

    Raises:
        ValueError: it isn't a message, or a field goes past its end.
    """
    position = begin
    while position < end:
        tag, position = _varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        value, position = _varint(data, position, end)
        start, stop = (position, position + value) if kind == 2 else (value, value)
        if kind not in (0, 2) or (kind == 2 and stop > end):
            raise ValueError(f"field {number} at byte {position} of the record is damaged")
        if kind == 2:
            position = stop
        if wanted is None or number == wanted:
            yield number, start, stop


def _varint(data: Any, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise ValueError(f"a number at byte {position} of the record doesn't end")
