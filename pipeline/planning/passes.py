"""Plans one pass over a dataset: length classes → order → partition → shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from seqprep.errors import ConfigError
from seqprep.planning.buckets import Histogram, LengthClasses, class_widths, equal_mass_boundaries, given_boundaries
from seqprep.planning.chunking import count_chunks
from seqprep.planning.ordering import order_sequences, row_hashes
from seqprep.planning.plan import Plan, ShardPlan, ShardTask
from seqprep.planning.rules import Rules
from seqprep.planning.sharding import chunk_bytes, cut_rows, cut_shards
from seqprep.types import Int64

_BLOCK_ROWS = 1 << 20


@dataclass(frozen=True)
class GlobalPlan:
    """All shards of a dataset whose rows are shuffled as a whole, by row."""

    rules: Rules
    epoch: int
    lengths: Mapping[str, Int64]
    classes: LengthClasses | None
    ends: Int64
    """int64 [sequences]: rows of all sequences up to and with each, in the source's order."""
    order: Int64
    """int64 [rows]: rows in the order of writing, numbered through from sequence to sequence."""
    cuts: Int64
    """int64 [shards + 1]: shard i begins at this place of the order."""
    sequences: int
    """Sequences that have a row in a shard."""

    def __len__(self) -> int:
        return len(self.cuts) - 1

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return len(self.order)

    def task(self, shard: int) -> ShardTask:
        """Gives what is needed to plan one shard's rows: neighbouring chunks of a sequence as one piece of it.

        Args:
            shard: number of the shard, in [0, len(self)).
        """
        rows = np.sort(self.order[self.cuts[shard] : self.cuts[shard + 1]]).astype(np.int64)
        owner = np.searchsorted(self.ends, rows, side="right")
        number = rows - np.where(owner > 0, self.ends[owner - 1], 0)
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
) -> PassPlan:
    """Plans one pass over a dataset: order → partition → shards.

    Args:
        lengths: for each key of the rules, int64 [sequences], in frames; checked by `check_lengths`.
        rules: from `resolve`.
        epoch: number of the pass; part of every random draw.
        places: int64 [n], ascending: the sequences to take, as places in the source; all unless told.
        classes: the length classes that the rules ask for; found from these sequences unless told.

    Raises:
        ConfigError: no sequence gives a row.
    """
    named = {rule.name: np.asarray(lengths[rule.name], np.int64) for rule in rules.keys}
    counts = count_chunks(named, rules)
    places = np.arange(len(counts)) if places is None else places
    _check_rows(counts[places], rules)
    classes = classes or length_classes(named, places, rules)
    if rules.order_rule.all_rows:
        return _global_plan(named, counts, places, classes, rules, epoch)
    order = order_sequences(places, named[rules.input.name][places], rules, epoch)
    order = order[_partition(len(order), "sequences", rules)]
    _check_rows(counts[order], rules)
    cuts = cut_shards(order, counts, named, rules)
    return Plan(rules, epoch, named, classes, counts, order, cuts.place, cuts.chunk)


def _check_rows(counts: Int64, rules: Rules) -> None:
    if not counts.any():
        raise ConfigError(
            f"none of the {len(counts)} sequences gives a row: all have 0 frames in key {rules.input.name!r}; check the source"
        )


def _global_plan(
    lengths: Mapping[str, Int64], counts: Int64, places: Int64, classes: LengthClasses | None, rules: Rules, epoch: int
) -> GlobalPlan:
    taken = np.zeros(len(counts), np.int64)
    taken[places] = counts[places]
    sequence = np.repeat(np.arange(len(taken)), taken)
    ends = np.cumsum(taken)
    number = np.arange(len(sequence)) - np.repeat(ends - taken, taken)
    order = np.argsort(row_hashes(sequence, number, rules, epoch), kind="stable")
    order = order[_partition(len(order), "rows", rules)]
    cuts = cut_rows(chunk_bytes(sequence, number, lengths, rules)[order], rules)
    owners = np.count_nonzero(taken) if len(order) == len(sequence) else len(np.unique(sequence[order]))
    narrow = np.int32 if len(sequence) <= np.iinfo(np.int32).max else np.int64
    return GlobalPlan(rules, epoch, lengths, classes, ends, order.astype(narrow), cuts, int(owners))


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
        None if rows aren't told apart by length.
    """
    if not rules.batch.has_classes:
        return None
    histogram = Histogram()
    for frames in _row_blocks(lengths, places, rules):
        histogram.add(frames[rules.input.name])
    if rules.batch.boundaries is not None:
        boundaries = given_boundaries(rules.batch.boundaries, histogram.lengths)
    else:
        boundaries = equal_mass_boundaries(histogram.lengths, histogram.counts, rules.batch.auto_classes or 1)
    blocks = _row_blocks(lengths, places, rules) if rules.batch.pad_to_class else ()
    return LengthClasses(boundaries, class_widths(boundaries, [rule.name for rule in rules.keys], blocks))


def _row_blocks(lengths: Mapping[str, Int64], places: Int64, rules: Rules) -> Iterator[dict[str, Int64]]:
    """For each key, frames of all rows of some sequences, a million at a time."""
    counts = count_chunks(lengths, rules)[places]
    block = np.cumsum(counts) // _BLOCK_ROWS
    for some in np.split(np.arange(len(places)), np.flatnonzero(np.diff(block)) + 1):
        sequence = places[some]
        own = {rule.name: lengths[rule.name][sequence] for rule in rules.keys}
        yield ShardTask(rules, 0, sequence, np.zeros(len(some), np.int64), counts[some], own).frames()
