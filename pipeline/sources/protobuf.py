"""A lean reader of protobuf's wire format, for the messages of tensorflow/core/example/{example,feature}.proto.

Positions are byte offsets in one buffer, uint8 [bytes]; nothing is copied but the values asked for, and no size that a
message claims is trusted before it is held against the bytes that are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from seqprep.types import Array, Int64, UInt8

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
BYTES, FLOATS, INTS = 1, 2, 3
"""Field numbers of tf.train.Feature: which kind of list it holds."""

_MOST_VARINT_BYTES = 10


class WireError(ValueError):
    """Bytes that are no message; says why."""


class Span(NamedTuple):
    """Bytes start, start+1, …, stop−1."""

    start: int
    stop: int


class Field(NamedTuple):
    """One field of a message."""

    number: int
    wire: int
    start: int
    """Where its value begins: a varint's first byte, a fixed number's, or the first byte of what is delimited."""
    stop: int


def varint(data: memoryview, place: int, stop: int) -> tuple[int, int]:
    """Reads one number.

    Returns:
        The number, and where it ends.

    Raises:
        WireError: it has more than ten bytes, or passes `stop`.
    """
    value = shift = 0
    while True:
        if place >= stop or shift >= 7 * _MOST_VARINT_BYTES:
            raise WireError(f"a number at byte {place} doesn't end")
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
        shift += 7


def fields(data: memoryview, span: Span) -> Iterator[Field]:
    """Goes through the fields of a message.

    Raises:
        WireError: the bytes are no message.
    """
    place, stop = span
    while place < stop:
        tag, start = varint(data, place, stop)
        number, wire = tag >> 3, tag & 7
        if wire == DELIMITED:
            size, start = varint(data, start, stop)
            end = start + size
        elif wire == VARINT:
            _, end = varint(data, start, stop)
        elif wire in (FIXED32, FIXED64):
            end = start + (4 if wire == FIXED32 else 8)
        else:
            raise WireError(f"wire type {wire} at byte {place} is none")
        if end > stop or number == 0:
            raise WireError(f"field {number} at byte {place} ends at byte {end}, beyond its message")
        yield Field(number, wire, start, end)
        place = end


def map_entries(data: memoryview, span: Span) -> dict[str, Span]:
    """Reads a message whose field 1 is a map from names to messages (Features, FeatureLists); the last of a name counts.

    Raises:
        WireError: the bytes are no such message.
    """
    found: dict[str, Span] = {}
    for entry in fields(data, span):
        if (entry.number, entry.wire) != (1, DELIMITED):
            continue
        name, value = b"", Span(0, 0)
        for part in fields(data, Span(entry.start, entry.stop)):
            if (part.number, part.wire) == (1, DELIMITED):
                name = bytes(data[part.start : part.stop])
            elif (part.number, part.wire) == (2, DELIMITED):
                value = Span(part.start, part.stop)
        found[name.decode("utf-8", "surrogateescape")] = value
    return found


class Values(NamedTuple):
    """What a tf.train.Feature holds: the kind of its list, and where the list's parts lie."""

    kind: int | None
    """BYTES, FLOATS or INTS; None if no list is set."""
    parts: list[Field]
    """The list's fields 1: packed or single numbers, or byte strings."""


def feature(data: memoryview, span: Span) -> Values:
    """Reads a tf.train.Feature; its lists exclude each other, and the last of them counts.

    Raises:
        WireError: the bytes are no such message.
    """
    kind: int | None = None
    parts: list[Field] = []
    for field in fields(data, span):
        if field.wire == DELIMITED and field.number in (BYTES, FLOATS, INTS):
            if field.number != kind:
                kind, parts = field.number, []
            parts += [part for part in fields(data, Span(field.start, field.stop)) if part.number == 1]
    allowed = {BYTES: (DELIMITED,), FLOATS: (DELIMITED, FIXED32), INTS: (DELIMITED, VARINT), None: ()}[kind]
    for part in parts:
        if part.wire not in allowed:
            raise WireError(f"a value at byte {part.start} has wire type {part.wire}, which its list can't hold")
        if kind == FLOATS and (part.stop - part.start) % 4:
            raise WireError(f"packed floats at byte {part.start} have {part.stop - part.start} bytes, no multiple of 4")
    return Values(kind, parts)


def count(data: UInt8, values: Values) -> int:
    """How many values a feature's list holds."""
    if values.kind == FLOATS:
        return sum(part.stop - part.start for part in values.parts) // 4
    if values.kind == INTS:
        return sum(int(np.count_nonzero(data[part.start : part.stop] < 0x80)) for part in values.parts)
    return len(values.parts)


def numbers(data: UInt8, values: Values) -> Array:
    """Reads a feature's numbers; float32 or int64 [values].

    Raises:
        WireError: a number doesn't end.
    """
    pieces = [data[part.start : part.stop] for part in values.parts]
    joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces) if pieces else data[:0]
    if values.kind == FLOATS:
        return np.frombuffer(joined.tobytes(), "<f4")
    return varints(joined)


def varints(data: UInt8) -> Int64:
    """Reads numbers that lie one behind the other; int64 [numbers], modulo 2^64.

    Raises:
        WireError: one has more than ten bytes, or the last doesn't end.
    """
    last = data < 0x80
    if last.all():
        return data.astype(np.int64)
    if not last[-1]:
        raise WireError("the last of packed numbers doesn't end")
    ends = np.flatnonzero(last)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
    sizes = ends - starts + 1
    if sizes.max() > _MOST_VARINT_BYTES:
        raise WireError("one of packed numbers has more than ten bytes")
    found = np.zeros(len(starts), np.uint64)
    for place in range(int(sizes.max())):
        longer = np.flatnonzero(sizes > place)
        bits = (data[starts[longer] + place] & 0x7F).astype(np.uint64)
        found[longer] |= bits << np.uint64(7 * place)
    return found.view(np.int64)
