"""The one protocol behind which every kind of input lives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags


@runtime_checkable
class Source(Protocol):
    """Many sequences, each with a tag and one array per key.

    What an implementation owes:

    * **Metadata as arrays**: tags and lengths are known after opening, without reading the data where the format
      allows it. Tags are unique and keep every character; sequences of length 0 are kept.
    * **Deterministic**: files from a glob are taken in sorted order; the same input gives the same sequences, values
      and fingerprint in every process, on every machine.
    * **Any range**: `read` of a frame range equals that slice of the whole.
    * **Thread-safe**: `read` may be called from several threads at once.
    * **Picklable**: a copy in another process (spawn) reads the same; open handles stay behind and are reopened.
      Nothing of a handle is used in a forked child.
    * **Bounded**: the number of open files doesn't grow with the number of reads or files.
    * **Own errors**: everything that can go wrong with the input is raised as SourceError naming file, sequence and
      remedy; a wrong option as ConfigError.
    """

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """The keys, in the source's order; the first is the input key unless the configuration says otherwise."""

    @property
    def tags(self) -> Tags:
        """Tags of all sequences, in the source's order."""

    def lengths(self, key: str) -> Int64:
        """Frames of every sequence in one key with a time axis; int64 [sequences]."""

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        """Reads frames of one sequence.

        Args:
            key: the key.
            sequence: place of the sequence in the source, from 0.
            frames: the range, inside [0, length]; None is everything, and the only choice for a key without time.
            out: an array of the result's shape and the key's dtype, C-contiguous, to read into.

        Returns:
            [frames, *shape] of the key's dtype; [*shape] for a key without time. `out` if it was given.

        Raises:
            SourceError: the data can't be read; names file, sequence and remedy.
        """

    def fingerprint(self) -> Mapping[str, str]:
        """What the input is, part by part, so that a difference can be shown: `keys`, `files` (names without their
        folders, and sizes), `tags`, `lengths`, `samples` (sampled blocks of the data); each a short hash."""

    def close(self) -> None:
        """Gives back open files; the source may be used again and reopens them."""
