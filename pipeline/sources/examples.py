"""What a record of TensorFlow's holds: a tf.train.Example or SequenceExample, key by key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from seqprep.sources import protobuf
from seqprep.sources.feature_lists import decode_list
from seqprep.sources.protobuf import BYTES, DELIMITED, INTS, VARINT, Span, Values, WireError
from seqprep.types import TENSOR_DTYPES, Array, KeySpec, UInt8

_DTYPES = {number: name for name, number in TENSOR_DTYPES.items()}


class Record(NamedTuple):
    """One record's bytes, and where its features lie."""

    data: UInt8
    view: memoryview
    context: dict[str, Span]
    """Features of an Example, or of a SequenceExample as a whole."""
    lists: dict[str, Span]
    """Features of each frame of a SequenceExample."""


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature that becomes a key."""

    name: str
    """As records call it."""
    in_lists: bool
    """It is a feature list of SequenceExamples: an entry for each frame."""
    has_time: bool
    encoding: Literal["values", "raw", "tensor"] = "values"
    """Lists of numbers; bytes of `dtype`; or a serialized tensor in bytes."""
    dtype: str | None = None
    """Of raw bytes."""
    shape: tuple[int, ...] | None = None
    """Of one frame, where the record doesn't say it."""


class Found(NamedTuple):
    """What a record holds of a feature."""

    frames: int
    """1 for a key without time."""
    spec: KeySpec | None
    """None if nothing of it can be told, for there is no value."""


def parse_record(data: UInt8) -> Record:
    """Finds a record's features.

    Raises:
        WireError: the bytes are neither an Example nor a SequenceExample.
    """
    view = data.data
    context: dict[str, Span] = {}
    lists: dict[str, Span] = {}
    for field in protobuf.fields(view, Span(0, len(data))):
        if field.wire == DELIMITED and field.number in (1, 2):
            target = context if field.number == 1 else lists
            target |= protobuf.map_entries(view, Span(field.start, field.stop))
    return Record(data, view, context, lists)


def kind_of(record: Record, name: str) -> int | None:
    """The kind of values that a feature holds; None if there is no value.

    Raises:
        WireError: the record is damaged.
    """
    if name in record.lists:
        entries = protobuf.fields(record.view, record.lists[name])
        first = next((entry for entry in entries if (entry.number, entry.wire) == (1, DELIMITED)), None)
        return None if first is None else protobuf.feature(record.view, Span(first.start, first.stop)).kind
    return protobuf.feature(record.view, record.context[name]).kind


def count_of(record: Record, name: str) -> int:
    """How many values a feature of the record as a whole has.

    Raises:
        WireError: the record is damaged.
    """
    return protobuf.count(record.data, protobuf.feature(record.view, record.context[name]))


def tag_of(record: Record, name: str) -> bytes:
    """The record's tag: a feature of one byte string or whole number.

    Raises:
        WireError: it holds something else, or isn't there.
    """
    if name not in record.context:
        raise WireError(f"has no feature {name!r} to be its tag")
    values = protobuf.feature(record.view, record.context[name])
    if values.kind == BYTES and len(values.parts) == 1:
        return bytes(record.view[values.parts[0].start : values.parts[0].stop])
    if values.kind == INTS and protobuf.count(record.data, values) == 1:
        return str(int(protobuf.numbers(record.data, values)[0])).encode()
    raise WireError(f"feature {name!r} isn't one byte string or whole number, as a tag has to be")


def measure(record: Record, feature: Feature) -> Found:
    """Works out how many frames a record has of a feature, and what they look like.

    Raises:
        WireError: the record lacks the feature, is damaged, or its values don't make whole frames.
    """
    if not feature.in_lists and feature.encoding == "values":
        values = _values_of(record, feature)
        count, dtype = protobuf.count(record.data, values), "int64" if values.kind == INTS else "float32"
        return _shaped(feature, (count,), dtype)
    array = _decode(record, feature)
    return _shaped(feature, array.shape, array.dtype.name)


def read(record: Record, feature: Feature, spec: KeySpec) -> Array:
    """Reads a feature; [frames, *shape], or [*shape] without time.

    Raises:
        WireError: as `measure`.
    """
    array = _decode(record, feature)
    return array.reshape(-1, *spec.unit_shape) if spec.has_time else array.reshape(spec.unit_shape)


def _shaped(feature: Feature, extents: tuple[int, ...], dtype: str) -> Found:
    """Cuts values into frames.

    Args:
        feature: what they are.
        extents: their shape as recorded: [values], or [frames, …] of feature lists and tensors.
        dtype: of the values.
    """
    recorded = extents[1:] if feature.in_lists or feature.encoding == "tensor" else ()
    total = math.prod(extents)
    if not feature.has_time:
        own = extents if feature.encoding == "tensor" else () if total == 1 else extents
        shape = own if feature.shape is None else feature.shape
        if math.prod(shape) != total or total == 0:
            raise WireError(f"feature {feature.name!r} has {total} values, which don't make one value of {list(shape)}")
        return Found(1, KeySpec(dtype=dtype, shape=shape, has_time=False))
    shape = (() if recorded == (1,) and feature.in_lists else recorded) if feature.shape is None else feature.shape
    if total == 0:
        if extents[0]:
            raise WireError(f"feature {feature.name!r} has {extents[0]} frames without a value")
        return Found(0, None)
    size = math.prod(shape)
    if size == 0 or total % size or (recorded and math.prod(recorded) != size):
        raise WireError(f"feature {feature.name!r} has {total} values, which don't make whole frames of {list(shape)}")
    return Found(total // size, KeySpec(dtype=dtype, shape=shape))


def _span(record: Record, feature: Feature) -> Span:
    found = (record.lists if feature.in_lists else record.context).get(feature.name)
    if found is None:
        raise WireError(f"has no feature {'list ' if feature.in_lists else ''}{feature.name!r}")
    return found


def _values_of(record: Record, feature: Feature) -> Values:
    """The list of a feature of the record as a whole, of the kind that its encoding wants."""
    values = protobuf.feature(record.view, _span(record, feature))
    if values.kind is not None and (values.kind == BYTES) != (feature.encoding != "values"):
        held = "bytes" if values.kind == BYTES else "numbers"
        raise WireError(
            f"feature {feature.name!r} holds {held}, which encoding {feature.encoding} can't read; set another in "
            "source.features"
        )
    return values


def _decode(record: Record, feature: Feature) -> Array:
    """All values of a feature: [values], or [frames, …] of feature lists and tensors."""
    if feature.in_lists:
        kind, rows = decode_list(record.data, _span(record, feature))
        if kind is not None and (kind == BYTES) != (feature.encoding == "raw"):
            raise WireError(
                f"feature list {feature.name!r} holds {'bytes' if kind == BYTES else 'numbers'}, which encoding "
                f"{feature.encoding} can't read; set another in source.features"
            )
        return _as_raw(rows, feature) if kind == BYTES else rows
    values = _values_of(record, feature)
    if feature.encoding == "values":
        return protobuf.numbers(record.data, values)
    if not values.parts:
        return np.empty(0, feature.dtype or "uint8")
    if len(values.parts) > 1:
        raise WireError(f"feature {feature.name!r} holds {len(values.parts)} byte strings; one is expected")
    content = record.data[values.parts[0].start : values.parts[0].stop]
    return _tensor(record, values.parts[0]) if feature.encoding == "tensor" else _as_raw(content, feature)


def _as_raw(content: UInt8, feature: Feature) -> Array:
    """Takes bytes along the last axis as numbers, little-endian."""
    dtype = np.dtype(feature.dtype or "uint8")
    if content.shape[-1] % dtype.itemsize:
        raise WireError(f"feature {feature.name!r} has {content.shape[-1]} bytes, which don't make whole {dtype}")
    return np.ascontiguousarray(content).view(dtype.newbyteorder("<")).astype(dtype, copy=False)


def _tensor(record: Record, part: protobuf.Field) -> Array:
    """Reads a TensorProto, as tf.io.serialize_tensor makes it."""
    number, shape, content = 0, [], Span(0, 0)
    for field in protobuf.fields(record.view, Span(part.start, part.stop)):
        if (field.number, field.wire) == (1, VARINT):
            number = protobuf.varint(record.view, field.start, field.stop)[0]
        elif (field.number, field.wire) == (2, DELIMITED):
            dims = protobuf.fields(record.view, Span(field.start, field.stop))
            shape = [_extent(record, dim) for dim in dims if (dim.number, dim.wire) == (2, DELIMITED)]
        elif (field.number, field.wire) == (4, DELIMITED):
            content = Span(field.start, field.stop)
    if number not in _DTYPES:
        raise WireError(f"a tensor has the type {number}, which isn't one of numbers")
    dtype = np.dtype(_DTYPES[number])
    if math.prod(shape) * dtype.itemsize != content.stop - content.start:
        raise WireError(
            f"a tensor of {dtype} {shape} has {content.stop - content.start} bytes of content; write it with "
            "tf.io.serialize_tensor"
        )
    found = np.frombuffer(record.data[content.start : content.stop].tobytes(), dtype.newbyteorder("<"))
    return found.astype(dtype, copy=False).reshape(shape)


def _extent(record: Record, dim: protobuf.Field) -> int:
    parts = protobuf.fields(record.view, Span(dim.start, dim.stop))
    return next(
        (protobuf.varint(record.view, p.start, p.stop)[0] for p in parts if (p.number, p.wire) == (1, VARINT)), 0
    )
