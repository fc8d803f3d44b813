"""How many bytes a shard will have, from what it will hold: without its arrays, and for TFRecord in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seqprep.shards.hdf5 import hdf5_bytes
from seqprep.shards.table import ShardTable, describe_shard_of
from seqprep.shards.tfrecord import DESCRIPTION, MAX_RECORD_BYTES, TAGS, check_record
from seqprep.types import TENSOR_DTYPES, Int64

_FRAMING_BYTES = 16
"""Of a record: its length (8), and two checksums of 4."""


def shard_bytes(path: Path, format: str, table: ShardTable, description: bytes) -> int:
    """Bytes of the file that `write_shard` makes without compression.

    Args:
        path: the shard's path, for messages.
        format: hdf5 or tfrecord.
        table: what it holds; of its tags, the sizes alone matter.
        description: of the dataset, from `Index.describe`.

    Raises:
        OutputError: a batch is larger than a TFRecord can be.
    """
    description = describe_shard_of(description, table)
    if format == "hdf5":
        return hdf5_bytes(table, description)
    messages = message_bytes(table, len(description))
    for batch in np.flatnonzero(messages > MAX_RECORD_BYTES)[:1].tolist():
        check_record(path, batch, int(messages[batch]))
    return int(messages.sum()) + _FRAMING_BYTES * len(messages)


def message_bytes(table: ShardTable, description_bytes: int) -> Int64:
    """Bytes of each batch's message (tf.train.Example); int64 [batches].

    What stands in front of every piece of a message is its size as a varint, so a size follows from those of the pieces
    within, as in `tensor_head` and `bytes_feature`.

    Args:
        table: what the shard holds.
        description_bytes: of the dataset; the first record holds it.
    """
    entries = table.batch_entries
    total = np.zeros(len(entries), np.int64)
    for name, values in table.fields.items():
        per_entry = values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))
        total += _tensor(name, values.dtype.name, [entries, *values.shape[1:]], entries * per_entry)
    for name, spec in table.keys.items():
        sizes = iter(table.batch_sizes[name].T if spec.ragged else ())
        fronts = [table.batch_rows, table.batch_frames[name]] if spec.has_time else [entries]
        axes = [next(sizes) if size is None else size for size in spec.shape]
        total += _tensor(name, spec.dtype, [*fronts, *axes], table.array_bytes(name))
    tags = np.concatenate([np.zeros(1, np.int64), np.cumsum(_field(table.tags.sizes))])
    total += _feature(TAGS, np.diff(tags[table.bounds]))
    if description_bytes:
        total[:1] += _feature(DESCRIPTION, _field(np.array([description_bytes])))
    return _field(total)


def _tensor(name: str, dtype: str, shape: Sequence[Int64 | int], size: Int64) -> Int64:
    """Bytes of features that are tensors: of these shapes, and of so many bytes; int64 [batches]."""
    dims = np.zeros(len(size), np.int64)
    for extent in shape:
        dims += _field(1 + _varint(np.asarray(extent, np.int64)))
    tensor = 1 + _varint(np.array(TENSOR_DTYPES[dtype])) + _field(dims) + _field(size)
    return _feature(name, _field(tensor))


def _feature(name: str, values: Int64) -> Int64:
    """Bytes of features whose bytes_list takes so many; int64 [batches]."""
    entry = _field(np.array(len(name.encode()))) + _field(_field(values))
    return _field(entry)


def _field(size: Int64) -> Int64:
    """Bytes of fields that are length-delimited, with their heads."""
    return 1 + _varint(size) + size


def _varint(values: Int64) -> Int64:
    """Bytes of numbers as varints: 7 bits in each."""
    length = np.ones(values.shape, np.int64)
    most = int(values.max(initial=0))
    while most > 0x7F:
        values = values >> 7
        length += values > 0
        most >>= 7
    return length
