"""What planning left out, cut off or added: nothing of a source goes missing without being counted here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Counts over all sequences; all are 0, and mappings empty, where every frame is taken as it is."""

    sequences_trimmed: int = 0
    """Cut in some key, because the keys' lengths differ (`keys.*.on_mismatch: trim`)."""
    sequences_padded: int = 0
    """Filled up in some key, because the keys' lengths differ (`keys.*.on_mismatch: pad`)."""
    sequences_dropped: int = 0
    """Left out, because the keys' lengths differ (`keys.*.on_mismatch: drop`)."""
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
            (self.sequences_dropped, f"{self.sequences_dropped:,} sequences dropped, whose keys differ in length"),
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
