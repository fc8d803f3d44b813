"""The files of numpy: what stands in front of an array, and where a zip archive keeps its members.

Nothing of a file is run or unpickled. Formats: numpy.lib.format (NEP 1), and PKWARE's APPNOTE 4.3.7 for the local header.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from seqprep.errors import SourceError
from seqprep.sources.byteranges import ByteRanges
from seqprep.sources.inflating import MOST_EXPANDED

_MAGIC = b"\x93NUMPY"
_FIRST_BYTES = 256
_MOST_HEADER_BYTES = 1 << 16
_DESCR = re.compile(r"""['"]descr['"]\s*:\s*(?:'([^']*)'|"([^"]*)"|(\[))""")
_ORDER = re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)""")
_SHAPE = re.compile(r"""['"]shape['"]\s*:\s*\(([0-9L,\s]*)\)""")
_DTYPE = re.compile(r"[<>=|]?[biufcmMOSUV?]\d{0,9}(\[\w{1,20}\])?")
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")

Read = Callable[[Any, int], int]
"""Fills a buffer from an offset of the array's file on; gives how many bytes there were."""


class NpyHeader(NamedTuple):
    """What an array is."""

    dtype: np.dtype[Any]
    """As stored, so perhaps of the other byte order."""
    shape: tuple[int, ...]
    fortran: bool
    """The last axis is the slowest, not the first."""
    size: int
    """Bytes in front of the array's own."""

    @property
    def total(self) -> int:
        """Bytes of the header and the array."""
        count = 1
        for extent in self.shape:
            count *= extent
        return self.size + count * self.dtype.itemsize


def read_header(read: Read, place: str) -> NpyHeader:
    """Reads what stands in front of an array.

    Args:
        read: gives bytes of the .npy file.
        place: names it in messages.

    Raises:
        SourceError: it is no .npy file, or holds a dtype that isn't plain.
    """
    start = _take(read, _FIRST_BYTES, 0)
    if not start.startswith(_MAGIC) or len(start) < 12:
        raise SourceError(f"{place}: is no .npy file; save it with numpy.save, numpy.savez or numpy.savez_compressed")
    version, wide = start[6], start[6] > 1
    if version not in (1, 2, 3):
        raise SourceError(
            f"{place}: has version {version} of the .npy format, of which there are 1 to 3; save it again"
        )
    begin = 12 if wide else 10
    size = int.from_bytes(start[8:begin], "little")
    if size > _MOST_HEADER_BYTES:
        raise SourceError(f"{place}: claims a header of {size} bytes; it is damaged, or holds no plain array")
    text = start[begin : begin + size]
    if len(text) < size:
        text += _take(read, size - len(text), begin + len(text))
    if len(text) < size:
        raise SourceError(f"{place}: is cut off inside its header; copy or save it again")
    return _parse(text.decode("utf-8" if version == 3 else "latin-1", "replace"), begin + size, place)


def _take(read: Read, size: int, offset: int) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: read(buffer, offset)])


def _parse(text: str, size: int, place: str) -> NpyHeader:
    descr, order, shape = _DESCR.search(text), _ORDER.search(text), _SHAPE.search(text)
    if not (descr and order and shape):
        raise SourceError(f"{place}: its header can't be understood: {text.strip()[:80]!r}; save it again with numpy")
    if descr[3]:
        raise SourceError(f"{place}: holds records of several fields; save each field as an array of its own")
    name = descr[1] or descr[2] or ""
    try:
        if not _DTYPE.fullmatch(name):
            raise ValueError("not a plain dtype")
        dtype = np.dtype(name)
        extents = tuple(int(extent) for extent in re.findall(r"\d+", shape[1]))
    except (TypeError, ValueError) as error:
        raise SourceError(
            f"{place}: its header can't be understood: dtype {name!r}, shape {shape[1][:80]!r}; save it again with numpy"
        ) from error
    return NpyHeader(dtype, extents, order[1] == "True", size)


class Member(NamedTuple):
    """A member of a zip archive."""

    name: str
    """Without `.npy`."""
    start: int
    """Where its bytes begin in the file."""
    packed: int
    """Its deflated bytes; −1 if it is stored as it is."""
    size: int
    """Its bytes."""
    crc32: int


def list_members(path: str, files: ByteRanges) -> list[Member]:
    """Lists the arrays of an .npz file, in its order.

    Raises:
        SourceError: it is no zip archive, or is damaged, or packed in a way that numpy doesn't.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except OSError as error:
        raise SourceError(f"{path}: can't be opened: {error.strerror or error}; check the path") from error
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, struct.error, OverflowError) as error:
        raise SourceError(f"{path}: can't be read as .npz (a zip archive): {error}; copy or save it again") from error
    limit = files.bound(path)
    return [_locate(path, info, files, limit) for info in infos if not info.filename.endswith("/")]


def _locate(path: str, info: zipfile.ZipInfo, files: ByteRanges, limit: int) -> Member:
    """Finds a member's bytes through its local header, which has to agree with the directory."""
    place = f"{path}: member {info.filename!r}"
    if info.flag_bits & 1:
        raise SourceError(f"{place}: is encrypted; save it without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise SourceError(f"{place}: has compression method {info.compress_type}; save it with numpy.savez_compressed")
    deflated = info.compress_type == zipfile.ZIP_DEFLATED
    if info.file_size > (info.compress_size * MOST_EXPANDED if deflated else info.compress_size):
        raise SourceError(f"{place}: claims more bytes than it can hold; the file is damaged, copy or save it again")
    head = bytearray(_LOCAL_HEADER.size)
    if 0 <= info.header_offset <= limit and files.read_stored(path, head, info.header_offset) == len(head):
        magic, _, flags, method, *_, name_size, extra_size = _LOCAL_HEADER.unpack(head)
        start = info.header_offset + len(head) + name_size + extra_size
        name = bytearray(name_size)
        files.read_stored(path, name, info.header_offset + len(head))
        same = bytes(name).decode("utf-8" if flags & 0x800 else "cp437", "replace") == info.orig_filename
        if magic == b"PK\3\4" and method == info.compress_type and same and start + info.compress_size <= limit:
            packed = info.compress_size if deflated else -1
            return Member(info.filename.removesuffix(".npy"), start, packed, info.file_size, info.CRC)
    raise SourceError(f"{place}: isn't where the archive says; the file is damaged or cut off, copy or save it again")
