"""Cuts sequences into chunks, from their lengths alone.

Chunks start on a grid, at 0, step, 2·step, …; one starts only where, in every key, more than `min_size` frames are left,
the first excepted. So every frame is covered if step ≤ size and min_size is 0, and a tail may lie inside the chunk before
it. These are the rules of RETURNN's `Dataset.iterate_seqs`. What may come on top (docs/planning.md), in this order:
a jitter moves the grid; chunks that are covered end it; short chunks are dropped or shifted; and chunks whose context isn't
real are dropped. A chunk exists in all keys or in none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from seqprep import hashing
from seqprep.planning.key_rules import ChunkRule, KeyRule
from seqprep.planning.rules import Rules
from seqprep.types import Int64

_JITTER = 20  # what the draw is for; part of its key


@dataclass(frozen=True)
class Cuts:
    """How each sequence is cut; all int64 [sequences], frames are those of the input key."""

    count: Int64
    """Chunks."""
    origin: Int64
    """Where chunk 0 stands on the grid; below 0 if it begins before the sequence, which clips it or shifts it to 0."""
    shifted: Int64
    """Where the last chunk starts, if it was shifted inwards; −1 if it is on the grid."""

    def take(self, places: Int64) -> Cuts:
        """Gives the cuts of some sequences; places may repeat."""
        return Cuts(self.count[places], self.origin[places], self.shifted[places])


@dataclass(frozen=True)
class Cutting:
    """How each sequence is cut, and what that leaves out; all int64 [sequences]."""

    cuts: Cuts
    short: Int64
    """Short chunks that `tail` took out: all of them, less those that were shifted."""
    moved: Int64
    """Chunks that were shifted."""
    lacking: Int64
    """Chunks left out because their context isn't real."""
    lost: Mapping[str, Int64]
    """For each key that is cut, frames at the end that no chunk holds because shifting rounds down to the grid."""


@dataclass(frozen=True)
class Extent:
    """Where the cores of many chunks lie in one key, in its frames."""

    start: Int64
    """int64 [chunks]: first frame."""
    size: Int64
    """int64 [chunks]: frames."""


def count_chunks(lengths: Mapping[str, Int64], rules: Rules, epoch: int = 0) -> Int64:
    """Counts the chunks of every sequence of a source; arguments as of `cut_sequences`; int64 [sequences]."""
    return cut_sequences(lengths, rules, np.arange(len(lengths[rules.input.name])), epoch).cuts.count


def cut_sequences(lengths: Mapping[str, Int64], rules: Rules, places: Int64, epoch: int = 0) -> Cutting:
    """Decides how sequences are cut, in closed form.

    Args:
        lengths: for each key with time, int64 [sequences].
        rules: the rules.
        places: int64 [sequences]: places in the source, for the jitter.
        epoch: number of the pass, for the jitter.

    Returns:
        For each sequence how it is cut. One of no frames gives no chunk; whole sequences are always one chunk.
    """
    count = len(lengths[rules.input.name])
    if rules.input.chunk is None:
        return _nothing_lost(Cuts(np.ones(count, np.int64), _same(0, count), _same(-1, count)))
    if rules.jitter:
        return _cut_jittered(lengths, rules, jitter_offsets(places, rules, epoch))
    return _cut(lengths, rules, _same(0, count))


def jitter_offsets(places: Int64, rules: Rules, epoch: int) -> Int64:
    """Draws by how much the grid of each sequence moves: a multiple of L in [0, step), in input frames.

    Args:
        places: int64 [sequences]: places in the source.

    Returns:
        int64 [sequences].
    """
    assert rules.input.chunk is not None
    grid = rules.grid_frames
    choices = np.uint64(rules.input.chunk.step_frames // grid)
    draws = hashing.keyed(hashing.key_of(rules.seed, epoch, _JITTER), places) % choices
    return draws.astype(np.int64) * grid


def cut(length: Int64, number: Int64, cuts: Cuts, rule: KeyRule, rules: Rules) -> Extent:
    """Gives the cores of chunks in one key.

    Args:
        length: int64 [chunks]: frames of each chunk's sequence in this key.
        number: int64 [chunks]: the chunk's number in its sequence, below its count.
        cuts: how each chunk's sequence is cut; [chunks].
        rule: the key's rule.
        rules: all rules.
    """
    if rule.chunk is None or rule.rate is None:
        return Extent(np.zeros(len(length), np.int64), length)
    size, step = rule.chunk.size_frames, rule.chunk.step_frames
    grid = cuts.origin // rule.rate + number * step
    is_shifted = (cuts.shifted >= 0) & (number == cuts.count - 1)
    start = np.where(is_shifted, cuts.shifted // rule.rate, np.maximum(grid, 0))
    clipped = np.minimum(grid, 0) if rules.tail != "shift" else 0
    return Extent(start, np.minimum(size + clipped, length - start))


def _same(value: int, count: int) -> Int64:
    """An array of one value that takes no memory."""
    return np.broadcast_to(np.int64(value), count)


def _nothing_lost(cuts: Cuts) -> Cutting:
    none = _same(0, len(cuts.count))
    return Cutting(cuts, none, none, none, {})


def _cut_jittered(lengths: Mapping[str, Int64], rules: Rules, offset: Int64) -> Cutting:
    """Cuts on moved grids, but where that leaves a sequence no chunk, on the grid at 0."""
    cutting = _cut(lengths, rules, offset)
    again = np.flatnonzero((cutting.cuts.count == 0) & (offset > 0))
    unmoved = _cut({name: frames[again] for name, frames in lengths.items()}, rules, _same(0, len(again)))

    def merged(moved: Int64, other: Int64) -> Int64:
        whole = np.array(moved)
        whole[again] = other
        return whole

    pairs = [(getattr(cutting.cuts, field.name), getattr(unmoved.cuts, field.name)) for field in fields(Cuts)]
    return Cutting(
        Cuts(*(merged(*pair) for pair in pairs)),
        merged(cutting.short, unmoved.short),
        merged(cutting.moved, unmoved.moved),
        merged(cutting.lacking, unmoved.lacking),
        {name: merged(frames, unmoved.lost[name]) for name, frames in cutting.lost.items()},
    )


def _cut(lengths: Mapping[str, Int64], rules: Rules, offset: Int64) -> Cutting:
    """Cuts on grids that are moved by offsets."""
    keys = [(lengths[rule.name], rule, rule.chunk) for rule in rules.keys if rule.chunk is not None]
    grid = _on_grid(keys, rules, offset)
    cutting = _nothing_lost(grid)
    if rules.tail == "drop":
        cutting = _drop_short(grid, keys)
    elif rules.tail == "shift":
        cutting = _shift_short(grid, keys, rules)
    return _drop_lacking(cutting, keys, rules) if any(rule.pad == "drop" for _, rule, _ in keys) else cutting


_Keys = list[tuple[Int64, KeyRule, ChunkRule]]
"""For each key that is cut: lengths [sequences], and its rules."""


def _own(frames: Int64, rule: KeyRule) -> Int64:
    """Frames of the input key, all multiples of the rate, as frames of another."""
    return frames // (rule.rate or 1)


def _on_grid(keys: _Keys, rules: Rules, offset: Int64) -> Cuts:
    """Places chunks on the grid, before anything is done about short ones."""
    step = keys[0][2].step_frames
    reaches = offset > 0  # whether a chunk from the grid point in front of the offset reaches into the sequence
    for _, rule, chunk in keys:
        reaches = reaches & (_own(offset, rule) - chunk.step_frames + chunk.size_frames > 0)
    origin = offset - step * reaches
    count = _same(np.iinfo(np.int64).max, len(offset))
    covered = _same(0, len(offset))
    for frames, rule, chunk in keys:
        left = frames - _own(origin, rule)
        count = np.minimum(count, -((chunk.min_size_frames - left) // chunk.step_frames))
        covered = np.maximum(covered, -((chunk.size_frames - left) // chunk.step_frames))
    count = np.maximum(count, origin <= 0)
    if rules.stop_when_covered:
        count = np.minimum(count, covered + 1)
    return Cuts(count * (keys[0][0] > 0), origin, _same(-1, len(offset)))


def _full_chunks(grid: Cuts, keys: _Keys) -> tuple[Int64, Int64]:
    """Finds the chunks that are full in every key: numbers from the first up to the second."""
    end = grid.count
    for frames, rule, chunk in keys:
        end = np.minimum(end, (frames - chunk.size_frames - _own(grid.origin, rule)) // chunk.step_frames + 1)
    first = (grid.origin < 0).astype(np.int64)
    return first, np.maximum(end, first)


def _drop_short(grid: Cuts, keys: _Keys) -> Cutting:
    """Leaves chunks out that aren't full."""
    first, end = _full_chunks(grid, keys)
    count = np.where(grid.count > 0, end - first, 0)
    origin = grid.origin + first * keys[0][2].step_frames
    none = _same(0, len(count))
    return Cutting(Cuts(count, origin, grid.shifted), grid.count - count, none, none, {})


def _shift_short(grid: Cuts, keys: _Keys, rules: Rules) -> Cutting:
    """Moves short chunks inwards until they are full, all of a sequence's end as one."""
    first, end = _full_chunks(grid, keys)
    step = keys[0][2].step_frames
    some = grid.count > 0
    latest = _same(
        np.iinfo(np.int64).max, len(some)
    )  # where a chunk starts that is full in every key, as late as it can
    for frames, rule, chunk in keys:
        unit = rules.grid_frames // (rule.rate or 1)
        latest = np.minimum(latest, (frames - chunk.size_frames) // unit)
    fits = some & (latest >= 0)
    latest = np.where(fits, latest, 0) * rules.grid_frames
    ends_short = fits & (grid.count > end)
    last = np.where(
        end > first, grid.origin + (end - 1) * step, first - 1
    )  # where the last chunk so far starts; −1: none
    is_moved = ends_short & (latest > last)
    count = np.where(fits, end + is_moved, some)
    lost = {
        rule.name: np.maximum(frames - chunk.size_frames - _own(latest, rule), 0) * (ends_short | (some & ~fits))
        for frames, rule, chunk in keys
    }
    cuts = Cuts(count, np.where(fits, grid.origin, 0), np.where(is_moved, latest, -1))
    moved = is_moved + first * fits
    return Cutting(cuts, grid.count - count, moved, _same(0, len(count)), lost)


def _drop_lacking(cutting: Cutting, keys: _Keys, rules: Rules) -> Cutting:
    """Leaves chunks out whose context isn't all real, in keys that want it so: some first and some last ones."""
    cuts = cutting.cuts
    is_moved = cuts.shifted >= 0
    on_grid = cuts.count - is_moved
    first, end = _same(0, len(on_grid)), on_grid
    for frames, rule, chunk in keys:
        if rule.pad != "drop":
            continue
        origin, left, right = _own(cuts.origin, rule), rule.left_frames, rule.right_frames
        start = _own(cuts.shifted, rule)
        if left:
            first = np.maximum(first, -((origin - left) // chunk.step_frames))
            is_moved = is_moved & (start >= left)
        if right:
            room = frames - chunk.size_frames - right
            end = np.minimum(end, (room - origin) // chunk.step_frames + 1)
            if rules.tail == "shift":
                end = np.where((origin < 0) & (room < 0), 0, end)  # the first chunk stands at 0, not on the grid
            is_moved = is_moved & (start <= room)
    first = np.minimum(first, on_grid)
    count = np.maximum(end - first, 0) + is_moved
    origin = cuts.origin + first * keys[0][2].step_frames
    kept = Cuts(count, origin, np.where(is_moved, cuts.shifted, -1))
    return Cutting(kept, cutting.short, cutting.moved, cuts.count - count, cutting.lost)
