"""`seqprep.chunk`: a configuration carried out, from the source to a finished dataset."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqprep.config import Config, load_config
from seqprep.errors import ConfigError
from seqprep.execution.engines import engine_for
from seqprep.execution.normalization import Normalizer
from seqprep.execution.planning import SourcePlan, plan_source
from seqprep.execution.resume import bytes_there, finished_dataset, make_dataset
from seqprep.execution.space import check_space
from seqprep.execution.task import Advance, Job, number_tasks
from seqprep.planning import DatasetPlan
from seqprep.shards import Index, ShardRecord, SharedLock, Storage, codec_release
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
        overwrite: replace what the output folder holds, if it is something else or damaged.
        progress: told now and then how far the run is, in the caller's thread.
        storage: the file layer; local files unless told.

    Raises:
        ConfigError: a setting is wrong.
        SourceError: the input can't be read.
        OutputError: the output can't be written, or its disk has too little room.
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
        planned = plan_source(config, source)
        runs = [_Run(config, part, plan, planned) for part, plan in planned.parts.items()]
        for run in runs:
            for message in run.plan.report.warnings():
                _log.warning("%s: %s", run.folder, message)
        missing = [run for run in runs if finished_dataset(run.folder, run.index, overwrite) is None]
        plain = [run for run in missing if run.index.compression == "none"]
        check_space({run.folder: run.plan.least_bytes - bytes_there(run.folder) for run in plain})
        advance = Total(sum(run.plan.rows for run in runs), progress)
        summaries = {}
        for run in runs:
            index, before = _make(run, config, source, planned.normalizers, workers, advance, storage, overwrite)
            summaries[run.part] = summarize(run.folder, index, time.monotonic() - started, before)
        return _together(config, summaries, time.monotonic() - started)
    finally:
        source.close()


class _Run:
    """One folder to be made: the whole, or a part of a split."""

    def __init__(self, config: Config, part: str, plan: DatasetPlan, planned: SourcePlan) -> None:
        self.part, self.plan = part, plan
        self.folder = output_folder(config, part)
        self.index = describe_run(config, planned, part)


def output_folder(config: Config, part: str) -> Path:
    """Where a part of the split goes; the whole, if there is none."""
    return Path(config.output.path.replace("{split}", part))


class Total:
    """Adds up the progress of several runs."""

    def __init__(self, rows: int, tell: Callable[[Progress], None] | None) -> None:
        self._rows, self._tell = rows, tell
        self._done = [0, 0]

    def __call__(self, rows: int, size: int) -> None:
        """Adds rows and bytes."""
        self._done[0] += rows
        self._done[1] += size
        if self._tell is not None:
            self._tell(Progress(rows=self._done[0], rows_total=self._rows, bytes=self._done[1]))


def _make(
    run: _Run,
    config: Config,
    source: Source,
    normalizers: Mapping[str, Normalizer],
    workers: int,
    advance: Advance,
    storage: Storage,
    overwrite: bool,
) -> tuple[Index, bool]:
    """Makes the dataset of one folder, or finds it made."""

    def make_shards(lock: SharedLock) -> list[ShardRecord]:
        job = job_for(config, source, run.index, normalizers, run.folder, storage, lock)
        records = run_tasks(job, run.plan, range(len(run.plan)), workers, advance)
        shards = [records[number] for number in range(len(run.plan))]
        check_batches(shards, run.plan, config)
        return shards

    return make_dataset(run.folder, run.index, len(run.plan), storage, overwrite, make_shards)


def check_batches(shards: Sequence[ShardRecord], plan: DatasetPlan, config: Config) -> None:
    """Refuses a dataset that `drop_last` has left without a batch."""
    batches = [0] * len(plan.passes)
    for shard in shards:
        batches[shard.epoch] += shard.batches
    if not all(batches):
        raise no_batch(config)


def no_batch(config: Config) -> ConfigError:
    """The error that `drop_last` has left a pass without a batch."""
    return ConfigError(
        f"{config.document.where(('batch', 'drop_last'))}: batch.drop_last leaves no batch, for no shard has the rows "
        "of a full one; set it to false, or lower batch.max_frames or batch.max_sequences"
    )


def describe_run(config: Config, planned: SourcePlan, part: str) -> Index:
    """Gives the index that a run will write, without its shards.

    Args:
        config: the configuration.
        planned: from `plan_source`.
        part: of the split; empty without one.

    Raises:
        DependencyError: the package that compresses is missing.
    """
    plan, compression = planned.parts[part], config.output.compression
    codec = codec_release(compression)
    configuration = config.decisive() | ({"part": part} if part else {})
    return Index(
        format=config.output.format,
        fingerprint=run_fingerprint(configuration, planned.fingerprint, codec),
        configuration=configuration,
        source=planned.fingerprint,
        keys=planned.stored,
        sequences=plan.sequences,
        shards=(),
        report=plan.report.as_dict(),
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
    whole = json.dumps([settings, dict(source), *([codec] if codec else [])], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def job_for(
    config: Config,
    source: Source,
    index: Index,
    normalizers: Mapping[str, Normalizer],
    folder: Path,
    storage: Storage,
    lock: SharedLock,
) -> Job:
    """What the tasks of a run share.

    Args:
        config: the configuration.
        source: opened.
        index: from `describe_run`.
        normalizers: of the keys that are normalised.
        folder: where the shards go.
        storage: the file layer.
        lock: of the run.
    """
    return Job(
        source=source,
        stored=index.keys,
        pad_values={name: key.pad_value for name, key in config.keys.items()},
        normalizers=normalizers,
        folder=folder,
        format=index.format,
        fingerprint=index.fingerprint,
        storage=storage,
        compression=index.compression,
        description=index.describe(),
        lock=lock,
    )


def run_tasks(
    job: Job, plan: DatasetPlan, shards: Sequence[int], workers: int, advance: Advance
) -> dict[int, ShardRecord]:
    """Makes some shards of a plan.

    Args:
        job: what they share.
        plan: the plan.
        shards: their numbers.
        workers: processes to use.
        advance: told after each batch: rows and bytes done since.

    Returns:
        Number to record.
    """
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
