"""Batches straight from a source, by the plan that shards would be written by."""

from seqprep.streaming.live import Stream, stream

__all__ = ["Stream", "stream"]
