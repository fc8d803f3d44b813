"""Values of variable length, read from the file's own structures: libhdf5 runs in circles, or takes gigabytes, over
damaged ones, and knows no part of a row.

An element of such a dataset is a reference: its count of values, the address of a collection of the global heap, and the
number of an object in it. A collection begins with GCOL, its version and its size; each object in it with its number (0
ends them), its count of references and its size, and is filled up to 8 bytes. Numbers are little-endian.
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any

import numpy as np

from seqprep.files import FileCache
from seqprep.sources.hdf5.files import check_size, plain_offset
from seqprep.types import Array, Tags

REFERENCE = np.dtype([("count", "<u4"), ("address", "<u8"), ("number", "<u4")])
_COLLECTION = struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<H6xQ")
_AT_ONCE = 4096
_DEFLATE, _SHUFFLE = 1, 2
_FREE_BYTES = 64 << 20


def references(dataset: Any) -> Array | None:
    """Reads a dataset's references.

    Returns:
        [elements] of REFERENCE, with addresses counted from the file's first byte; None if they are packed in a way that
        only libhdf5 undoes.

    Raises:
        OSError, ValueError: the file can't be read, or is damaged.
    """
    check_size(dataset)
    file = dataset.file
    if file.id.get_create_plist().get_sizes()[0] != 8:
        return None
    offset = plain_offset(dataset, file)
    if offset is not None:
        found: Array | None = np.fromfile(file.filename, REFERENCE, count=len(dataset), offset=offset)
        if found is None or len(found) < len(dataset):
            raise ValueError(f"the file ends inside dataset {dataset.name!r}")
    else:
        found = _from_chunks(dataset)
    if found is not None:
        found["address"] += np.uint64(file.userblock_size)
    return found


def _from_chunks(dataset: Any) -> Array | None:
    settings = dataset.id.get_create_plist()
    filters = [settings.get_filter(number)[0] for number in range(settings.get_nfilters())]
    if dataset.chunks is None or filters not in ([], [_DEFLATE], [_SHUFFLE], [_SHUFFLE, _DEFLATE]):
        return np.zeros(0, REFERENCE) if len(dataset) == 0 else None
    size = dataset.chunks[0]
    found = np.zeros(-(-len(dataset) // size) * size, REFERENCE)
    for number in range(dataset.id.get_num_chunks()):
        first = dataset.id.get_chunk_info(number).chunk_offset
        skipped, stored = dataset.id.read_direct_chunk(first)  # a bit for each filter that was left out
        applied = [each for place, each in enumerate(filters) if not skipped >> place & 1]
        part = _unpacked(stored, size * REFERENCE.itemsize, applied)
        found[first[0] : first[0] + size] = part.view(REFERENCE)
    return found[: len(dataset)]


def _unpacked(stored: bytes, size: int, filters: list[int]) -> Array:
    """Undoes the filters of a chunk of `size` bytes."""
    if _DEFLATE in filters:
        try:
            stored = zlib.decompressobj().decompress(stored, size + 1)
        except zlib.error as error:
            raise ValueError(f"a packed chunk can't be unpacked: {error}") from error
    values = np.frombuffer(stored, np.uint8)
    if len(values) != size:
        raise ValueError(f"a chunk holds {len(values)} bytes where {size} should be")
    return np.ascontiguousarray(values.reshape(REFERENCE.itemsize, -1).T).reshape(-1) if _SHUFFLE in filters else values


def find_object(files: FileCache, path: str, address: int, number: int) -> tuple[int, int]:
    """Finds an object of the global heap.

    Returns:
        Where its bytes begin in the file, and how many they are.

    Raises:
        OSError, ValueError: the file can't be read, or there is no such object.
    """
    descriptor = files.get(path).descriptor
    stop = _collection_end(descriptor, address)
    at, block, block_at = address + _COLLECTION.size, b"", 0
    while at + _OBJECT.size <= stop:
        if at + _OBJECT.size > block_at + len(block):
            block, block_at = os.pread(descriptor, min(_AT_ONCE, stop - at), at), at
        own, size, following = _object(block, at - block_at, address)
        if own == number and at + _OBJECT.size + size <= stop:
            return at + _OBJECT.size, size
        if own == 0:
            break
        at += following
    raise ValueError(f"there is no object {number} in the heap at byte {address}")


def _collection_end(descriptor: int, address: int) -> int:
    """Where a collection of the heap ends in the file."""
    file_size = os.fstat(descriptor).st_size
    if address + _COLLECTION.size > file_size:
        raise ValueError(f"the heap at byte {address} is outside of the file, which has {file_size}")
    name, version, size = _COLLECTION.unpack(os.pread(descriptor, _COLLECTION.size, address))
    if name != b"GCOL" or version != 1 or address + size > file_size:
        raise ValueError(f"there is no whole heap at byte {address}")
    return address + int(size)


def _object(block: bytes, at: int, address: int) -> tuple[int, int, int]:
    """Number and size of an object of a heap, and where the next begins, counted from it."""
    if at + _OBJECT.size > len(block):
        raise ValueError(f"the file ends inside the heap at byte {address}")
    number, size = _OBJECT.unpack_from(block, at)
    return number, size, _OBJECT.size + -(-size // 8) * 8


def read_strings(dataset: Any, found: Array) -> Tags:
    """Reads all strings of a dataset; each ends at its first NUL.

    Args:
        dataset: the dataset.
        found: its references.

    Raises:
        OSError, ValueError: the file can't be read, or is damaged.
    """
    files, path = FileCache(1), dataset.file.filename
    try:
        descriptor = files.get(path).descriptor
        size = os.fstat(descriptor).st_size
        if found["count"].sum(dtype=np.int64) > size + _FREE_BYTES:
            raise ValueError(f"the strings of dataset {dataset.name!r} are longer than the file")
        strings, last, inside = [], -1, dict[int, bytes]()
        for count, address, number in found.tolist():
            if count and address != last:
                last, inside = address, _read_collection(descriptor, address)
            string = inside.get(number, b"") if count else b""
            if len(string) < count:
                raise ValueError(f"there is no string {number} of {count} bytes in the heap at byte {address}")
            strings.append(string[:count].partition(b"\0")[0])
        return Tags.of(strings)
    finally:
        files.close()


def _read_collection(descriptor: int, address: int) -> dict[int, bytes]:
    """Reads all objects of a collection."""
    block = os.pread(descriptor, _collection_end(descriptor, address) - address, address)
    at, objects = _COLLECTION.size, dict[int, bytes]()
    while at + _OBJECT.size <= len(block):
        number, size, following = _object(block, at, address)
        if number == 0:
            break
        objects[number] = block[at + _OBJECT.size : at + _OBJECT.size + size]
        at += following
    return objects
