"""TFRecord shards: one `tf.train.Example` per batch, each array a serialized TensorProto, without TensorFlow.

The few protobuf messages are framed here by hand, so that arrays go to disk without being copied. Field numbers are
those of tensorflow/core/example/{example,feature}.proto and tensorflow/core/framework/{tensor,tensor_shape}.proto; the
record format is that of tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.errors import OutputError
from seqprep.shards.checksum import crc32c, masked
from seqprep.shards.codecs import codec_for
from seqprep.shards.pieces import PieceList
from seqprep.shards.sidecar import Pieces
from seqprep.shards.storage import Storage, partial_path
from seqprep.shards.table import ShardTable
from seqprep.types import TENSOR_DTYPES, Array, Int64, Tags, UInt32, plain_bytes

SUFFIX = ".tfrecord"
MAX_RECORD_BYTES = (1 << 31) - 1
"""Protobuf's bound on one message."""

TAGS, DESCRIPTION = "seq_tag", "seqprep"
"""Features that are lists of byte strings: each row's tag, and in the first record what the dataset is."""
_FIELDS_AHEAD = 16


@lru_cache(1 << 12)
def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _delimited(field: int, size: int) -> bytes:
    """The head of a length-delimited field (a message, a string, bytes)."""
    return _varint(field << 3 | 2) + _varint(size)


@lru_cache(1 << 12)  # most batches of a dataset have one shape
def tensor_head(name: str, dtype: str, shape: tuple[int, ...], size: int) -> bytes:
    """Everything of a feature that stands in front of its array's bytes.

    Args:
        name: of the feature.
        dtype: of the array.
        shape: of the array.
        size: bytes of the array.
    """
    dims = b"".join(_delimited(2, len(dim)) + dim for dim in (b"\x08" + _varint(extent) for extent in shape))
    tensor = b"\x08" + _varint(TENSOR_DTYPES[dtype]) + _delimited(2, len(dims)) + dims + _delimited(4, size)
    return _feature_head(name, _delimited(1, len(tensor) + size) + tensor, size)


def bytes_feature(name: str, values: Iterable[bytes]) -> bytes:
    """A whole feature that is a list of byte strings."""
    return _feature_head(name, b"".join(map(_listed, values)), 0)


def _feature_head(name: str, head: bytes, size: int) -> bytes:
    """Wraps a bytes_list (`head`, then `size` bytes that follow) as Features.feature[name]."""
    encoded = name.encode()
    head = _delimited(1, len(head) + size) + head  # Feature.bytes_list
    head = _delimited(1, len(encoded)) + encoded + _delimited(2, len(head) + size) + head  # the map's entry
    return _delimited(1, len(head) + size) + head  # Features.feature


def _listed(value: bytes) -> bytes:
    """A byte string as an entry of a bytes_list."""
    return b"\x0a" + _varint(len(value)) + value


def _listed_tags(tags: Tags) -> Tags:
    """The same of all tags at once: the key of the entry, the size in groups of 7 bits, the lowest first, the tag."""
    sizes = tags.sizes
    groups = np.ones(len(sizes), np.int64)
    for shift in range(7, 64, 7):
        groups += sizes >> shift > 0
    ends = np.cumsum(1 + groups + sizes)
    starts = ends - sizes - groups - 1
    data = np.full(int(ends[-1]) if len(ends) else 0, 0x0A, np.uint8)
    for group in range(int(groups.max(initial=0))):
        some = np.flatnonzero(groups > group)
        more = np.where(groups[some] > group + 1, 0x80, 0)
        data[starts[some] + 1 + group] = sizes[some] >> 7 * group & 0x7F | more
    data[np.arange(len(tags.data)) + np.repeat(ends - tags.ends, sizes)] = tags.data
    return Tags(data, ends)


def _column(name: str, values: Array) -> tuple[str, str, tuple[int, ...], int, memoryview]:
    """A field of all rows: name, dtype, and of each row shape, bytes; all rows' bytes."""
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    nbytes = little.itemsize * int(np.prod(little.shape[1:], dtype=np.int64))
    return name, values.dtype.name, values.shape[1:], nbytes, memoryview(little.tobytes())


def check_record(path: Path, batch: int, size: int) -> None:
    """Refuses a record that is larger than one can be.

    Args:
        path: of the shard.
        batch: its number in the shard.
        size: bytes of its message.

    Raises:
        OutputError: it is too large.
    """
    if size > MAX_RECORD_BYTES:
        raise OutputError(
            f"{path}: batch {batch} has {size} bytes, more than a TFRecord can hold ({MAX_RECORD_BYTES}); "
            "lower batch.max_frames or batch.max_sequences, or use output.format hdf5"
        )


class TfRecordWriter:
    """Writes one shard, batch by batch in order, under its partial name.

    Args:
        path: the shard's final path.
        table: what it will hold.
        storage: the file layer.
        description: of the dataset, JSON; the first record holds it.
        compression: none, or gzip: each record becomes a gzip member, and the file one gzip file.

    Raises:
        OutputError: the file can't be written.
    """

    def __init__(
        self, path: Path, table: ShardTable, storage: Storage, description: bytes, compression: str = "none"
    ) -> None:
        self.partial = partial_path(path)
        self._table, self._storage, self._description = table, storage, description
        self._position = 0  # in the stream of records, which is the file unless it is compressed
        self._members = PieceList(codec_for(compression, "tfrecord"), compression) if compression != "none" else None
        batches = len(table.batch_rows)
        self.offsets: dict[str, Int64] = {key: np.zeros(batches, np.int64) for key in table.keys}
        self.crcs: dict[str, UInt32] = {key: np.zeros(batches, np.uint32) for key in table.keys}
        self._bounds: list[int] = table.bounds.tolist()
        self._columns = [_column(name, values) for name, values in table.fields.items()]
        self._tags = _listed_tags(table.tags)
        self._fields_ahead: list[bytes] = []  # of the next batches, the next one last
        self._gap, self._gaps = 0, list[int]()  # CRC of the bytes since the last array, and those of finished gaps
        self.descriptor = storage.open(self.partial)

    def write(self, batch: int, arrays: Mapping[str, Array]) -> None:
        """Writes one batch; batches come in order.

        Args:
            batch: its number in the shard.
            arrays: for each key, its C-contiguous array.

        Raises:
            OutputError: the file can't be written, or the batch is larger than a record can be.
        """
        framed: list[tuple[bytes, Array, int]] = []  # of each array: what stands in front of it, its bytes, their CRC
        if not self._fields_ahead:  # for some batches at once, as long as the processor's cache holds what it takes
            ahead = range(batch, min(batch + _FIELDS_AHEAD, len(self._bounds) - 1))
            self._fields_ahead = [self._fields(number) for number in reversed(ahead)]
        fields, places = self._fields_ahead.pop(), []
        size = len(fields)
        for key, array in arrays.items():
            flat = plain_bytes(array)
            head = tensor_head(key, self._table.keys[key].dtype, array.shape, len(flat))
            places.append(size + len(head))
            framed.append((head, flat, crc32c(flat)))
            size += len(head) + len(flat)
        features = _delimited(1, size)  # Example.features
        length = len(features) + size
        check_record(self.partial, batch, length)
        count = length.to_bytes(8, "little")
        front = count + masked(crc32c(count)).to_bytes(4, "little")
        crc = masked(self._record_crc(front, features + fields, framed)).to_bytes(4, "little")
        for key, place, (_, _, own) in zip(arrays, places, framed, strict=True):
            self.offsets[key][batch] = self._position + len(front) + len(features) + place
            self.crcs[key][batch] = own
        self._gap = crc32c(crc, self._gap)
        self._put([front, features, fields, *(part for head, flat, _ in framed for part in (head, flat)), crc])

    def _record_crc(self, front: bytes, message: bytes, framed: Sequence[tuple[bytes, Array, int]]) -> int:
        """CRC of a record's message; keeps those of the bytes between arrays."""
        crc, gap = crc32c(message), crc32c(message, crc32c(front, self._gap))
        for head, flat, _ in framed:
            crc, gap = crc32c(flat, crc32c(head, crc)), crc32c(head, gap)
            if len(flat):
                self._gaps.append(gap)
                gap = 0
        self._gap = gap
        return crc

    def _put(self, parts: Sequence[Any]) -> None:
        """Writes a record behind those before."""
        if self._members is None:
            self._position += self._storage.write(self.descriptor, parts, self._position, self.partial)
        else:
            member, offset = self._members.encode(parts), self._members.end
            self._storage.write(self.descriptor, [member], offset, self.partial)
            self._members.note(member, offset, sum(len(part) for part in parts))
            self._position = self._members.decoded_bytes

    @property
    def gaps(self) -> list[int] | None:
        """CRCs of the bytes between arrays; None if these aren't in the file as they are."""
        return [*self._gaps, self._gap] if self._members is None else None

    @property
    def pieces(self) -> Pieces | None:
        """The gzip members."""
        return self._members.pieces if self._members else None

    def finish(self) -> None:
        """Everything is written."""

    def abandon(self) -> None:
        """Nothing is open but the descriptor."""

    def _fields(self, batch: int) -> bytes:
        """The features that are small: fields of the rows, and tags."""
        begin, end = self._bounds[batch], self._bounds[batch + 1]
        parts: list[bytes | memoryview] = []
        for name, dtype, shape, nbytes, data in self._columns:
            size = (end - begin) * nbytes
            parts += [tensor_head(name, dtype, (end - begin, *shape), size), data[begin * nbytes : end * nbytes]]
        if batch == 0 and self._description:
            parts.append(bytes_feature(DESCRIPTION, [self._description]))
        tags = self._tags.stretch(begin, end).data.tobytes()
        return b"".join([*parts, _feature_head(TAGS, tags, 0)])
