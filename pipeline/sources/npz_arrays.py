"""Arrays inside .npy and .npz files: found, checked against their CRC-32, and read by ranges."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seqprep.errors import SourceError
from seqprep.sources.byteranges import ByteRanges
from seqprep.sources.inflating import Checked, Inflater
from seqprep.sources.npy import Member, NpyHeader, list_members, read_header
from seqprep.sources.reading import as_bytes
from seqprep.types import Array, KeySpec

_NO_CRC = -1
_BLOCK = 1 << 20


class _Entry(NamedTuple):
    """Where one file's array is, and how it lies there."""

    start: int
    packed: int
    size: int
    crc32: int
    head: int
    """Bytes of its header."""
    frames: int
    fortran: bool
    swapped: bool
    """Of the other byte order."""
    checked: bool
    """Held against its CRC-32, or without one."""


class StoredArray(NamedTuple):
    """One array of one file."""

    header: NpyHeader
    member: Member
    place: str
    """Names it in messages."""


def list_arrays(path: str, key: str, files: ByteRanges) -> dict[str, StoredArray]:
    """Lists the arrays of a file by name; that of an .npy file goes by `key`.

    Raises:
        SourceError: the file can't be read, is damaged, or holds something else than arrays.
    """
    if not path.lower().endswith(".npz"):
        return {key: _describe(path, Member(key, 0, -1, files.bound(path), _NO_CRC), path, files)}
    found: dict[str, StoredArray] = {}
    for member in list_members(path, files):
        place = f"{path}: array {member.name!r}"
        if member.name in found:
            raise SourceError(f"{place}: stands twice in the archive; save it again")
        found[member.name] = _describe(path, member, place, files)
    return found


def _describe(path: str, member: Member, place: str, files: ByteRanges) -> StoredArray:
    try:
        header = read_header(_bytes_of(files, path, member.start, member.packed, member.size, place).read, place)
    except zlib.error as error:
        raise SourceError(f"{place}: is damaged: {error}; copy or save it again") from error
    if header.total != member.size and not header.dtype.hasobject:  # objects are refused where a key is made of them
        what = "cut off" if header.total > member.size else "followed by something else"
        raise SourceError(
            f"{place}: is {what}: its header tells of {header.total} bytes, and there are {member.size}; "
            "copy or save it again"
        )
    return StoredArray(header, member, place)


class KeyArrays:
    """The arrays of one key in all files.

    Args:
        spec: the key.
        arrays: one for each file. Its frames are along the first axis; that of a key without time is one frame.
        whole: each array is one frame.
    """

    def __init__(self, spec: KeySpec, arrays: Sequence[StoredArray], whole: bool) -> None:
        self._spec, self._frame_bytes = spec, spec.nbytes
        self._table = np.zeros((len(arrays), len(_Entry._fields)), np.int64)  # no object per file
        for row, (header, member, _) in enumerate(arrays):
            self._table[row] = _Entry(
                start=member.start,
                packed=member.packed,
                size=member.size,
                crc32=member.crc32,
                head=header.size,
                frames=1 if whole else header.shape[0],
                fortran=header.fortran and len(header.shape) > 1,
                swapped=not header.dtype.isnative,
                checked=member.crc32 == _NO_CRC,
            )

    def fill(self, files: ByteRanges, path: str, file: int, first: int, out: Array, place: object) -> None:
        """Reads frames of one file's array.

        Args:
            files: reads byte ranges.
            path: the file.
            file: its number.
            first: the first frame.
            out: [frames, *shape] of the key's dtype, or [*shape] of a key without time; C-contiguous.
            place: names the sequence in messages.

        Raises:
            SourceError: the file is damaged or cut off.
        """
        entry = _Entry(*self._table[file].tolist())
        if entry.checked and entry.packed < 0 and not (entry.fortran or entry.swapped):  # most often
            raw = as_bytes(out)
            offset = entry.start + entry.head + first * self._frame_bytes
            _complete(files.read_stored(path, raw, offset, place), raw, place)
            return
        data = _bytes_of(files, path, entry.start, entry.packed, entry.size, place)
        try:
            if entry.fortran:
                self._check(data, entry, file, bytearray(), 0, place)
                self._fill_columns(data, entry, first, out, place)
            else:
                raw, offset = as_bytes(out), entry.head + first * self._frame_bytes
                filled = self._check(data, entry, file, raw, offset, place)
                _complete(data.read(raw, offset) if filled is None else filled, raw, place)
        except zlib.error as error:
            raise SourceError(f"{place}: is damaged: {error}; copy or save the file again") from error
        if entry.swapped:
            out.byteswap(inplace=True)

    def _check(
        self, data: _Stored | Inflater, entry: _Entry, file: int, buffer: Any, offset: int, place: object
    ) -> int | None:
        """Holds an array's bytes against its CRC-32, once; gives what that read of the buffer on the way, if it was
        needed."""
        if entry.checked:
            return None
        found = data.check(buffer, offset)
        if (found.size, found.crc32) != (entry.size, entry.crc32):
            raise SourceError(
                f"{place}: is damaged: the array's CRC-32 is {found.crc32:08x} and its archive says {entry.crc32:08x}; "
                "copy or save the file again"
            )
        self._table[file, _Entry._fields.index("checked")] = True
        return found.filled

    def _fill_columns(self, data: _Stored | Inflater, entry: _Entry, first: int, out: Array, place: object) -> None:
        """Reads an array in Fortran's order, in which each value of a frame is a row of its own over all frames."""
        shape = out.shape if self._spec.has_time else (1, *out.shape)
        columns = np.empty(shape[::-1], out.dtype)  # [.., frames]
        if not self._spec.has_time or shape[0] == entry.frames:
            stretches = [(0, columns.reshape(-1))]
        else:
            stretches = [(row * entry.frames + first, part) for row, part in enumerate(columns.reshape(-1, shape[0]))]
        for begin, part in stretches:
            raw = as_bytes(part)
            _complete(data.read(raw, entry.head + begin * out.dtype.itemsize), raw, place)
        out[...] = columns.T.reshape(out.shape)


def load(array: StoredArray, files: ByteRanges, path: str) -> Array:
    """Reads a small array whole, of any dtype but objects.

    Raises:
        SourceError: it is damaged, or holds objects.
    """
    header, member, place = array
    if header.dtype.hasobject:
        raise SourceError(
            f"{place}: holds Python objects, which only running code from the file could read; save strings as "
            "numpy.array(names, dtype=str)"
        )
    raw = bytearray(member.size)
    data = _bytes_of(files, path, member.start, member.packed, member.size, place)
    try:
        found = data.check(raw, 0)
    except zlib.error as error:
        raise SourceError(f"{place}: is damaged: {error}; copy or save it again") from error
    if found.size != member.size or found.filled != member.size or found.crc32 != member.crc32 != _NO_CRC:
        raise SourceError(f"{place}: is damaged: its bytes aren't those that were saved; copy or save it again")
    values = np.frombuffer(raw, header.dtype, offset=header.size)
    return values.reshape(header.shape, order="F" if header.fortran else "C")


def _complete(filled: int, raw: Any, place: object) -> None:
    if filled < len(raw):
        raise SourceError(f"{place}: is cut off: {len(raw) - filled} bytes are missing; copy or save the file again")


class _Stored:
    """A member that lies in the file as it is."""

    def __init__(self, files: ByteRanges, path: str, start: int, size: int, place: object) -> None:
        self._files, self._path, self._start, self._size, self._place = files, path, start, size, place

    def read(self, buffer: Any, offset: int) -> int:
        view = memoryview(buffer)[: max(0, self._size - offset)]
        return self._files.read_stored(self._path, view, self._start + offset, self._place)

    def check(self, buffer: Any, offset: int) -> Checked:
        crc = self._checksum(0, offset, 0)
        filled = self.read(buffer, offset)
        crc = zlib.crc32(memoryview(buffer)[:filled], crc)
        return Checked(filled, self._size, self._checksum(offset + filled, self._size, crc))

    def _checksum(self, start: int, stop: int, crc: int) -> int:
        buffer = bytearray(min(_BLOCK, max(0, stop - start)))
        while start < stop and (size := self.read(buffer, start)):
            part = memoryview(buffer)[: min(size, stop - start)]
            crc, start = zlib.crc32(part, crc), start + len(part)
        return crc


def _bytes_of(files: ByteRanges, path: str, start: int, packed: int, size: int, place: object) -> _Stored | Inflater:
    """The bytes of a member, header included."""
    return _Stored(files, path, start, size, place) if packed < 0 else files.member(path, start, packed, place)
