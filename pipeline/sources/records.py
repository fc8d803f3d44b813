"""TFRecord files: their records checked by CRC, their features chosen, and an index of them made in one pass.

The record format is that of tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from seqprep import config
from seqprep.checksum import checksum, masked
from seqprep.config import suggestion
from seqprep.errors import ConfigError, SourceError
from seqprep.sources.byteranges import ByteRanges
from seqprep.sources.examples import Feature, Record, count_of, kind_of, measure, parse_record, tag_of
from seqprep.sources.protobuf import BYTES, FLOATS, INTS, WireError
from seqprep.sources.reading import numbered_tags, shown, tags_of_files
from seqprep.types import Int64, KeySpec, Tags, UInt8

HEAD_BYTES = 12
_FOOT_BYTES = 4
_SAMPLE = 64
"""Records from which features are chosen."""
_KINDS = {BYTES: "bytes", FLOATS: "floats", INTS: "whole numbers", None: "nothing"}


class FeatureOptions(config.Options):
    """How one key is made of a feature."""

    feature: str | None = None
    """The feature's name in the records; the key's unless given."""
    time: bool | None = None
    """Whether its values go along time; else there is one value for each sequence."""
    shape: list[int] | None = None
    """Of one frame, where the records hold a flat list: [40] cuts it into frames of 40."""
    encoding: Literal["values", "raw", "tensor"] = "values"
    """Lists of numbers; raw bytes of `dtype` (tf.io.decode_raw); or a serialized tensor (tf.io.serialize_tensor)."""
    dtype: Literal["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"] | None = None
    """What raw bytes are; little-endian; uint8 unless given."""


@dataclass(frozen=True, kw_only=True)
class RecordIndex:
    """All records of some files, in order: arrays [sequences]."""

    features: Mapping[str, Feature]
    keys: Mapping[str, KeySpec]
    tags: Tags
    lengths: Mapping[str, Int64]
    offset: Int64
    """Where each record begins in its file."""
    first: Int64
    """int64 [files + 1]: the first sequence of each file."""


def read_record(files: ByteRanges, path: str, offset: int, place: object) -> UInt8 | None:
    """Reads one record, and holds it against its checksums.

    Args:
        files: reads byte ranges.
        path: the file.
        offset: where the record begins.
        place: names it in messages.

    Returns:
        uint8 [bytes]; None at the end of the file.

    Raises:
        SourceError: the record is damaged or cut off.
    """
    head = bytearray(HEAD_BYTES)
    filled = files.read(path, head, offset, place)
    if filled == 0:
        return None
    size = int.from_bytes(head[:8], "little")
    if filled == HEAD_BYTES and masked(checksum(head[:8])) != int.from_bytes(head[8:], "little"):
        raise SourceError(f"{place}: is damaged: its size doesn't match its checksum; is this a TFRecord file?")
    if filled < HEAD_BYTES or size > files.bound(path) - offset - HEAD_BYTES - _FOOT_BYTES:
        raise SourceError(f"{place}: is cut off; copy or write the file again")
    body = np.empty(size + _FOOT_BYTES, np.uint8)
    if files.read(path, body, offset + HEAD_BYTES, place) < len(body):
        raise SourceError(f"{place}: is cut off; copy or write the file again")
    data = body[:size]
    if masked(checksum(data)) != int.from_bytes(body[size:].tobytes(), "little"):
        raise SourceError(f"{place}: is damaged: its bytes don't match their checksum; copy or write the file again")
    return data


def place_of(path: object, number: int, offset: int) -> str:
    """Names a record in messages."""
    return f"{path}: record {number} at byte {offset}"


def _walk(files: ByteRanges, path: Path) -> Iterator[tuple[int, int, Record]]:
    """All records of a file: number, offset, and content."""
    number = offset = 0
    while (data := read_record(files, str(path), offset, place_of(path, number, offset))) is not None:
        try:
            yield number, offset, parse_record(data)
        except WireError as error:
            raise damaged(place_of(path, number, offset), error) from error
        number, offset = number + 1, offset + HEAD_BYTES + len(data) + _FOOT_BYTES


def damaged(place: object, error: WireError) -> SourceError:
    """Says that a record isn't what was expected."""
    return SourceError(f"{place}: {error}")


def index_records(
    paths: Sequence[Path], wishes: Mapping[str, FeatureOptions] | None, tag: str | None, files: ByteRanges
) -> RecordIndex:
    """Reads all files once: checks every record, and notes where it begins, its tag, and its lengths.

    Args:
        paths: the files.
        wishes: for each key, its feature; None for all that hold numbers.
        tag: the feature that names a sequence; None numbers them.
        files: reads byte ranges.

    Raises:
        ConfigError: the records lack a feature, or hold none of numbers.
        SourceError: a record is damaged, or its features aren't those of the others.
    """
    sample = [record for path in paths[:1] for _, _, record in islice(_walk(files, path), _SAMPLE)]
    features = _choose(sample, wishes, tag, paths[0])
    builder = _Builder(features, tag)
    counts = []
    for path in paths:
        before = len(builder.offset)
        for number, offset, record in _walk(files, path):
            try:
                builder.add(record, offset)
            except WireError as error:
                raise damaged(place_of(path, number, offset), error) from error
        counts.append(len(builder.offset) - before)
    return RecordIndex(
        features=features,
        keys=builder.keys(),
        tags=numbered_tags(tags_of_files(paths, SUFFIXES), counts) if tag is None else Tags.of(builder.tags),
        lengths={name: np.array(builder.lengths[name], np.int64) for name, key in features.items() if key.has_time},
        offset=np.array(builder.offset, np.int64),
        first=np.cumsum([0, *counts]),
    )


SUFFIXES = (".tfrecord.gz", ".tfrecords.gz", ".tfrecord", ".tfrecords", ".tfrec")


class _Builder:
    """Gathers what records hold."""

    def __init__(self, features: Mapping[str, Feature], tag: str | None) -> None:
        self._features, self._tag = features, tag
        self._specs: dict[str, KeySpec] = {}
        self.lengths = {name: array("q") for name in features}
        self.offset = array("q")
        self.tags: list[bytes] = []

    def add(self, record: Record, offset: int) -> None:
        """Takes one record.

        Raises:
            WireError: it isn't like the others.
        """
        for name, feature in self._features.items():
            found = measure(record, feature)
            self.lengths[name].append(found.frames)
            if found.spec is not None and found.spec != self._specs.setdefault(name, found.spec):
                raise WireError(
                    f"feature {feature.name!r} is {shown(found.spec)}, where earlier records have "
                    f"{shown(self._specs[name])}; if it goes along time, or has a shape, say so in source.features"
                )
        if self._tag is not None:
            self.tags.append(tag_of(record, self._tag))
        self.offset.append(offset)

    def keys(self) -> dict[str, KeySpec]:
        """The keys; one of which no record holds a value is of float32."""
        return {
            name: self._specs.get(
                name,
                KeySpec(dtype=feature.dtype or "float32", shape=feature.shape or (), has_time=feature.has_time),
            )
            for name, feature in self._features.items()
        }


def _choose(
    sample: list[Record], wishes: Mapping[str, FeatureOptions] | None, tag: str | None, path: Path
) -> dict[str, Feature]:
    """Works out which features become keys, and what they are, from the first records."""
    lists = {name for record in sample for name in record.lists}
    context = {name for record in sample for name in record.context}
    if wishes is not None:
        return {key: _wished(wish.feature or key, wish, lists, context, sample, path) for key, wish in wishes.items()}
    kinds = {name: _kind(sample, name) for name in lists | context}
    names = [name for name in kinds if kinds[name] in (FLOATS, INTS) and name != tag]
    if sample and not names:
        held = ", ".join(f"{name} ({_KINDS[kind]})" for name, kind in sorted(kinds.items())) or "none"
        raise ConfigError(
            f"{path}: no feature holds numbers (features: {held}); name those of bytes, and their encoding, in "
            "source.features"
        )
    chosen = sorted(names, key=lambda name: (name != "data", name))
    return {
        name: Feature(
            name=name, in_lists=name in lists, has_time=name in lists or (not lists and _varies(sample, name))
        )
        for name in chosen
    }


def _wished(
    name: str, wish: FeatureOptions, lists: set[str], context: set[str], sample: list[Record], path: Path
) -> Feature:
    if name not in lists | context:
        raise ConfigError(f"{path}: the first records have no feature {name!r}{suggestion(name, lists | context)}")
    in_lists = name in lists
    if in_lists and (wish.time is False or wish.encoding == "tensor"):
        what = "time: false" if wish.time is False else "encoding: tensor"
        raise ConfigError(f"source.features: {name!r} is a feature list, with an entry for each frame; remove {what}")
    if wish.dtype is not None and wish.encoding != "raw":
        raise ConfigError(f"source.features: {name!r} has a dtype, which only encoding: raw needs; remove it")
    has_time = wish.time
    if has_time is None:
        has_time = in_lists or (not lists and (wish.encoding != "values" or _varies(sample, name)))
    return Feature(
        name=name,
        in_lists=in_lists,
        has_time=has_time,
        encoding=wish.encoding,
        dtype=wish.dtype,
        shape=None if wish.shape is None else tuple(wish.shape),
    )


def _kind(sample: list[Record], name: str) -> int | None:
    """The kind of a feature's values, from the first record that has any."""
    held = (kind_of(record, name) for record in sample if name in record.lists or name in record.context)
    return next((kind for kind in held if kind is not None), None)


def _varies(sample: list[Record], name: str) -> bool:
    """Whether a feature of an Example goes along time: it has more or less than one value in one of the records."""
    return any(name in record.context and count_of(record, name) != 1 for record in sample)
