"""The file beside each shard that says where every byte of it is, and its checksum.

Layout (docs/format.md): magic, length of the header, header (JSON), sections (plain little-endian arrays, each from a
multiple of 8 bytes on), CRC32C of all that. It holds the fields and tags of the rows too, so that reading a batch
touches the shard only for its large arrays.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.errors import CorruptError, DatasetError
from seqprep.files import unreadable
from seqprep.lazy import cached_property
from seqprep.shards.checksum import checksum
from seqprep.shards.codecs import COMPRESSIONS
from seqprep.shards.table import NUMBERS, ShardTable, describe_keys, parse_keys
from seqprep.types import Array, Int64, Tags, UInt32

MAGIC = b"SEQPIDX\x00"
VERSION = 1
_PIECE_PARTS = ("offset", "size", "decoded", "crc")


@dataclass(frozen=True)
class Regions:
    """Stretches of a shard between its arrays: headers, tables, framing."""

    offset: Int64
    size: Int64
    crc: UInt32


NO_REGIONS = Regions(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint32))


@dataclass(frozen=True)
class Pieces:
    """Compressed stretches of a shard. What they hold, one behind the other, is its decoded stream."""

    compression: str
    """gzip or zstd."""
    offset: Int64
    """int64 [pieces]: where each begins in the shard."""
    size: Int64
    """int64 [pieces]: its bytes there."""
    decoded: Int64
    """int64 [pieces]: the bytes that it holds."""
    crc: UInt32
    """uint32 [pieces]: CRC32C of its bytes in the shard."""

    @classmethod
    def of(cls, compression: str, entries: Sequence[tuple[int, int, int]]) -> Pieces:
        """Makes them of offset, size and decoded bytes of each; the checksums are left at 0."""
        offset, size, decoded = np.ascontiguousarray(np.array(entries, np.int64).reshape(-1, 3).T)
        return cls(compression, offset, size, decoded, np.zeros(len(entries), np.uint32))

    @cached_property
    def bounds(self) -> Int64:
        """int64 [pieces + 1]: where each begins in the decoded stream."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.decoded, dtype=np.int64)])


@dataclass(frozen=True)
class Sidecar:
    """All byte ranges of one shard."""

    format: str
    """hdf5 or tfrecord."""
    file_bytes: int
    """Size of the shard."""
    fingerprint: str
    """Of the run that made it."""
    table: ShardTable
    offsets: Mapping[str, Int64]
    """For each key, int64 [batches]: where each batch's array begins in the shard; with `pieces`, in what they hold."""
    crcs: Mapping[str, UInt32]
    """For each key, uint32 [batches]: CRC32C of each batch's array."""
    regions: Regions
    """Everything else: arrays (or pieces) and regions together cover the file."""
    pieces: Pieces | None = None
    """Of a compressed shard."""

    @property
    def crc32c(self) -> int:
        """The checksum that ends the sidecar's bytes."""
        return int.from_bytes(self.encode()[-4:], "little")

    def encode(self) -> bytes:
        """Gives the sidecar's bytes."""
        sections = _sections(self)
        header = json.dumps(
            {
                "version": VERSION,
                "format": self.format,
                "file_bytes": self.file_bytes,
                "fingerprint": self.fingerprint,
                "keys": describe_keys(self.table.keys),
                **self.table.numbers,
                **({"compression": self.pieces.compression} if self.pieces else {}),
                "sections": [[name, array.dtype.str, list(array.shape)] for name, array in sections.items()],
            },
            separators=(",", ":"),
        ).encode()
        parts = [MAGIC, len(header).to_bytes(8, "little"), _padded(header)]
        parts += [_padded(np.ascontiguousarray(array).tobytes()) for array in sections.values()]
        body = b"".join(parts)
        return body + checksum(body).to_bytes(4, "little")


def _sections(sidecar: Sidecar) -> dict[str, Array]:
    table = sidecar.table
    sections: dict[str, Array] = {"rows": table.batch_rows}
    if table.batch_segments is not None:
        sections["segments"] = table.batch_segments
    for name in table.keys:
        sections[f"offset:{name}"] = sidecar.offsets[name]
        sections[f"crc:{name}"] = sidecar.crcs[name]
    sections |= {f"frames:{name}": frames for name, frames in table.batch_frames.items()}
    sections |= {f"sizes:{name}": sizes for name, sizes in table.batch_sizes.items()}
    sections |= {f"field:{name}": values for name, values in table.fields.items()}
    sections |= {"tags": table.tags.data, "tags.ends": table.tags.ends}
    sections |= {
        "region.offset": sidecar.regions.offset,
        "region.size": sidecar.regions.size,
        "region.crc": sidecar.regions.crc,
    }
    if sidecar.pieces is not None:
        sections |= {f"piece.{part}": getattr(sidecar.pieces, part) for part in _PIECE_PARTS}
    return {name: array.astype(array.dtype.newbyteorder("<"), copy=False) for name, array in sections.items()}


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def sidecar_path(shard: Path) -> Path:
    """The sidecar of a shard: its name with the ending .idx."""
    return shard.with_suffix(".idx")


def stored_crc32c(shard: Path) -> int:
    """The checksum that ends the sidecar of a shard, as it stands there; one by a later seqprep may hold more than
    `Sidecar` does.

    Raises:
        DatasetError: it can't be read.
    """
    path = sidecar_path(shard)
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 4, 0))
            return int.from_bytes(file.read(), "little")
    except OSError as error:
        raise DatasetError(f"{path}: the sidecar can't be read: {unreadable(error)}") from error


def read_sidecar(shard: Path, expected_crc: int | None = None) -> Sidecar:
    """Reads the sidecar of a shard.

    Args:
        shard: path of the shard.
        expected_crc: what the index says of the sidecar's own CRC32C.

    Raises:
        DatasetError: it is missing, or of a newer version.
        CorruptError: it is damaged, or isn't the one that the index names.
    """
    path = sidecar_path(shard)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path}: the sidecar can't be read: {unreadable(error)}") from error
    stored = int.from_bytes(data[-4:], "little")
    if len(data) < 20 or data[:8] != MAGIC or checksum(memoryview(data)[:-4]) != stored:
        raise CorruptError(f"{path}: the sidecar is damaged (its checksum differs); seqprep repair makes it again")
    if expected_crc is not None and stored != expected_crc:
        raise CorruptError(f"{path}: the sidecar isn't the one that index.json names; the folder mixes two datasets")
    size = int.from_bytes(data[8:16], "little")
    header = json.loads(data[16 : 16 + size])
    if header["version"] > VERSION or header.get("compression", "gzip") not in COMPRESSIONS:
        raise DatasetError(
            f"{path}: version {header['version']}, compression {header.get('compression', 'none')}: newer than this "
            f"seqprep reads (version {VERSION}, compression {', '.join(COMPRESSIONS)}); update seqprep"
        )
    return _parse(header, data, 16 + len(_padded(data[16 : 16 + size])))


def _parse(header: Mapping[str, Any], data: bytes, position: int) -> Sidecar:
    sections: dict[str, Array] = {}
    for name, dtype, shape in header["sections"]:
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(data, np.dtype(dtype), count, position).reshape(shape)
        sections[name] = array
        position += -(-array.nbytes // 8) * 8
    keys = parse_keys(header["keys"])
    table = ShardTable(
        keys=keys,
        batch_rows=sections["rows"],
        batch_frames={name: sections[f"frames:{name}"] for name, spec in keys.items() if spec.has_time},
        batch_sizes={name: sections[f"sizes:{name}"] for name, spec in keys.items() if spec.ragged},
        fields={name.removeprefix("field:"): array for name, array in sections.items() if name.startswith("field:")},
        tags=Tags(sections["tags"], sections["tags.ends"]),
        batch_segments=sections.get("segments"),
        **{name: header.get(name, 0) for name in NUMBERS},
    )
    return Sidecar(
        format=header["format"],
        file_bytes=header["file_bytes"],
        fingerprint=header["fingerprint"],
        table=table,
        offsets={name: sections[f"offset:{name}"] for name in keys},
        crcs={name: sections[f"crc:{name}"] for name in keys},
        regions=Regions(sections["region.offset"], sections["region.size"], sections["region.crc"]),
        pieces=Pieces(header["compression"], *(sections[f"piece.{part}"] for part in _PIECE_PARTS))
        if "compression" in header
        else None,
    )


def read_sections(shard: Path, wanted: Collection[str]) -> dict[str, Array]:
    """Reads a few sections of a sidecar by byte ranges: for what has to be known of all shards before any is opened.

    Nothing is checked against the checksum here; `read_sidecar` does that before a batch is read.

    Args:
        shard: path of the shard.
        wanted: names of sections; those that the sidecar lacks are left out.

    Raises:
        DatasetError: the sidecar is missing.
        CorruptError: it is damaged.
    """
    path = sidecar_path(shard)
    try:
        with path.open("rb") as file:
            start = file.read(16)
            header = json.loads(file.read(int.from_bytes(start[8:], "little"))) if start[:8] == MAGIC else {}
            position = -(-file.tell() // 8) * 8
            sections: dict[str, Array] = {}
            for name, dtype, shape in header["sections"]:
                count = int(np.prod(shape, dtype=np.int64))
                size = count * np.dtype(dtype).itemsize
                if name in wanted:
                    file.seek(position)
                    sections[name] = np.frombuffer(file.read(size), np.dtype(dtype), count).reshape(shape)
                position += -(-size // 8) * 8
    except OSError as error:
        raise DatasetError(f"{path}: the sidecar can't be read: {unreadable(error)}") from error
    except (ValueError, KeyError, TypeError, OverflowError, MemoryError, RecursionError) as error:
        raise CorruptError(f"{path}: the sidecar is damaged ({error}); seqprep repair makes it again") from error
    return sections


def gaps(offsets: Mapping[str, Int64], sizes: Mapping[str, Int64], file_bytes: int) -> tuple[Int64, Int64]:
    """Finds the stretches of a file that no array covers.

    Args:
        offsets: for each key, int64 [batches].
        sizes: for each key, int64 [batches]: bytes of the arrays.
        file_bytes: size of the file.

    Returns:
        Their offsets and sizes, both int64 [gaps], in ascending order.
    """
    starts, lengths = (np.concatenate([part[name] for name in offsets]) for part in (offsets, sizes))
    starts, lengths = starts[lengths > 0], lengths[lengths > 0]
    order = np.argsort(starts)
    begins = np.append(0, (starts + lengths)[order])
    stops = np.append(starts[order], file_bytes)
    real = stops > begins
    return begins[real], (stops - begins)[real]
