"""Readers of people's sequences, one a file, behind one protocol."""

from seqprep.sources.protocol import Source
from seqprep.sources.registry import open_source

__all__ = ["Source", "open_source"]
