"""Audio files for tests, and the contract over a folder of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import kaldi_native_fbank
import numpy as np
import pytest
import soundfile

from seqprep.sources import Source, open_source
from seqprep.types import Array

from .source_contract import LARGE_BYTES, SourceContract

RATE = 8000
LENGTHS = (1, 3000, 401, 8000, 640)


def noise(*shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 3000).astype(np.int16)


def write(path: Path, samples: Array, rate: int = RATE, **how: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, **how)
    return path


def audio(path: Path, **options: Any) -> Source:
    return open_source({"type": "audio", "path": str(path), **options})


def listed(manifest: Path, **options: Any) -> Source:
    return open_source({"type": "audio", "manifest": str(manifest), **options})


def direct_features(samples: Array, rate: int, snip_edges: bool, bins: int = 40, **frames: float) -> Array:
    """The library's own features of a whole 16-bit waveform."""
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = rate
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = snip_edges
    for name, value in frames.items():
        setattr(options.frame_opts, name, value)
    options.mel_opts.num_bins = bins
    fbank = kaldi_native_fbank.OnlineFbank(options)
    fbank.accept_waveform(rate, samples.astype(np.float32).tolist())
    fbank.input_finished()
    rows = [np.array(fbank.get_frame(place)) for place in range(fbank.num_frames_ready)]
    return np.stack(rows) if rows else np.empty((0, bins), np.float32)


class OfFiles(SourceContract):
    """A folder of files, each named by its place; subclasses say of what."""

    reader = "audio"
    suffix = "wav"
    channels: tuple[int, ...] = ()
    lengths: tuple[int, ...] = LENGTHS
    options: ClassVar[dict[str, Any]] = {}
    how: ClassVar[dict[str, Any]] = {}
    growth = 1
    """How many times more samples than bytes a large input needs."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for place, length in enumerate(self.lengths):
            write(tmp_path / f"{place}.{self.suffix}", noise(length, *self.channels, seed=place), **self.how)
        return tmp_path

    @pytest.fixture
    def source(self, folder: Path) -> Source:
        return audio(folder, **self.options)

    @pytest.fixture
    def reopen(self, folder: Path) -> Callable[[], Source]:
        return lambda: audio(folder, **self.options)

    @pytest.fixture
    def changed(self, folder: Path) -> Callable[[], Source]:
        def change() -> Source:
            write(folder / f"1.{self.suffix}", noise(self.lengths[1], *self.channels, seed=99), **self.how)
            return audio(folder, **self.options)

        return change

    @pytest.fixture
    def names(self) -> list[str]:
        return [str(place) for place in range(len(self.lengths))]

    @pytest.fixture
    def twice(self, tmp_path: Path) -> Callable[[], Source]:
        for suffix in ("wav", "flac"):
            write(tmp_path / "double" / f"double.{suffix}", noise(500, *self.channels))
        return lambda: audio(tmp_path / "double", **self.options)

    @pytest.fixture
    def large(self, tmp_path: Path) -> Callable[[], Source]:
        for number in range(4):
            samples = np.zeros((LARGE_BYTES * self.growth // 4, *self.channels), np.int16)
            write(tmp_path / "large" / f"{number}.{self.suffix}", samples, **self.how)
        return lambda: audio(tmp_path / "large", **self.options)
