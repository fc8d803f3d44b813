"""Feature lists of SequenceExamples: an entry for each frame, read without a step of Python for each where they agree."""

from __future__ import annotations

import numpy as np

from seqprep.sources import protobuf
from seqprep.sources.protobuf import BYTES, DELIMITED, FLOATS, INTS, Span, WireError
from seqprep.types import Array, Int64, UInt8

_TAG = 0x0A
"""Field 1, delimited."""

Decoded = tuple[int | None, Array]
"""The kind of values (None: no list is set), and [frames, values]: float32, int64, or uint8 of one byte string."""


def decode_list(data: UInt8, span: Span) -> Decoded:
    """Reads a FeatureList.

    Args:
        data: a record's bytes.
        span: where the list lies in them.

    Raises:
        WireError: the bytes are no such message, or frames differ in their kind or number of values.
    """
    view = data.data
    starts, sizes = _entries(data, view, span)
    if not len(starts):
        return None, np.empty((0, 0), np.float32)
    groups, found = [], []
    for size in np.unique(sizes).tolist():  # whole numbers have few sizes, floats one
        group = np.flatnonzero(sizes == size)
        bodies = _bodies(data, span, starts[group], size)
        alike = _decode_alike(view, Span(int(starts[group[0]]), int(starts[group[0]]) + size), bodies)
        found.append(alike or _decode_one_by_one(data, view, starts[group], size))
        groups.append(group)
    kind, first = found[0]
    for other, values in found[1:]:
        _check_alike(kind, other, first.shape[1], values.shape[1])
    if len(found) == 1:
        return kind, first
    joined = np.empty((len(starts), *first.shape[1:]), first.dtype)
    for group, (_, values) in zip(groups, found, strict=True):
        joined[group] = values
    return kind, joined


def _check_alike(kind: int | None, other: int | None, width: int, other_width: int) -> None:
    if kind != other:
        raise WireError("frames of a feature list hold values of different kinds")
    if width != other_width:
        raise WireError(f"frames of a feature list differ: one has {width} values, another {other_width}")


def _entries(data: UInt8, view: memoryview, span: Span) -> tuple[Int64, Int64]:
    """Where the entries begin, and their bytes; int64 [frames] each."""
    place, stop = span
    if place == stop:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    first = next(protobuf.fields(view, span))
    stride, head = first.stop - place, first.start - place
    if (stop - place) % stride == 0 and data[place] == _TAG:  # most often all are of one size
        rows = data[place:stop].reshape(-1, stride)
        if (rows[:, :head] == rows[0, :head]).all():
            return np.arange(first.start, stop, stride), np.full(len(rows), stride - head)
    return _walk(view, span)


def _walk(view: memoryview, span: Span) -> tuple[Int64, Int64]:
    """As `_entries`, one after the other."""
    content, base = bytes(view[span.start : span.stop]), span.start
    place, stop = 0, len(content)
    starts, sizes = [], []
    while place < stop:
        if content[place] == _TAG and place + 1 < stop and content[place + 1] < 0x80:  # without a generator's cost
            start, size = place + 2, content[place + 1]
            if start + size > stop:
                raise WireError(f"a frame at byte {base + start} ends beyond its list")
            place = start + size
        else:
            field = next(protobuf.fields(view, Span(base + place, span.stop)))
            start, size, place = field.start - base, field.stop - field.start, field.stop - base
            if (field.number, field.wire) != (1, DELIMITED):
                continue
        starts.append(start)
        sizes.append(size)
    return np.array(starts, np.int64) + base, np.array(sizes, np.int64)


def _bodies(data: UInt8, span: Span, starts: Int64, size: int) -> UInt8:
    """The bytes of entries of one size; [entries, size], a view if they lie at equal distances."""
    stride = int(starts[1] - starts[0]) if len(starts) > 1 else size
    begin = int(starts[0]) + size - stride
    if stride >= size and begin >= span.start and (np.diff(starts) == stride).all():
        return data[begin : begin + len(starts) * stride].reshape(-1, stride)[:, stride - size :]
    found: UInt8 = data[starts[:, None] + np.arange(size)]
    return found


def _decode_alike(view: memoryview, first: Span, bodies: UInt8) -> Decoded | None:
    """Reads Features of one size at once, if their bytes agree in everything but the values; else gives None."""
    values = protobuf.feature(view, first)
    if len(values.parts) != 1 or values.parts[0].wire != DELIMITED or values.parts[0].stop != first.stop:
        return None
    head = values.parts[0].start - first.start
    if not (bodies[:, :head] == bodies[0, :head]).all():
        return None
    content = np.ascontiguousarray(bodies[:, head:])
    if values.kind == FLOATS:
        return FLOATS, content.view("<f4").astype(np.float32, copy=False)
    if values.kind == BYTES:
        return BYTES, content
    last = content < 0x80
    counts = last.sum(axis=1)
    if not last[:, -1:].all() or not (counts == counts[0]).all():
        return None
    return INTS, protobuf.varints(content.reshape(-1)).reshape(len(content), -1)


def _decode_one_by_one(data: UInt8, view: memoryview, starts: Int64, size: int) -> Decoded:
    rows: list[Array] = []
    kind = None
    for start in starts.tolist():
        values = protobuf.feature(view, Span(start, start + size))
        if values.kind == BYTES and len(values.parts) != 1:
            raise WireError(f"a frame has {len(values.parts)} byte strings; one is expected")
        if values.kind == BYTES:
            rows.append(data[values.parts[0].start : values.parts[0].stop])
        else:
            rows.append(protobuf.numbers(data, values))
        kind = values.kind if len(rows) == 1 else kind
        _check_alike(kind, values.kind, len(rows[0]), len(rows[-1]))
    return kind, np.stack(rows)
