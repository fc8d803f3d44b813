"""The reader of Kaldi's archives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.errors import SourceError
from seqprep.files import FileCache
from seqprep.sources.fingerprint import fingerprint_of, short_hash
from seqprep.sources.kaldi.keys import FEATURES, FOREIGN_ERRORS, Key, describe, load_key
from seqprep.sources.kaldi.lists import Table, parse_segment, read_table, sample_outputs, to_frames
from seqprep.sources.kaldi.options import KaldiOptions
from seqprep.sources.manifest import label_key
from seqprep.sources.matching import match_tags
from seqprep.sources.paths import find_files
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags

_OPEN_FILES = 64
_SEGMENTS = "segments"


class KaldiSource:
    """Kaldi's archives and scp files: an object is a sequence, of matrices [rows, columns], of vectors [values].

    Binary matrices and vectors that aren't compressed are read straight into place; text, compressed matrices and lists
    of integers are decoded.

    Args:
        options: where the archives are.

    Raises:
        SourceError: a file is missing or damaged, objects of a key differ in type, a sequence lacks a key, or two have
            one tag.
    """

    Options = KaldiOptions

    def __init__(self, options: KaldiOptions) -> None:
        self._options = options
        self._files = FileCache(_OPEN_FILES)
        listed = {key: _find(files) for key, files in options.key_files.items()}
        keys = {
            key: load_key(
                key, paths, self._files, allow_pipes=options.allow_pipes, timed=key not in options.without_time
            )
            for key, paths in listed.items()
        }
        first = next(iter(keys))
        segments = _segments_of(options, listed[first][0], keys[first].entries.tags)
        wanted = keys[first].entries.tags if segments is None else segments.tags
        found = {key: _Found(key, own, wanted, segments, options.frame_rate) for key, own in keys.items()}
        tables = {key: _beside(name, listed[first][0]) for key, name in options.label_files.items()}
        values = {key: dict(zip(table.tags, table.values, strict=True)) for key, table in tables.items()}
        named = {key: str(paths[0]) for key, paths in listed.items()} | {
            key: str(own.path) for key, own in tables.items()
        }
        kept = self._kept(wanted, found, values, named)
        self._tags = wanted.take(kept)
        self._data = {key: own.key(kept) for key, own in found.items()}
        self._keys = {key: own.spec for key, own in self._data.items()}
        self._values: dict[str, Array] = {}
        for key, own in values.items():
            try:
                self._keys[key], self._values[key] = label_key([own[tag] for tag in self._tags])
            except SourceError as error:
                raise SourceError(f"{tables[key].path}: {error}") from error

    def _kept(
        self,
        wanted: Tags,
        found: Mapping[str, _Found],
        values: Mapping[str, Mapping[str, str]],
        named: Mapping[str, str],
    ) -> Int64:
        """Places of the sequences that no key lacks; `named` has a file of each key."""
        missing = {key: own.missing for key, own in found.items()}
        missing |= {key: np.array([tag not in own for tag in wanted]) for key, own in values.items()}
        for key, lacks in missing.items():
            if lacks.any() and self._options.on_missing == "error":
                tag = wanted[int(np.flatnonzero(lacks)[0])]
                raise SourceError(
                    f"{named[key]}: sequence {tag!r} has no {key!r} ({lacks.sum()} such of {len(wanted)}); complete its files, or leave "
                    "such sequences out by source.on_missing: drop"
                )
        kept = np.flatnonzero(~np.logical_or.reduce(list(missing.values())))
        if not len(kept):
            first = next(iter(named.values()))
            raise SourceError(
                f"{first}: no sequence has all of the keys {', '.join(missing)}; do their files belong together?"
            )
        return kept

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_files"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._files = FileCache(_OPEN_FILES)

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """The keys as options name them, then the labels."""
        return self._keys

    @property
    def tags(self) -> Tags:
        """The tags, in the order of the first key's files, or of the segments."""
        return self._tags

    def lengths(self, key: str) -> Int64:
        """Rows of every sequence in one key; int64 [sequences].

        Raises:
            KeyError: there is no such key with a time axis.
        """
        if not self._keys[key].has_time:
            raise KeyError(key)
        return self._data[key].length

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        """Reads rows of one sequence; see `Source.read`."""
        spec = self._keys[key]
        if key in self._values:
            value = np.empty((), spec.dtype) if out is None else out
            value[...] = self._values[key][sequence]
            return value
        own, start = self._data[key], 0
        if out is None or frames is not None:
            start, stop = frames or (0, own.length.item(sequence))
            if out is None:
                out = np.empty((stop - start, *spec.unit_shape) if spec.has_time else spec.unit_shape, spec.dtype)
        if out.nbytes:
            try:
                own.read(self._files, sequence, start, out)
            except FOREIGN_ERRORS as error:
                raise SourceError(
                    f"{own.entries.place(sequence)}, key {key!r}: {describe(error)}; is the archive whole? make it again"
                ) from error
        return out

    def fingerprint(self) -> Mapping[str, str]:
        """As `Source.fingerprint`, with `places` (which objects the sequences are) and, if there are any, `labels`."""
        data = self._data
        files = {file: None for own in data.values() for file in _files_of(own)}
        lengths = {key: own.length for key, own in data.items() if own.spec.has_time}
        parts = fingerprint_of(self._keys, self._tags, lengths, [Path(file) for file in files])
        places = (
            array.astype("<i8").tobytes()
            for own in data.values()
            for array in (own.entries.file, own.entries.offset, own.entries.columns, own.first)
        )
        parts["places"] = short_hash(places)
        commands = [command for own in data.values() for command in _commands_of(own)]
        if commands:
            parts["samples"] = short_hash([parts["samples"].encode(), *sample_outputs(commands)])
        if self._values:
            said = ((key.encode(), values.tobytes()) for key, values in self._values.items())
            parts["labels"] = short_hash(part for pair in said for part in pair)
        return parts

    def close(self) -> None:
        """Gives back open files."""
        self._files.close()


class _Segments:
    """Stretches of recordings, in the order of their table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.tags = Tags.of(table.tags)
        segments = [parse_segment(value, table.where(place)) for place, value in enumerate(table.values)]
        self.recordings = Tags.of(segment.recording for segment in segments)
        self.spans = [(segment.start, segment.end) for segment in segments]


def _segments_of(options: KaldiOptions, scp: Path, tags: Tags) -> _Segments | None:
    """The stretches that the options name, or those of a data folder with the features of whole recordings."""
    if options.segments is not None:
        return _Segments(read_table(Path(options.segments)))
    beside = scp.with_name(_SEGMENTS)
    if scp.name != FEATURES or not beside.is_file():
        return None
    segments = _Segments(read_table(beside))
    cut = (match_tags(segments.tags, tags) >= 0).any()
    return segments if not cut and (match_tags(segments.recordings, tags) >= 0).all() else None


class _Found:
    """Where the sequences stand in one key.

    Args:
        name: the key.
        key: with objects for the sequences, or for the recordings of which they are stretches.
        wanted: the sequences.
        segments: the stretches, if there are any.
        frame_rate: rows a second.
    """

    def __init__(self, name: str, key: Key, wanted: Tags, segments: _Segments | None, frame_rate: float) -> None:
        self._name, self._key, self._rate = name, key, Fraction(repr(frame_rate))
        self._places = match_tags(wanted, key.entries.tags)
        self._segments = None
        if segments is not None and (self._places < 0).all():
            self._places, self._segments = match_tags(segments.recordings, key.entries.tags), segments
        self.missing = self._places < 0
        """Which sequences the key lacks; bool [sequences]."""

    def key(self, kept: Int64) -> Key:
        """The key for these of the sequences.

        Raises:
            SourceError: a stretch is outside of its recording.
        """
        key = self._key.take(self._places[kept])
        if self._segments is None:
            return key
        starts, lengths = np.empty(len(kept), np.int64), np.empty(len(kept), np.int64)
        for place, number in enumerate(kept.tolist()):
            start, end = (
                None if edge is None else to_frames(edge, self._rate) for edge in self._segments.spans[number]
            )
            rows = key.length.item(place)
            stop = rows if end is None else min(end, rows)
            if start is None or start > rows or (end or 0) > rows + self._rate / 2:
                raise SourceError(
                    f"{self._segments.table.where(number)}: {self._segments.tags[number]!r} ends at frame {end}, but its "
                    f"recording has {rows} in key {self._name!r}; check source.frame_rate ({float(self._rate):g})"
                )
            starts[place], lengths[place] = start, max(stop - start, 0)
        return key.cut(starts, lengths)


def _files_of(key: Key) -> list[str]:
    """The files in which a key's objects are, without commands."""
    entries = key.entries
    return [entries.files[number] for number in np.unique(entries.file).tolist() if number not in entries.commands]


def _commands_of(key: Key) -> list[str]:
    """The commands that write a key's objects."""
    entries = key.entries
    return [entries.files[number] for number in np.unique(entries.file).tolist() if number in entries.commands]


def _find(path: str | list[str]) -> list[Path]:
    """Lists the scp files and archives that an option means; of a data folder, its feats.scp."""
    parts = [path] if isinstance(path, str) else path
    features = [str(Path(part) / FEATURES) if os.path.isfile(Path(part) / FEATURES) else part for part in parts]
    return find_files(features, (".scp", ".ark"))


def _beside(name: str, scp: Path) -> Table:
    """Reads a table that lies beside a file, or where its name says."""
    return read_table(Path(name) if "/" in name or not scp.with_name(name).is_file() else scp.with_name(name))
