"""Reads a shard's sequences, each once, and gathers its batches from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from seqprep.errors import SourceError
from seqprep.execution.normalization import Normalizer
from seqprep.planning import (
    FIRST_PLACE,
    OUTSIDE_PLACE,
    PAD_PLACE,
    KeyRule,
    NeededFrames,
    ShardPlan,
    ShardTask,
    gather_places,
    needed_frames,
    scatter,
    unit_places,
)
from seqprep.sources import Source
from seqprep.types import Array, FrameRange, Int64, KeySpec, numpy_dtype

_PLACES_AT_ONCE = 1 << 15
"""Frames of which the places are worked out together: enough to make the calls few, and few enough for a cache."""


class ShardGatherer:
    """Holds what a shard needs of its sequences in one flat buffer per key, and fills batches from it.

    The order of steps: frames are read, normalised and brought to the stored dtype (`_read_stretches`), and only then stand beside
    what pads them, which is in the stored values already: frames outside sequences, those that alignment added, and
    those that fill rows up.

    Args:
        source: the input.
        task: the shard's sequences.
        plan: its rows and batches.
        stored: the stored keys.
        pad_values: for each key, what rows hold beyond their valid frames.
        normalizers: of the keys that are normalised.

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
        normalizers: Mapping[str, Normalizer] | None = None,
    ) -> None:
        self._plan, self._stored = plan, stored
        self._rules = {rule.name: rule for rule in task.rules.keys}
        self._flat: dict[str, Array] = {}
        self._offset: dict[str, Int64] = {}
        for name, spec in stored.items():
            pad = pad_values.get(name, 0.0)
            if spec.has_time:
                rule, normalizer = self._rules[name], (normalizers or {}).get(name)
                units = spec.units(task.sizes[name]) if spec.ragged else np.ones(len(task.sequence), np.int64)
                needed = needed_frames(plan.keys[name], plan.owner, units, rule)
                self._flat[name] = _read_stretches(source, task, needed, rule, spec, pad, normalizer)
                # empty rows have the owner behind the last, and no frame of it
                self._offset[name] = np.append(needed.offset, 0)
            else:
                self._flat[name] = _read_values(source, task, name, spec, pad)
        self._padded_sizes = {name: plan.batch_sizes(name) for name in plan.sizes}
        self._buffers = {name: np.empty(self._most_bytes(name), np.uint8) for name in stored}

    def _most_bytes(self, name: str) -> int:
        spec = self._stored[name]
        units = np.diff(self._plan.bounds)
        if spec.has_time:
            units = self._plan.batch_rows * self._plan.batch_frames(name)
        if spec.ragged:
            units = units * spec.units(self._padded_sizes[name])
        return int(units.max(initial=0)) * spec.nbytes

    def batches(self) -> Iterator[dict[str, Array]]:
        """Fills one batch after the other; each is valid until the next is asked for."""
        bounds = self._plan.bounds.tolist()
        dtypes = {name: numpy_dtype(spec.dtype) for name, spec in self._stored.items()}
        for first, last in self._alike():
            places = {name: self._places_of(name, first, last) for name in self._stored}
            for batch in range(first, last):
                begin, end = bounds[batch] - bounds[first], bounds[batch + 1] - bounds[first]
                arrays = {}
                for name, spec in self._stored.items():
                    own = places[name] if last == first + 1 else places[name][begin:end]
                    out = self._buffers[name][: own.size * spec.nbytes].view(dtypes[name])
                    out = out.reshape(*own.shape, *spec.unit_shape)
                    # mode="clip" alone lets numpy write straight into `out`; every place is in range anyway
                    arrays[name] = self._flat[name].take(own, 0, out, "clip")
                yield arrays

    def _alike(self) -> Iterator[tuple[int, int]]:
        """Runs of batches of one length, whose places are worked out together: the first, and one past the last."""
        bounds, count = self._plan.bounds, len(self._plan.batch_rows)
        if self._plan.segments is not None or any(spec.ragged for spec in self._stored.values()):
            yield from ((batch, batch + 1) for batch in range(count))
            return
        frames = np.stack([self._plan.batch_frames(name) for name in self._rules], axis=1)
        changes = np.append(np.flatnonzero((frames[1:] != frames[:-1]).any(axis=1)) + 1, count)
        begin = 0
        for change in changes.tolist():
            while begin < change:
                rows = _PLACES_AT_ONCE // max(int(frames[begin].max()), 1)
                end = int(np.searchsorted(bounds, bounds[begin] + rows, side="right")) - 1
                end = min(max(end, begin + 1), change)
                yield begin, end
                begin = end

    def _places_of(self, name: str, first: int, last: int) -> Int64:
        """Where each frame, unit, or value of some batches lies in the flat buffer."""
        rows = slice(int(self._plan.bounds[first]), int(self._plan.bounds[last]))
        spec = self._stored[name]
        if not spec.has_time:
            return self._plan.owner[rows]
        axes = self._padded_sizes[name][first].tolist() if spec.ragged else []
        return self._places(name, first, rows, int(self._plan.batch_frames(name)[first]), axes)

    def _places(self, name: str, batch: int, rows: slice, padded_frames: int, padded_sizes: list[int]) -> Int64:
        """Where each frame of a batch lies in the flat buffer, [B, T]; each unit, [B, T, …], with ragged axes."""
        keys, segments = self._plan.keys[name], self._plan.segments
        if segments is None:
            return self._row_places(name, rows, padded_frames, padded_sizes)
        own = keys.frames[rows]
        places = self._row_places(name, rows, int(own.max()), padded_sizes)
        laid_out = int(self._plan.batch_rows[batch]), padded_frames
        return scatter(places, own, segments.row[rows], segments.start[name][rows], laid_out, PAD_PLACE)

    def _row_places(self, name: str, rows: slice, padded_frames: int, padded_sizes: list[int]) -> Int64:
        """The same of rows, or segments, by themselves; [rows, frames, …]."""
        keys, offset = self._plan.keys[name], self._offset[name][self._plan.owner[rows]]
        rule, shape = self._rules[name], self._stored[name].shape
        if not padded_sizes:
            return gather_places(keys, rows, offset, padded_frames, rule)
        frames = gather_places(keys, rows, np.full(len(offset), FIRST_PLACE), padded_frames, rule)
        return unit_places(frames, offset, shape, self._plan.sizes[name][rows], padded_sizes)


def _read_stretches(
    source: Source,
    task: ShardTask,
    needed: NeededFrames,
    rule: KeyRule,
    spec: KeySpec,
    pad_value: float,
    normalizer: Normalizer | None,
) -> Array:
    """Reads one key of all sequences into a flat buffer."""
    flat = np.empty((needed.total, *spec.unit_shape), numpy_dtype(spec.dtype))
    with np.errstate(over="ignore"):
        flat[PAD_PLACE] = pad_value
        flat[OUTSIDE_PLACE] = rule.pad_constant
    held = source.lengths(rule.name)[task.sequence]
    stop = np.maximum(np.minimum(needed.stop, held), needed.start)  # what alignment added is behind it
    begin, end = needed.offset + needed.start * needed.units, needed.offset + needed.stop * needed.units
    middle = needed.offset + stop * needed.units
    convert = source.keys[rule.name].dtype != spec.dtype or normalizer is not None
    order = np.argsort(task.sequence, kind="stable")  # in the source's order: what lies together is read together
    columns = (order, *(column[order] for column in (task.sequence, needed.start, stop, begin, middle, end)))
    for place, sequence, first, last, *bounds in zip(*(column.tolist() for column in columns), strict=True):
        if bounds[2] > bounds[1]:
            flat[bounds[1] : bounds[2]] = flat[PAD_PLACE]
        if last == first:
            continue
        shape = spec.shape_of(task.sizes[rule.name][place].tolist()) if spec.ragged else spec.unit_shape
        target = flat[bounds[0] : bounds[1]].reshape(last - first, *shape)
        if convert:
            values = _normalized(source, rule.name, sequence, FrameRange(first, last), normalizer)
            _convert(values, target, f"sequence {source.tags[sequence]!r}, key {rule.name!r}")
        else:
            source.read(rule.name, sequence, FrameRange(first, last), out=target)
    return flat


def _normalized(source: Source, key: str, sequence: int, frames: FrameRange, normalizer: Normalizer | None) -> Array:
    """Reads frames of a sequence, and normalises them."""
    if normalizer is None:
        return source.read(key, sequence, frames)
    if not normalizer.per_sequence:
        return normalizer.apply(source.read(key, sequence, frames))
    whole = source.read(key, sequence)  # all of its frames decide, whichever are needed here
    return normalizer.fitted(whole).apply(whole[frames.start : frames.stop])


def _read_values(source: Source, task: ShardTask, name: str, spec: KeySpec, pad_value: float) -> Array:
    """Reads a key without time of all sequences, and puts what empty rows hold behind them; [sequences + 1, …]."""
    values = np.empty((len(task.sequence) + 1, *spec.unit_shape), numpy_dtype(spec.dtype))
    with np.errstate(over="ignore"):
        values[-1] = pad_value
    for place in np.argsort(task.sequence, kind="stable").tolist():
        sequence = int(task.sequence[place])
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
