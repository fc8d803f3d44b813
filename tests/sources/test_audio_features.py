"""Features of audio are those of the library that makes them, for any range of frames."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import soundfile

from seqprep.errors import ConfigError, SourceError
from seqprep.sources.audio.features import FeatureOptions, Features
from seqprep.types import Array, FrameRange

from .audio_files import LENGTHS, RATE, OfFiles, audio, direct_features, noise, write
from .source_contract import Truth, assert_same, ranges


class TestLogMel(OfFiles):
    options: ClassVar[dict[str, Any]] = {"features": {"type": "log_mel", "bins": 23}, "on_empty": "keep"}
    snip_edges = True

    @pytest.fixture
    def truth(self, folder: Path) -> Truth:
        return {
            "data": [
                direct_features(noise(length, seed=place), RATE, self.snip_edges, bins=23)
                for place, length in enumerate(LENGTHS)
            ]
        }


class TestLogMelMirrored(TestLogMel):
    options: ClassVar[dict[str, Any]] = {"features": {"bins": 23, "snip_edges": False}, "on_empty": "keep"}
    snip_edges = False


@pytest.mark.parametrize("snip_edges", [True, False])
def test_features_of_real_recordings(shared_data: Path, snip_edges: bool) -> None:
    source = audio(shared_data / "fsdd", features={"type": "log_mel", "snip_edges": snip_edges})
    assert len(source.tags) == 360
    truth = []
    for tag in source.tags:
        samples, rate = soundfile.read(shared_data / "fsdd" / f"{tag}.wav", dtype="int16")
        truth.append(direct_features(samples, rate, snip_edges))
    for sequence, expected in enumerate(truth):
        assert_same(source.read("data", sequence), expected)
    for _, sequence, frames, expected in ranges({"data": truth}, 300):
        assert_same(source.read("data", sequence, frames), expected)


@pytest.mark.parametrize("snip_edges", [True, False])
@pytest.mark.parametrize(("length", "shift"), [(25, 10), (25.13, 3.3), (4, 10), (32, 32)])
@pytest.mark.parametrize("rate", [8000, 11025, 16000, 44100])
def test_frames_are_counted_and_cut_as_the_library_does(
    rate: int, length: float, shift: float, snip_edges: bool
) -> None:
    options = FeatureOptions(bins=3, frame_length_ms=length, frame_shift_ms=shift, snip_edges=snip_edges)
    features = Features(options, rate)
    window, step = int(rate * length / 1000), int(rate * shift / 1000)
    around = [
        place + offset for place in (0, step // 2, step, window // 2, window, 2 * window) for offset in range(-2, 3)
    ]
    counts = np.array(sorted({count for count in [*around, 977, 2500] if count >= 0}))
    for samples, frames in zip(counts.tolist(), features.count(counts).tolist(), strict=True):
        wave = noise(samples)
        expected = direct_features(wave, rate, snip_edges, bins=3, frame_length_ms=length, frame_shift_ms=shift)
        assert frames == len(expected), samples
        floats = wave / np.float32(32768)
        for first, stop in {(0, frames), (max(frames - 1, 0), frames), (0, min(frames, 1)), (frames // 2, frames)}:
            out = np.empty((stop - first, 3), np.float32)
            features.fill(out, first, samples, lambda span, floats=floats: floats[span.start : span.stop])  # type: ignore[misc]
            assert_same(out, expected[first:stop])


def test_a_range_of_features_reads_no_more_than_its_samples() -> None:
    features, asked = Features(FeatureOptions(), 16000), []

    def read(span: FrameRange) -> Array:
        asked.append(span)
        return np.zeros(span.stop - span.start, np.float32)

    features.fill(np.empty((3, 40), np.float32), 1000, 10**9, read)
    assert asked == [(160_000, 160_000 + 400 + 2 * 160)]


def test_feature_options_reach_the_library(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", noise(4000))
    plain = audio(tmp_path, features={})
    seen = [plain.read("data", 0)]
    prints = [plain.fingerprint()]
    for options in (
        {"preemphasis": 0.5},
        {"window": "hamming"},
        {"low_hz": 60},
        {"high_hz": -200},
        {"remove_dc_offset": False},
        {"scale": 1},
        {"energy": True},
        {"energy": True, "energy_floor": 1e15},
    ):
        source = audio(tmp_path, features=options)
        assert source.keys["data"].shape == ((41,) if "energy" in options else (40,))
        seen.append(source.read("data", 0))
        prints.append(source.fingerprint())
    for (one, other), (its, others) in zip(
        itertools.combinations(seen, 2), itertools.combinations(prints, 2), strict=True
    ):
        assert not np.array_equal(one, other)
        assert its != others
    assert seen[-1][:, 0] == pytest.approx(np.log(1e15))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"high_hz": 5000}, r"source.features can't be made at 8000 Hz: .*nyquist 4000"),
        ({"bins": 500}, r"source.features can't be made at 8000 Hz: .*too large"),
        ({"frame_shift_ms": 0.1}, r"a frame has 200 samples and a shift 0 at 8000 Hz; raise"),
        ({"frame_length_ms": 0.2}, r"a frame has 1 samples and a shift 80 at 8000 Hz; raise"),
        ({"dither": 1.0}, r"source.features.dither is 1.0: dither is random"),
        ({"energy_floor": 1.0}, r"energy_floor is 1.0 but energy is false"),
        ({"raw_energy": False}, r"raw_energy is False but energy is false: set both"),
        ({"coefficients": 13}, r"source.features.coefficients is set, which features of type log_mel have no use for"),
        ({"type": "mfcc", "use_power": True}, r"source.features.use_power is set, which features of type mfcc"),
        ({"type": "mfcc", "coefficients": 30}, r"coefficients is 30, more than the 23 bins; raise bins"),
        ({"bin": 40}, r"source.features.bin is not a setting; did you mean 'bins'"),
    ],
)
def test_impossible_features(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    write(tmp_path / "a.wav", noise(4000))
    with pytest.raises(ConfigError, match=message):
        audio(tmp_path, features=options)


def test_features_take_one_channel(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", noise(4000, 2))
    with pytest.raises(SourceError, match=r"a\.wav: features are made of one channel, and it has 2; "):
        audio(tmp_path, features={})


def direct_mfccs(samples: Array, rate: int, snip_edges: bool, **options: Any) -> Array:
    """The library's own MFCCs of a whole 16-bit waveform."""
    import kaldi_native_fbank

    own = kaldi_native_fbank.MfccOptions()
    own.frame_opts.samp_freq, own.frame_opts.dither, own.frame_opts.snip_edges = rate, 0, snip_edges
    own.mel_opts.num_bins = options.pop("bins", 23)
    for name, value in options.items():
        setattr(own, name, value)
    mfcc = kaldi_native_fbank.OnlineMfcc(own)
    mfcc.accept_waveform(rate, samples.astype(np.float32).tolist())
    mfcc.input_finished()
    rows = [np.array(mfcc.get_frame(place)) for place in range(mfcc.num_frames_ready)]
    return np.stack(rows) if rows else np.empty((0, own.num_ceps), np.float32)


class TestMfccs(OfFiles):
    options: ClassVar[dict[str, Any]] = {"features": {"type": "mfcc"}, "on_empty": "keep"}
    growth = 2

    @pytest.fixture
    def truth(self) -> Truth:
        waves = [noise(length, seed=place) for place, length in enumerate(LENGTHS)]
        return {"data": [direct_mfccs(wave, RATE, snip_edges=True) for wave in waves]}


@pytest.mark.parametrize("snip_edges", [True, False])
def test_mfccs_of_real_recordings(shared_data: Path, snip_edges: bool) -> None:
    options = {"type": "mfcc", "bins": 30, "coefficients": 20, "cepstral_lifter": 0.0, "energy": False}
    source = audio(shared_data / "fsdd" / "[0-2]_*", features={**options, "snip_edges": snip_edges})
    assert source.keys["data"].shape == (20,)
    for place, tag in enumerate(source.tags):
        samples, rate = soundfile.read(shared_data / "fsdd" / f"{tag}.wav", dtype="int16")
        expected = direct_mfccs(samples, rate, snip_edges, bins=30, num_ceps=20, cepstral_lifter=0, use_energy=False)
        assert_same(source.read("data", place), expected)


def test_mfcc_options_reach_the_library(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", noise(4000))
    changes: tuple[dict[str, Any], ...] = (
        {}, {"bins": 20}, {"cepstral_lifter": 10.0}, {"energy": False}, {"raw_energy": False}
    )  # fmt: skip
    seen = [audio(tmp_path, features={"type": "mfcc", **options}).read("data", 0) for options in changes]
    for one, other in itertools.combinations(seen, 2):
        assert not np.array_equal(one, other)
    assert not np.array_equal(*(audio(tmp_path, features={"use_power": own}).read("data", 0) for own in (True, False)))
