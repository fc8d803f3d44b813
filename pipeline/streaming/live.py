"""`seqprep.stream`: the batches of a configuration without writing them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqprep.config import Config, Document, as_document, load_config, parse_bytes, shown, suggestion
from seqprep.errors import ConfigError
from seqprep.execution import describe_run, no_batch, plan_source
from seqprep.planning import WHOLE
from seqprep.runtime import Epochs, Even, LoaderOptions, OnMetrics, RebatchOptions, Shuffle, shards_together
from seqprep.sources import open_source
from seqprep.streaming.planned import PlannedBatches
from seqprep.streaming.shard import Origin

_log = logging.getLogger("seqprep")
_NOWHERE = "stream"  # stands for the folder that a stream doesn't need


class Stream(Epochs):
    """Batches straight from a source; see `stream`. It iterates, resumes and closes as a `seqprep.Loader` does.

    Raises:
        ConfigError: a setting or an argument is wrong, or what has to be in memory at a time is more than `memory`.
        SourceError: the input can't be read.
    """

    def __init__(
        self,
        config: Config | Mapping[str, Any] | str | Path,
        *,
        part: str | None = None,
        name: str | None = None,
        fresh: bool = False,
        memory: int | str = "2GB",
        keys: Sequence[str] | None = None,
        shuffle: Shuffle = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        even: Even = "pad",
        same_shape: bool = False,
        rebatch: Mapping[str, int] | RebatchOptions | None = None,
        prefetch: int = 8,
        threads: int = 1,
        on_metrics: OnMetrics | None = None,
    ) -> None:
        options = LoaderOptions.parse(
            rank, world_size, shuffle, rebatch, keys=keys, seed=seed, even=even, same_shape=same_shape,
            prefetch=prefetch, threads=threads, verify="never", on_metrics=on_metrics,
        )  # fmt: skip
        config = config if isinstance(config, Config) else load_config(_with_output(as_document(config)))
        self._made_with = {"config": config, "part": part, "name": name, "fresh": fresh, "memory": memory}
        part = _part(config, part)
        _check_fresh(config, fresh)
        self._name = name or part or Path(config.output.path).name or _NOWHERE
        planned = _plan(config, part, self._name, fresh, parse_bytes(memory, "memory"), options)
        try:
            super().__init__(planned, options)
        except BaseException:
            planned.close()
            raise

    @property
    def dataset_name(self) -> str:
        """The name given, else that of the part of the split, else that of the output's folder."""
        return self._name

    def _arguments(self) -> dict[str, Any]:
        options = {name: value for name, value in vars(self._options).items() if name != "verify"}
        return self._made_with | options


def stream(config: Config | Mapping[str, Any] | str | Path, **options: Any) -> Stream:
    """Gives the batches of a configuration without writing them: those that `chunk` would store, bit for bit.

    Sequences are read when the first row of them is needed, in the reading threads. What a shard would hold is kept in
    memory while its batches are given, so `output.shard_size` decides how much is held, and over how much rows are
    shuffled; nothing else of `output` matters, and it may be left out. Lengths of all sequences are known before the
    first batch, so the number of batches is, too.

    Args:
        config: a configuration, a nested mapping, or the path of a YAML file.
        options: as for `seqprep.Loader`, but `verify`; and

            - part: which part of the split; needed if there is one.
            - name: what the data is called, such as "train"; for messages, and `dataset_name`.
            - fresh: give each epoch a pass of its own, shuffled (and jittered) by its number, without an end, instead of
              the passes that `epochs` asks for over and over.
            - memory: what sequences may take in memory, in bytes or as "2GB": of one shard more than are shuffled
              together. With `shuffle=True`, all of them are held.

    Raises:
        ConfigError: a setting or an argument is wrong, or what has to be in memory at a time is more than `memory`.
        SourceError: the input can't be read.
    """
    return Stream(config, **options)


def _with_output(document: Document) -> Document:
    """Fills in the folder that a configuration for `chunk` has to name."""
    settings = dict(document.data)
    output = settings.get("output")
    if output is None or (isinstance(output, Mapping) and output.get("path") is None):
        path = f"{_NOWHERE}/{{split}}" if settings.get("split") is not None else _NOWHERE
        settings["output"] = {**(output or {}), "path": path}
    return Document(document.name, settings, document.origins, document.is_flag)


def _part(config: Config, part: str | None) -> str:
    """The part of the split that is wanted.

    Raises:
        ConfigError: there is none of this name, or one has to be named.
    """
    parts = [] if config.split is None else list(config.split.parts)
    if part is None and not parts:
        return WHOLE
    if part not in parts:
        place = config.document.where(("split",))
        given = (
            "isn't given" if part is None else f"is {shown(part)}, and there is no such part{suggestion(part, parts)}"
        )
        remedy = f"give one of {', '.join(parts)}" if parts else "there is no split; leave it out, or set split"
        raise ConfigError(f"{place}: part {given}; {remedy}")
    return part


def _check_fresh(config: Config, fresh: bool) -> None:
    """Refuses passes without an end where the widths of length classes hold for the planned ones alone."""
    if fresh and config.chunk.jitter and config.batch.pad_to == "bucket":
        raise ConfigError(
            f"{config.document.where(('batch', 'pad_to'))}: fresh is set, and batch.pad_to is 'bucket' with chunk.jitter: "
            "the widths of buckets follow from the planned passes, and a later one may have longer rows; set epochs "
            "instead of fresh, or batch.pad_to: longest"
        )


def _plan(config: Config, part: str, name: str, fresh: bool, most_bytes: int, options: LoaderOptions) -> PlannedBatches:
    """Opens the source, and plans."""
    source = open_source(config.source, config.document)
    try:
        planned = plan_source(config, source)
        plan = planned.parts[part]
        for message in plan.report.warnings():
            _log.warning("%s: %s", name, message)
        for key in options.keys or ():
            if key not in planned.stored:
                raise ConfigError(f"{name}: there is no key {shown(key)}{suggestion(key, planned.stored)}")
        fingerprint = describe_run(config, planned, part).fingerprint
        return PlannedBatches(
            name,
            Origin(
                source=source,
                stored=planned.stored,
                keys=[key for key in planned.stored if options.keys is None or key in options.keys],
                pad_values={key: settings.pad_value for key, settings in config.keys.items()},
                normalizers=planned.normalizers,
            ),
            plan,
            f"{fingerprint}/fresh" if fresh else fingerprint,
            fresh=fresh,
            packed=config.batch.pack,
            together=shards_together(options.shuffle) if options.shuffle else 1,
            most_bytes=most_bytes,
            no_batch=lambda: no_batch(config),
        )
    except BaseException:
        source.close()
        raise
