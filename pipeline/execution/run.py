"""`seqprep.chunk`: a configuration carried out, from the source to a finished dataset."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqprep.config import Config, load_config
from seqprep.execution.engines import engine_for
from seqprep.execution.resume import make_dataset
from seqprep.execution.task import Job, number_tasks
from seqprep.planning import Plan, check_lengths, make_plan, resolve
from seqprep.shards import Index, ShardRecord, SharedLock, Storage, codec_release
from seqprep.sources import Source, open_source
from seqprep.types import KeySpec


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is."""

    rows: int
    """Rows done, those of kept shards included."""
    rows_total: int
    bytes: int
    """Bytes of batches made by this run."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a run made, or found made."""

    path: Path
    sequences: int
    shards: int
    batches: int
    rows: int
    frames: int
    """Valid frames of the input key, context included."""
    bytes: int
    """Bytes of the shards."""
    seconds: float
    already_complete: bool
    """The folder held exactly this dataset before; nothing was made."""


def chunk(
    config: Config | Mapping[str, Any] | str | Path,
    *,
    workers: int = 1,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
    storage: Storage | None = None,
) -> Summary:
    """Cuts, batches and writes a dataset; goes on where an interrupted run of the same configuration stopped.

    Args:
        config: a configuration, a nested mapping, or the path of a YAML file.
        workers: processes to use; with more than one, a script has to call this under `if __name__ == "__main__":`.
        overwrite: replace what the output folder holds, if it is something else or damaged.
        progress: told now and then how far the run is, in the caller's thread.
        storage: the file layer; local files unless told.

    Raises:
        ConfigError: a setting is wrong.
        SourceError: the input can't be read.
        OutputError: the output can't be written.
        MismatchError: the output folder holds something else.
        BusyError: another run writes in the output folder.
        CorruptError: the output folder holds this dataset, but damaged.
        WorkerError: a worker process died.
    """
    started = time.monotonic()
    config = config if isinstance(config, Config) else load_config(config)
    storage = storage or Storage()
    source = open_source(config.source, config.document)
    try:
        plan, stored = plan_source(config, source)
        folder = Path(config.output.path)
        expected = describe_run(config, source, stored)

        def make_shards(lock: SharedLock) -> list[ShardRecord]:
            job = job_for(config, source, expected, storage, lock)
            records = run_tasks(job, plan, range(len(plan)), workers, progress)
            return [records[number] for number in range(len(plan))]

        index, before = make_dataset(folder, expected, len(plan), storage, overwrite, make_shards)
        return summarize(folder, index, time.monotonic() - started, before)
    finally:
        source.close()


def plan_source(config: Config, source: Source) -> tuple[Plan, dict[str, KeySpec]]:
    """Plans a dataset from a configuration and an opened source.

    Returns:
        The plan, and the keys as they will be stored.

    Raises:
        ConfigError: a setting doesn't go with the source.
        SourceError: lengths of a sequence's keys don't go together.
    """
    rules, stored = resolve(config, source.keys)
    lengths = {rule.name: source.lengths(rule.name) for rule in rules.keys}
    check_lengths(lengths, rules, source.tags)
    return make_plan(lengths, rules), stored


def describe_run(config: Config, source: Source, stored: Mapping[str, KeySpec]) -> Index:
    """Gives the index that a run will write, without its shards.

    Raises:
        DependencyError: the package that compresses is missing.
    """
    parts, compression = dict(source.fingerprint()), config.output.compression
    codec = codec_release(compression)
    return Index(
        format=config.output.format,
        fingerprint=run_fingerprint(config.decisive(), parts, codec),
        configuration=config.decisive(),
        source=parts,
        keys=stored,
        sequences=len(source.tags),
        shards=(),
        compression=compression,
        codec=codec,
    )


def run_fingerprint(configuration: Mapping[str, Any], source: Mapping[str, str], codec: str) -> str:
    """A hash of all that decides a dataset's bytes, 16 hexadecimal digits.

    Args:
        configuration: every setting that decides what the shards hold.
        source: the source's fingerprint, part by part.
        codec: the release of what compresses; empty without compression.
    """
    settings = hashlib.sha256(json.dumps(configuration, sort_keys=True).encode()).hexdigest()[:16]
    whole = json.dumps([settings, source, *([codec] if codec else [])], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def job_for(config: Config, source: Source, index: Index, storage: Storage, lock: SharedLock) -> Job:
    """What the tasks of a run share.

    Args:
        config: the configuration.
        source: opened.
        index: of the dataset, with or without its shards.
        storage: the file layer.
        lock: of the run.
    """
    return Job(
        source=source,
        stored=index.keys,
        pad_values={name: key.pad_value for name, key in config.keys.items()},
        folder=Path(config.output.path),
        format=index.format,
        fingerprint=index.fingerprint,
        storage=storage,
        compression=index.compression,
        description=index.describe(),
        lock=lock,
    )


def run_tasks(
    job: Job, plan: Plan, shards: Sequence[int], workers: int, progress: Callable[[Progress], None] | None
) -> dict[int, ShardRecord]:
    """Makes some shards of a plan.

    Args:
        job: what they share.
        plan: the plan.
        shards: their numbers.
        workers: processes to use.
        progress: told now and then how far it is.

    Returns:
        Number to record.
    """
    rows_total = sum(plan.task(number).rows for number in shards) if len(shards) < len(plan) else plan.rows
    done = [0, 0]

    def advance(rows: int, size: int) -> None:
        done[0] += rows
        done[1] += size
        if progress is not None:
            progress(Progress(rows=done[0], rows_total=rows_total, bytes=done[1]))

    engine = engine_for(workers, len(shards))
    return dict(engine.run(job, number_tasks(plan, shards), len(plan), advance))


def summarize(folder: Path, index: Index, seconds: float, already_complete: bool) -> Summary:
    """What a run tells of a dataset."""
    return Summary(
        path=folder,
        sequences=index.sequences,
        shards=len(index.shards),
        batches=index.batches,
        rows=index.rows,
        frames=index.frames,
        bytes=index.shard_bytes,
        seconds=seconds,
        already_complete=already_complete,
    )
