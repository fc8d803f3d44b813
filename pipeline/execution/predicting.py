"""`seqprep.plan`: what a configuration will give, told from lengths alone, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.config import Config, load_config
from seqprep.execution.planning import SourcePlan, plan_source
from seqprep.execution.run import check_batches, describe_run, output_folder
from seqprep.execution.task import number_tasks, shard_table
from seqprep.planning import NO_ROW, DatasetPlan, ShardPlan, ShardTask, needed_frames, report_lines
from seqprep.shards import Index, ShardRecord, ShardTable, record_of_table, shard_bytes, shard_name
from seqprep.sources import Source, open_source
from seqprep.types import Array, Int64, Tags

_PADDING_BINS = 10
_LENGTH_BINS = 10


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """How many things have values from one edge up to the next, the upper one not included."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class PlannedKey:
    """One key over all passes, in its own frames."""

    frames: int
    """Valid frames of all rows, context included."""
    context_frames: int
    """Of these, those of the context, whether real or what stands outside the sequence."""
    padding_frames: int
    """The sum of padded length − length over all rows."""
    read_frames: int
    """Frames that are read from the source; less than `frames` where chunks overlap within a shard."""
    input_frames: int
    """Frames of the sequences taken, times the passes."""

    @property
    def padding_share(self) -> float:
        """Padding among all stored frames."""
        return self.padding_frames / max(self.frames + self.padding_frames, 1)

    @property
    def context_share(self) -> float:
        """Context among the valid frames."""
        return self.context_frames / max(self.frames, 1)

    @property
    def read_amplification(self) -> float:
        """How often a frame is read from the source."""
        return self.read_frames / max(self.input_frames, 1)


@dataclass(frozen=True, kw_only=True)
class PlannedPass:
    """One pass over the input."""

    epoch: int
    shards: int
    batches: int
    rows: int
    segments: int | None
    """Of packed rows; else None."""
    frames: int
    """Valid frames of the input key, context included."""
    padding: Mapping[str, int]
    bytes: int


@dataclass(frozen=True, kw_only=True)
class PlannedPart:
    """One dataset that `chunk` will write: the whole, or a part of a split."""

    path: Path
    sequences: int
    keys: Mapping[str, PlannedKey]
    """The keys with time, the input key first."""
    shapes: int
    """Distinct shapes of batches: B, and T and ragged sizes of every key."""
    shards: tuple[ShardRecord, ...]
    """What the index will say of each, but for checksums, which are 0; with compression, bytes are those before it."""
    compression: str
    lengths: Histogram
    """Sequences by their frames of the input key."""
    padding: Histogram
    """Batches by their share of padding in the input key."""
    warnings: tuple[str, ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)
    """As of `Summary.report`."""

    @property
    def passes(self) -> list[PlannedPass]:
        """Each pass by itself."""
        found = []
        for epoch in range(max(shard.epoch for shard in self.shards) + 1):
            own = [shard for shard in self.shards if shard.epoch == epoch]
            segments = [shard.segments for shard in own if shard.segments is not None]
            found.append(
                PlannedPass(
                    epoch=epoch,
                    shards=len(own),
                    segments=sum(segments) if segments else None,
                    padding={key: sum(shard.padding[key] for shard in own) for key in self.keys},
                    **{name: sum(getattr(shard, name) for shard in own) for name in _SUMMED},
                )
            )
        return found

    @property
    def chunks(self) -> int:
        """Chunks (or whole sequences) of all passes: rows, or the segments of packed ones."""
        return sum(shard.rows if shard.segments is None else shard.segments for shard in self.shards)

    def total(self, name: str) -> int:
        """The sum over all shards of batches, rows, frames or bytes."""
        return sum(getattr(shard, name) for shard in self.shards)

    def dropped(self) -> list[str]:
        """Says in words what is left out or changed, a line each."""
        return report_lines(self.report)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        shards = [asdict(shard) for shard in self.shards]
        for shard in shards:
            del shard["sidecar_crc32c"]
        shares = ("padding_share", "context_share", "read_amplification")
        return {
            "path": str(self.path),
            "sequences": self.sequences,
            "chunks": self.chunks,
            "shapes": self.shapes,
            **{name: self.total(name) for name in _SUMMED},
            "bytes_before_compression": self.compression != "none",
            "keys": {
                name: asdict(key) | {share: getattr(key, share) for share in shares} for name, key in self.keys.items()
            },
            "passes": [asdict(one) for one in self.passes],
            "lengths": asdict(self.lengths),
            "padding": asdict(self.padding),
            "warnings": list(self.warnings),
            "report": self.report,
            "shards": shards,
        }


_SUMMED = ("batches", "rows", "frames", "bytes")


def plan(config: Config | Mapping[str, Any] | str | Path) -> dict[str, PlannedPart]:
    """Tells what `chunk` will write for a configuration, to the byte where nothing is compressed; writes nothing.

    Args:
        config: a configuration, a nested mapping, or the path of a YAML file.

    Returns:
        For each part of a split what it will hold; under "" if there is none.

    Raises:
        ConfigError: a setting is wrong, or leaves nothing.
        SourceError: the input can't be read, or lengths of a sequence's keys don't go together.
        OutputError: a batch is larger than the format can hold.
    """
    config = config if isinstance(config, Config) else load_config(config)
    source = open_source(config.source, config.document)
    try:
        planned = plan_source(config, source)
        return {
            name: _predict(config, source, planned, part, describe_run(config, planned, name))
            for name, part in planned.parts.items()
        }
    finally:
        source.close()


def _predict(config: Config, source: Source, planned: SourcePlan, plan: DatasetPlan, index: Index) -> PlannedPart:
    folder = output_folder(config, index.configuration.get("part", ""))
    read_whole = {name for name, normalizer in planned.normalizers.items() if normalizer.per_sequence}
    counting, records = _Counting(len(source.tags), read_whole), []
    description, tag_bytes = index.describe(), source.tags.sizes
    for numbered in number_tasks(plan, range(len(plan))):
        name = shard_name(numbered.number, numbered.count, index.format)
        shard = numbered.task.plan()
        table = shard_table(shard, numbered.task, index.keys, _tags_of_sizes(shard, tag_bytes))
        size = shard_bytes(folder / name, index.format, table, description)
        records.append(record_of_table(name, table, size, 0))
        counting.add(numbered.task, shard, table)
    check_batches(records, plan, config)
    index = index.with_shards(records)
    lengths = plan.passes[0].lengths
    return PlannedPart(
        path=folder,
        sequences=index.sequences,
        keys={name: counting.key(name, frames, index) for name, frames in lengths.items()},
        shapes=len(counting.shapes),
        shards=index.shards,
        compression=index.compression,
        lengths=_length_histogram(next(iter(lengths.values()))[counting.taken]),
        padding=Histogram(
            edges=tuple(number / _PADDING_BINS for number in range(_PADDING_BINS + 1)),
            counts=tuple(counting.padding.tolist()),
        ),
        warnings=tuple(plan.report.warnings()),
        report=index.report,
    )


def _tags_of_sizes(plan: ShardPlan, sizes: Int64) -> Tags:
    """Tags of rows that have the right sizes, and take no memory."""
    own = np.where(plan.sequence == NO_ROW, 0, sizes[plan.sequence])
    ends = np.cumsum(own, dtype=np.int64)
    return Tags(np.broadcast_to(np.uint8(0), int(ends[-1]) if len(ends) else 0), ends)


class _Counting:
    """Adds up shards.

    Args:
        sequences: of the source.
        read_whole: keys of which every sequence is read whole, whatever rows need of it.
    """

    def __init__(self, sequences: int, read_whole: Set[str]) -> None:
        self._read_whole = read_whole
        self.taken = np.zeros(sequences, bool)
        """bool [sequences]: those that have a place in a shard."""
        self.shapes: set[tuple[int, ...]] = set()
        self.padding = np.zeros(_PADDING_BINS, np.int64)
        """int64 [bins]: batches by their share of padding."""
        self._frames: dict[str, list[int]] = {}  # of each key: valid, core, read

    def add(self, task: ShardTask, plan: ShardPlan, table: ShardTable) -> None:
        """Counts one shard."""
        self.taken[task.sequence] = True
        ones = np.ones(len(task.sequence), np.int64)
        for rule in task.rules.keys:
            rows = plan.keys[rule.name]
            needed = needed_frames(rows, plan.owner, ones, rule)
            read = needed.stop - needed.start
            if rule.name in self._read_whole:
                read = np.where(read > 0, task.lengths[rule.name], 0)
            found = [int(rows.frames.sum()), int(rows.core.sum()), int(read.sum())]
            before = self._frames.get(rule.name, [0, 0, 0])
            self._frames[rule.name] = [one + other for one, other in zip(before, found, strict=True)]
        self.shapes.update(map(tuple, _distinct_shapes(table).tolist()))
        name = task.rules.input.name
        held = np.concatenate([np.zeros(1, np.int64), np.cumsum(plan.keys[name].frames)])[table.bounds]
        padded = np.maximum(table.batch_rows * table.batch_frames[name], 1)
        share = 1 - np.diff(held) / padded
        bins = np.minimum((share * _PADDING_BINS).astype(np.int64), _PADDING_BINS - 1)
        self.padding += np.bincount(bins, minlength=_PADDING_BINS)

    def key(self, name: str, lengths: Int64, index: Index) -> PlannedKey:
        """What was counted of one key.

        Args:
            name: of the key.
            lengths: int64 [sequences], in its frames.
            index: of the dataset.
        """
        valid, core, read = self._frames[name]
        return PlannedKey(
            frames=valid,
            context_frames=valid - core,
            padding_frames=index.padding[name],
            read_frames=read,
            input_frames=int(lengths[self.taken].sum()) * index.epochs,
        )


def _distinct_shapes(table: ShardTable) -> Array:
    """The distinct rows of [batches, B and what T and ragged sizes the keys have]."""
    columns = [table.batch_rows, *table.batch_frames.values()]
    columns += [sizes for axes in table.batch_sizes.values() for sizes in axes.T]
    if any(not spec.has_time for spec in table.keys.values()):
        columns.append(table.batch_entries)
    return np.unique(np.stack(columns, axis=1), axis=0)


def _length_histogram(frames: Int64) -> Histogram:
    """At most ten bins of one whole width, from the shortest to the longest."""
    least, most = int(frames.min()), int(frames.max())
    width = -(-(most - least + 1) // _LENGTH_BINS)
    counts = np.bincount((frames - least) // width)
    edges = least + width * np.arange(len(counts) + 1)
    return Histogram(edges=tuple(map(float, edges.tolist())), counts=tuple(counts.tolist()))
