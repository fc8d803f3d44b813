"""Tells a logger how a loader does, and warns where its consumer keeps waiting."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from seqprep.config import shown
from seqprep.errors import ConfigError

log = logging.getLogger("seqprep.loader")

WAITED_SECONDS = 5.0
"""No warning before the consumer has waited for so long in an epoch."""
WAITED_SHARE = 0.2
"""No warning unless it has waited for this share of the epoch's time."""

OnMetrics = tuple[Callable[[Any], object], float]
"""A function of `Metrics`, and the seconds from one call of it to the next."""


def parse_on_metrics(on_metrics: Any) -> OnMetrics | None:
    """Checks who is told.

    Raises:
        ConfigError: it isn't a function and a positive number of seconds.
    """
    if on_metrics is None:
        return None
    try:
        function, seconds = on_metrics
        valid = callable(function) and float(seconds) > 0
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ConfigError(
            f"on_metrics is {shown(on_metrics)}: give a function of the metrics and the seconds between two calls, "
            "such as (print, 30)"
        )
    return function, float(seconds)


class Reporter:
    """Follows the consumer of one loader, in the consumer's own thread.

    Args:
        name: of the dataset, for messages.
        metrics: gives the loader's; None if the loader is gone.
        on_metrics: who is told, and how often.
    """

    def __init__(self, name: str, metrics: Callable[[], Any], on_metrics: OnMetrics | None) -> None:
        self._name, self._metrics = name, metrics
        self._function = on_metrics[0] if on_metrics else None
        self._seconds = on_metrics[1] if on_metrics else 0.0
        self.due: float | None = None
        """When the function has to be called next, by time.monotonic(); None if there is none."""
        self._failed = False
        self._epoch = -1
        self._began = self._waited = 0.0
        self._warned = -1  # the epoch that was warned of last

    def begin(self, epoch: int) -> None:
        """Told that an iteration begins."""
        self._epoch, self._began, self._waited = epoch, time.monotonic(), 0.0
        if self._function is not None and self.due is None:
            self.due = self._began + self._seconds

    def tick(self) -> None:
        """Calls the function if it's due."""
        if self.due is not None and time.monotonic() >= self.due:
            self.finish()

    def finish(self) -> None:
        """Calls the function, if there is one; what it raises is reported once, and stops nothing."""
        metrics = None if self._function is None else self._metrics()
        if self._function is None or metrics is None:
            return
        self.due = time.monotonic() + self._seconds
        try:
            self._function(metrics)
        except Exception as error:
            if not self._failed:
                self._failed = True
                log.warning(
                    "%s: on_metrics raised %s: %s (said once; it is called on)",
                    self._name, type(error).__name__, error, exc_info=error,
                )  # fmt: skip

    def waited(self, seconds: float) -> None:
        """Told that the consumer has waited; warns once in an epoch where that has become too much."""
        self._waited += seconds
        if self._waited < WAITED_SECONDS or self._warned == self._epoch:
            return
        elapsed = time.monotonic() - self._began
        if self._waited >= WAITED_SHARE * elapsed:
            self._warned = self._epoch
            log.warning(
                "%s: epoch %d: batches were waited for in %.1f of %.1f s: reading doesn't keep up; raise threads or "
                "prefetch, put the dataset on a faster disk, or read fewer keys",
                self._name, self._epoch, self._waited, elapsed,
            )  # fmt: skip
