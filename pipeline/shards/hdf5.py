"""HDF5 shards: one contiguous dataset per key, the batches back to back; tables of batches and rows beside them.

Where an axis of a key is ragged, its dataset holds units, the largest pieces that have one size in all batches.

h5py builds the skeleton and closes it; the bytes then go to their offsets through our own file layer, which is faster
and needs no lock. `libver="earliest"` gives the same skeleton in every h5py release.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from seqprep.errors import OutputError
from seqprep.shards.checksum import checksum
from seqprep.shards.storage import Storage, partial_path
from seqprep.shards.table import ShardTable
from seqprep.types import Array, Int64, UInt32

SUFFIX = ".h5"
VERSION = 1


def side_tables(table: ShardTable) -> dict[str, Array]:
    """The small datasets of a shard: /batches/… and /rows/… (/segments/… where rows are packed).

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
        small[f"batches/{key}.offset"] = table.units_before(key)[:-1]
    for key, frames in table.batch_frames.items():
        small[f"batches/{key}.frames"] = frames
    for key, sizes in table.batch_sizes.items():
        for axis, size in zip(table.keys[key].ragged, sizes.T, strict=True):
            small[f"batches/{key}.size{axis + 1}"] = size
    for field, values in table.fields.items():
        small[f"{entries}/{field.replace('/', '.')}"] = values
    small[f"{entries}/seq_tag"] = table.tags.data
    small[f"{entries}/seq_tag.end"] = table.tags.ends
    return small


class Hdf5Writer:
    """Writes one shard, batch by batch in any order, under its partial name.

    Args:
        path: the shard's final path.
        table: what it will hold.
        storage: the file layer.

    Raises:
        OutputError: the file can't be written.
    """

    def __init__(self, path: Path, table: ShardTable, storage: Storage) -> None:
        self.partial = partial_path(path)
        self._storage = storage
        small = side_tables(table)
        datasets = {name: (array.shape, array.dtype) for name, array in small.items()}
        for key, spec in table.keys.items():
            datasets[key] = ((int(table.units_before(key)[-1]), *spec.unit_shape), np.dtype(spec.dtype))
        places = _build_skeleton(self.partial, datasets)
        self.offsets: dict[str, Int64] = {
            key: places[key] + table.units_before(key)[:-1] * spec.nbytes for key, spec in table.keys.items()
        }
        self.crcs: dict[str, UInt32] = {key: np.zeros(len(table.batch_rows), np.uint32) for key in table.keys}
        self.descriptor = storage.open(self.partial, create=False)
        try:
            for name, array in small.items():
                storage.write(self.descriptor, [_plain(array)], places[name], self.partial)
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
            flat = _plain(array)
            self.crcs[key][batch] = checksum(flat)
            self._storage.write(self.descriptor, [flat], int(self.offsets[key][batch]), self.partial)


def _plain(array: Array) -> Array:
    """The array's bytes, little-endian, as a flat array."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)


def _build_skeleton(path: Path, datasets: Mapping[str, tuple[tuple[int, ...], np.dtype[np.generic]]]) -> dict[str, int]:
    """Makes the file with all its datasets allocated, and gives the file offset of each (0 for one without bytes)."""
    import h5py

    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    creation.set_layout(h5py.h5d.CONTIGUOUS)
    creation.set_obj_track_times(False)
    try:
        with h5py.File(path, "w", libver="earliest") as file:
            file.attrs["format"] = "seqprep"
            file.attrs["version"] = VERSION
            made = {
                name: file.create_dataset(name, shape, dtype.newbyteorder("<"), dcpl=creation.copy())
                for name, (shape, dtype) in datasets.items()
            }
            file.flush()
            return {name: int(dataset.id.get_offset() or 0) for name, dataset in made.items()}
    except OSError as error:
        raise OutputError(f"{path}: can't be written: {error}; check the folder's rights and space") from error
