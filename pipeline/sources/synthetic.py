"""Made-up sequences that look like speech: the same values on every machine, from a seed alone.

Everything rests on seqprep.hashing, table look-ups and + − · /, which IEEE 754 defines to the last bit. Every frame is
a function of its number, so that any range costs no more than its own frames.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from seqprep import config
from seqprep.hashing import UInt64, key_of, keyed
from seqprep.sources.fingerprint import fingerprint_of, short_hash
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

DATA, CLASSES = "data", "classes"
_LENGTHS, _SPECTRA, _NOISE, _SEGMENTS, _CLASSES, _ROWS = range(6)  # what a hash is drawn for
_GRID = 10
"""A segment starts up to _JITTER frames after each multiple of this: segments have 3 to 17 frames."""
_JITTER = 7
_LAST = 3
"""Frames that a sequence's last segment has at least; else it joins the one before."""
_NOISE_SIZE = 1 << 16
_BLOCK = 512
"""Frames made at once, so that the arrays between stay in the processor's cache."""


class SyntheticSource:
    """Seeded sequences: `data` float32 [frames, features] and `classes` int32 [ceil(frames / label_rate)].

    A sequence is a row of segments of 3 to 19 frames, each of one class. A class has a spectrum of a few smooth bumps,
    between which the frames glide, with a little noise.

    Args:
        options: how many, how long, and of what.
    """

    class Options(config.Options):
        """The section `source` with `type: synthetic`."""

        sequences: int = Field(default=1000, ge=1, le=10**9)
        """How many."""
        seed: int = 0
        """Another one gives other sequences."""
        features: int = Field(default=40, ge=1, le=1 << 20)
        """Values per frame of `data`."""
        min_frames: int = Field(default=20, ge=0, le=1 << 53)
        """Of the shortest sequences."""
        mean_frames: float = Field(default=400, gt=0, allow_inf_nan=False)
        """About the mean of all lengths; most are shorter, a few much longer."""
        max_frames: int = Field(default=2000, ge=1, le=1 << 53)
        """Of the longest sequences."""
        classes: int = Field(default=20, ge=3, le=1 << 16)
        """How many there are of them."""
        label_rate: int = Field(default=1, ge=1, le=(1 << 31) - 1)
        """Frames for which one entry of `classes` stands: the first of them has that class."""

        @model_validator(mode="after")
        def _ordered(self) -> SyntheticSource.Options:
            if not self.min_frames <= self.mean_frames <= self.max_frames:
                raise ValueError(
                    f"source.min_frames, mean_frames and max_frames are {self.min_frames}, {self.mean_frames:g} and "
                    f"{self.max_frames}: give them in ascending order"
                )
            return self

    def __init__(self, options: Options) -> None:
        self._options = options
        self._frames = _draw_lengths(options)
        self._labels = -(-self._frames // options.label_rate)
        self._tags = _number(options.sequences)
        self._spectra = _draw_spectra(options)
        # One long row of noise; each frame takes a stretch of it that begins anywhere.
        noise = _draw_noise(key_of(options.seed, _NOISE), _NOISE_SIZE + options.features)
        self._noise = np.lib.stride_tricks.sliding_window_view(noise, options.features)
        self._keys = {
            DATA: KeySpec(dtype="float32", shape=(options.features,)),
            CLASSES: KeySpec(dtype="int32", labels=tuple(f"class-{number:02d}" for number in range(options.classes))),
        }

    def __reduce__(self) -> tuple[type[SyntheticSource], tuple[Options]]:
        return SyntheticSource, (self._options,)

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """`data` and `classes`."""
        return self._keys

    @property
    def tags(self) -> Tags:
        """synthetic-000000, synthetic-000001, …"""
        return self._tags

    def lengths(self, key: str) -> Int64:
        """Frames of every sequence; int64 [sequences].

        Raises:
            KeyError: there is no such key.
        """
        return {DATA: self._frames, CLASSES: self._labels}[key]

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        """Makes a range of one sequence; as `Source.read`."""
        spec = self._keys[key]
        first, stop = frames or FrameRange(0, int(self.lengths(key)[sequence]))
        if out is None:
            out = np.empty((stop - first, *spec.unit_shape), spec.dtype)
        for start in range(first, stop, _BLOCK):
            places = np.arange(start, min(start + _BLOCK, stop))
            part = out[start - first : start - first + len(places)]
            if key == DATA:
                self._make_data(sequence, places, part)
            else:
                part[...] = self._segments(sequence, places * self._options.label_rate).own
        return out

    def _make_data(self, sequence: int, places: Int64, out: Array) -> None:
        segments = self._segments(sequence, places)
        np.take(self._spectra, segments.own, axis=0, out=out, mode="clip")  # clip: the only mode without a copy
        glide = self._spectra[segments.neighbour]
        glide -= out
        glide *= segments.weight[:, None]
        out += glide
        rows = keyed(key_of(self._options.seed, _ROWS, sequence), places)
        out += self._noise[_integers(rows, _NOISE_SIZE)]

    def _segments(self, sequence: int, places: Int64) -> _Segments:
        """Finds the segments of frames `places` (ascending) of one sequence."""
        first = int(places[0]) // _GRID - 2
        numbers = np.arange(first, int(places[-1]) // _GRID + 2)
        starts = self._starts(sequence, numbers)
        segment = places // _GRID - first  # its place in `numbers`
        segment -= places < starts[segment]
        start, stop = starts[segment], np.minimum(starts[segment + 1], self._frames[sequence])
        to_start, to_stop = 2 * (places - start) + 1, 2 * (stop - places) - 1  # in half frames
        near = (np.minimum(to_start, to_stop) / (2 * (stop - start))).astype(np.float32)
        classes = self._classes(sequence, numbers)
        neighbour = classes[segment + np.where(to_start <= to_stop, -1, 1)]
        weight = np.float32(0.5) - near
        return _Segments(classes[segment], neighbour, np.float32(2) * weight * weight)

    def _starts(self, sequence: int, numbers: Int64) -> Int64:
        """Where segments start; the first at frame 0, none so late that fewer than _LAST frames are left for it."""
        draws = keyed(key_of(self._options.seed, _SEGMENTS, sequence), numbers)
        starts = numbers * _GRID + _integers(draws, _JITTER + 1)
        starts[numbers == 0] = 0
        late = (starts > self._frames[sequence] - _LAST) & (numbers > 0)
        starts[late] = np.iinfo(np.int64).max
        return starts

    def _classes(self, sequence: int, numbers: Int64) -> Int64:
        """Classes of consecutive segments: even ones are drawn freely, odd ones from what neither beside them has."""
        options = self._options
        beside = np.arange(numbers[0] - 1, numbers[-1] + 2)
        draws = keyed(key_of(options.seed, _CLASSES, sequence), beside)
        free = _integers(draws, options.classes)
        low, high = np.minimum(free[:-2], free[2:]), np.maximum(free[:-2], free[2:])
        differ = low != high
        odd = _integers(draws[1:-1], options.classes - 1 - differ)  # the how-manieth of those left
        odd += odd >= low
        odd += (odd >= high) & differ
        return np.where(numbers % 2 == 0, free[1:-1], odd)

    def fingerprint(self) -> Mapping[str, str]:
        """As `Source.fingerprint`, with `options`; the samples are those of some first and last frames."""
        parts = fingerprint_of(self._keys, self._tags, {DATA: self._frames, CLASSES: self._labels})
        sequences = sorted({0, self._options.sequences // 2, self._options.sequences - 1})
        blocks = [
            self.read(key, n, FrameRange(0, min(64, int(self.lengths(key)[n]))))
            for n in sequences
            for key in self._keys
        ]
        parts["samples"] = short_hash(block.tobytes() for block in blocks)
        parts["options"] = short_hash([json.dumps(self._options.model_dump(), sort_keys=True).encode()])
        return parts

    def close(self) -> None:
        """Nothing is open."""


class _Segments(NamedTuple):
    """What each frame is made of: arrays [frames]."""

    own: Int64
    """The frame's class."""
    neighbour: Int64
    """The class of the nearer segment beside its own."""
    weight: Float32
    """How much it has of the neighbour, in [0, 0.5)."""


def _integers(draws: UInt64, bound: int | Int64) -> Int64:
    """Brings draws to integers in [0, bound)."""
    return (draws % np.asarray(bound).astype(np.uint64)).astype(np.int64)


def _skewed(middle: Float64, skew: float) -> Float64:
    """Bends [0, 1] onto itself: the larger the skew, the nearer to 0 for all but the largest."""
    return middle / (middle + skew * (1 - middle))


def _draw_lengths(options: SyntheticSource.Options) -> Int64:
    """Draws a length for every sequence: the mean of two uniform draws, bent until the mean is right."""
    spread = options.max_frames - options.min_frames
    if not spread:
        return np.full(options.sequences, options.min_frames, np.int64)
    wanted = (options.mean_frames - options.min_frames) / spread
    grid = (np.arange(512) + 0.5) / 512
    density = np.minimum(grid, 1 - grid) / 128  # of the mean of two draws; sums to 1
    least, most = 2.0**-20, 2.0**20
    for _ in range(80):
        skew = (least + most) / 2
        too_long = math.fsum((_skewed(grid, skew) * density).tolist()) > wanted
        least, most = (skew, most) if too_long else (least, skew)
    draws = keyed(key_of(options.seed, _LENGTHS), np.arange(options.sequences))
    middle = ((draws >> np.uint64(32)) + (draws & np.uint64(0xFFFFFFFF))).astype(np.float64) / 2**33
    return options.min_frames + (_skewed(middle, most) * spread + 0.5).astype(np.int64)


def _number(count: int) -> Tags:
    """Tags with six digits, or as many as the last one needs."""
    stem = b"synthetic-"
    digits = max(6, len(str(count - 1)))
    text = np.empty((count, len(stem) + digits), np.uint8)
    text[:, : len(stem)] = np.frombuffer(stem, np.uint8)
    numbers = np.arange(count)
    for place in range(digits):
        text[:, -1 - place] = ord("0") + numbers // 10**place % 10
    return Tags(text.reshape(-1), np.arange(1, count + 1) * text.shape[1])


def _uniform(draws: UInt64) -> Float64:
    """Brings draws to [0, 1)."""
    return (draws >> np.uint64(11)).astype(np.float64) / 2**53


def _draw_spectra(options: SyntheticSource.Options) -> Float32:
    """Draws a sum of three bumps for every class; float32 [classes, features], in the range of log-mel energies."""
    spectra = np.full((options.classes, options.features), -3.0)
    band = np.arange(options.features) / options.features
    for bump in range(3):
        key = key_of(options.seed, _SPECTRA, bump)
        centre, width, height = _uniform(keyed(key, np.arange(3 * options.classes))).reshape(3, -1, 1)
        distance = (band - centre) / (0.06 + 0.12 * width)
        spectra += (3 + 4 * height) / (1 + distance * distance) / (1 + distance * distance)
    return spectra.astype(np.float32)


def _draw_noise(key: int, size: int) -> Float32:
    """Draws near-normal noise of deviation 0.17: sums of four uniform draws from one hash; float32 [size]."""
    draws = keyed(key, np.arange(size))
    total = sum((draws >> np.uint64(16 * part)) & np.uint64(0xFFFF) for part in range(4))
    return ((np.asarray(total).astype(np.float64) / 65536 - 2) * 0.3).astype(np.float32)
