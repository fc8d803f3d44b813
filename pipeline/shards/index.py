"""index.json: what a dataset is. Written last, so that a folder without it is unfinished."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from seqprep.config import shown
from seqprep.errors import CorruptError, DatasetError, UnfinishedError
from seqprep.files import unreadable
from seqprep.shards.checksum import checksum
from seqprep.shards.codecs import COMPRESSIONS
from seqprep.shards.storage import Storage
from seqprep.shards.table import describe_keys, parse_keys
from seqprep.shards.writing import SUFFIXES, ShardRecord
from seqprep.types import KeySpec

INDEX_NAME = "index.json"
VERSION = 1
_RECORD = {of.name for of in fields(ShardRecord)}


@dataclass(frozen=True, kw_only=True)
class Index:
    """The content of index.json."""

    format: str
    """hdf5 or tfrecord."""
    fingerprint: str
    """Of the run: its configuration and its source together."""
    configuration: Mapping[str, Any]
    """Every setting that decides what the shards hold."""
    source: Mapping[str, str]
    """The source's fingerprint, part by part."""
    keys: Mapping[str, KeySpec]
    """Stored keys, the input key first."""
    sequences: int
    shards: tuple[ShardRecord, ...]
    report: Mapping[str, Any] = field(default_factory=dict)
    """What was left out and why, and what didn't go with the budgets; plain values. Without shards, what planning says."""
    compression: str = "none"
    """none, gzip or zstd."""
    codec: str = ""
    """The release of what compressed, such as "zlib 1.3.1", which decides the compressed bytes."""

    def with_shards(self, shards: Sequence[ShardRecord]) -> Index:
        """Adds the shards, and what only they know of what was left out."""
        dropped = {
            "sequences": 0,
            "rows": sum(shard.dropped_rows for shard in shards),
            "frames": sum(shard.dropped_frames for shard in shards),
        }
        report = dict(self.report)
        if dropped["rows"]:
            report["left_out"] = {**report.get("left_out", {}), "batch.drop_last": dropped}
        return replace(self, shards=tuple(shards), report=report)

    def without_shards(self) -> Index:
        """What it was before `with_shards`."""
        report = dict(self.report)
        if "left_out" in report:
            report["left_out"] = {name: of for name, of in report["left_out"].items() if name != "batch.drop_last"}
        return replace(self, shards=(), report=report)

    @property
    def epochs(self) -> int:
        """Passes over the input that the shards hold."""
        return max((shard.epoch for shard in self.shards), default=0) + 1

    @property
    def padding(self) -> dict[str, int]:
        """For each key with time, the sum of padded length − length over all rows."""
        timed = [name for name, spec in self.keys.items() if spec.has_time]
        return {name: sum(shard.padding.get(name, 0) for shard in self.shards) for name in timed}

    @property
    def batches(self) -> int:
        """Batches of all shards."""
        return sum(shard.batches for shard in self.shards)

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.rows for shard in self.shards)

    @property
    def frames(self) -> int:
        """Valid frames of the input key in all shards, context included."""
        return sum(shard.frames for shard in self.shards)

    @property
    def shard_bytes(self) -> int:
        """Bytes of all shards, without sidecars."""
        return sum(shard.bytes for shard in self.shards)

    def encode(self) -> bytes:
        """Gives the file's bytes; the last entry is the CRC32C of all others."""
        content = self._about() | {
            "statistics": {
                "sequences": self.sequences,
                "batches": self.batches,
                "rows": self.rows,
                "frames": self.frames,
                "bytes": self.shard_bytes,
                "padding": self.padding,
                "epochs": self.epochs,
            },
            "report": self.report,
            "shards": [asdict(shard) for shard in self.shards],
        }
        return _written(content | {"crc32c": _content_crc(content)})

    def describe(self) -> bytes:
        """Gives all but the shards, for each shard to hold; `parse_description` reads it."""
        content = self._about() | {"sequences": self.sequences, "report": self.report}
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()

    def _about(self) -> dict[str, Any]:
        packed = {} if self.compression == "none" else {"compression": self.compression, "codec": self.codec}
        return {
            "seqprep": VERSION,
            "format": self.format,
            **packed,
            "fingerprint": self.fingerprint,
            "configuration": self.configuration,
            "source": dict(self.source),
            "keys": describe_keys(self.keys),
        }


def _written(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"


def _content_crc(content: Mapping[str, Any]) -> int:
    return checksum(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def write_index(folder: Path, index: Index, storage: Storage) -> None:
    """Writes the index, which makes the folder a dataset.

    Raises:
        OutputError: it can't be written.
    """
    storage.write_file(folder / INDEX_NAME, index.encode())


def read_index(folder: Path) -> Index:
    """Reads the index of a dataset.

    Raises:
        DatasetError: there is no such folder, or its index is of a newer version.
        UnfinishedError: the folder has no index.
        CorruptError: the index is damaged.
    """
    path = folder / INDEX_NAME
    try:
        text = path.read_bytes()
    except FileNotFoundError as error:
        if not folder.exists():
            raise DatasetError(
                f"{folder}: no such folder; check the path, or make the dataset with seqprep chunk"
            ) from error
        raise UnfinishedError(
            f"{folder}: holds no {INDEX_NAME}, so it is no finished dataset; run the same seqprep chunk again to finish it"
        ) from error
    except NotADirectoryError as error:
        raise DatasetError(f"{folder}: is a file; give the folder that seqprep chunk wrote") from error
    except OSError as error:
        raise DatasetError(f"{path}: can't be read: {unreadable(error)}") from error
    except ValueError as error:
        raise DatasetError(f"{shown(str(folder))}: no folder can have this name: {error}") from error
    return parse_index(text, path)


def parse_index(text: bytes, path: Path) -> Index:
    """Parses the content of an index.

    Args:
        text: the file's bytes.
        path: of the file, for messages.

    Raises:
        DatasetError: it is of a newer version.
        CorruptError: it is damaged.
    """
    try:
        content = json.loads(text)
        if content.pop("crc32c") != _content_crc(content):
            raise ValueError("its checksum differs")
        _check_version(content, path)
        return _parse(content, content["statistics"]["sequences"], content["shards"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptError(f"{path}: the index is damaged ({error}); seqprep repair makes it again") from error


def is_as_written(text: bytes, index: Index) -> bool:
    """Whether an index holds, to the byte, what was written: what it says itself, and what a later seqprep has added.

    Args:
        text: the file's bytes.
        index: what `parse_index` read in them.
    """
    content, known = json.loads(text), json.loads(index.encode())
    return text == _written(content) and _holds(content, {**known, "crc32c": content["crc32c"]})


def _holds(content: Any, known: Any) -> bool:
    """Whether all that is known is there, whatever else is."""
    if isinstance(known, dict) and isinstance(content, dict):
        return all(name in content and _holds(content[name], value) for name, value in known.items())
    if isinstance(known, list) and isinstance(content, list) and len(known) == len(content):
        return all(map(_holds, content, known))
    return bool(content == known)


def parse_description(text: bytes, path: Path) -> Index:
    """Reads what `Index.describe` wrote into a shard.

    Args:
        text: its bytes.
        path: of the shard, for messages.

    Returns:
        An index without shards.

    Raises:
        DatasetError: it is of a newer version.
        CorruptError: it is damaged.
    """
    try:
        content = json.loads(text)
        _check_version(content, path)
        return _parse(content, content["sequences"], [])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptError(f"{path}: doesn't say rightly what it is ({error}); the shard is damaged") from error


def _check_version(content: Mapping[str, Any], path: Path) -> None:
    """Refuses what a newer seqprep wrote. Each version has the checksum and `seqprep`, the number, as this one has."""
    version, form = content["seqprep"], (content["format"], content.get("compression", "none"))
    if version > VERSION or form[0] not in SUFFIXES or form[1] not in COMPRESSIONS:
        raise DatasetError(
            f"{path}: version {version}, {' with compression '.join(map(str, form))}: newer than this seqprep reads "
            f"(version {VERSION}, {' and '.join(SUFFIXES)}, compression {', '.join(COMPRESSIONS)}); update seqprep"
        )


def _parse(content: Mapping[str, Any], sequences: int, shards: list[dict[str, Any]]) -> Index:
    return Index(
        format=content["format"],
        fingerprint=content["fingerprint"],
        configuration=content["configuration"],
        source=content["source"],
        keys=parse_keys(content["keys"]),
        sequences=sequences,
        shards=tuple(ShardRecord(**{name: shard[name] for name in shard if name in _RECORD}) for shard in shards),
        compression=content.get("compression", "none"),
        codec=content.get("codec", ""),
        report=content.get("report", {}),
    )
