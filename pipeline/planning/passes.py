"""Plans one pass over a dataset: length classes → order → partition → shards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqprep import hashing
from seqprep.errors import ConfigError
from seqprep.planning.buckets import Histogram, LengthClasses, class_widths, equal_mass_boundaries, given_boundaries
from seqprep.planning.chunking import Cuts, Cutting, cut_sequences
from seqprep.planning.ordering import hash_rows, hash_sequences, order_sequences
from seqprep.planning.plan import Plan, ShardPlan, ShardTask
from seqprep.planning.report import CutReport
from seqprep.planning.rules import Rules
from seqprep.planning.sharding import cut_rows, cut_shards
from seqprep.planning.sizes import chunk_bytes
from seqprep.types import Array, Int64

_BLOCK_ROWS = 1 << 17


@dataclass(frozen=True)
class GlobalPlan:
    """All shards of a dataset whose rows are shuffled as a whole, by row."""

    rules: Rules
    epoch: int
    lengths: Mapping[str, Int64]
    classes: LengthClasses | None
    before: Int64
    """int64 [sequences]: rows of all sequences in front of each, in the source's order."""
    owner: Array
    """Integers [rows]: place in the source of each row's sequence; rows are numbered through from sequence to sequence."""
    order: Array
    """Integers [rows]: rows in the order of writing."""
    cuts: Int64
    """int64 [shards + 1]: shard i begins at this place of the order."""
    sizes: Mapping[str, Int64]
    """For each key with ragged axes, int64 [sequences, axes]."""
    report: CutReport
    """What cutting did."""
    row_bytes: int
    """Of all rows, context included and padding not."""

    def __len__(self) -> int:
        return len(self.cuts) - 1

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return len(self.order)

    @property
    def sequences(self) -> int:
        """Sequences that have a row in a shard."""
        return int(np.count_nonzero(np.bincount(self.owner[self.order], minlength=len(self.before))))

    def task(self, shard: int) -> ShardTask:
        """Gives what is needed to plan one shard's rows: neighbouring chunks of a sequence as one piece of it.

        Args:
            shard: number of the shard, in [0, len(self)).
        """
        rows = np.sort(self.order[self.cuts[shard] : self.cuts[shard + 1]]).astype(np.int64)
        owner = self.owner[rows].astype(np.int64)
        number = rows - self.before[owner]
        begins = np.flatnonzero((np.diff(rows, prepend=-2) != 1) | (np.diff(owner, prepend=-1) != 0))
        sequence = owner[begins]
        return ShardTask(
            rules=self.rules,
            epoch=self.epoch,
            sequence=sequence,
            first=number[begins],
            stop=number[np.append(begins[1:], len(rows)) - 1] + 1,
            lengths={name: frames[sequence] for name, frames in self.lengths.items()},
            classes=self.classes,
            sizes={name: axes[sequence] for name, axes in self.sizes.items()},
        )

    def shard(self, shard: int) -> ShardPlan:
        """Works out one shard's rows and batches."""
        return self.task(shard).plan()


PassPlan = Plan | GlobalPlan


def make_plan(
    lengths: Mapping[str, Int64],
    rules: Rules,
    epoch: int = 0,
    *,
    places: Int64 | None = None,
    classes: LengthClasses | None = None,
    sizes: Mapping[str, Int64] | None = None,
    aligned: Mapping[str, Any] | None = None,
) -> PassPlan:
    """Plans one pass over a dataset: order → partition → shards.

    Args:
        lengths: for each key of the rules, int64 [sequences], in frames; those of the sequences to take fit together
            (see `align_lengths`).
        rules: from `resolve`.
        epoch: number of the pass; part of every random draw.
        places: int64 [n], ascending: the sequences to take, as places in the source; all unless told.
        classes: the length classes that the rules ask for; found from these sequences unless told.
        sizes: for each key with ragged axes, int64 [sequences, axes].
        aligned: the counts of an `Alignment`, for the report.

    Raises:
        ConfigError: no sequence gives a row.
    """
    named = {rule.name: np.asarray(lengths[rule.name], np.int64) for rule in rules.keys}
    everywhere = np.arange(len(named[rules.input.name]))
    places = everywhere if places is None else places
    cutting = cut_sequences(named, rules, everywhere, epoch)
    cuts, ragged = cutting.cuts, dict(sizes or {})
    report = _report(cutting, places, aligned or {})
    _check_rows(cuts.count[places], named[rules.input.name][places], cutting, places, rules)
    classes = classes or length_classes(named, places, rules)
    if rules.order_rule.all_rows:
        return _global_plan(named, cuts, places, classes, rules, epoch, ragged, report)
    order = order_sequences(places, named[rules.input.name][places], rules, epoch)
    order = order[_partition(len(order), "sequences", rules)]
    _check_rows(cuts.count[order], named[rules.input.name][order], cutting, order, rules)
    shards = cut_shards(order, cuts, named, rules, _units(ragged))
    place, chunk = shards.place, shards.chunk
    return Plan(rules, epoch, named, classes, cuts.count, order, place, chunk, ragged, report, shards.row_bytes)


def _units(sizes: Mapping[str, Int64]) -> dict[str, Int64]:
    return {name: np.prod(axes, axis=1, dtype=np.int64) for name, axes in sizes.items()}


def _report(cutting: Cutting, places: Int64, aligned: Mapping[str, Any]) -> CutReport:
    lost = {name: int(frames[places].sum()) for name, frames in cutting.lost.items()}
    return CutReport(
        **aligned,
        chunks_dropped_short=int(cutting.short[places].sum()),
        chunks_shifted=int(cutting.moved[places].sum()),
        chunks_dropped_context=int(cutting.lacking[places].sum()),
        frames_lost_to_shift={name: count for name, count in lost.items() if count},
        sequences_without_rows=int((cutting.cuts.count[places] == 0).sum()),
    )


def _check_rows(counts: Int64, frames: Int64, cutting: Cutting, places: Int64, rules: Rules) -> None:
    """Refuses a plan without rows, and says what became of the sequences."""
    if counts.any():
        return
    if not len(counts):
        raise ConfigError("there are no sequences; check what the source's settings name")
    size = rules.input.chunk.size_frames if rules.input.chunk else None
    reasons = {
        f"without frames in key {rules.input.name!r} (check the source)": int((frames == 0).sum()),
        f"without a full chunk (chunk.size is {size}; lower it, or set chunk.tail to keep)": int(
            (cutting.short[places] > 0).sum()
        ),
        "without a chunk whose context is all real (pad it otherwise)": int((cutting.lacking[places] > 0).sum()),
    }
    told = ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)
    raise ConfigError(f"none of the {len(counts)} sequences gives a row: {told}")


def _global_plan(
    lengths: Mapping[str, Int64],
    cuts: Cuts,
    places: Int64,
    classes: LengthClasses | None,
    rules: Rules,
    epoch: int,
    sizes: Mapping[str, Int64],
    report: CutReport,
) -> GlobalPlan:
    taken = np.zeros(len(cuts.count), np.int64)
    taken[places] = cuts.count[places]
    ends = np.cumsum(taken)
    before, rows = ends - taken, int(ends[-1])
    narrow = np.int32 if rows <= np.iinfo(np.int32).max else np.int64
    owner, hashes, row_bytes = np.empty(rows, narrow), np.empty(rows, np.uint64), np.empty(rows, np.int64)
    sequence_hashes, units = hash_sequences(np.arange(len(taken)), rules, epoch), _units(sizes)
    for block in _blocks(taken):
        sequence = np.repeat(np.arange(block.start, block.stop), taken[block])
        some = slice(int(before[block.start]), int(before[block.start]) + len(sequence))
        number = np.arange(some.start, some.stop) - before[sequence]
        owner[some] = sequence
        hashes[some] = hash_rows(sequence_hashes[sequence], number)
        row_bytes[some] = chunk_bytes(sequence, number, lengths, cuts, rules, units)
    order = hashing.order_of(hashes)
    order = order[_partition(rows, "rows", rules)]
    row_bytes = row_bytes[order]
    bounds, order, total = cut_rows(row_bytes, rules), order.astype(narrow), int(row_bytes.sum())
    return GlobalPlan(rules, epoch, lengths, classes, before, owner, order, bounds, sizes, report, total)


def _blocks(counts: Int64) -> Iterator[slice]:
    """Neighbouring sequences with some hundred thousand rows together, so that working arrays stay small.

    Args:
        counts: int64 [sequences]: rows of each.
    """
    number = np.cumsum(counts) // _BLOCK_ROWS
    ends = [*(np.flatnonzero(np.diff(number)) + 1).tolist(), len(counts)]
    return itertools.starmap(slice, itertools.pairwise([0, *ends]))


def _partition(count: int, what: str, rules: Rules) -> slice:
    """The part that is taken; as in RETURNN the first ones are larger by 1 where they don't divide.

    Raises:
        ConfigError: it is empty.
    """
    part, parts = rules.order_rule.partition
    size, larger = divmod(count, parts)
    begin = (part - 1) * size + min(part - 1, larger)
    end = part * size + min(part, larger)
    if begin == end:
        raise ConfigError(
            f"partition is {part}/{parts}, but there are only {count} {what}, so this part is empty; use fewer parts"
        )
    return slice(begin, end)


def length_classes(lengths: Mapping[str, Int64], places: Int64, rules: Rules) -> LengthClasses | None:
    """Finds the length classes that the rules ask for, over all rows of some sequences.

    Args:
        lengths: for each key of the rules, int64 [sequences], in frames.
        places: int64 [n]: the sequences, as places in the source.
        rules: the rules.

    Returns:
        None if rows aren't told apart by length, or there is none.
    """
    if not rules.batch.has_classes:
        return None
    histogram = Histogram()
    for frames in _row_blocks(lengths, places, rules):
        histogram.add(frames[rules.input.name])
    if not len(histogram.lengths):
        return None  # there is no row to tell from another
    if rules.batch.boundaries is not None:
        boundaries = given_boundaries(rules.batch.boundaries, histogram.lengths)
    else:
        boundaries = equal_mass_boundaries(histogram.lengths, histogram.counts, rules.batch.auto_classes or 1)
    blocks = _row_blocks(lengths, places, rules) if rules.batch.pad_to_class else ()
    return LengthClasses(boundaries, class_widths(boundaries, [rule.name for rule in rules.keys], blocks))


def _row_blocks(lengths: Mapping[str, Int64], places: Int64, rules: Rules) -> Iterator[dict[str, Int64]]:
    """For each key, frames of all rows of some sequences, block by block; in each pass, where chunks move."""
    taken = {rule.name: lengths[rule.name][places] for rule in rules.keys}
    for epoch in range(rules.epochs if rules.jitter else 1):
        counts = cut_sequences(taken, rules, places, epoch).cuts.count
        for block in _blocks(counts):
            own, frames = counts[block], {name: frames[block] for name, frames in taken.items()}
            yield ShardTask(rules, epoch, places[block], np.zeros(len(own), np.int64), own, frames).frames()
