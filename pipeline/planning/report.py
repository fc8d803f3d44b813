"""What planning left out, by reason, and what doesn't go with the budgets: plain counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Count:
    """How much of the input something concerns."""

    sequences: int = 0
    """Those that give no row at all."""
    rows: int = 0
    frames: int = 0
    """Of the input key, without context."""

    def __add__(self, other: Count) -> Count:
        return Count(
            sequences=self.sequences + other.sequences, rows=self.rows + other.rows, frames=self.frames + other.frames
        )

    def __bool__(self) -> bool:
        return bool(self.sequences or self.rows or self.frames)


LeftOut = Mapping[str, Count]
"""From a reason, named as the setting behind it (`select.max_frames`, `batch.drop_last`), to what it left out."""


def joined(*parts: LeftOut) -> dict[str, Count]:
    """Adds up counts reason by reason; reasons that left out nothing are gone."""
    total: dict[str, Count] = {}
    for part in parts:
        for reason, count in part.items():
            total[reason] = total.get(reason, Count()) + count
    return {reason: count for reason, count in total.items() if count}


@dataclass(frozen=True, kw_only=True)
class OverBudget:
    """Rows that are longer than a setting allows, each of which therefore stands alone."""

    rows: int
    longest_frames: int
    limit_frames: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a user has to know of a plan beside its numbers."""

    left_out: LeftOut = field(default_factory=dict)
    over_budget: Mapping[str, OverBudget] = field(default_factory=dict)
    """For each key with such rows; the input key's under "row_frames" where rows are packed and longer than those."""

    def warnings(self) -> list[str]:
        """What should be said at once: one line per kind, however many rows it concerns."""
        lines = []
        for name, over in self.over_budget.items():
            packing = name == ROW_FRAMES
            what = "batch.row_frames" if packing else "batch.max_frames"
            alone = "rows" if packing else "batches"
            rows = "1 row is" if over.rows == 1 else f"{over.rows:,} rows are"
            key = "" if packing else f"key {name!r}: "
            lines.append(
                f"{key}{rows} longer than {what} {over.limit_frames} (the longest has {over.longest_frames} frames) and "
                f"made into {alone} of their own; raise {what}, set chunk.size, or leave them out with select.max_frames"
            )
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


ROW_FRAMES = "batch.row_frames"
