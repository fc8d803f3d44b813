"""The seam to h5py: opened files, their datasets described, and reads that take turns."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from seqprep.errors import SourceError
from seqprep.types import Array

FOREIGN_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError)
"""What h5py raises for files that are missing, damaged or of an unknown kind."""
_MOST_COMPRESSED = 1032
"""No filter makes more bytes of one: deflate's limit."""
_FREE_BYTES = 64 << 20
_CHUNK_CACHE = 4 << 20


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """Opens a file with h5py, whose errors in here become ours.

    Raises:
        SourceError: the file can't be opened, or what is done with it fails.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            yield file
    except FOREIGN_ERRORS as error:
        raise SourceError(f"{path}: can't be read as HDF5: {one_line(error)}; is it whole? make it again") from error


def one_line(error: BaseException) -> str:
    """The error's text on one line; the name of its class if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def dataset_in(group: Any, name: str) -> Any:
    """A dataset of a file or group.

    Raises:
        KeyError, ValueError: there is no such, or it is something else.
    """
    import h5py

    return _of_kind(group[name], name, h5py.Dataset, "dataset")


def group_in(group: Any, name: str) -> Any:
    """A group of a file or group; raises as `dataset_in`."""
    import h5py

    return _of_kind(group[name], name, h5py.Group, "group")


def _of_kind(item: Any, name: str, kind: type, shown: str) -> Any:
    if not isinstance(item, kind):
        raise ValueError(f"{name!r} is no {shown} but a {type(item).__name__.lower()}")
    return item


def read_array(dataset: Any) -> Array:
    """Reads a whole dataset of lengths, offsets or labels.

    Raises:
        ValueError: it claims to hold far more than is stored.
    """
    check_size(dataset)
    array: Array = dataset[...]
    return array


def check_size(dataset: Any) -> None:
    """As `check_stored`, of a dataset as h5py's users have it."""
    check_stored(dataset.name, dataset.id, dataset.shape, dataset.dtype)


def check_stored(name: str, item: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """Finds sizes that damage made up, before memory is taken for them.

    Args:
        name: the dataset.
        item: h5py's identifier of it.
        shape: what it claims to hold.
        dtype: the same.

    Raises:
        ValueError: the dataset claims to hold far more than is stored.
    """
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > _FREE_BYTES and claimed > _FREE_BYTES + _MOST_COMPRESSED * item.get_storage_size():
        raise ValueError(f"dataset {name!r} tells of {claimed} bytes but {item.get_storage_size()} are stored")


def file_number(item: Any) -> int:
    """The number that HDF5 gives to the open file in which a file's root, a group or a dataset lies."""
    import h5py

    number: int = h5py.h5o.get_info(item.id).fileno
    return number


def plain_offset(dataset: Any, file: Any) -> int | None:
    """As `offset_in`, of a dataset as h5py's users have it, reached by any path of the opened file."""
    return offset_in(dataset.id, dataset.dtype, file_number(file))


def offset_in(item: Any, dtype: Any, home: int | None) -> int | None:
    """Where a dataset's bytes begin in the file, or None unless they lie there one behind the other as numpy has them.

    Args:
        item: h5py's identifier of the dataset.
        dtype: its dtype.
        home: `file_number` of the file, if a link may lead to another one. External storage and virtual datasets, too,
            have their bytes elsewhere.
    """
    import h5py

    settings = item.get_create_plist()
    if settings.get_layout() != h5py.h5d.CONTIGUOUS or settings.get_external_count() or not dtype.isnative:
        return None
    if home is not None and h5py.h5o.get_info(item).fileno != home:
        return None
    offset: int | None = item.get_offset()
    return offset


class Handles:
    """h5py's files of this process, at most a few; h5py has one lock for all files, so reads take turns here."""

    _MOST = 8

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._open: dict[str, tuple[Any, dict[str, Any]]] = {}

    def read(self, path: str, dataset: str, where: Any, out: Array, *, keep: bool = True) -> None:
        """Reads a part of a dataset.

        Args:
            path: the file.
            dataset: its path in the file.
            where: what to read, as h5py's datasets are indexed.
            out: takes the values.
            keep: remember the opened dataset, with its last chunks, for the next read.

        Raises:
            OSError, RuntimeError, KeyError, ValueError: h5py's, for a damaged file.
        """
        with self._turn():
            found = self._dataset(path, dataset, keep)
            if found.shape:
                found.read_direct(out, where)
            else:
                out[...] = found[()]

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if self._process != os.getpid():
            self.__init__()  # type: ignore[misc]  # a forked child must not touch its parent's handles
        with self._lock:
            yield

    def _dataset(self, path: str, name: str, keep: bool) -> Any:
        import h5py

        opened = self._open.pop(path) if path in self._open else (h5py.File(path, "r", rdcc_nbytes=_CHUNK_CACHE), {})
        self._open[path] = opened  # the most recently used comes last
        file, datasets = opened
        if len(self._open) > self._MOST:
            self._close(next(iter(self._open)))
        found = datasets.get(name) or dataset_in(file, name)
        if keep:
            datasets[name] = found
        return found

    def _close(self, path: str) -> None:
        file, datasets = self._open.pop(path)
        datasets.clear()
        file.close()

    def close(self) -> None:
        """Closes every file."""
        if self._process == os.getpid():
            with self._lock:
                while self._open:
                    self._close(next(iter(self._open)))
