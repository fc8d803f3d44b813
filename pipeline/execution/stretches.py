"""Reads what a shard needs of its sequences, key by key, each into one flat buffer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from seqprep.errors import SourceError
from seqprep.execution.normalization import Normalizer
from seqprep.planning import OUTSIDE_PLACE, PAD_PLACE, KeyRule, NeededFrames, ShardTask
from seqprep.sources import Source
from seqprep.types import Array, FrameRange, Int64, KeySpec, UInt8, numpy_dtype

MemoryOf = Callable[[int], UInt8]
"""Gives so many bytes, or more."""


def fresh_memory(size: int) -> UInt8:
    """Gives bytes that nobody has used."""
    return np.empty(size, np.uint8)


class Stretches:
    """One key with time: a stretch of each sequence, behind the two frames that aren't of one.

    The order of steps: frames are read, normalised and brought to the stored dtype, and only then stand beside what pads
    them, which is in the stored values already: frames outside sequences, those that alignment added, and those that
    fill rows up.

    Args:
        source: the input.
        task: the shard's sequences.
        needed: their stretches.
        rule: of the key.
        spec: of the key as it is stored.
        pad_value: what rows hold beyond their valid frames.
        normalizer: of the key.
        memory: gives the buffer's bytes.
    """

    def __init__(
        self,
        source: Source,
        task: ShardTask,
        needed: NeededFrames,
        rule: KeyRule,
        spec: KeySpec,
        pad_value: float,
        normalizer: Normalizer | None,
        memory: MemoryOf = fresh_memory,
    ) -> None:
        self._source, self._task, self._rule, self._spec, self._normalizer = source, task, rule, spec, normalizer
        size = needed.total * spec.nbytes
        self.flat = memory(size)[:size].view(numpy_dtype(spec.dtype)).reshape(needed.total, *spec.unit_shape)
        """[units, …]: what is read, and what pads it."""
        with np.errstate(over="ignore"):
            self.flat[PAD_PLACE] = pad_value
            self.flat[OUTSIDE_PLACE] = rule.pad_constant
        held = source.lengths(rule.name)[task.sequence]
        stop = np.maximum(np.minimum(needed.stop, held), needed.start)  # what alignment added is behind it
        begin, end = needed.offset + needed.start * needed.units, needed.offset + needed.stop * needed.units
        middle = needed.offset + stop * needed.units
        self._table = np.stack([task.sequence, needed.start, stop, begin, middle, end], axis=1)
        self.offset = np.append(needed.offset, 0)
        """int64 [sequences + 1]: where frame 0 of each would lie; empty rows have the owner behind the last, and no frame."""
        self._convert = source.keys[rule.name].dtype != spec.dtype or normalizer is not None
        whole = (needed.start == 0) & (stop == held) & (begin < end) & (middle == end)
        self._whole = whole & (not self._convert and not spec.ragged and hasattr(source, "read_together"))

    def read(self, places: Int64) -> None:
        """Reads the stretches of some sequences of the shard; from several threads, if of different ones.

        Raises:
            SourceError: a sequence can't be read, or holds a value that the stored dtype can't.
        """
        table, whole = self._table[places], self._whole[places]
        behind = whole[1:] & whole[:-1] & (table[1:, 0] == table[:-1, 0] + 1) & (table[1:, 3] == table[:-1, 5])
        bounds = [0, *(np.flatnonzero(~behind) + 1).tolist(), len(places)]
        for first, last in pairwise(bounds):
            if last <= first + 1 or not self._read_together(table[first:last]):
                self._read_each(places[first:last].tolist(), table[first:last].tolist())

    def _read_together(self, table: Int64) -> bool:
        """Reads whole sequences that stand one behind the other in the source and here; False if it can't be done."""
        sequence, begin, last, end = int(table[0, 0]), int(table[0, 3]), int(table[-1, 0]), int(table[-1, 5])
        together: bool = self._source.read_together(self._rule.name, sequence, last + 1, self.flat[begin:end])  # type: ignore[attr-defined]
        return together

    def _read_each(self, places: list[int], table: list[list[int]]) -> None:
        flat, spec, source, name = self.flat, self._spec, self._source, self._rule.name
        for place, (sequence, first, last, begin, middle, end) in zip(places, table, strict=True):
            if end > middle:
                flat[middle:end] = flat[PAD_PLACE]
            if last == first:
                continue
            shape = spec.shape_of(self._task.sizes[name][place].tolist()) if spec.ragged else spec.unit_shape
            target = flat[begin:middle].reshape(last - first, *shape)
            if self._convert:
                values = _normalized(source, name, sequence, FrameRange(first, last), self._normalizer)
                _convert(values, target, f"sequence {source.tags[sequence]!r}, key {name!r}")
            else:
                source.read(name, sequence, FrameRange(first, last), out=target)


class Values:
    """One key without time: an entry of each sequence, and what empty rows hold behind them; arguments as above."""

    def __init__(self, source: Source, task: ShardTask, name: str, spec: KeySpec, pad_value: float) -> None:
        self._source, self._sequence, self._name = source, task.sequence, name
        self.flat = np.empty((len(task.sequence) + 1, *spec.unit_shape), numpy_dtype(spec.dtype))
        """[sequences + 1, …]."""
        with np.errstate(over="ignore"):
            self.flat[-1] = pad_value

    def read(self, places: Int64) -> None:
        """Reads the entries of some sequences of the shard; raises what `Stretches.read` does."""
        for place in places.tolist():
            sequence = int(self._sequence[place])
            where = f"sequence {self._source.tags[sequence]!r}, key {self._name!r}"
            _convert(self._source.read(self._name, sequence), self.flat[place : place + 1], where)


def _normalized(source: Source, key: str, sequence: int, frames: FrameRange, normalizer: Normalizer | None) -> Array:
    """Reads frames of a sequence, and normalises them."""
    if normalizer is None:
        return source.read(key, sequence, frames)
    if not normalizer.per_sequence:
        return normalizer.apply(source.read(key, sequence, frames))
    whole = source.read(key, sequence)  # all of its frames decide, whichever are needed here
    return normalizer.fitted(whole).apply(whole[frames.start : frames.stop])


def _convert(values: Array, target: Array, place: str) -> None:
    """Stores values in another dtype of the same kind; what the dtype can't hold is an error, not another value."""
    too_large = f"{place}: holds values too large for {target.dtype}; store it as another dtype"
    with np.errstate(over="raise"):
        try:
            target[...] = values
        except FloatingPointError as error:
            raise SourceError(too_large) from error
    if target.dtype.name == "bfloat16" and (np.isinf(target) & np.isfinite(values)).any():  # its casts raise nothing
        raise SourceError(too_large)
    if target.dtype.kind in "iu" and not np.array_equal(target, np.broadcast_to(values, target.shape)):
        raise SourceError(f"{place}: holds values outside the range of {target.dtype}; store it as another dtype")
