"""HDF5 files whose every byte goes through our own file layer: h5py writes into an object that hands on to it.

So that the disk's errors are ours, and come once: HDF5 can't close a file that it can't write, and complains about it
until the process ends. What goes wrong is therefore kept from it, and raised when it is done.
"""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.files import read_exactly
from seqprep.shards.storage import Storage
from seqprep.types import Array, numpy_dtype

VERSION = 1


class _PythonFile:
    """What h5py's driver for Python objects wants of a file."""

    size = 0
    _position = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Sets the position, counted from the start, from itself, or from the end."""
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        return self._position

    def tell(self) -> int:
        """Gives the position."""
        return self._position

    def write(self, data: Any) -> int:
        """Writes at the position."""
        size = len(data)
        self._write(self._position, data)
        self._position += size
        self.size = max(self.size, self._position)
        return size

    def readinto(self, buffer: Any) -> int:
        """Reads at the position; what was never written reads as zeros."""
        view = memoryview(buffer).cast("B")
        view[:] = bytes(len(view))
        self._read(self._position, view)
        self._position += len(view)
        return len(view)

    def read(self, size: int) -> bytes:
        """Reads at the position."""
        data = bytearray(size)
        self.readinto(data)
        return bytes(data)

    def truncate(self, size: int | None = None) -> int:
        """Sets the file's size."""
        self.size = self._position if size is None else size
        self._truncate(self.size)
        return self.size

    def flush(self) -> None:
        """Nothing is kept back."""

    def check(self) -> None:
        """Raises what went wrong."""

    def _write(self, offset: int, data: Any) -> None:
        raise NotImplementedError

    def _read(self, offset: int, view: memoryview) -> None:
        raise NotImplementedError

    def _truncate(self, size: int) -> None:
        """Nothing, unless there is a file."""


class StorageFile(_PythonFile):
    """A file on the disk.

    Args:
        storage: the file layer.
        descriptor: of the file, empty and open for writing.
        path: of the file.
    """

    def __init__(self, storage: Storage, descriptor: int, path: Path) -> None:
        self._storage, self._descriptor, self._path = storage, descriptor, path
        self.error: BaseException | None = None

    def check(self) -> None:
        """Raises what went wrong, once.

        Raises:
            OutputError: something could not be written.
        """
        error, self.error = self.error, None
        if error is not None:
            raise error

    def _write(self, offset: int, data: Any) -> None:
        try:
            if self.error is None:
                self._storage.write(self._descriptor, [data], offset, self._path)
        except BaseException as error:  # noqa: BLE001  # Ctrl-C as well: raised by `check`
            self.error = error

    def _read(self, offset: int, view: memoryview) -> None:
        read_exactly(self._descriptor, view, offset)

    def _truncate(self, size: int) -> None:
        try:
            if self.error is None:
                self._storage.truncate(self._descriptor, size, self._path)
        except BaseException as error:  # noqa: BLE001
            self.error = error


class Skeleton(_PythonFile):
    """A file in memory, of which only what is written takes room."""

    def __init__(self) -> None:
        self._written: list[tuple[int, bytes]] = []

    def put(self, offset: int, data: Array) -> None:
        """Writes bytes at an offset."""
        if len(data):
            self._write(offset, data)

    def runs(self) -> list[tuple[int, bytearray]]:
        """What is written, in stretches that don't touch: offset and bytes, ascending."""
        runs: list[tuple[int, bytearray]] = []
        for offset, data in sorted(self._written, key=lambda entry: entry[0]):
            if not runs or offset > runs[-1][0] + len(runs[-1][1]):
                runs.append((offset, bytearray()))
            begin, held = runs[-1]
            held.extend(bytes(max(offset + len(data) - begin - len(held), 0)))
        begins = [begin for begin, _ in runs]
        for offset, data in self._written:  # the later write wins
            begin, held = runs[bisect_right(begins, offset) - 1]
            held[offset - begin : offset - begin + len(data)] = data
        return runs

    def _write(self, offset: int, data: Any) -> None:
        self._written.append((offset, bytes(data)))

    def _read(self, offset: int, view: memoryview) -> None:
        for begin, data in self._written:
            first, last = max(begin, offset), min(begin + len(data), offset + len(view))
            if first < last:
                view[first - offset : last - offset] = data[first - begin : last - begin]


@contextmanager
def new_file(target: StorageFile | Skeleton) -> Iterator[Any]:
    """Makes an HDF5 file that says what it is; `libver="earliest"` gives equal bytes in every h5py release.

    Raises:
        OutputError: it can't be written.
    """
    import h5py

    with h5py.File(target, "w", libver="earliest") as file:
        file.attrs["format"] = "seqprep"
        file.attrs["version"] = VERSION
        yield file
    target.check()


def create_dataset(
    file: Any,
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    *,
    chunk: int = 0,
    compression: str = "none",
    level: int = 0,
) -> Any:
    """Makes a dataset in a new file, without a time stamp, and with its place in the file if it is contiguous.

    Args:
        file: of h5py.
        name: path in the file.
        shape: of the dataset.
        dtype: numpy's name of it, or bfloat16, which is stored as uint16 with an attribute.
        chunk: rows of a chunk; 0 for a contiguous dataset.
        compression: filter of the chunks.
        level: of the filter.
    """
    import h5py

    if chunk:
        creation = _filtered(compression, level)
        creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        creation.set_obj_track_times(False)
        creation.set_chunk((chunk, *shape[1:]))
    else:
        creation = _contiguous()
    stored = np.dtype(np.uint16) if dtype == "bfloat16" else numpy_dtype(dtype)
    kind, space = h5py.h5t.py_create(stored.newbyteorder("<")), h5py.h5s.create_simple(shape)
    made = h5py.h5d.create(file.id, name.encode(), kind, space, creation, _linked())  # a third of h5py's own time
    dataset = h5py.Dataset(made)
    if dtype == "bfloat16":
        dataset.attrs["dtype"] = dtype
    return dataset


@cache
def _contiguous() -> Any:
    """The properties of contiguous datasets."""
    import h5py

    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    creation.set_obj_track_times(False)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_layout(h5py.h5d.CONTIGUOUS)
    return creation


@cache
def _linked() -> Any:
    """The properties of links: groups on the way are made, too."""
    import h5py

    properties = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    properties.set_create_intermediate_group(True)
    return properties


def write_chunk(dataset: Any, frame: int, encoded: bytes) -> int:
    """Writes one chunk of a dataset as it is, and gives where it went in the file.

    Args:
        dataset: of h5py, chunked along its first axis alone.
        frame: the chunk's first.
        encoded: what the dataset's filter made of it.
    """
    from h5py._objects import phil  # before 3.16, h5py forgets its lock in write_direct_chunk

    place = (frame, *(0 for _ in dataset.shape[1:]))
    with phil:
        dataset.id.write_direct_chunk(place, encoded)
        return int(dataset.id.get_chunk_info_by_coord(place).byte_offset)


_ZSTD_FILTER = 32015
"""The number that is registered for Zstandard with HDF5, and what the package hdf5plugin reads."""


def _filtered(compression: str, level: int) -> Any:
    """Makes a property list with one filter, and with a name of our own choice for it.

    HDF5 stores a filter's name with the dataset, but takes it from the plugin that is loaded, if one is, so that the
    file would depend on what else the process has imported. A name that comes from a file is kept; hence the small
    file in memory, made with HDF5's own deflate filter, whose message (version 1: number, size of the name, flags,
    count of values, name, values) is then made one of Zstandard.
    """
    import h5py

    image = io.BytesIO()
    with h5py.File(image, "w", libver="earliest") as file:
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_obj_track_times(False)
        creation.set_chunk((1,))
        creation.set_deflate(level)
        file.create_dataset("x", (1,), "u1", dcpl=creation)
    content = bytearray(image.getvalue())
    if compression == "zstd":
        name = content.index(b"deflate\0")
        content[name : name + 8] = b"zstd\0\0\0\0"
        content[name - 8 : name - 6] = _ZSTD_FILTER.to_bytes(2, "little")
    with h5py.File(io.BytesIO(content), "r") as file:
        return file["x"].id.get_create_plist()
