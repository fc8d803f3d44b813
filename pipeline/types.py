"""Small named types that all parts share: frame ranges, descriptions of keys, tags of many sequences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seqprep import hashing

Array = npt.NDArray[Any]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
UInt32 = npt.NDArray[np.uint32]

TENSOR_DTYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "int64": 9, "bool": 10,
    "uint16": 17, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip
"""TensorFlow's numbers of dtypes (tensorflow/core/framework/types.proto)."""


class FrameRange(NamedTuple):
    """Frames start, start+1, …, stop−1 of one sequence."""

    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class KeySpec:
    """What the arrays of one key look like."""

    dtype: str
    """numpy's name of the dtype, such as "float32"."""
    shape: tuple[int, ...] = ()
    """Shape of one frame, or of the one value if the key has no time axis."""
    has_time: bool = True
    """False: one value per sequence, repeated in each of its rows."""
    labels: tuple[str, ...] | None = None
    """Names of the classes, if the values are class numbers with names."""

    @property
    def nbytes(self) -> int:
        """Bytes of one frame (or of the one value)."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


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

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return self.take(np.arange(len(self))[place])
        count = len(self.ends)
        if not -count <= place < count:
            raise IndexError(f"tag {place} of {count}")
        place %= count
        start = self.ends[place - 1] if place else 0
        return self.data[start : self.ends[place]].tobytes().decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        start, data = 0, self.data
        for end in self.ends.tolist():
            yield data[start:end].tobytes().decode("utf-8", "surrogateescape")
            start = end

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
            places: int64 [n].
        """
        sizes = self.sizes[places]
        ends = np.cumsum(sizes, dtype=np.int64)
        shift = np.repeat(self.starts[places] - (ends - sizes), sizes)
        return Tags(self.data[np.arange(len(shift)) + shift], ends)

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
        sizes = self.sizes
        within = np.arange(len(self.data)) - np.repeat(self.starts, sizes)
        terms = hashing.mix(within * 256 + self.data)
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        with np.errstate(over="ignore"):
            sums = total[self.ends] - total[self.starts]
        return hashing.keyed(0, sums ^ hashing.mix(sizes))

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
