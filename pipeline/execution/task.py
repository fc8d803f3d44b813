"""One shard, from source to disk: the unit of work of every engine. Pure and idempotent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqprep.errors import ConfigError, DatasetError
from seqprep.execution.gather import ShardGatherer
from seqprep.execution.normalization import Normalizer
from seqprep.planning import NO_ROW, DatasetPlan, KeyRows, ShardPlan, ShardTask
from seqprep.shards import (
    MadeShard,
    ShardRecord,
    ShardTable,
    SharedLock,
    Storage,
    read_sidecar,
    record_of,
    shard_name,
    verify_shard,
    write_shard,
)
from seqprep.sources import Source
from seqprep.types import Array, KeySpec, Tags

Advance = Callable[[int, int], None]
"""Told after each batch: rows and bytes done since the last call."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all tasks of a run share; goes to each worker once."""

    source: Source
    stored: Mapping[str, KeySpec]
    pad_values: Mapping[str, float]
    normalizers: Mapping[str, Normalizer]
    folder: Path
    format: str
    fingerprint: str
    storage: Storage
    compression: str = "none"
    description: bytes = b""
    """Of the dataset; each shard holds it."""
    lock: SharedLock | None = None
    """Of the run, for each task to hold."""

    def joined(self) -> contextlib.AbstractContextManager[None]:
        """Has a part in the run, from `with` on.

        Raises:
            BusyError: the run has ended.
        """
        return self.lock.joined() if self.lock else contextlib.nullcontext()


@dataclass(frozen=True, kw_only=True)
class NumberedTask:
    """A shard's task, and which shard it is."""

    number: int
    count: int
    task: ShardTask


def number_tasks(plan: DatasetPlan, shards: Sequence[int]) -> Iterator[NumberedTask]:
    """Gives the tasks of some shards of a plan in order, each made when it is asked for."""
    return (NumberedTask(number=i, count=len(plan), task=plan.task(i)) for i in shards)


def run_task(job: Job, numbered: NumberedTask, advance: Advance) -> ShardRecord:
    """Makes one shard, unless a finished one with the same bytes is there.

    Raises:
        SourceError: a sequence can't be read.
        OutputError: the shard can't be written.
        BusyError: the run that the task is part of has ended.
    """
    with job.joined():
        made = begin_task(job, numbered, advance)
        return made if isinstance(made, ShardRecord) else made.commit()


def begin_task(job: Job, numbered: NumberedTask, advance: Advance) -> ShardRecord | MadeShard:
    """Makes one shard, all but safe, unless a finished one is there; raises what `run_task` does."""
    path = job.folder / shard_name(numbered.number, numbered.count, job.format)
    plan = numbered.task.plan()
    table = shard_table(plan, numbered.task, job.stored, tags_of_rows(plan, job.source.tags))
    finished = finished_shard(path, job.fingerprint, table)
    if finished is not None:
        advance(numbered.task.rows, 0)
        return finished
    gatherer = ShardGatherer(job.source, numbered.task, plan, job.stored, job.pad_values, job.normalizers)
    gatherer.read()
    done = np.concatenate([np.zeros(1, np.int64), np.cumsum(plan.sequence != NO_ROW)])[plan.bounds]

    def counted() -> Iterator[dict[str, Array]]:
        for arrays, rows in zip(gatherer.batches(), np.diff(done).tolist(), strict=True):
            yield arrays
            advance(rows, sum(array.nbytes for array in arrays.values()))
        advance(plan.dropped.rows, 0)

    return write_shard(
        path,
        job.format,
        table,
        counted(),
        job.fingerprint,
        job.storage,
        compression=job.compression,
        description=job.description,
    )


def finished_shard(path: Path, fingerprint: str, table: ShardTable) -> ShardRecord | None:
    """The record of a shard that an earlier run finished, if it is the one due here and every byte of it is right.

    Args:
        path: the shard.
        fingerprint: of the run.
        table: what the shard has to hold.
    """
    try:
        sidecar = read_sidecar(path)
        if sidecar.fingerprint != fingerprint or not sidecar.table.equals(table) or verify_shard(path, sidecar)[1]:
            return None
    except DatasetError:
        return None
    return record_of(path.name, sidecar, sidecar.crc32c)


def shard_table(plan: ShardPlan, task: ShardTask, stored: Mapping[str, KeySpec], tags: Tags) -> ShardTable:
    """Works out what a shard holds beside the arrays of its keys.

    Args:
        plan: its rows and batches.
        task: of which that is the plan.
        stored: the stored keys.
        tags: of its rows, from `tags_of_rows`.
    """
    fields: dict[str, Array] = {"seq_idx": plan.sequence}
    for name, rows in plan.keys.items():
        fields[f"{name}/size0"] = _row_frames(rows, name)
        fields[f"{name}/start"] = rows.start
        fields[f"{name}/core"] = np.stack([rows.left, rows.core], axis=1).astype(np.int32)
        fields[f"{name}/length"] = rows.length
    for name, axes in plan.sizes.items():
        for axis, sizes in zip(stored[name].ragged, axes.T, strict=True):
            fields[f"{name}/size{axis + 1}"] = sizes.astype(np.int32)
    if plan.segments is not None:
        fields["segment_row"] = plan.segments.row.astype(np.int32)
        for rule in task.rules.keys:
            own = "segment_start" if rule is task.rules.input else f"{rule.name}/segment_start"
            if rule is task.rules.input or rule.rate != 1:
                fields[own] = plan.segments.start[rule.name].astype(np.int32)
    return ShardTable(
        keys=stored,
        batch_rows=plan.batch_rows,
        batch_frames={name: plan.batch_frames(name) for name in plan.keys},
        batch_sizes={name: plan.batch_sizes(name) for name in plan.sizes},
        fields=fields,
        tags=tags,
        batch_segments=None if plan.segments is None else np.diff(plan.bounds),
        epoch=task.epoch,
        dropped_rows=plan.dropped.rows,
        dropped_frames=plan.dropped.frames,
    )


def tags_of_rows(plan: ShardPlan, tags: Tags) -> Tags:
    """The tags of a shard's rows; "" for an empty one.

    Args:
        plan: the shard's rows.
        tags: of all sequences of the source.
    """
    sequence = plan.sequence
    real = sequence != NO_ROW
    sizes = np.zeros(len(sequence), np.int64)
    taken = tags.take(sequence[real])
    sizes[real] = taken.sizes
    return Tags(taken.data, np.cumsum(sizes))


def _row_frames(rows: KeyRows, key: str) -> Array:
    """Frames of rows, as batches hold them."""
    longest, most = int(rows.frames.max(initial=0)), np.iinfo(np.int32).max
    if longest > most:
        cause = "chunk.size" if rows.core.max() > most else "context.left or right"
        raise ConfigError(
            f"a row of key {key!r} has {longest} frames, more than a row can have ({most}); set a smaller {cause}"
        )
    return rows.frames.astype(np.int32)
