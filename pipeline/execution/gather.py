"""Reads a shard's sequences, each once, and gathers its batches from them."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Mapping

import numpy as np

from seqprep.execution.normalization import Normalizer
from seqprep.execution.stretches import MemoryOf, Stretches, Values, fresh_memory
from seqprep.lazy import cached_property
from seqprep.planning import (
    FIRST_PLACE,
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
from seqprep.types import Array, Int64, KeySpec, numpy_dtype

_PLACES_AT_ONCE = 1 << 15
"""Frames of which the places are worked out together: enough to make the calls few, and few enough for a cache."""
_MOST_RUNS_KEPT = 16
"""Runs of batches whose places are kept for batches that are filled one by one."""


def needed_stretches(task: ShardTask, plan: ShardPlan, rule: KeyRule, spec: KeySpec) -> NeededFrames:
    """Finds what a shard needs of one key with time.

    Args:
        task: the shard's sequences.
        plan: its rows and batches.
        rule: of the key.
        spec: of the key as it is stored.
    """
    units = spec.units(task.sizes[rule.name]) if spec.ragged else np.ones(len(task.sequence), np.int64)
    return needed_frames(plan.keys[rule.name], plan.owner, units, rule)


class ShardGatherer:
    """Holds what a shard needs of its sequences in one flat buffer per key, and fills batches from it.

    Args:
        source: the input.
        task: the shard's sequences.
        plan: its rows and batches.
        stored: the keys to gather.
        pad_values: for each key, what rows hold beyond their valid frames.
        normalizers: of the keys that are normalised.
        memory: gives bytes for the flat buffers, at least as many as it is asked for.
    """

    def __init__(
        self,
        source: Source,
        task: ShardTask,
        plan: ShardPlan,
        stored: Mapping[str, KeySpec],
        pad_values: Mapping[str, float],
        normalizers: Mapping[str, Normalizer] | None = None,
        memory: MemoryOf = fresh_memory,
    ) -> None:
        self._plan, self._stored = plan, stored
        self._rules = {rule.name: rule for rule in task.rules.keys}
        self._own: dict[str, Stretches | Values] = {}
        self._sequence = task.sequence
        for name, spec in stored.items():
            pad = pad_values.get(name, 0.0)
            if spec.has_time:
                rule, normalizer = self._rules[name], (normalizers or {}).get(name)
                needed = needed_stretches(task, plan, rule, spec)
                self._own[name] = Stretches(source, task, needed, rule, spec, pad, normalizer, memory)
            else:
                self._own[name] = Values(source, task, name, spec, pad)
        self._padded_sizes = {name: plan.batch_sizes(name) for name in plan.sizes}
        self._known: dict[tuple[str, int], Int64] = {}  # places of runs of batches
        self._lock = threading.Lock()

    def owners(self, first: int, last: int) -> Int64:
        """The sequences of batches `first` up to `last`, as places among those of the shard, once for each; int64 [n]."""
        owners, bounds = self._owners
        return owners[bounds[first] : bounds[min(last, len(bounds) - 1)]]

    @cached_property
    def _owners(self) -> tuple[Int64, Int64]:
        """Sequences of all batches, and where each batch's begin."""
        count, batches = len(self._sequence) + 1, len(self._plan.batch_rows)
        number = np.repeat(np.arange(batches), np.diff(self._plan.bounds))
        found = np.unique(number * count + self._plan.owner)
        number, owners = found // count, found % count
        real = owners < count - 1  # empty rows have the owner behind the last
        return owners[real], np.searchsorted(number[real], np.arange(batches + 1))

    def read(self, owners: Int64 | None = None) -> None:
        """Reads what the shard needs of its sequences, key by key; from several threads, if of different ones.

        Args:
            owners: of these, as places among those of the shard; of all unless told.

        Raises:
            SourceError: a sequence can't be read, or holds a value that the stored dtype can't.
        """
        owners = np.arange(len(self._sequence)) if owners is None else owners
        owners = owners[np.argsort(self._sequence[owners], kind="stable")]  # what lies together is read together
        for own in self._own.values():
            own.read(owners)

    def fill(self, name: str, batch: int, out: Array) -> None:
        """Gathers one key's array of a batch whose sequences have been read.

        Args:
            name: of the key.
            batch: number in the shard.
            out: the array, [B, T, …], or [B, …] without time.
        """
        firsts = self._firsts
        run = bisect_right(firsts, batch) - 1
        places = self._known.get((name, run))
        if places is None:
            places = self._places_of_run(name, run)
        bounds = self._plan.bounds
        if firsts[run + 1] > firsts[run] + 1:
            places = places[bounds[batch] - bounds[firsts[run]] : bounds[batch + 1] - bounds[firsts[run]]]
        self._take(name, places, out)

    @cached_property
    def _firsts(self) -> list[int]:
        """The first batch of each run of those that are alike, and one past the last batch."""
        return [*(first for first, _ in self._alike()), len(self._plan.batch_rows)]

    def _places_of_run(self, name: str, run: int) -> Int64:
        with self._lock:  # another thread may need the same now
            places = self._known.get((name, run))
            if places is None:
                places = self._places_of(name, self._firsts[run], self._firsts[run + 1])
                while len(self._known) >= _MOST_RUNS_KEPT * len(self._own):
                    del self._known[next(iter(self._known))]
                self._known[name, run] = places
            return places

    def _take(self, name: str, places: Int64, out: Array) -> None:
        # mode="clip" alone lets numpy write straight into `out`; every place is in range anyway
        self._own[name].flat.take(places, 0, out, "clip")

    def _most_bytes(self, name: str) -> int:
        spec = self._stored[name]
        units = np.diff(self._plan.bounds)
        if spec.has_time:
            units = self._plan.batch_rows * self._plan.batch_frames(name)
        if spec.ragged:
            units = units * spec.units(self._padded_sizes[name])
        return int(units.max(initial=0)) * spec.nbytes

    def batches(self) -> Iterator[dict[str, Array]]:
        """Fills one batch after the other, all sequences having been read; each is valid until the next is asked for."""
        buffers = {name: np.empty(self._most_bytes(name), np.uint8) for name in self._stored}
        bounds = self._plan.bounds.tolist()
        for first, last in self._alike():
            most = max(bounds[batch + 1] - bounds[batch] for batch in range(first, last))
            steps = []  # for each key: places of the run, and room for its largest batch
            for name, spec in self._stored.items():
                places = self._places_of(name, first, last)
                shape = (len(places) if last == first + 1 else most, *places.shape[1:], *spec.unit_shape)
                steps.append((name, places, np.ndarray(shape, numpy_dtype(spec.dtype), buffers[name])))
            for batch in range(first, last):
                begin, end = bounds[batch] - bounds[first], bounds[batch + 1] - bounds[first]
                arrays = {}
                for name, places, room in steps:
                    own, out = (places, room) if last == first + 1 else (places[begin:end], room[: end - begin])
                    self._take(name, own, out)
                    arrays[name] = out
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
        own = self._own[name]
        assert isinstance(own, Stretches)
        keys, offset = self._plan.keys[name], own.offset[self._plan.owner[rows]]
        rule, shape = self._rules[name], self._stored[name].shape
        if not padded_sizes:
            return gather_places(keys, rows, offset, padded_frames, rule)
        frames = gather_places(keys, rows, np.full(len(offset), FIRST_PLACE), padded_frames, rule)
        return unit_places(frames, offset, shape, self._plan.sizes[name][rows], padded_sizes)
