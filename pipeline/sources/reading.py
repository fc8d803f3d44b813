"""What readers have in common: the target of a read, and tags of files and of numbered sequences."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.errors import SourceError
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags, UInt8

_DIGITS = 6


class Place:
    """Names file and sequence in messages; the text is made only when a message needs it.

    Args:
        describe: makes the text.
    """

    __slots__ = ("_describe",)

    def __init__(self, describe: Callable[[], str]) -> None:
        self._describe = describe

    def __str__(self) -> str:
        return self._describe()


def target_of(spec: KeySpec, length: int, frames: FrameRange | None, out: Array | None) -> tuple[FrameRange, Array]:
    """Works out what `Source.read` has to fill.

    Args:
        spec: the key.
        length: frames of the sequence; of no meaning for a key without time.
        frames: as given to `read`.
        out: as given to `read`.

    Returns:
        The frames (0 up to 1 for a key without time), and an array of the result's shape.
    """
    if not spec.has_time:
        return FrameRange(0, 1), np.empty(spec.unit_shape, spec.dtype) if out is None else out
    frames = frames or FrameRange(0, length)
    if out is None:
        out = np.empty((frames.stop - frames.start, *spec.unit_shape), spec.dtype)
    return frames, out


def as_bytes(array: Array) -> UInt8:
    """The bytes of a C-contiguous array; uint8 [bytes]."""
    return array.reshape(-1).view(np.uint8)


def tags_of_files(files: Sequence[Path], suffixes: Sequence[str] = ()) -> list[str]:
    """Names files: each by its path below the folder that they all share, without its suffix.

    Args:
        files: at least one.
        suffixes: endings of two parts that are taken off whole, such as ".csv.gz".
    """
    absolute = [os.path.abspath(file) for file in files]
    shared = len(os.path.commonpath([os.path.dirname(file) for file in absolute]))
    return [_stem(file[shared:].lstrip("/"), suffixes) for file in absolute]


def _stem(name: str, suffixes: Sequence[str]) -> str:
    double = next((suffix for suffix in suffixes if name.lower().endswith(suffix)), None)
    return name[: -len(double)] if double else os.path.splitext(name)[0]


def numbered_tags(stems: Sequence[str], counts: Sequence[int]) -> Tags:
    """Names sequences that have no names: <stem>-000000, <stem>-000001, … for each stem.

    Args:
        stems: one for each file.
        counts: sequences of each file.
    """
    return join_tags([_numbered(os.fsencode(stem), count) for stem, count in zip(stems, counts, strict=True)])


def _numbered(stem: bytes, count: int) -> Tags:
    digits = max(_DIGITS, len(str(count - 1)))
    text = np.empty((count, len(stem) + 1 + digits), np.uint8)
    text[:, : len(stem) + 1] = np.frombuffer(stem + b"-", np.uint8)
    numbers = np.arange(count)
    for place in range(digits):
        text[:, -1 - place] = ord("0") + numbers // 10**place % 10
    return Tags(text.reshape(-1), np.arange(1, count + 1) * text.shape[1])


def join_tags(parts: Sequence[Tags]) -> Tags:
    """The tags of several lists, one list behind the other."""
    before = np.cumsum([0, *(len(part.data) for part in parts)])
    ends = [part.ends + shift for part, shift in zip(parts, before.tolist(), strict=False)]
    return Tags(
        np.concatenate([np.empty(0, np.uint8), *(part.data for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *ends]),
    )


def check_unique(tags: Tags, place: Callable[[int], str], remedy: str) -> None:
    """Refuses tags that stand twice.

    Args:
        tags: of all sequences.
        place: says where a sequence comes from: file, and line or record.
        remedy: what a user can do about it.

    Raises:
        SourceError: two are equal; names both places.
    """
    twice = tags.duplicate()
    if twice is not None:
        raise SourceError(
            f"tag {tags[twice[0]]!r} stands twice, in {place(twice[0])} and {place(twice[1])}; "
            f"tags have to be unique, {remedy}"
        )


def file_of(first: Int64, sequence: int) -> int:
    """The file that holds a sequence.

    Args:
        first: int64 [files + 1], the first sequence of each file.
        sequence: its place in the source.
    """
    return bisect_right(first.data, sequence) - 1  # quicker than numpy for a single number


def shown(spec: KeySpec | None) -> str:
    """Describes a key in a message."""
    if spec is None:
        return "missing"
    axes = ["frames", *map(str, spec.shape)] if spec.has_time else [*map(str, spec.shape)]
    return f"{spec.dtype} [{', '.join(axes)}]"


def check_equal_keys(path: object, keys: dict[str, KeySpec], first_path: object, first: dict[str, KeySpec]) -> None:
    """Refuses a file whose keys differ from those of the first.

    Raises:
        SourceError: they differ; names the key and both files.
    """
    for name in sorted(first.keys() | keys.keys()):
        if keys.get(name) != first.get(name):
            raise SourceError(
                f"{path}: key {name!r} is {shown(keys.get(name))}, but in {first_path} it is {shown(first.get(name))}; "
                "files of one source have equal keys"
            )


def numeric_dtype(dtype: np.dtype[Any], what: str) -> str:
    """The name of a dtype that keys can have, in this machine's byte order.

    Raises:
        SourceError: it isn't one of numbers, or is wider than 64 bits.
    """
    if dtype.hasobject:
        raise SourceError(
            f"{what} holds Python objects, which only running code from the file could read; save it as numbers"
        )
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise SourceError(f"{what} holds {dtype}, not numbers of at most 64 bits; convert it or leave it out")
    return dtype.newbyteorder("=").name


def store(values: Array, out: Array, place: object) -> None:
    """Stores values in another dtype; what it can't hold is an error, not another value.

    Args:
        values: of the shape of `out`.
        out: of the key's dtype.
        place: names file and sequence in messages.

    Raises:
        SourceError: a value is outside the range of the dtype, or isn't whole where only whole numbers can be.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        out[...] = values
    if out.dtype.kind == "f":
        wrong = np.isinf(out) & ~np.isinf(values) if values.dtype.kind == "f" else np.isinf(out)
    else:
        wrong = out != values
    if wrong.any():
        raise SourceError(f"{place}: holds {values[wrong].flat[0]}, which {out.dtype} can't; set another dtype")
