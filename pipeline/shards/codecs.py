"""Compression of stretches of a shard: gzip by Python's zlib, zstd by the package `zstandard` (BSD).

That one rather than Python's own module, for it decodes into memory that is there already: threads that each take fresh
memory for every piece wait for each other in the kernel, and two of them then are no faster than one.
"""

from __future__ import annotations

import functools
import importlib
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from seqprep.errors import DependencyError

GZIP_LEVEL = 4
ZSTD_LEVEL = 3
COMPRESSIONS = ("none", "gzip", "zstd")

_ZLIB_STREAM, _GZIP_MEMBER, _EITHER = 15, 31, 47
"""zlib's window bits for what HDF5's deflate filter holds, for what gzip files hold, and for reading both."""


@dataclass(frozen=True)
class Codec:
    """One way to compress; both functions let other threads run.

    Args:
        compress: from buffers, one behind the other, to bytes.
        decompress_into: from bytes, into the memory of a result of known size. Raises ValueError if they are nothing that
            was compressed, or give another size; what stands behind the last byte of the result may be left unread.
    """

    compress: Callable[[Sequence[Any]], bytes]
    decompress_into: Callable[[Any, memoryview], None]

    def decompress(self, data: Any, size: int) -> bytes:
        """Gives the result, of this size, as bytes; raises what `decompress_into` does."""
        result = bytearray(size)
        self.decompress_into(data, memoryview(result))
        return bytes(result)


def codec_for(compression: str, format: str = "hdf5") -> Codec:
    """Gives what compresses the shards of a format.

    Args:
        compression: gzip or zstd.
        format: hdf5 or tfrecord, which wrap gzip's bytes differently; for reading, either does.

    Raises:
        DependencyError: the package for zstd is missing.
    """
    if compression == "zstd":
        _zstd()
        return Codec(_zstd_compress, _zstd_decompress_into)
    bits = _GZIP_MEMBER if format == "tfrecord" else _ZLIB_STREAM
    return Codec(functools.partial(_zlib_compress, bits), _zlib_decompress_into)


def codec_release(compression: str) -> str:
    """What the compressed bytes depend on, such as "zlib 1.3.1"; empty without compression.

    Raises:
        DependencyError: the package for zstd is missing.
    """
    if compression == "none":
        return ""
    return (
        f"zstd {'.'.join(map(str, _zstd().ZSTD_VERSION))}"
        if compression == "zstd"
        else f"zlib {zlib.ZLIB_RUNTIME_VERSION}"
    )


def _zlib_compress(bits: int, parts: Sequence[Any]) -> bytes:
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=bits)
    return b"".join([*(compressor.compress(part) for part in parts), compressor.flush()])


def _zlib_decompress_into(data: Any, target: memoryview) -> None:
    decompressor = zlib.decompressobj(_EITHER)
    try:
        decoded = decompressor.decompress(data, len(target) + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("the compressed stream is cut off, or something stands behind it")
    _check_size(len(decoded), len(target))
    target[:] = decoded


class _Contexts(threading.local):
    """Of each thread its own, to be used again."""

    def __init__(self) -> None:
        self.compressor = _zstd().ZstdCompressor(level=ZSTD_LEVEL, write_content_size=True)
        self.decompressor = _zstd().ZstdDecompressor()


@functools.cache
def _contexts() -> _Contexts:
    return _Contexts()


def _zstd_compress(parts: Sequence[Any]) -> bytes:
    whole = parts[0] if len(parts) == 1 else b"".join(parts)  # in one call, which puts the size into the frame
    compressed: bytes = _contexts().compressor.compress(whole)
    return compressed


def _zstd_decompress_into(data: Any, target: memoryview) -> None:
    zstd, done = _zstd(), 0
    try:
        told = zstd.frame_content_size(data)  # −1 if the frame doesn't say it, as ours do
        _check_size(told if told >= 0 else len(target), len(target))
        with _contexts().decompressor.stream_reader(data) as reader:
            while done < len(target) and (more := reader.readinto(target[done:])):
                done += more
            behind = len(reader.read(1)) if told < 0 else 0
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from error
    _check_size(done + behind, len(target))


def _check_size(given: int, due: int) -> None:
    if given != due:
        raise ValueError(f"it gives {given} bytes{' or more' if given > due else ''} where {due} are due")


@functools.cache
def _zstd() -> Any:
    """The module."""
    try:
        return importlib.import_module("zstandard")
    except ImportError as error:
        raise DependencyError(
            "compression zstd needs the package zstandard; pip install 'seqprep[zstd]' brings it"
        ) from error
