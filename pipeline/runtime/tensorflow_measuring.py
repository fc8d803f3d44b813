"""Measures how well staging hides under a training step."""

from __future__ import annotations

import time
from dataclasses import dataclass

from seqprep.runtime.loader import Loader
from seqprep.runtime.ranges import Batch
from seqprep.runtime.tensorflow_area import TensorflowArea
from seqprep.runtime.tensorflow_staging import stage

_REPEATS = 500


@dataclass(frozen=True, kw_only=True)
class StagingMeasurement:
    """Seconds per batch, and how much of an epoch the consumer was blocked."""

    batches: int
    read_seconds: float
    """A batch of the loader alone."""
    stage_seconds: float
    """Importing a batch's arrays, and Stage; with nothing else running."""
    unstage_seconds: float
    """Unstage, likewise."""
    step_seconds: float
    """What the stand-in for a training step was told to last."""
    blocked_share: float
    """Of an epoch with steps, the share in which the consumer waited because nothing was staged; in [0, 1]."""


def measure_staging(
    loader: Loader,
    *,
    device: str | None = None,
    depth: int = 2,
    factor: float = 1.2,
    least_step_seconds: float = 500e-6,
) -> StagingMeasurement:
    """Reads two epochs, the loader alone and staged under a step that sleeps, and stages one batch many times.

    Args:
        loader: what to read; its next iteration should be a whole epoch with warm files.
        device: as for `stage`.
        depth: as for `stage`.
        factor: how often reading and staging a batch would fit into the step.
        least_step_seconds: the step is no shorter than this.

    Raises:
        DependencyError: TensorFlow isn't installed.
        ConfigError: an option of `stage` is impossible.
    """
    started = time.perf_counter()
    batches = sum(1 for _ in loader)
    read = (time.perf_counter() - started) / max(batches, 1)
    with stage(loader, device=device, depth=depth) as staged:
        put, take = _measure_area(TensorflowArea(staged.device), loader.batch(0))
        step = max(factor * (read + put + take), least_step_seconds)
        started = time.perf_counter()
        for _ in staged:
            time.sleep(step)
        total = time.perf_counter() - started
        blocked = staged.metrics().blocked_seconds
    return StagingMeasurement(
        batches=batches,
        read_seconds=read,
        stage_seconds=put,
        unstage_seconds=take,
        step_seconds=step,
        blocked_share=blocked / total,
    )


def _measure_area(area: TensorflowArea, batch: Batch) -> tuple[float, float]:
    """Seconds of one `put` and of one `take`."""
    area.take(area.put(batch))  # the first call of a kind makes its kernels
    put = take = 0.0
    for _ in range(_REPEATS):
        started = time.perf_counter()
        staged = area.put(batch)
        between = time.perf_counter()
        area.take(staged)
        put += between - started
        take += time.perf_counter() - between
    area.release()
    return put / _REPEATS, take / _REPEATS
