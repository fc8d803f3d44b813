"""One shard, from source to disk: the unit of work of every engine. Pure and idempotent."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqprep.errors import DatasetError
from seqprep.execution.gather import ShardGatherer
from seqprep.planning import Plan, ShardPlan, ShardTask
from seqprep.shards import (
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
from seqprep.types import Array, Int64, KeySpec, Tags

Advance = Callable[[int, int], None]
"""Told after each batch: rows and bytes done since the last call."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all tasks of a run share; goes to each worker once."""

    source: Source
    stored: Mapping[str, KeySpec]
    pad_values: Mapping[str, float]
    folder: Path
    format: str
    fingerprint: str
    storage: Storage
    compression: str = "none"
    description: bytes = b""
    """Of the dataset; each shard holds it."""
    lock: SharedLock | None = None
    """Of the run, for each task to hold."""


@dataclass(frozen=True, kw_only=True)
class NumberedTask:
    """A shard's task, and which shard it is."""

    number: int
    count: int
    task: ShardTask


def number_tasks(plan: Plan, shards: Sequence[int]) -> Iterator[NumberedTask]:
    """Gives the tasks of some shards of a plan in order, each made when it is asked for."""
    return (NumberedTask(number=i, count=len(plan), task=plan.task(i)) for i in shards)


def run_task(job: Job, numbered: NumberedTask, advance: Advance) -> ShardRecord:
    """Makes one shard, unless a finished one with the same bytes is there.

    Raises:
        SourceError: a sequence can't be read.
        OutputError: the shard can't be written.
        BusyError: the run that the task is part of has ended.
    """
    with job.lock.joined() if job.lock else contextlib.nullcontext():
        return _make_shard(job, numbered, advance)


def _make_shard(job: Job, numbered: NumberedTask, advance: Advance) -> ShardRecord:
    path = job.folder / shard_name(numbered.number, numbered.count, job.format)
    plan = numbered.task.plan()
    table = shard_table(plan, job.stored, job.source.tags)
    finished = finished_shard(path, job.fingerprint, table)
    if finished is not None:
        advance(finished.rows, 0)
        return finished
    gatherer = ShardGatherer(job.source, numbered.task, plan, job.stored, job.pad_values)

    def counted() -> Iterator[dict[str, Array]]:
        for arrays, rows in zip(gatherer.batches(), plan.batch_rows.tolist(), strict=True):
            yield arrays
            advance(rows, sum(array.nbytes for array in arrays.values()))

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


def shard_table(plan: ShardPlan, stored: Mapping[str, KeySpec], tags: Tags) -> ShardTable:
    """Works out what a shard holds beside the arrays of its keys.

    Args:
        plan: its rows and batches.
        stored: the stored keys.
        tags: of all sequences of the source.
    """
    fields: dict[str, Array] = {"seq_idx": plan.sequence}
    for name, rows in plan.keys.items():
        fields[f"{name}/size0"] = _int32(rows.frames, name)
        fields[f"{name}/start"] = rows.start
        fields[f"{name}/core"] = np.stack([rows.left, rows.core], axis=1).astype(np.int32)
        fields[f"{name}/length"] = rows.length
    return ShardTable(
        keys=stored,
        batch_rows=plan.batch_rows,
        batch_frames={name: plan.batch_frames(name) for name in plan.keys},
        fields=fields,
        tags=tags.take(plan.sequence),
    )


def _int32(frames: Int64, key: str) -> Array:
    longest = int(frames.max(initial=0))
    if longest > np.iinfo(np.int32).max:
        raise DatasetError(f"a row of key {key!r} has {longest} frames, more than rows can have; set chunk.size")
    return frames.astype(np.int32)
