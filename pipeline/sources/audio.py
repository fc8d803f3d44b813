"""Audio files (WAV, FLAC, OGG and whatever else libsndfile reads) as raw samples or as log-mel features."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from seqprep import config
from seqprep.errors import DependencyError, SourceError
from seqprep.sources.features import LogMel, LogMelOptions
from seqprep.sources.fingerprint import fingerprint_of, short_hash
from seqprep.sources.manifest import Manifest, label_key, read_manifest
from seqprep.sources.paths import find_files
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags

DATA = "data"
_SUFFIXES = (".wav", ".flac", ".ogg")
_FLOATING = ("FLOAT", "DOUBLE", "VORBIS", "OPUS", "MPEG")
"""Encodings that decode to floats: libsndfile's integers of them are all 0, or wrap around at loud samples."""
_SEEKABLE = ("PCM_", "ULAW", "ALAW", "FLOAT", "DOUBLE")
"""Encodings of which the samples after a seek are those of the whole; Vorbis and MP3 differ in the last bits."""
_UNKNOWN_LENGTH = 0x7FFF0000
"""What programs that write WAV into a pipe claim as its size, or more."""


class AudioSource:
    """Audio files, one sequence each: `data`, and a key without time per label.

    `data` is [samples] of mono files, else [samples, channels], as `sample_type`; with `features` it is
    float32 [frames, bins]. Lengths come from the files' headers. No file stays open between reads.

    Args:
        options: what to read.

    Raises:
        ConfigError: the features are impossible at the files' sample rate.
        DependencyError: the extra `audio` isn't installed.
        SourceError: a file or the manifest is missing, empty or damaged, or the files differ in channels or sample
            rate, or two have one tag.
    """

    class Options(config.Options):
        """The section `source` with `type: audio`."""

        path: str | list[str] | None = None
        """A file, a folder (WAV, FLAC and OGG in it and below), a glob, or a list of these. A file's tag is its path
        below the folder that they all share, without its suffix."""
        manifest: str | None = None
        """A CSV or JSON-lines file with a column `path` (below the manifest's folder), optionally `tag`, and labels."""
        labels: list[str] | dict[str, str] = Field(default=[])
        """Columns of the manifest that become keys without time: [column, …], or {key: column}."""
        sample_type: Literal["int16", "int32", "float32"] = "float32"
        """The dtype of raw samples: floats in [−1, 1), or integers of full range."""
        features: LogMelOptions | None = None
        """Features in place of raw samples."""
        on_empty: Literal["error", "keep"] = "error"
        """What becomes of a file without a sample (or too short for one frame): an error, or a sequence of length 0."""

        @model_validator(mode="after")
        def _check(self) -> AudioSource.Options:
            if (self.path is None) == (self.manifest is None):
                given = "neither" if self.path is None else "both"
                raise ValueError(f"source.path and source.manifest: {given} of them is set; set one")
            if self.labels and self.manifest is None:
                raise ValueError("source.labels is set without source.manifest, whose columns it names; set both")
            if DATA in self.label_columns:
                raise ValueError("source.labels names a key 'data', which holds the audio; give {another_key: data}")
            if self.features and self.sample_type != "float32":
                raise ValueError(f"source.sample_type is {self.sample_type} but features are float32; leave it out")
            return self

        @property
        def label_columns(self) -> dict[str, str]:
            """For each key without time, its column in the manifest."""
            return self.labels if isinstance(self.labels, dict) else {name: name for name in self.labels}

    def __init__(self, options: Options) -> None:
        self._options = options
        listed = _list(options)
        self._paths = Tags.of(os.fsencode(path) for path in listed.files)  # no object per file
        self._tags = Tags.of(listed.tags)
        _check_tags(self._tags, listed, options)
        self._samples, self._header = _scan(listed, options)
        self._features = LogMel(options.features, self._header.sample_rate) if options.features else None
        self._lengths = self._features.count(self._samples) if self._features else self._samples
        if options.on_empty == "error":
            _check_lengths(self._lengths, listed, self._samples)
        self._keys = {DATA: self._data_spec()}
        self._labels: dict[str, Array] = {}
        for key, column in options.label_columns.items():
            try:
                self._keys[key], self._labels[key] = label_key(listed.columns[column])
            except SourceError as error:
                raise SourceError(f"{options.manifest}: column {column!r}: {error}") from error

    def _data_spec(self) -> KeySpec:
        if self._features:
            return KeySpec(dtype="float32", shape=(self._features.size,))
        return KeySpec(dtype=self._options.sample_type, shape=self._header.shape)

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """`data`, then the labels."""
        return self._keys

    @property
    def tags(self) -> Tags:
        """The tags, in the order of the files or of the manifest's rows."""
        return self._tags

    def lengths(self, key: str) -> Int64:
        """Samples, or feature frames, of every file; int64 [sequences].

        Raises:
            KeyError: there is no such key with a time axis.
        """
        return {DATA: self._lengths}[key]

    def frame_rate(self, key: str) -> Fraction | None:
        """Samples, or feature frames, per second; None for a label."""
        if key != DATA:
            return None
        return self._features.frame_rate if self._features else Fraction(self._header.sample_rate)

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        """Reads a range of one file, or its label; as `Source.read`."""
        if key in self._labels:
            value = out if out is not None else np.empty((), self._keys[key].dtype)
            value[...] = self._labels[key][sequence]
            return value
        spec = self._keys[key]
        first, stop = frames or FrameRange(0, int(self._lengths[sequence]))
        if out is None:
            out = np.empty((stop - first, *spec.unit_shape), spec.dtype)
        if not self._features:
            return self._decode(sequence, FrameRange(first, stop), out)

        def samples(span: FrameRange) -> Array:
            return self._decode(sequence, span, np.empty(span.stop - span.start, np.float32))

        self._features.fill(out, first, int(self._samples[sequence]), samples)
        return out

    def _decode(self, sequence: int, span: FrameRange, out: Array) -> Array:
        if not len(out):
            return out
        path, tag = self._paths[sequence], self._tags[sequence]
        with _opened(path) as file:
            if _header_of(file) != self._header:
                raise SourceError(f"{path}, sequence {tag!r}: the file changed since it was opened; start again")
            if file.subtype.startswith(_SEEKABLE):
                file.seek(span.start)
            else:
                file.read(span.start, dtype=out.dtype.name)
            missing = len(out) - len(file.read(out=out))
        if missing:
            raise SourceError(
                f"{path}, sequence {tag!r}: cut off: {missing} of the samples [{span.start}, {span.stop}) are missing; "
                "restore the file or leave it out"
            )
        return out

    def fingerprint(self) -> Mapping[str, str]:
        """As `Source.fingerprint`, with `options` (what is made of the samples) and, if there are any, `labels`."""
        files = [Path(path) for path in self._paths]
        parts = fingerprint_of(self._keys, self._tags, {DATA: self._lengths}, files)
        features = self._options.features.model_dump() if self._options.features else None
        parts["options"] = short_hash([json.dumps(features, sort_keys=True).encode()])
        if self._labels:
            parts["labels"] = short_hash(
                part for key, values in self._labels.items() for part in (key.encode(), values.tobytes())
            )
        return parts

    def close(self) -> None:
        """Nothing is open between reads."""


class _Header(NamedTuple):
    """What all files have to agree in."""

    channels: int
    sample_rate: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample."""
        return () if self.channels == 1 else (self.channels,)

    def __str__(self) -> str:
        return f"{self.channels} channel{'' if self.channels == 1 else 's'} at {self.sample_rate} Hz"


def _header_of(file: Any) -> _Header:
    return _Header(file.channels, file.samplerate)


@contextmanager
def _opened(path: str, place: str = "") -> Iterator[Any]:
    """Opens a file with libsndfile, whose errors in here become ours.

    Args:
        path: the file.
        place: the line of the manifest that named it, for messages.
    """
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: the package is there, libsndfile isn't
        raise DependencyError(f"source.type audio needs soundfile ({error}); pip install 'seqprep[audio]'") from error
    try:
        with soundfile.SoundFile(os.fsencode(path)) as file:
            yield file
    except soundfile.SoundFileError as error:
        try:
            os.close(os.open(path, os.O_RDONLY))  # libsndfile knows no more than "System error"
        except OSError as reason:
            raise SourceError(f"{place}{path}: can't be opened: {reason.strerror}; check the path") from error
        what = str(getattr(error, "error_string", error)).rstrip(".") or "damaged"
        raise SourceError(f"{place}{path}: can't be read as audio: {what}; restore it or leave it out") from error


def _list(options: AudioSource.Options) -> Manifest:
    """Lists the files and their tags, whichever way they are named."""
    if options.manifest is not None:
        return read_manifest(Path(options.manifest), list(options.label_columns.values()))
    files = find_files(options.path or [], _SUFFIXES)
    absolute = [os.path.abspath(file) for file in files]
    shared = len(os.path.commonpath([os.path.dirname(file) for file in absolute]))
    return Manifest(files=files, tags=[os.path.splitext(file[shared:].lstrip("/"))[0] for file in absolute])


def _place(listed: Manifest, sequence: int, options: AudioSource.Options) -> str:
    """Names the line of the manifest, to stand before a message."""
    return f"{options.manifest}, line {listed.lines[sequence]}: " if listed.lines else ""


def _check_tags(tags: Tags, listed: Manifest, options: AudioSource.Options) -> None:
    twice = tags.duplicate()
    if twice:
        one, other = (f"{_place(listed, sequence, options)}{listed.files[sequence]}" for sequence in twice)
        remedy = "give each row its own tag" if listed.lines else "rename one, or name tags in a source.manifest"
        raise SourceError(f"{one} and {other} have the same tag {tags[twice[0]]!r}; {remedy}")


def _check_lengths(lengths: Int64, listed: Manifest, samples: Int64) -> None:
    empty = np.flatnonzero(lengths == 0)
    if len(empty):
        short = f"has {samples[empty[0]]} samples, too few for one frame" if samples[empty[0]] else "has no sample"
        raise SourceError(
            f"{listed.files[empty[0]]}: {short} ({len(empty)} such of {len(lengths)} files); leave it out, or set "
            "source.on_empty: keep for a sequence of length 0"
        )


def _scan(listed: Manifest, options: AudioSource.Options) -> tuple[Int64, _Header]:
    """Reads every file's header.

    Returns:
        Samples of each file, int64 [sequences], and what they agree in.
    """
    samples = np.zeros(len(listed.files), np.int64)
    common: _Header | None = None
    for sequence, path in enumerate(listed.files):
        place = _place(listed, sequence, options)
        with _opened(str(path), place) as file:
            header = _header_of(file)
            samples[sequence] = file.frames
            _check_file(file, f"{place}{path}", options)
        common = common or header
        if header != common:
            raise SourceError(
                f"{place}{path} has {header}, but {listed.files[0]} has {common}; convert one or read them as two sources"
            )
    assert common is not None  # a listing holds a file
    return samples, common


def _check_file(file: Any, name: str, options: AudioSource.Options) -> None:
    if file.frames >= 1 << 62:
        raise SourceError(f"{name}: its header doesn't say how long it is; write it again, not into a pipe")
    if options.features and file.channels != 1:
        raise SourceError(f"{name}: features are made of one channel, and it has {file.channels}; split or mix them")
    if options.sample_type != "float32" and file.subtype.startswith(_FLOATING):
        raise SourceError(
            f"{name}: its samples are floats ({file.subtype}), of which source.sample_type {options.sample_type} would "
            "keep no true value; set float32"
        )
    if file.format.startswith("WAV"):
        _check_complete(file.extra_info, name)


def _check_complete(log: str, name: str) -> None:
    """Finds a WAV that lost its end: libsndfile takes what is there, and notes the difference in its log alone."""
    found = re.search(r"^data : (\d+) \(should be (\d+)\)", log, re.MULTILINE)
    if found and int(found[2]) < int(found[1]) < _UNKNOWN_LENGTH:
        raise SourceError(
            f"{name}: cut off: its header tells of {found[1]} bytes, and {found[2]} are there; restore it or leave it out"
        )
