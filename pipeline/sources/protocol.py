"""The one protocol behind which every kind of input lives."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Protocol, runtime_checkable

import numpy as np

from seqprep.errors import SourceError
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

    Three more methods are needed only where they mean something. `axis_sizes(key)` of a source with ragged axes (None in
    a key's shape) gives their sizes, int64 [sequences, axes]. `frame_rate(key)` gives a key's frames per second as an int
    or Fraction, or None, so that settings may be in seconds. `read_together(key, first, last, out)` reads all frames of
    sequences `first` up to `last`, of a key without ragged axes, one behind the other into `out` and gives True; or
    gives False, whatever the reason, and they are read one by one.
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
            [frames, *shape] of the key's dtype, ragged axes in the sequence's own size; [*shape] for a key without time.
            `out` if it was given.

        Raises:
            SourceError: the data can't be read; names file, sequence and remedy.
        """

    def fingerprint(self) -> Mapping[str, str]:
        """What the input is, part by part, so that a difference can be shown: `keys`, `files` (names without their
        folders, and sizes), `tags`, `lengths`, `samples` (sampled blocks of the data); each a short hash."""

    def close(self) -> None:
        """Gives back open files; the source may be used again and reopens them."""


def axis_sizes(source: Source, key: str) -> Int64:
    """Sizes of a key's ragged axes; int64 [sequences, axes].

    Raises:
        SourceError: the source doesn't give them, or not as such an array.
    """
    give = getattr(source, "axis_sizes", None)
    if give is None:
        raise SourceError(
            f"key {key!r} has an axis of varying size, but its source lacks axis_sizes(); add it to the source"
        )
    sizes = np.asarray(give(key), np.int64)
    shape = (len(source.tags), len(source.keys[key].ragged))
    if sizes.shape != shape or (sizes < 0).any():
        raise SourceError(
            f"key {key!r}: axis_sizes() of its source gave {list(sizes.shape)} values, some perhaps negative, in place of "
            f"{list(shape)} sizes; correct the source"
        )
    return sizes


def frame_rates(source: Source) -> dict[str, Fraction]:
    """Frames per second of those keys whose source knows them."""
    ask = getattr(source, "frame_rate", None)
    told = {name: ask(name) for name, spec in source.keys.items() if spec.has_time} if ask is not None else {}
    return {name: Fraction(rate) for name, rate in told.items() if rate is not None}
