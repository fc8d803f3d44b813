"""Mean and deviation of every key of a source, for normalising it; read once, in threads, the same for any number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.config import Config, load_config, suggestion
from seqprep.errors import ConfigError, SourceError
from seqprep.execution.planning import plan_source
from seqprep.execution.statistics_file import KeyStatistics, encode_statistics
from seqprep.planning import DatasetPlan
from seqprep.shards import Storage
from seqprep.sources import Source, open_source
from seqprep.types import Array, FrameRange, Int64, KeySpec

_BLOCK_FRAMES = 1 << 16  # read at once
_SEQUENCES_TOGETHER = 256  # summed up by one thread; part of the result's last digits, so it doesn't depend on threads


@dataclass(frozen=True)
class _Moments:
    """Sums over some frames, in a form that can be merged (Chan, Golub, LeVeque 1979)."""

    count: int
    mean: Array
    squares: Array
    """Sum of squared distances from the mean."""
    least: Array
    greatest: Array

    @classmethod
    def of(cls, frames: Array) -> _Moments:
        values = frames.astype(np.float64, copy=False)
        mean = values.mean(axis=0)
        return cls(len(values), mean, np.square(values - mean).sum(axis=0), values.min(axis=0), values.max(axis=0))

    def __add__(self, other: _Moments) -> _Moments:
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        apart = other.mean - self.mean
        return _Moments(
            count,
            self.mean + apart * (other.count / count),
            self.squares + other.squares + np.square(apart) * (self.count * other.count / count),
            np.minimum(self.least, other.least),
            np.maximum(self.greatest, other.greatest),
        )


def stats(
    config: Config | Mapping[str, Any] | str | Path,
    *,
    part: str | None = None,
    output: str | Path | None = None,
    threads: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, KeyStatistics]:
    """Measures the keys that a configuration stores, over the sequences that it takes.

    Args:
        config: a configuration, a nested mapping, or the path of a YAML file.
        part: of a split, such as "train"; all parts together unless told.
        output: where to write the result as JSON, for `keys.<name>.normalize`.
        threads: that read at once.
        progress: told after each group of sequences: sequences done, and all of them.

    Returns:
        For each stored key with a time axis and frames of one shape.

    Raises:
        ConfigError: a setting is wrong, or there is no such part.
        SourceError: the input can't be read, or holds a value that is no finite number; names the sequence.
        OutputError: the result can't be written.
    """
    config = config if isinstance(config, Config) else load_config(config)
    source = open_source(config.source, config.document)
    try:
        planned = plan_source(config, source, normalized=False)
        keys = [name for name, spec in planned.stored.items() if spec.has_time and not spec.ragged]
        sequences = _sequences(planned.parts, part)
        found = _measure(source, keys, sequences, threads, progress or (lambda done, total: None))
    finally:
        source.close()
    if output is not None:
        Storage().write_file(Path(output), encode_statistics(found))
    return found


def _sequences(parts: Mapping[str, DatasetPlan], part: str | None) -> Int64:
    """Places in the source of the sequences that have a row; int64 [n], ascending."""
    if part is not None and part not in parts:
        known = suggestion(part, parts) if "" not in parts else "; the configuration splits nothing"
        raise ConfigError(f"part is {part!r}, which split doesn't name{known}")
    passes = [plan.passes[0] for name, plan in parts.items() if part in (None, name)]
    return np.unique(np.concatenate([plan.task(shard).sequence for plan in passes for shard in range(len(plan))]))


def _measure(
    source: Source, keys: list[str], sequences: Int64, threads: int, progress: Callable[[int, int], None]
) -> dict[str, KeyStatistics]:
    groups = [sequences[i : i + _SEQUENCES_TOGETHER] for i in range(0, len(sequences), _SEQUENCES_TOGETHER)]
    total = {key: _empty(source.keys[key]) for key in keys}
    done = 0
    with ThreadPoolExecutor(threads, thread_name_prefix="seqprep-stats") as pool:
        try:
            for group, moments in zip(groups, pool.map(partial(_of_group, source, keys), groups), strict=True):
                total = {key: total[key] + moments[key] for key in keys}
                done += len(group)
                progress(done, len(sequences))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {
        key: KeyStatistics(
            frames=moments.count,
            mean=moments.mean,
            std=np.sqrt(moments.squares / max(moments.count, 1)),
            least=moments.least,
            greatest=moments.greatest,
        )
        for key, moments in total.items()
    }


def _empty(spec: KeySpec) -> _Moments:
    nothing = np.full(spec.unit_shape, np.nan)
    return _Moments(0, nothing, np.zeros(spec.unit_shape), nothing, nothing)


def _of_group(source: Source, keys: list[str], sequences: Int64) -> dict[str, _Moments]:
    return {key: reduce(_Moments.__add__, _moments(source, key, sequences), _empty(source.keys[key])) for key in keys}


def _moments(source: Source, key: str, sequences: Int64) -> Iterator[_Moments]:
    lengths = source.lengths(key)
    for sequence in sequences.tolist():
        for start in range(0, int(lengths[sequence]), _BLOCK_FRAMES):
            stop = min(start + _BLOCK_FRAMES, int(lengths[sequence]))
            moments = _Moments.of(source.read(key, sequence, FrameRange(start, stop)))
            if not np.isfinite(moments.squares).all():
                raise SourceError(
                    f"sequence {source.tags[sequence]!r}, key {key!r}: frames {start} to {stop} hold values that are "
                    "no finite numbers, or too large; mend the input, or leave the sequence out"
                )
            yield moments
