"""Shows how far a run is: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqprep.execution import Progress

_PLAIN_SECONDS = 10.0


class ProgressDisplay:
    """Shows what is done, how fast, and the time left, on stderr.

    Args:
        unit: what is counted.
    """

    def __init__(self, unit: str = "rows") -> None:
        self._unit = unit
        self._bar: Any = None
        self._started = self._shown = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Shows how far a run of `chunk` is."""
        from seqprep.config.units import format_bytes

        seconds = max(time.monotonic() - self._started, 1e-9)
        self.show(progress.rows, progress.rows_total, self._unit, f"{format_bytes(progress.bytes / seconds)}/s")

    def show(self, done: int, total: int, unit: str, rate: str = "") -> None:
        """Shows a state.

        Args:
            done: how many of them are done …
            total: … of how many.
            unit: what is counted.
            rate: shown beside it.
        """
        now = time.monotonic()
        if sys.stderr.isatty():
            if self._bar is None:
                from tqdm import tqdm

                self._bar = tqdm(total=total, unit=f" {unit}", unit_scale=True, dynamic_ncols=True)
            self._bar.set_postfix_str(rate, refresh=False)
            self._bar.update(done - self._bar.n)
        elif now - self._shown >= _PLAIN_SECONDS:
            self._shown = now
            share = done / max(total, 1)
            left = (now - self._started) * (1 - share) / max(share, 1e-9)
            parts = [f"{done:,} of {total:,} {unit}", *([rate] if rate else []), f"{left:.0f} s left"]
            print(", ".join(parts), file=sys.stderr)

    def close(self) -> None:
        """Leaves the bar as it stands."""
        if self._bar is not None:
            self._bar.close()
