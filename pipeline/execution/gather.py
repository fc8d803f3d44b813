"""Reads a shard's sequences, each once, and gathers its batches from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from seqprep.errors import SourceError
from seqprep.planning import PAD_PLACE, ZERO_PLACE, KeyRule, ShardPlan, ShardTask, gather_places, needed_frames
from seqprep.sources import Source
from seqprep.types import Array, FrameRange, Int64, KeySpec, numpy_dtype


class ShardGatherer:
    """Holds what a shard needs of its sequences in one flat buffer per key, and fills batches from it.

    Args:
        source: the input.
        task: the shard's sequences.
        plan: its rows and batches.
        stored: the stored keys.
        pad_values: for each key, what rows hold beyond their valid frames.

    Raises:
        SourceError: a sequence can't be read, or holds a value that the stored dtype can't.
    """

    def __init__(
        self,
        source: Source,
        task: ShardTask,
        plan: ShardPlan,
        stored: Mapping[str, KeySpec],
        pad_values: Mapping[str, float],
    ) -> None:
        self._plan, self._stored = plan, stored
        self._rules = {rule.name: rule for rule in task.rules.keys}
        self._flat: dict[str, Array] = {}
        self._offset: dict[str, Int64] = {}
        for name, spec in stored.items():
            if spec.has_time:
                pad = pad_values.get(name, 0.0)
                self._flat[name], self._offset[name] = _read_stretches(source, task, self._rules[name], spec, pad)
            else:
                self._flat[name] = _read_values(source, task, name, spec)
        self._buffers = {name: np.empty(self._most_bytes(name), np.uint8) for name in stored}

    def _most_bytes(self, name: str) -> int:
        frames = self._plan.batch_rows
        if self._stored[name].has_time:
            frames = frames * self._plan.batch_frames(name)
        return int(frames.max(initial=0)) * self._stored[name].nbytes

    def batches(self) -> Iterator[dict[str, Array]]:
        """Fills one batch after the other; each is valid until the next is asked for."""
        frames = {rule: self._plan.batch_frames(rule) for rule in self._rules}
        for batch, (begin, end) in enumerate(pairwise(self._plan.bounds.tolist())):
            rows = slice(begin, end)
            arrays = {}
            for name, spec in self._stored.items():
                places = self._places(name, rows, int(frames[name][batch])) if spec.has_time else self._plan.owner[rows]
                count = places.size * spec.nbytes
                out = self._buffers[name][:count].view(numpy_dtype(spec.dtype)).reshape(*places.shape, *spec.shape)
                # mode="clip" alone lets numpy write straight into `out`; every place is in range anyway
                arrays[name] = np.take(self._flat[name], places, axis=0, out=out, mode="clip")
            yield arrays

    def _places(self, name: str, rows: slice, padded_frames: int) -> Int64:
        offset = self._offset[name][self._plan.owner[rows]]
        return gather_places(self._plan.keys[name], rows, offset, padded_frames, self._rules[name])


def _read_stretches(
    source: Source, task: ShardTask, rule: KeyRule, spec: KeySpec, pad_value: float
) -> tuple[Array, Int64]:
    """Reads one key of all sequences into a flat buffer; gives it with where each sequence's frame 0 would lie."""
    needed = needed_frames(task, rule)
    flat = np.empty((needed.total, *spec.shape), numpy_dtype(spec.dtype))
    with np.errstate(over="ignore"):
        flat[PAD_PLACE] = pad_value
    flat[ZERO_PLACE] = 0
    ranges = zip(
        task.sequence.tolist(), needed.start.tolist(), needed.stop.tolist(), needed.offset.tolist(), strict=True
    )
    convert = source.keys[rule.name].dtype != spec.dtype
    for sequence, start, stop, offset in ranges:
        if stop > start:
            target = flat[offset + start : offset + stop]
            if convert:
                values = source.read(rule.name, sequence, FrameRange(start, stop))
                _convert(values, target, f"sequence {source.tags[sequence]!r}, key {rule.name!r}")
            else:
                source.read(rule.name, sequence, FrameRange(start, stop), out=target)
    return flat, needed.offset


def _read_values(source: Source, task: ShardTask, name: str, spec: KeySpec) -> Array:
    """Reads a key without time of all sequences; [sequences, …]."""
    values = np.empty((len(task.sequence), *spec.shape), numpy_dtype(spec.dtype))
    for place, sequence in enumerate(task.sequence.tolist()):
        _convert(
            source.read(name, sequence), values[place : place + 1], f"sequence {source.tags[sequence]!r}, key {name!r}"
        )
    return values


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
