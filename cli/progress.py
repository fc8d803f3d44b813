"""Shows how far a run is: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqprep.execution import Progress

_PLAIN_SECONDS = 10.0


class ProgressDisplay:
    """Shows rows done, bytes a second and the time left, on stderr.

    Args:
        unit: what is counted.
    """

    def __init__(self, unit: str = "rows") -> None:
        self._unit = unit
        self._bar: Any = None
        self._started = self._shown = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Shows a state."""
        from seqprep.config.units import format_bytes

        now = time.monotonic()
        rate = f"{format_bytes(progress.bytes / max(now - self._started, 1e-9))}/s"
        if sys.stderr.isatty():
            if self._bar is None:
                from tqdm import tqdm

                self._bar = tqdm(total=progress.rows_total, unit=f" {self._unit}", unit_scale=True, dynamic_ncols=True)
            self._bar.set_postfix_str(rate, refresh=False)
            self._bar.update(progress.rows - self._bar.n)
        elif now - self._shown >= _PLAIN_SECONDS:
            self._shown = now
            done = progress.rows / max(progress.rows_total, 1)
            left = (now - self._started) * (1 - done) / max(done, 1e-9)
            print(
                f"{progress.rows:,} of {progress.rows_total:,} {self._unit}, {rate}, {left:.0f} s left", file=sys.stderr
            )

    def close(self) -> None:
        """Leaves the bar as it stands."""
        if self._bar is not None:
            self._bar.close()
