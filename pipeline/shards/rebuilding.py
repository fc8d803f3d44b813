"""Makes sidecars again, and says what dataset they are of, from shards alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from seqprep.errors import CorruptError, DatasetError
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


_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError, RecursionError)
"""What comes of bytes that are taken at their word and aren't ours."""

_NAME = re.compile(r"shard-(\d{5,})-of-(\d{5,})\.[a-z0-9]+")


def find_shards(folder: Path) -> list[Path]:
    """The shards that a folder holds, in their order, whatever its index says.

    Raises:
        CorruptError: they are not all of one dataset, by their names.
    """
    named = ((path, _NAME.fullmatch(path.name)) for path in folder.glob("shard-*-of-*.*") if path.suffix in _LAYOUTS)
    found = sorted((int(name[1]), int(name[2]), path) for path, name in named if name)
    kinds = {(count, path.suffix) for _, count, path in found}
    if len(kinds) > 1:
        raise CorruptError(
            f"{folder}: holds shards of several datasets ({', '.join(sorted(f'{count} {end}' for count, end in kinds))}); "
            "move those of the others away"
        )
    return [path for _, _, path in found]


def shard_count(path: Path) -> int:
    """How many shards the dataset of a shard has, by its name."""
    name = _NAME.fullmatch(path.name)
    assert name is not None
    return int(name[2])


def dataset_of(path: Path) -> Index:
    """What a shard says of its dataset.

    Returns:
        The dataset's index, without shards.

    Raises:
        CorruptError: the shard is damaged beyond understanding.
    """
    return _layout(path)[1]


def _layout(path: Path) -> tuple[Sidecar, Index]:
    try:
        return _LAYOUTS[path.suffix](path)
    except _MALFORMED as error:
        raise _not_whole(path, error) from error


def _not_whole(path: Path, error: BaseException) -> CorruptError:
    return CorruptError(f"{path}: isn't a whole shard: {error or type(error).__name__}; seqprep repair makes it again")


def rebuild_sidecar(path: Path) -> tuple[Sidecar, Index]:
    """Describes a shard from its own bytes; equal to the sidecar that was written with it, if no byte has changed.

    Args:
        path: the shard.

    Returns:
        Its sidecar, and what it says of its dataset: an index without shards.

    Raises:
        CorruptError: the shard is damaged beyond understanding, or the disk gives no bytes for a part of it.
        DatasetError: it can't be opened, or is of a newer version.
    """
    layout, about = _layout(path)
    reader = ShardReader(path, layout)
    try:
        return _described(layout, reader), about
    except OSError as error:
        raise CorruptError(f"{path}: can't be read: {error.strerror}; check the disk") from error
    except DatasetError as error:
        if isinstance(error.__cause__, OSError):
            raise CorruptError(str(error)) from error
        raise
    except _MALFORMED as error:
        raise _not_whole(path, error) from error


def _described(layout: Sidecar, reader: ShardReader) -> Sidecar:
    """Adds the checksums, of all that is there."""
    table = layout.table
    if layout.pieces is None:  # an array of a size that was damaged is not even made room for
        for key in table.keys:
            sizes = table.array_bytes(key)
            if (sizes < 0).any() or (layout.offsets[key] + sizes > reader.file_bytes).any():
                raise ValueError(f"key {key!r} goes past its end")
    crcs: dict[str, UInt32] = {key: np.zeros(len(table.batch_rows), np.uint32) for key in table.keys}
    for batch in range(len(table.batch_rows)):
        for key, array in reader.batch(batch, verify=False).items():
            crcs[key][batch] = checksum(array)
    return describe_shard(reader.descriptor, replace(layout, crcs=crcs, pieces=_checked(layout, reader)))


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
