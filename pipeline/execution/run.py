"""`seqprep.chunk`: a configuration carried out, from the source to a finished dataset."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqprep.config import Config, load_config
from seqprep.execution.engines import engine_for
from seqprep.execution.resume import MARKER_NAME, prepare_folder
from seqprep.execution.task import Job, number_tasks
from seqprep.planning import Changes, Plan, align_lengths, make_plan, resolve
from seqprep.shards import Index, Storage, write_index
from seqprep.sources import Source, axis_sizes, frame_rates, open_source
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
    changes: Changes
    """What was left out, cut off or added."""


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
        overwrite: replace what the output folder holds, if it is something else.
        progress: told now and then how far the run is, in the caller's thread.
        storage: the file layer; local files unless told.

    Raises:
        ConfigError: a setting is wrong.
        SourceError: the input can't be read.
        OutputError: the output can't be written.
        MismatchError: the output folder holds something else.
        WorkerError: a worker process died.
    """
    started = time.monotonic()
    config = config if isinstance(config, Config) else load_config(config)
    storage = storage or Storage()
    source = open_source(config.source, config.document)
    try:
        plan, stored = plan_source(config, source)
        folder = Path(config.output.path)
        index = _index_without_shards(config, source, stored)
        done = prepare_folder(folder, index, storage, overwrite)
        if done is None:
            index = _make_shards(config, source, plan, index, workers, progress, storage)
            write_index(folder, index, storage)
            storage.remove(folder / MARKER_NAME)
        return _summary(folder, done or index, plan.changes, time.monotonic() - started, done is not None)
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
    rules, stored = resolve(config, source.keys, frame_rates(source))
    lengths = {rule.name: source.lengths(rule.name) for rule in rules.keys}
    sizes = {name: axis_sizes(source, name) for name, spec in stored.items() if spec.ragged}
    return make_plan(align_lengths(lengths, rules, source.tags), rules, sizes=sizes), stored


def _index_without_shards(config: Config, source: Source, stored: Mapping[str, KeySpec]) -> Index:
    parts = dict(source.fingerprint())
    whole = json.dumps([config.fingerprint(), parts], sort_keys=True).encode()
    return Index(
        format=config.output.format,
        fingerprint=hashlib.sha256(whole).hexdigest()[:16],
        configuration=config.decisive(),
        source=parts,
        keys=stored,
        sequences=len(source.tags),
        shards=(),
    )


def _make_shards(
    config: Config,
    source: Source,
    plan: Plan,
    index: Index,
    workers: int,
    progress: Callable[[Progress], None] | None,
    storage: Storage,
) -> Index:
    """Runs all tasks; gives the index with their records."""
    job = Job(
        source=source,
        stored=index.keys,
        pad_values={name: key.pad_value for name, key in config.keys.items()},
        folder=Path(config.output.path),
        format=config.output.format,
        fingerprint=index.fingerprint,
        storage=storage,
    )
    done = [0, 0]

    def advance(rows: int, size: int) -> None:
        done[0] += rows
        done[1] += size
        if progress is not None:
            progress(Progress(rows=done[0], rows_total=plan.rows, bytes=done[1]))

    finished = engine_for(workers, len(plan)).run(job, number_tasks(plan), len(plan), advance)
    records = dict(finished)
    return Index(**{**index.__dict__, "shards": tuple(records[number] for number in range(len(plan)))})


def _summary(folder: Path, index: Index, changes: Changes, seconds: float, already_complete: bool) -> Summary:
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
        changes=changes,
    )
