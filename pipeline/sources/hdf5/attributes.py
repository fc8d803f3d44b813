"""Attributes of text, read from the file's own structures: as with rows of variable length, libhdf5 runs in circles over a
damaged heap.

An object's header, in its first version, is a list of messages, of which one may tell where further ones are. A message of
the kind attribute holds its name, its type, its shape and its value: of text, a reference to the heap.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

from seqprep.files import FileCache
from seqprep.sources.hdf5.heap import REFERENCE, find_object

_HEADER = struct.Struct("<BxHII4x")
_MESSAGE = struct.Struct("<HHB3x")
_ATTRIBUTE = struct.Struct("<BxHHH")
_REFERENCE = struct.Struct("<IQI")
_CONTINUES = struct.Struct("<QQ")
_IS_ATTRIBUTE, _IS_CONTINUATION = 0x0C, 0x10
_MOST_BLOCKS, _MOST_BYTES = 64, 1 << 16


def read_text(item: Any, name: str) -> str | None:
    """Reads an attribute of text.

    Args:
        item: a group or dataset of h5py's.
        name: the attribute.

    Returns:
        None if there is no such attribute.

    Raises:
        OSError, ValueError, TypeError: the file is damaged, or it isn't text.
    """
    if name not in item.attrs:
        return None
    if item.attrs.get_id(name).dtype.kind == "O":
        value = _from_heap(item, name.encode())
        if value is not None:
            return value.decode()
    text = item.attrs[name]
    return text.decode() if isinstance(text, bytes) else str(text)


def _from_heap(item: Any, name: bytes) -> bytes | None:
    """The text; None if the header is of another version."""
    import h5py

    files, path, begin = FileCache(1), item.file.filename, item.file.userblock_size
    try:
        descriptor = files.get(path).descriptor
        for block in _blocks(descriptor, h5py.h5o.get_info(item.id).addr, begin):
            for kind, content in _messages(block):
                value = _value(content, name) if kind == _IS_ATTRIBUTE else None
                if value is not None and len(value) >= REFERENCE.itemsize:
                    count, address, number = _REFERENCE.unpack_from(value)
                    offset, size = find_object(files, path, begin + address, number)
                    return os.pread(descriptor, min(count, size), offset)
        return None
    finally:
        files.close()


def _blocks(descriptor: int, address: int, begin: int) -> Iterator[bytes]:
    """The parts of an object's header, which counts addresses from `begin`."""
    start = os.pread(descriptor, _HEADER.size, begin + address)
    if len(start) < _HEADER.size or start[0] != 1:
        return
    parts = [(address + _HEADER.size, _HEADER.unpack(start)[3])]
    for at, size in parts:  # which grows meanwhile
        block = os.pread(descriptor, min(size, _MOST_BYTES), begin + at) if begin + at < 1 << 63 else b""
        yield block
        further = [content for kind, content in _messages(block) if kind == _IS_CONTINUATION]
        parts += [_CONTINUES.unpack_from(content) for content in further if len(content) >= _CONTINUES.size]
        del parts[_MOST_BLOCKS:]


def _messages(block: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _MESSAGE.size <= len(block):
        kind, size, _ = _MESSAGE.unpack_from(block, at)
        at += _MESSAGE.size
        yield kind, block[at : at + size]
        at += size


def _value(message: bytes, name: bytes) -> bytes | None:
    """The value of an attribute of this name."""
    if len(message) < _ATTRIBUTE.size:
        return None
    version, *sizes = _ATTRIBUTE.unpack_from(message)
    at = _ATTRIBUTE.size + (version == 3)  # which has the letters' code before the name
    if message[at : at + sizes[0]].rstrip(b"\0") != name:
        return None
    return message[at + sum(-(-size // 8) * 8 if version == 1 else size for size in sizes) :]
