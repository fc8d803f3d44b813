"""Readers of people's sequences, one a file, behind one protocol."""

from seqprep.sources.protocol import Source, axis_sizes, frame_rates
from seqprep.sources.registry import open_source

__all__ = ["Source", "axis_sizes", "frame_rates", "open_source"]
