"""Small named types that all parts share: frame ranges, descriptions of keys, tags of many sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seqprep import hashing
from seqprep.errors import DependencyError
from seqprep.lazy import cached_property

Array = npt.NDArray[Any]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
UInt32 = npt.NDArray[np.uint32]

TENSOR_DTYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "int64": 9, "bool": 10,
    "bfloat16": 14, "uint16": 17, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip
"""TensorFlow's numbers of dtypes (tensorflow/core/framework/types.proto)."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """numpy's dtype of a name; also of bfloat16, which is no numpy dtype but one of the package ml_dtypes.

    Raises:
        DependencyError: bfloat16 without ml_dtypes.
        TypeError, ValueError, SyntaxError: there is no such dtype.
    """
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise DependencyError(
            "dtype bfloat16 needs the package ml_dtypes; pip install 'seqprep[bfloat16]' brings it"
        ) from error
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def plain_bytes(array: Array) -> UInt8:
    """An array's bytes as files hold them, little-endian; uint8 [bytes], on the same memory if they lie so there."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)


class FrameRange(NamedTuple):
    """Frames start, start+1, …, stop−1 of one sequence."""

    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class KeySpec:
    """What the arrays of one key look like."""

    dtype: str
    """numpy's name of the dtype, such as "float32"; or "bfloat16"."""
    shape: tuple[int | None, ...] = ()
    """Shape of one frame, or of the one value if the key has no time axis. None is a ragged axis: its size differs
    from sequence to sequence."""
    has_time: bool = True
    """False: one value per sequence, repeated in each of its rows."""
    labels: tuple[str, ...] | None = None
    """Names of the classes, if the values are class numbers with names."""

    @cached_property
    def ragged(self) -> tuple[int, ...]:
        """Which axes of `shape` are ragged, from 0. In arrays with time they come one axis later."""
        return tuple(axis for axis, size in enumerate(self.shape) if size is None)

    @cached_property
    def unit_shape(self) -> tuple[int, ...]:
        """Shape of a unit, the largest piece of a frame that has the same size everywhere: what stands behind the last
        ragged axis; the whole frame if none is."""
        behind = self.ragged[-1] + 1 if self.ragged else 0
        return tuple(size for size in self.shape[behind:] if size is not None)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of one unit: of one frame (or of the one value) without ragged axes."""
        return int(numpy_dtype(self.dtype).itemsize * np.prod(self.unit_shape, dtype=np.int64))

    def units(self, sizes: Int64) -> Int64:
        """Counts the units of frames.

        Args:
            sizes: int64 [n, ragged axes].

        Returns:
            int64 [n].
        """
        behind = self.ragged[-1] + 1 if self.ragged else 0
        fixed = int(np.prod([size for size in self.shape[:behind] if size is not None], dtype=np.int64))
        units: Int64 = fixed * np.prod(sizes, axis=1, dtype=np.int64)
        return units

    def shape_of(self, sizes: Iterable[int]) -> tuple[int, ...]:
        """Fills the sizes of the ragged axes into the shape."""
        left = iter(sizes)
        return tuple(next(left) if size is None else size for size in self.shape)


_HASH_BLOCK = 1 << 14
"""Tags hashed at once, so that the arrays between stay in the processor's cache."""
_TABLE_PLACES = 1 << 10
"""Bytes of a tag that are hashed by a table; of longer ones each is hashed by itself."""


class Tags(Sequence[str]):
    """The tags of many sequences in two arrays, for no object per sequence is affordable at tens of millions.

    Args:
        data: uint8 [bytes], the tags' UTF-8 one behind the other.
        ends: int64 [tags], where each tag ends in `data`.
    """

    __slots__ = ("data", "ends")

    def __init__(self, data: UInt8, ends: Int64) -> None:
        self.data = data
        self.ends = ends

    @classmethod
    def of(cls, tags: Iterable[str | bytes]) -> Tags:
        """Packs strings (or their UTF-8); bytes that are no UTF-8 are kept as they are."""
        encoded = [tag.encode("utf-8", "surrogateescape") if isinstance(tag, str) else tag for tag in tags]
        ends = np.cumsum([len(tag) for tag in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)

    @classmethod
    def concatenate(cls, parts: Sequence[Tags]) -> Tags:
        """Puts the tags of several parts one behind the other."""
        before = np.cumsum([0, *(len(part.data) for part in parts)], dtype=np.int64)
        ends = [part.ends + shift for part, shift in zip(parts, before, strict=False)]
        return cls(
            np.concatenate([np.empty(0, np.uint8), *(part.data for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *ends]),
        )

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            return self.stretch(start, max(start, stop)) if step == 1 else self.take(np.arange(start, stop, step))
        count = len(self.ends)
        if not -count <= place < count:
            raise IndexError(f"tag {place} of {count}")
        place %= count
        start = self.ends[place - 1] if place else 0
        return self.data[start : self.ends[place]].tobytes().decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        raw, ends = self.data.tobytes(), self.ends.tolist()
        bounds = pairwise([0, *ends])
        if raw.isascii():  # one letter a byte, so that it can be decoded as a whole, which is several times faster
            text = raw.decode("ascii")
            return (text[start:end] for start, end in bounds)
        return (raw[start:end].decode("utf-8", "surrogateescape") for start, end in bounds)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tags):
            return NotImplemented
        return np.array_equal(self.ends, other.ends) and np.array_equal(self.data, other.data)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(self[i]) for i in range(min(3, len(self))))
        return f"Tags({len(self)}: {shown}{', …' if len(self) > 3 else ''})"

    @property
    def starts(self) -> Int64:
        """Where each tag begins in `data`; int64 [tags]."""
        return self.ends - self.sizes

    @property
    def sizes(self) -> Int64:
        """Bytes of each tag; int64 [tags]."""
        return np.diff(self.ends, prepend=0)

    def take(self, places: Int64) -> Tags:
        """Gives the tags at these places, in their order; places may repeat.

        Args:
            places: int64 [n], each in [0, len(self)).
        """
        starts = np.where(places > 0, self.ends[places - 1], 0)  # of these alone: each shard takes its few of all
        sizes = self.ends[places] - starts
        ends = np.cumsum(sizes, dtype=np.int64)
        shift = np.repeat(starts - (ends - sizes), sizes)
        return Tags(self.data[np.arange(len(shift)) + shift], ends)

    def stretch(self, start: int, stop: int) -> Tags:
        """Gives the tags from one place up to another, on the same memory; in O(stop − start)."""
        first = int(self.ends[start - 1]) if start else 0
        ends = self.ends[start:stop]
        last = int(ends[-1]) if stop > start else first
        return Tags(self.data[first:last], ends - first)

    @property
    def shape(self) -> tuple[int]:
        """As of an array: one axis."""
        return (len(self.ends),)

    @property
    def dtype(self) -> np.dtype[np.object_]:
        """As of an array of str."""
        return np.dtype(object)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        strings = np.empty(len(self), object)
        strings[:] = list(self)
        return strings if dtype is None else strings.astype(dtype)

    def hashes(self) -> hashing.UInt64:
        """A 64-bit hash of each tag's bytes, the same on every machine; uint64 [tags]."""
        sums = np.empty(len(self), np.uint64)
        most = min(int(self.sizes.max(initial=0)), _TABLE_PLACES)
        table = hashing.mix(np.arange(most * 256))  # of every byte at every place
        for first in range(0, len(self), _HASH_BLOCK):
            part = self.stretch(first, min(first + _HASH_BLOCK, len(self)))
            within = np.arange(len(part.data)) - np.repeat(part.starts, part.sizes)
            values = within * 256 + part.data
            terms = table[values] if int(values.max(initial=0)) < len(table) else hashing.mix(values)
            total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
            with np.errstate(over="ignore"):
                sums[first : first + len(part)] = total[part.ends] - total[part.starts]
        return hashing.keyed(0, sums ^ hashing.mix(self.sizes))

    def duplicate(self) -> tuple[int, int] | None:
        """Finds two places with the same tag.

        Returns:
            The first two such places in ascending order, or None if all tags differ.
        """
        hashes = self.hashes()
        order = np.argsort(hashes, kind="stable")
        same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
        pairs = ((int(order[i]), int(order[i + 1])) for i in same)
        return min((pair for pair in pairs if self[pair[0]] == self[pair[1]]), default=None)
