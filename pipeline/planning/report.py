"""What planning left out, by reason, what cutting did, and what doesn't go with the budgets: plain counts."""

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
class CutReport:
    """What cutting did to sequences; all counts are 0, and mappings empty, where every frame is taken as it is."""

    sequences_trimmed: int = 0
    """Cut in some key, because the keys' lengths differ (`keys.*.on_mismatch: trim`)."""
    sequences_padded: int = 0
    """Filled up in some key, because the keys' lengths differ (`keys.*.on_mismatch: pad`)."""
    frames_trimmed: Mapping[str, int] = field(default_factory=dict)
    """Frames cut off, per key."""
    frames_padded: Mapping[str, int] = field(default_factory=dict)
    """Frames added, per key."""
    chunks_dropped_short: int = 0
    """Short chunks left out (`chunk.tail`: drop, and shift where it makes one of several)."""
    chunks_shifted: int = 0
    """Short chunks moved inwards until they were full (`chunk.tail: shift`)."""
    chunks_dropped_context: int = 0
    """Chunks left out, because their context isn't all real (`context.pad: drop`)."""
    frames_lost_to_shift: Mapping[str, int] = field(default_factory=dict)
    """Frames at sequences' ends that no chunk holds, because `chunk.tail: shift` rounds down to a multiple of L."""
    sequences_without_rows: int = 0
    """Sequences that give no row, for whatever reason; those of no frames among them."""

    def lines(self) -> list[str]:
        """Says in words what isn't 0, a line each."""
        told = [
            (
                self.sequences_trimmed,
                f"{self.sequences_trimmed:,} sequences trimmed{_per_key('-', self.frames_trimmed)}",
            ),
            (self.sequences_padded, f"{self.sequences_padded:,} sequences padded{_per_key('+', self.frames_padded)}"),
            (self.chunks_shifted, f"{self.chunks_shifted:,} short chunks shifted inwards"),
            (self.chunks_dropped_short, f"{self.chunks_dropped_short:,} short chunks dropped"),
            (
                sum(self.frames_lost_to_shift.values()),
                f"frames lost to shifting{_per_key('', self.frames_lost_to_shift)}",
            ),
            (self.chunks_dropped_context, f"{self.chunks_dropped_context:,} chunks dropped for want of real context"),
            (self.sequences_without_rows, f"{self.sequences_without_rows:,} sequences gave no row"),
        ]
        return [text for count, text in told if count]


def _per_key(sign: str, frames: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{name} {sign}{count:,} frames' for name, count in frames.items())})" if frames else ""


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
    cut: CutReport = field(default_factory=CutReport)
    """What cutting did, in the first pass; what aligning the keys did is of all parts of a split together."""
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


def report_lines(described: Mapping[str, Any]) -> list[str]:
    """Says in words what a `Report` that was stored as a dict has left out and changed, a line each."""
    lines = []
    for reason, count in described.get("left_out", {}).items():
        told = ", ".join(f"{number:,} {what}" for what, number in count.items() if number)
        lines.append(f"left out by {reason}: {told}")
    return lines + CutReport(**described.get("cut", {})).lines()


ROW_FRAMES = "batch.row_frames"
