"""HDF5 shards: one contiguous dataset per key, the batches back to back; tables of batches and rows beside them.

Where an axis of a key is ragged, its dataset holds units, the largest pieces that have one size in all batches.

h5py builds the skeleton in memory and closes it; all bytes then go to their offsets through our own file layer, which is
faster and needs no lock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np

from seqprep.checksum import crc32c
from seqprep.shards.hdf5_file import Skeleton, create_dataset, new_file
from seqprep.shards.sidecar import Pieces
from seqprep.shards.storage import Storage, partial_path
from seqprep.shards.table import ShardTable
from seqprep.types import Array, Int64, UInt32, numpy_dtype, plain_bytes

SUFFIX = ".h5"


def side_tables(table: ShardTable, begins: Mapping[str, Int64], description: bytes) -> dict[str, Array]:
    """The small datasets of a shard: /batches/… and /rows/… (/segments/… where rows are packed).

    Args:
        table: what the shard holds.
        begins: for each key, int64 [batches]: where each batch begins in the key's dataset.
        description: of the dataset, JSON.

    Returns:
        Path in the file to array.
    """
    small: dict[str, Array] = {"batches/rows": table.batch_rows}
    entries = "rows"
    if table.batch_segments is None:
        small["batches/first_row"] = table.bounds[:-1]
    else:
        entries = "segments"
        small |= {"batches/segments": table.batch_segments, "batches/first_segment": table.bounds[:-1]}
    for key in table.keys:
        small[f"batches/{key}.offset"] = begins[key]
    for key, frames in table.batch_frames.items():
        small[f"batches/{key}.frames"] = frames
    for key, sizes in table.batch_sizes.items():
        for axis, size in zip(table.keys[key].ragged, sizes.T, strict=True):
            small[f"batches/{key}.size{axis + 1}"] = size
    for field, values in table.fields.items():
        small[f"{entries}/{field.replace('/', '.')}"] = values
    small[f"{entries}/seq_tag"] = table.tags.data
    small[f"{entries}/seq_tag.end"] = table.tags.ends
    names = json.dumps(list(table.fields), separators=(",", ":")).encode()
    small[f"{entries}/fields"] = np.frombuffer(names, np.uint8)
    small["batches/dataset"] = np.frombuffer(description, np.uint8)
    return small


class Hdf5Writer:
    """Writes one shard, batch by batch in any order, under its partial name.

    Args:
        path: the shard's final path.
        table: what it will hold.
        storage: the file layer.
        description: of the dataset, JSON.

    Raises:
        OutputError: the file can't be written.
    """

    pieces: Pieces | None = None
    gaps: list[int] | None = None

    def __init__(self, path: Path, table: ShardTable, storage: Storage, description: bytes) -> None:
        self.partial = partial_path(path)
        self._storage = storage
        begins = {key: table.units_before(key) for key in table.keys}
        small, datasets = _datasets(table, begins, description)
        self.crcs: dict[str, UInt32] = {key: np.zeros(len(table.batch_rows), np.uint32) for key in table.keys}
        skeleton = Skeleton()
        places = _build(skeleton, datasets)
        for name, array in small.items():
            skeleton.put(places[name], plain_bytes(array))
        self.offsets: dict[str, Int64] = {
            key: places[key] + begins[key][:-1] * spec.nbytes for key, spec in table.keys.items()
        }
        self.descriptor = storage.open(self.partial)
        try:
            for offset, data in skeleton.runs():
                storage.write(self.descriptor, [data], offset, self.partial)
            storage.truncate(self.descriptor, skeleton.size, self.partial)
        except BaseException:
            storage.discard(self.descriptor, self.partial)
            raise

    def write(self, batch: int, arrays: Mapping[str, Array]) -> None:
        """Writes one batch.

        Args:
            batch: its number in the shard.
            arrays: for each key, its C-contiguous array.

        Raises:
            OutputError: the file can't be written.
        """
        for key, array in arrays.items():
            flat = plain_bytes(array)
            self.crcs[key][batch] = crc32c(flat)
            self._storage.write(self.descriptor, [flat], int(self.offsets[key][batch]), self.partial)

    def finish(self) -> None:
        """Everything is written."""

    def abandon(self) -> None:
        """Nothing is open but the descriptor."""


_Datasets = dict[str, tuple[tuple[int, ...], str]]
"""From the path in the file to shape and dtype."""


def _datasets(table: ShardTable, begins: Mapping[str, Int64], description: bytes) -> tuple[dict[str, Array], _Datasets]:
    """The small datasets, and the shape and dtype of all of them; `begins` has each key's total at its end."""
    small = side_tables(table, {key: places[:-1] for key, places in begins.items()}, description)
    datasets = {name: (array.shape, array.dtype.name) for name, array in small.items()}
    for key, spec in table.keys.items():
        datasets[key] = ((int(begins[key][-1]), *spec.unit_shape), spec.dtype)
    return small, datasets


def hdf5_bytes(table: ShardTable, description: bytes) -> int:
    """Bytes of the uncompressed file that holds a table: those of its datasets, and what the same file has without them.

    Args:
        table: what the shard holds; of the tags, the sizes alone matter.
        description: of the dataset, JSON; its size alone matters.
    """
    _, datasets = _datasets(table, {key: table.units_before(key) for key in table.keys}, description)
    payload = sum(math.prod(shape) * numpy_dtype(dtype).itemsize for shape, dtype in datasets.values())
    return payload + _skeleton_bytes(tuple((name, len(shape), dtype) for name, (shape, dtype) in datasets.items()))


@lru_cache(64)
def _skeleton_bytes(datasets: tuple[tuple[str, int, str], ...]) -> int:
    """Bytes of a file whose datasets, of these names, numbers of axes and dtypes, are empty."""
    skeleton = Skeleton()
    _build(skeleton, {name: ((0,) * axes, dtype) for name, axes, dtype in datasets})
    return skeleton.size


def _build(skeleton: Skeleton, datasets: _Datasets) -> dict[str, int]:
    """Makes the file with all its datasets allocated, and gives the file offset of each (0 for one without bytes)."""
    with new_file(skeleton) as file:
        made = {name: create_dataset(file, name, shape, dtype) for name, (shape, dtype) in datasets.items()}
        file.flush()
        return {name: int(dataset.id.get_offset() or 0) for name, dataset in made.items()}
