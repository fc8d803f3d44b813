"""Audio at another sample rate: any range is that of the whole, and the whole is what the library makes of it."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import soundfile

from seqprep.errors import DependencyError, SourceError
from seqprep.sources.audio.resample import Resampler
from seqprep.types import Array, FrameRange

from .audio_files import OfFiles, audio, noise, write
from .source_contract import Truth, assert_same, ranges

soxr = pytest.importorskip("soxr")


def made(rate: int, wanted: int, samples: Array) -> Array:
    """The whole file, resampled in one call."""
    resampler = Resampler(rate, wanted)
    out = np.empty((resampler.count(len(samples)), *samples.shape[1:]), np.float32)
    if len(out):
        resampler.fill(out, 0, len(samples), lambda span: samples[span.start : span.stop])
    return out


class TestResampled(OfFiles):
    options: ClassVar[dict[str, Any]] = {"sample_rate": 16000, "on_empty": "keep"}
    lengths = (1, 30000, 401, 0, 50001)
    channels = (2,)

    @pytest.fixture
    def truth(self) -> Truth:
        waves = [noise(length, 2, seed=place) / np.float32(32768) for place, length in enumerate(self.lengths)]
        return {"data": [made(8000, 16000, wave) for wave in waves]}


@pytest.mark.parametrize(
    ("rate", "wanted"), [(8000, 16000), (16000, 8000), (44100, 16000), (11025, 16000), (16000, 44100), (7919, 8000)]
)
@pytest.mark.parametrize("seconds", [0.001, 1.3, 6.21])
def test_the_whole_is_what_the_library_makes(rate: int, wanted: int, seconds: float) -> None:
    wave = np.random.default_rng(0).standard_normal(int(rate * seconds)).astype(np.float32) * 0.3
    expected = soxr.resample(wave, rate, wanted, quality="HQ")
    given = made(rate, wanted, wave)
    assert given.shape == expected.shape
    np.testing.assert_allclose(given, expected, atol=2e-6)


@pytest.mark.parametrize(("rate", "wanted"), [(8000, 16000), (44100, 16000), (7919, 8000)])
def test_any_range_is_that_of_the_whole(rate: int, wanted: int) -> None:
    wave = np.random.default_rng(0).standard_normal(7 * rate + 12).astype(np.float32)
    resampler, whole = Resampler(rate, wanted), made(rate, wanted, wave)
    for _, _, (start, stop), expected in ranges({"data": [whole]}, 40):
        out = np.empty(stop - start, np.float32)
        if len(out):
            resampler.fill(out, start, len(wave), lambda span: wave[span.start : span.stop])
        assert_same(out, expected)


def test_a_range_reads_no_more_than_its_blocks() -> None:
    asked = []

    def read(span: FrameRange) -> Array:
        asked.append(span)
        return np.zeros(span.stop - span.start, np.float32)

    Resampler(8000, 16000).fill(np.empty(100, np.float32), 16000 * 1001, 8000 * 10**6, read)
    assert asked == [FrameRange(8000 * 1000 - 400, 8000 * 1002 + 400)]


def test_frequencies_stay(tmp_path: Path) -> None:
    """A tone keeps its pitch and its phase; what lies beyond the new rate's half is gone."""
    time = np.arange(44100 * 3) / 44100
    wave = 0.4 * np.sin(2 * math.pi * 440 * time) + 0.3 * np.sin(2 * math.pi * 12000 * time)
    soundfile.write(tmp_path / "a.wav", wave, 44100, subtype="FLOAT")
    given = audio(tmp_path, sample_rate=16000).read("data", 0)
    expected = 0.4 * np.sin(2 * math.pi * 440 * np.arange(48000) / 16000)
    assert np.abs(given - expected)[200:-200].max() < 1e-4


def test_files_of_several_rates(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", noise(8000), rate=8000)
    write(tmp_path / "b.wav", noise(16000), rate=16000)
    with pytest.raises(
        SourceError, match=r"b\.wav has .* at 16000 Hz, but .*a\.wav has .* 8000 Hz; set source.sample_rate"
    ):
        audio(tmp_path)
    source = audio(tmp_path, sample_rate=16000)
    assert source.lengths("data").tolist() == [16000, 16000]
    assert_same(source.read("data", 1), noise(16000) / np.float32(32768))
    assert source.fingerprint() != audio(tmp_path, sample_rate=8000).fingerprint()
    with pytest.raises(SourceError, match=r"a\.wav has 1 channel at 8000 Hz and would be resampled, to floats alone"):
        audio(tmp_path, sample_rate=16000, sample_type="int16")
    assert audio(tmp_path, sample_rate=16000, features={}).lengths("data").tolist() == [98, 98]


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.wav", noise(8000), rate=8000)
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(DependencyError, match=r"source.sample_rate needs soxr .*pip install 'seqprep\[audio\]'"):
        audio(tmp_path, sample_rate=16000)
    assert audio(tmp_path, sample_rate=8000).lengths("data").tolist() == [8000]
