"""`seqprep.chunk`: a configuration carried out, from the source to a finished dataset."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seqprep.config import Config, load_config
from seqprep.errors import ConfigError
from seqprep.execution.engines import engine_for
from seqprep.execution.normalization import Normalizer
from seqprep.execution.planning import SourcePlan, plan_source
from seqprep.execution.resume import MARKER_NAME, prepare_folder
from seqprep.execution.task import Job, number_tasks
from seqprep.planning import Count, DatasetPlan, joined
from seqprep.shards import Index, ShardRecord, Storage, write_index
from seqprep.sources import Source, open_source

_log = logging.getLogger("seqprep")


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
    epochs: int = 1
    """Passes over the input."""
    padding: Mapping[str, int] = field(default_factory=dict)
    """For each key with time, the sum of padded length − length over all rows."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """`left_out`: from each reason to how many sequences, rows and frames weren't taken; what select and split leave out
    is counted once, what batch.drop_last does in every pass. `over_budget`: the rows that are too long for a budget."""
    parts: Mapping[str, Summary] = field(default_factory=dict)
    """With a split, each part by itself; the numbers above are theirs together."""


def chunk(
    config: Config | Mapping[str, Any] | str | Path,
    *,
    workers: int = 1,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
    storage: Storage | None = None,
) -> Summary:
    """Cuts, batches and writes a dataset; goes on where an interrupted run of the same configuration stopped.

    Rows that are longer than a budget are warned of through `logging`, and counted in the summary's report.

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
        planned = plan_source(config, source)
        runs = [_Run(config, part, plan, planned) for part, plan in planned.parts.items()]
        for run in runs:
            for message in run.plan.report.warnings():
                _log.warning("%s: %s", run.folder, message)
        done = [prepare_folder(run.folder, run.index, storage, overwrite) for run in runs]
        report = _Total(sum(run.plan.rows for run in runs), progress)
        summaries = {}
        for run, found in zip(runs, done, strict=True):
            index = found or _make_shards(config, source, run, planned.normalizers, workers, report, storage)
            summaries[run.part] = _summary(run.folder, index, time.monotonic() - started, found is not None)
        return _together(config, summaries, time.monotonic() - started)
    finally:
        source.close()


class _Run:
    """One folder to be made: the whole, or a part of a split."""

    def __init__(self, config: Config, part: str, plan: DatasetPlan, planned: SourcePlan) -> None:
        self.part, self.plan = part, plan
        self.folder = Path(config.output.path.replace("{split}", part))
        configuration = config.decisive() | ({"part": part} if part else {})
        identity = [config.fingerprint(), dict(planned.fingerprint), *([part] if part else [])]
        self.index = Index(
            format=config.output.format,
            fingerprint=hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16],
            configuration=configuration,
            source=planned.fingerprint,
            keys=planned.stored,
            sequences=plan.sequences,
            shards=(),
            report=plan.report.as_dict(),
        )


class _Total:
    """Adds up the progress of all folders."""

    def __init__(self, rows: int, tell: Callable[[Progress], None] | None) -> None:
        self._rows, self._tell = rows, tell
        self._done = [0, 0]

    def __call__(self, rows: int, size: int) -> None:
        self._done[0] += rows
        self._done[1] += size
        if self._tell is not None:
            self._tell(Progress(rows=self._done[0], rows_total=self._rows, bytes=self._done[1]))


def _make_shards(
    config: Config,
    source: Source,
    run: _Run,
    normalizers: Mapping[str, Normalizer],
    workers: int,
    advance: Callable[[int, int], None],
    storage: Storage,
) -> Index:
    """Runs all tasks of a folder, and writes its index."""
    index, plan = run.index, run.plan
    job = Job(
        source=source,
        stored=index.keys,
        pad_values={name: key.pad_value for name, key in config.keys.items()},
        normalizers=normalizers,
        folder=run.folder,
        format=config.output.format,
        fingerprint=index.fingerprint,
        storage=storage,
    )
    records = dict(engine_for(workers, len(plan)).run(job, number_tasks(plan), len(plan), advance))
    index = _whole(index, plan, [records[number] for number in range(len(plan))], config)
    write_index(run.folder, index, storage)
    storage.remove(run.folder / MARKER_NAME)
    return index


def _whole(index: Index, plan: DatasetPlan, shards: list[ShardRecord], config: Config) -> Index:
    """The index with its shards, and with what only they know."""
    batches = [0] * len(plan.passes)
    for shard in shards:
        batches[shard.epoch] += shard.batches
    if not all(batches):
        raise ConfigError(
            f"{config.document.where(('batch', 'drop_last'))}: batch.drop_last leaves no batch, for no shard has the rows "
            "of a full one; set it to false, or lower batch.max_frames or batch.max_sequences"
        )
    dropped = Count(
        rows=sum(shard.dropped_rows for shard in shards), frames=sum(shard.dropped_frames for shard in shards)
    )
    report = replace(plan.report, left_out=joined(plan.report.left_out, {"batch.drop_last": dropped}))
    return replace(index, shards=tuple(shards), report=report.as_dict())


def _summary(folder: Path, index: Index, seconds: float, already_complete: bool) -> Summary:
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
        epochs=index.epochs,
        padding=index.padding,
        report=index.report,
    )


def _together(config: Config, parts: Mapping[str, Summary], seconds: float) -> Summary:
    """The summary of the whole, or of all parts of a split."""
    summaries = list(parts.values())
    if config.split is None:
        return summaries[0]
    counted = ("sequences", "shards", "batches", "rows", "frames", "bytes")
    first = summaries[0]
    return Summary(
        path=Path(config.output.path),
        **{name: sum(getattr(summary, name) for summary in summaries) for name in counted},
        seconds=seconds,
        already_complete=all(summary.already_complete for summary in summaries),
        epochs=first.epochs,
        padding={key: sum(summary.padding[key] for summary in summaries) for key in first.padding},
        parts=parts,
    )
