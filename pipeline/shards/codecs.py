"""Compression of stretches of a shard: gzip by Python's zlib, zstd by Python's own module or its backport.

The backport is the package `backports.zstd` (PSF-2.0, with Zstandard under BSD), which Python before 3.14 needs.
"""

from __future__ import annotations

import functools
import importlib
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
        decompress: from bytes, and the size that the result has to have, to the result.
            Raises ValueError if they are nothing that was compressed, or give another size.
    """

    compress: Callable[[Sequence[Any]], bytes]
    decompress: Callable[[bytes, int], bytes]


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
        return Codec(_zstd_compress, _zstd_decompress)
    bits = _GZIP_MEMBER if format == "tfrecord" else _ZLIB_STREAM
    return Codec(functools.partial(_zlib_compress, bits), _zlib_decompress)


def codec_release(compression: str) -> str:
    """What the compressed bytes depend on, such as "zlib 1.3.1"; empty without compression.

    Raises:
        DependencyError: the package for zstd is missing.
    """
    if compression == "none":
        return ""
    return f"zstd {_zstd().zstd_version}" if compression == "zstd" else f"zlib {zlib.ZLIB_RUNTIME_VERSION}"


def _zlib_compress(bits: int, parts: Sequence[Any]) -> bytes:
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=bits)
    return b"".join([*(compressor.compress(part) for part in parts), compressor.flush()])


def _zlib_decompress(data: bytes, size: int) -> bytes:
    decompressor = zlib.decompressobj(_EITHER)
    try:
        decoded = decompressor.decompress(data, size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("the compressed stream is cut off, or something stands behind it")
    return _of_size(decoded, size)


def _zstd_compress(parts: Sequence[Any]) -> bytes:
    whole = parts[0] if len(parts) == 1 else b"".join(parts)  # in one call, which puts the size into the frame
    compressed: bytes = _zstd().compress(whole, ZSTD_LEVEL)
    return compressed


def _zstd_decompress(data: bytes, size: int) -> bytes:
    zstd = _zstd()
    decompressor = zstd.ZstdDecompressor()
    try:
        decoded = decompressor.decompress(data, size + 1)
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from error
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("the compressed frame is cut off, or something stands behind it")
    return _of_size(decoded, size)


def _of_size(decoded: bytes, size: int) -> bytes:
    if len(decoded) != size:
        raise ValueError(f"it gives {len(decoded)} bytes where {size} are due")
    return decoded


@functools.cache
def _zstd() -> Any:
    """The module: Python's, or its backport."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise DependencyError("compression zstd needs the package backports.zstd; pip install 'seqprep[zstd]' brings it")
