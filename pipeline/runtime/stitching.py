"""`seqprep.stitch`: puts what a model made of rows back together to whole sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from seqprep.config import shown, suggestion
from seqprep.errors import ConfigError
from seqprep.types import Array, Int64

Context = Literal["kept", "removed"]
Overlap = Literal["first", "last", "mean"]


class Stitched(NamedTuple):
    """The outputs of one sequence."""

    seq_idx: int
    """Its place in the source."""
    seq_tag: str
    outputs: Array
    """[frames, …], a frame for each of the sequence's."""


def stitch(
    pairs: Iterable[tuple[Mapping[str, Any], Any]],
    *,
    context: Context,
    key: str | None = None,
    overlap: Overlap = "first",
    ordered: bool = False,
    fill: float | None = None,
) -> Iterator[Stitched]:
    """Puts outputs of rows back together to sequences, each given as soon as nothing more can change it.

    With overlap `first` that is when every frame has an output; with `last` and `mean` it is at the end of the pairs, for
    more rows may come; with `ordered` it is when another sequence begins. Rows that come twice (where ranks are padded) count
    once, and rows that only fill a batch up not at all. Sequences of no frames are given, empty, where they have a row.

    Args:
        pairs: batches of a loader, each with what was made of it: an array, or a tensor that numpy takes, [B, T', …].
        context: `kept` if the outputs have a frame for each frame of the rows; `removed` if those of the context are gone,
            as behind a convolution with valid padding, so that the first stands for the first frame of the core.
        key: in whose frames the outputs are, and whose fields `start`, `core` and `length` place them; the first of the
            batch unless given.
        overlap: for a frame that several rows have in their core: the one that came first, the one that came last, or
            their mean, for outputs of floating-point or complex numbers.
        ordered: the rows of a sequence come one behind the other, as from a dataset in the order of its source, read
            without shuffle by one rank. Then no more than one sequence is held in memory.
        fill: stands where no row has an output; None: such a gap is an error.

    Yields:
        For each sequence, its place in the source, its tag, and its outputs [frames, …].

    Raises:
        ConfigError: an argument is impossible, outputs don't fit their batch, frames of a sequence have no output, or
            `ordered` isn't true.
    """
    for name, value, choices in (("context", context, Context), ("overlap", overlap, Overlap)):
        if value not in choices.__args__:  # type: ignore[attr-defined]
            raise ConfigError(f"{name} is {shown(value)}: it has to be {' or '.join(choices.__args__)}")  # type: ignore[attr-defined]
    return _Stitcher(key, context, overlap, ordered, fill).run(pairs)


@dataclass
class _Sequence:
    """A sequence that isn't complete yet."""

    tag: str
    outputs: Array
    """[frames, …]; for the mean, sums."""
    counts: Array
    """int32 [frames]: how many rows gave an output."""
    starts: set[int] = field(default_factory=set)
    """Of the cores that came."""


class _Rows(NamedTuple):
    """Where the outputs of a batch belong; all have an entry per row."""

    sequence: Int64
    row: Int64
    """In the outputs."""
    begin: Int64
    """First frame of the core in the outputs."""
    start: Int64
    """First frame of the core in the sequence."""
    size: Int64
    """Frames of the core."""
    length: Int64
    """Frames of the sequence."""
    tags: Any


class _Stitcher:
    def __init__(self, key: str | None, context: Context, overlap: Overlap, ordered: bool, fill: float | None) -> None:
        self._key, self._context, self._overlap = key, context, overlap
        self._ordered, self._fill = ordered, fill
        self._open: dict[int, _Sequence] = {}
        self._given: dict[int, bytes] = {}  # sequences that were given: the starts of their cores
        self._dtype: np.dtype[Any] | None = None  # of the outputs
        self._shape: tuple[int, ...] = ()  # of one frame of them
        self._lefts: set[int] = set()  # frames of context in front of cores
        self._put: Callable[[_Sequence, slice, Array], None] = {
            "first": _put_first, "last": _put_last, "mean": _put_mean,
        }[overlap]  # fmt: skip

    def run(self, pairs: Iterable[tuple[Mapping[str, Any], Any]]) -> Iterator[Stitched]:
        for batch, outputs in pairs:
            values = np.asarray(outputs)
            rows = self._place(batch, values)
            for number in np.flatnonzero(rows.sequence >= 0).tolist():
                yield from self._add(rows, number, values)
        for sequence in list(self._open):
            yield self._give(sequence)

    def _add(self, rows: _Rows, number: int, values: Array) -> Iterator[Stitched]:
        """Takes one row; gives what is complete now."""
        sequence, start, size = int(rows.sequence[number]), int(rows.start[number]), int(rows.size[number])
        if sequence in self._given:
            if self._ordered and start not in np.frombuffer(self._given[sequence], np.int64):
                raise ConfigError(
                    f"ordered is set, but rows of sequence {sequence} ({_text(rows.tags[number])!r}) come behind those of "
                    "others; read the dataset in order, or leave ordered out"
                )
            return
        if self._ordered:
            for other in [other for other in self._open if other != sequence]:
                yield self._give(other)
        found = self._open.get(sequence)
        if found is None:
            found = self._open[sequence] = self._begin(rows, number, values)
        if start not in found.starts:
            found.starts.add(start)
            begin = int(rows.begin[number])
            self._put(found, slice(start, start + size), values[rows.row[number], begin : begin + size])
        if not self._ordered and (self._overlap == "first" or not len(found.counts)) and found.counts.all():
            yield self._give(sequence)

    def _begin(self, rows: _Rows, number: int, values: Array) -> _Sequence:
        length, dtype = int(rows.length[number]), values.dtype
        if self._overlap == "mean":  # sums are more exact than what they are of
            dtype = np.result_type(dtype, np.float32 if dtype.itemsize < 4 else np.float64)
        outputs = np.zeros((length, *values.shape[2:]), dtype)
        return _Sequence(_text(rows.tags[number]), outputs, np.zeros(length, np.int32))

    def _give(self, sequence: int) -> Stitched:
        """Finishes a sequence."""
        found = self._open.pop(sequence)
        self._given[sequence] = np.array(list(found.starts), np.int64).tobytes() if self._ordered else b""
        outputs, gaps = found.outputs, np.flatnonzero(found.counts == 0)
        if self._overlap == "mean":
            counts = np.maximum(found.counts, 1).reshape(-1, *[1] * (outputs.ndim - 1))
            outputs = (outputs / counts).astype(self._dtype)
        if len(gaps):
            if self._fill is None:
                raise ConfigError(
                    f"sequence {sequence} ({found.tag!r}): {len(gaps)} of its {len(found.counts)} frames, the first of "
                    f"them {gaps[0]}, have no output; stitch the rows of all ranks and batches, or set fill"
                )
            outputs[gaps] = self._fill
        return Stitched(sequence, found.tag, outputs)

    def _place(self, batch: Mapping[str, Any], values: Array) -> _Rows:
        """Finds where the outputs of a batch belong."""
        key = self._key_of(batch)
        start, core, length = (np.asarray(_of(batch, f"{key}/{name}")) for name in ("start", "core", "length"))
        left, size = core[:, 0].astype(np.int64), core[:, 1].astype(np.int64)
        row, begin = np.arange(len(start)), np.zeros(len(start), np.int64)
        if packed := "segment_row" in batch:
            own = f"{key}/segment_start"
            row, begin = np.asarray(batch["segment_row"]), np.asarray(batch[own if own in batch else "segment_start"])
        if self._context == "kept":
            begin = begin + left
        self._check(batch, key, values, left[size > 0], packed)
        count = int(row.max(initial=-1)) + 1
        if len(values) < count or (len(values) > count and not packed):
            raise ConfigError(f"the outputs have {len(values)} rows where the batch has {count}")
        short = np.flatnonzero(begin + size > values.shape[1])
        if len(short):
            raise ConfigError(
                f"the outputs have {values.shape[1]} frames, but the core of row {row[short[0]]} ends at frame "
                f"{(begin + size)[short[0]]} of them: {'set context to removed, or ' * (self._context == 'kept')}"
                f"name the key whose frames they have (here {key!r})"
            )
        return _Rows(np.asarray(_of(batch, "seq_idx")), row, begin, start, size, length, _of(batch, "seq_tag"))

    def _key_of(self, batch: Mapping[str, Any]) -> str:
        keys = [name.removesuffix("/core") for name in batch if name.endswith("/core")]
        if self._key is None and keys:
            self._key = keys[0]
        if self._key not in keys:
            raise ConfigError(
                f"key is {self._key!r}: the batch has no such key with time{suggestion(str(self._key), keys)}"
            )
        return self._key

    def _check(self, batch: Mapping[str, Any], key: str, values: Array, left: Int64, packed: bool) -> None:
        """Refuses outputs that can't be what they are said to be."""
        if values.ndim < 2:
            raise ConfigError(f"the outputs have the shape {list(values.shape)}: they have to be [rows, frames, …]")
        kind = values.dtype, values.shape[2:]
        if kind != (self._dtype, self._shape) and self._dtype is not None:
            raise ConfigError(
                f"the outputs are {kind[0]}, {list(kind[1])} a frame, where those before were {self._dtype}, {list(self._shape)}"
            )
        self._dtype, self._shape = kind
        if self._overlap == "mean" and values.dtype.kind in "biu":
            raise ConfigError(f"overlap is 'mean', but the outputs are {values.dtype}; set it to 'first' or 'last'")
        frames = np.shape(batch[key])[1] if key in batch else None
        if self._context == "kept":
            if frames is not None and frames != values.shape[1]:
                raise ConfigError(
                    f"the outputs have {values.shape[1]} frames where the rows of {key!r} have {frames}; if their context "
                    "is gone, set context to 'removed'; if they have another rate, name a key of that rate"
                )
            return
        if packed:
            raise ConfigError(
                "context is 'removed', but the rows are packed: a convolution would have mixed their sequences"
            )
        self._lefts |= set(np.unique(left).tolist())
        if len(self._lefts) > 1:
            raise ConfigError(
                f"context is 'removed', but rows have {' or '.join(map(str, sorted(self._lefts)))} frames of it on the left, "
                "so their outputs don't begin at the core; keep it, and set context to 'kept'"
            )
        if frames is not None and frames == values.shape[1] and self._has_context(batch, key):
            raise ConfigError(
                f"context is 'removed', but the outputs have as many frames as the rows of {key!r}, {frames}; set it to 'kept'"
            )

    def _has_context(self, batch: Mapping[str, Any], key: str) -> bool:
        """Whether all rows hold frames beside their core."""
        core = np.asarray(batch[f"{key}/core"])
        return bool((np.asarray(_of(batch, f"{key}/size0")) > core[:, 1])[core[:, 1] > 0].all()) and bool(
            core[:, 1].any()
        )


def _of(batch: Mapping[str, Any], name: str) -> Any:
    if name not in batch:
        raise ConfigError(
            f"the batch holds no {name!r}, which places the outputs; give the batch as the loader gave it"
        )
    return batch[name]


def _text(tag: Any) -> str:
    """A tag as str; frameworks give bytes."""
    if not isinstance(tag, str | bytes):
        tag = np.asarray(tag).item()
    return tag.decode("utf-8", "surrogateescape") if isinstance(tag, bytes) else str(tag)


def _put_first(found: _Sequence, frames: slice, values: Array) -> None:
    new = found.counts[frames] == 0
    found.outputs[frames][new] = values[new]
    found.counts[frames] += 1


def _put_last(found: _Sequence, frames: slice, values: Array) -> None:
    found.outputs[frames] = values
    found.counts[frames] += 1


def _put_mean(found: _Sequence, frames: slice, values: Array) -> None:
    found.outputs[frames] += values
    found.counts[frames] += 1
