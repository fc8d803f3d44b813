"""The reader of audio files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seqprep.errors import SourceError
from seqprep.files import FileCache
from seqprep.sources.audio.features import Features
from seqprep.sources.audio.listing import Listing, list_sequences
from seqprep.sources.audio.options import DATA, AudioOptions, is_archive
from seqprep.sources.audio.recordings import Recordings
from seqprep.sources.audio.resample import Resampler
from seqprep.sources.audio.soundfiles import decode, read_span
from seqprep.sources.audio.targets import FileLabels, KaldiLabels, Target
from seqprep.sources.fingerprint import fingerprint_of, short_hash
from seqprep.sources.kaldi.lists import sample_outputs, to_frames
from seqprep.sources.manifest import label_key
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags

_OPEN_FILES = 16  # of targets; audio files are closed after each read


class AudioSource:
    """Audio files, or stretches of them: `data`, a key without time per label, and keys with a label per frame.

    `data` is [samples] of one channel, else [samples, channels], as `sample_type`; with `features` it is
    float32 [frames, values]. Lengths come from the files' headers. No audio file stays open between reads.

    Args:
        options: what to read.

    Raises:
        ConfigError: the features are impossible at the files' sample rate.
        DependencyError: the extra `audio` isn't installed.
        SourceError: a file or list is missing, empty or damaged, the files differ in channels or sample rate, or two
            sequences have one tag.
    """

    Options = AudioOptions

    def __init__(self, options: AudioOptions) -> None:
        self._options = options
        self._files = FileCache(_OPEN_FILES)
        listed = list_sequences(options)
        self._tags = Tags.of(listed.tags)
        _check_tags(self._tags, listed)
        self._recordings = Recordings(listed, options)
        self._file = np.array(listed.recording, np.int32)
        self._channel = np.array([-1 if one is None else one for one in listed.channels or []], np.int16)
        self._rate = options.sample_rate or self._recordings.rate
        self._first, self._samples = self._stretches(listed)
        self._features = Features(options.features, self._rate) if options.features else None
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
        self._targets = {key: self._target(key, name, listed) for key, name in options.targets.items()}
        self._keys |= {key: target.spec for key, target in self._targets.items()}

    def _stretches(self, listed: Listing) -> tuple[Int64, Int64]:
        """First sample and samples of every sequence, at the rate that is made; int64 [sequences] each."""
        whole = self._recordings.frames[self._file]
        rates = self._recordings.rates[self._file]
        for number in np.unique(rates[rates != self._rate]).tolist():
            of_rate, resampler = rates == number, Resampler(number, self._rate)
            whole[of_rate] = [resampler.count(samples) for samples in whole[of_rate].tolist()]
        if listed.stretches is None:
            return np.zeros_like(whole), whole
        first = np.array([to_frames(start, self._rate) for start, _ in listed.stretches], np.int64)
        told = [-1 if end is None else to_frames(end, self._rate) for _, end in listed.stretches]
        stop = np.where(np.array(told) < 0, whole, told)
        outside = np.flatnonzero((first > whole) | (stop > whole + self._rate // 2))
        if len(outside):
            odd = int(outside[0])
            raise SourceError(
                f"{listed.name(odd)}: the stretch of samples [{first[odd]}, {stop[odd]}) is outside of the file, which has "
                f"{whole[odd]} at {self._rate} Hz; check its start and end, in seconds"
            )
        return first, np.maximum(np.minimum(stop, whole) - first, 0)

    def _data_spec(self) -> KeySpec:
        if self._features:
            return KeySpec(dtype="float32", shape=(self._features.size,))
        channels = self._recordings.made_channels
        return KeySpec(dtype=self._options.sample_type, shape=() if channels == 1 else (channels,))

    def _target(self, key: str, name: str, listed: Listing) -> Target:
        if is_archive(name):
            return KaldiLabels(key, name, self._tags, self._files)
        folder = Path(self._options.manifest or "").parent
        return FileLabels([folder / path for path in listed.columns[name]], listed.places)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_files"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._files = FileCache(_OPEN_FILES)

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """`data`, then the labels, then the targets."""
        return self._keys

    @property
    def tags(self) -> Tags:
        """The tags, in the order of the files or of the list."""
        return self._tags

    def lengths(self, key: str) -> Int64:
        """Samples, feature frames or labels of every sequence; int64 [sequences].

        Raises:
            KeyError: there is no such key with a time axis.
        """
        return self._lengths if key == DATA else self._targets[key].length

    def frame_rate(self, key: str) -> Fraction | None:
        """Samples, or feature frames, per second; None for labels and targets."""
        if key != DATA:
            return None
        return self._features.frame_rate if self._features else Fraction(self._rate)

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        """Reads a range of one sequence, or its label; as `Source.read`."""
        spec = self._keys[key]
        if key in self._labels:
            value = out if out is not None else np.empty((), spec.dtype)
            value[...] = self._labels[key][sequence]
            return value
        first, stop = frames or FrameRange(0, self.lengths(key).item(sequence))
        if out is None:
            out = np.empty((stop - first, *spec.unit_shape), spec.dtype)
        if stop == first:
            return out
        if key != DATA:
            self._targets[key].read(self._files, sequence, first, out)
        elif self._features is None:
            self._wave(sequence, first, out)
        else:
            self._features.fill(out, first, self._samples.item(sequence), self._reader(sequence))
        return out

    def _reader(self, sequence: int) -> Callable[[FrameRange], Array]:
        """Gives samples of one channel by ranges."""

        def read(span: FrameRange) -> Array:
            samples = np.empty(span.stop - span.start, np.float32)
            if len(samples):
                self._wave(sequence, span.start, samples)
            return samples

        return read

    def _wave(self, sequence: int, first: int, out: Array) -> None:
        """Fills samples first, first + 1, … of a sequence."""
        file, tag = self._file.item(sequence), self._tags[sequence]
        recording, header = self._recordings[file]
        first += self._first.item(sequence)
        channel = self._channel_of(sequence)
        if header.sample_rate != self._rate:

            def read(span: FrameRange) -> Array:
                return read_span(recording, header, span, channel, "float32", tag)

            Resampler(header.sample_rate, self._rate).fill(out, first, header.frames, read)
        elif channel is None or header.channels == 1:
            decode(recording, header, FrameRange(first, first + len(out)), out, tag)
        else:
            span = FrameRange(first, first + len(out))
            out[...] = read_span(recording, header, span, channel, out.dtype.name, tag)

    def _channel_of(self, sequence: int) -> int | Literal["mean"] | None:
        own = self._channel.item(sequence) if len(self._channel) else -1
        return self._options.channel if own < 0 else own

    def fingerprint(self) -> Mapping[str, str]:
        """As `Source.fingerprint`, with `options` (which samples, and what is made of them) and, if there are any,
        `labels`."""
        targets = [file for target in self._targets.values() for file in target.files()]
        lengths = {DATA: self._lengths} | {key: target.length for key, target in self._targets.items()}
        parts = fingerprint_of(self._keys, self._tags, lengths, [*self._recordings.files(), *targets])
        options = self._options
        features = options.features.model_dump() if options.features else None
        made = json.dumps([features, self._rate, options.channel], sort_keys=True).encode()
        places = (self._file.astype("<i4"), self._first.astype("<i8"), self._channel.astype("<i2"))
        parts["options"] = short_hash([made, *(array.tobytes() for array in places)])
        if commands := self._recordings.commands():
            parts["samples"] = short_hash([parts["samples"].encode(), *sample_outputs(commands)])
        if self._labels:
            parts["labels"] = short_hash(
                part for key, values in self._labels.items() for part in (key.encode(), values.tobytes())
            )
        return parts

    def close(self) -> None:
        """Gives back open files of targets; those of audio are closed after each read."""
        self._files.close()


def _check_tags(tags: Tags, listed: Listing) -> None:
    twice = tags.duplicate()
    if twice:
        one, other = (listed.name(sequence) for sequence in twice)
        remedy = "give each row its own tag" if listed.places else "rename one, or name tags in a source.manifest"
        raise SourceError(f"{one} and {other} have the same tag {tags[twice[0]]!r}; {remedy}")


def _check_lengths(lengths: Int64, listed: Listing, samples: Int64) -> None:
    empty = np.flatnonzero(lengths == 0)
    if len(empty):
        first = int(empty[0])
        short = f"has {samples[first]} samples, too few for one frame" if samples[first] else "has no sample"
        raise SourceError(
            f"{listed.name(first)}: {short} ({len(empty)} such of {len(lengths)} sequences); leave it out, or set "
            "source.on_empty: keep for a sequence of length 0"
        )
