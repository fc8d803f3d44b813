"""Makes sidecars and indexes again, from shards alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from seqprep.errors import CorruptError
from seqprep.files import read_exactly
from seqprep.shards.checksum import checksum
from seqprep.shards.hdf5 import SUFFIX as HDF5_SUFFIX
from seqprep.shards.hdf5_layout import hdf5_layout
from seqprep.shards.index import Index
from seqprep.shards.reading import ShardReader
from seqprep.shards.sidecar import Pieces, Sidecar
from seqprep.shards.tfrecord import SUFFIX as TFRECORD_SUFFIX
from seqprep.shards.tfrecord_layout import tfrecord_layout
from seqprep.shards.writing import describe_shard
from seqprep.types import UInt32

_LAYOUTS: Mapping[str, Callable[[Path], tuple[Sidecar, Index]]] = {
    HDF5_SUFFIX: hdf5_layout,
    TFRECORD_SUFFIX: tfrecord_layout,
}


def rebuild_sidecar(path: Path) -> tuple[Sidecar, Index]:
    """Describes a shard from its own bytes; equal to the sidecar that was written with it, if no byte has changed.

    Args:
        path: the shard.

    Returns:
        Its sidecar, and what it says of its dataset: an index without shards.

    Raises:
        CorruptError: the shard is damaged beyond understanding.
        DatasetError: it can't be read.
    """
    layout, about = _LAYOUTS[path.suffix](path)
    reader = ShardReader(path, layout)
    crcs: dict[str, UInt32] = {key: np.zeros(len(layout.table.batch_rows), np.uint32) for key in layout.table.keys}
    for batch in range(len(layout.table.batch_rows)):
        for key, array in reader.batch(batch, verify=False).items():
            crcs[key][batch] = checksum(array)
    try:
        return describe_shard(reader.descriptor, replace(layout, crcs=crcs, pieces=_checked(layout, reader))), about
    except OSError as error:
        raise CorruptError(f"{path}: can't be read: {error.strerror}; check the disk") from error


def _checked(layout: Sidecar, reader: ShardReader) -> Pieces | None:
    pieces = layout.pieces
    if pieces is None:
        return None
    crcs = np.zeros(len(pieces.offset), np.uint32)
    for number, (offset, size) in enumerate(zip(pieces.offset.tolist(), pieces.size.tolist(), strict=True)):
        buffer = bytearray(size)
        read_exactly(reader.descriptor, buffer, offset)
        crcs[number] = checksum(buffer)
    return replace(pieces, crc=crcs)
