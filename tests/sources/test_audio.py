from __future__ import annotations

import itertools
import json
import os
import pickle
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import kaldi_native_fbank
import numpy as np
import pytest
import soundfile

from seqprep.errors import ConfigError, DependencyError, SourceError
from seqprep.sources import Source, open_source
from seqprep.sources.features import LogMel, LogMelOptions
from seqprep.sources.manifest import label_key
from seqprep.types import Array, FrameRange

from .source_contract import SourceContract, Truth, assert_same, ranges

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

    suffix = "wav"
    channels: tuple[int, ...] = ()
    lengths: tuple[int, ...] = LENGTHS
    options: ClassVar[dict[str, Any]] = {}
    how: ClassVar[dict[str, Any]] = {}

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


class TestMonoWav(OfFiles):
    @pytest.fixture
    def truth(self, folder: Path) -> Truth:
        return {"data": [noise(length, seed=place) / np.float32(32768) for place, length in enumerate(LENGTHS)]}


class TestStereoFlac(OfFiles):
    suffix = "flac"
    channels = (2,)
    options: ClassVar[dict[str, Any]] = {"sample_type": "int16"}

    @pytest.fixture
    def truth(self, folder: Path) -> Truth:
        return {"data": [noise(length, 2, seed=place) for place, length in enumerate(LENGTHS)]}


class TestVorbis(OfFiles):
    """Seeks in Vorbis are not exact to the bit, so this fails if ranges are read by seeking."""

    suffix = "ogg"
    lengths = (9000, 20000, 500)
    how: ClassVar[dict[str, Any]] = {"subtype": "VORBIS"}

    @pytest.fixture
    def truth(self, folder: Path) -> Truth:
        return {"data": [soundfile.read(folder / f"{place}.ogg", dtype="float32")[0] for place in range(3)]}


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


class TestManifestWithLabels(SourceContract):
    rows = (
        {"path": "a/one.wav", "tag": "first é", "speaker": "bo", "digit": 3, "weight": 0.5},
        {"path": "a/two.wav", "tag": "second", "speaker": "al", "digit": -1, "weight": 2},
        {"path": "three.flac", "tag": "a/b c", "speaker": "bo", "digit": 2**40, "weight": 1e-3},
    )
    options: ClassVar[dict[str, Any]] = {
        "labels": {"who": "speaker", "digit": "digit", "weight": "weight"},
        "sample_type": "int32",
    }

    @pytest.fixture
    def manifest(self, tmp_path: Path) -> Path:
        for place, row in enumerate(self.rows):
            write(tmp_path / str(row["path"]), noise(500 + place, seed=place))
        manifest = tmp_path / "train.jsonl"
        manifest.write_text("\n".join(json.dumps(row) for row in self.rows), encoding="utf-8")
        return manifest

    @pytest.fixture
    def source(self, manifest: Path) -> Source:
        return listed(manifest, **self.options)

    @pytest.fixture
    def truth(self) -> Truth:
        data = [noise(500 + place, seed=place).astype(np.int32) << 16 for place in range(3)]
        who = [np.array(number, np.int64) for number in (1, 0, 1)]
        digit = [np.array(row["digit"], np.int64) for row in self.rows]
        return {
            "data": data,
            "who": who,
            "digit": digit,
            "weight": [np.array(row["weight"], np.float32) for row in self.rows],
        }

    @pytest.fixture
    def reopen(self, manifest: Path) -> Callable[[], Source]:
        return lambda: listed(manifest, **self.options)

    @pytest.fixture
    def changed(self, manifest: Path) -> Callable[[], Source]:
        def change() -> Source:
            manifest.write_text(manifest.read_text(encoding="utf-8").replace("0.5", "0.25"), encoding="utf-8")
            return listed(manifest, **self.options)

        return change

    def test_names(self, source: Source) -> None:
        assert list(source.tags) == ["first é", "second", "a/b c"]
        assert source.keys["who"].labels == ("al", "bo")
        assert not source.keys["who"].has_time

    def test_csv_means_the_same(self, source: Source, manifest: Path) -> None:
        lines = [
            "path,tag,speaker,digit,weight",
            *(",".join(str(value) for value in row.values()) for row in self.rows),
        ]
        table = manifest.with_suffix(".csv")
        table.write_text("\ufeff" + "\r\n".join(lines) + "\r\n\r\n", encoding="utf-8")
        assert listed(table, **self.options).fingerprint() == source.fingerprint()
        tabs = manifest.with_suffix(".tsv")
        tabs.write_text("\n".join(lines).replace(",", "\t"), encoding="utf-8")
        assert listed(tabs, **self.options).fingerprint() == source.fingerprint()


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
    options = LogMelOptions(bins=3, frame_length_ms=length, frame_shift_ms=shift, snip_edges=snip_edges)
    features = LogMel(options, rate)
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
    features, asked = LogMel(LogMelOptions(), 16000), []

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
        ({"bin": 40}, r"source.features.bin is not a setting; did you mean 'bins'"),
    ],
)
def test_impossible_features(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    write(tmp_path / "a.wav", noise(4000))
    with pytest.raises(ConfigError, match=message):
        audio(tmp_path, features=options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"source.path and source.manifest: neither of them is set; set one"),
        ({"path": "x", "manifest": "y"}, r"source.path and source.manifest: both of them is set"),
        ({"path": "x", "labels": ["speaker"]}, r"source.labels is set without source.manifest"),
        ({"manifest": "x", "labels": ["data"]}, r"a key 'data', which holds the audio"),
        ({"path": "x", "features": {}, "sample_type": "int16"}, r"sample_type is int16 but features are float32"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_source({"type": "audio", **options})


@pytest.mark.parametrize(
    ("values", "dtype", "expected", "labels"),
    [
        (["3", "-1", "+7", "007"], "int64", [3, -1, 7, 7], None),
        (["3", "0.5", "1e3"], "float32", [3, 0.5, 1000], None),
        (["b", "a", "3", "b"], "int64", [2, 1, 0, 2], ("3", "a", "b")),
        (["é", "Z", "a"], "int64", [2, 0, 1], ("Z", "a", "é")),
        (["true", "false"], "int64", [1, 0], ("false", "true")),
    ],
)
def test_labels(values: list[str], dtype: str, expected: list[float], labels: tuple[str, ...] | None) -> None:
    spec, numbers = label_key(values)
    assert (spec.dtype, spec.shape, spec.has_time, spec.labels) == (dtype, (), False, labels)
    assert_same(numbers, np.array(expected, dtype))


def test_tags_are_paths_below_the_shared_folder(tmp_path: Path) -> None:
    for name in ("corpus/b/x.1.wav", "corpus/a/y z.wav", "corpus/a/c/x.FLAC"):
        write(tmp_path / name, noise(10))
    assert list(audio(tmp_path).tags) == ["a/c/x", "a/y z", "b/x.1"]
    assert list(audio(tmp_path / "corpus/a/*.wav").tags) == ["y z"]
    files = [str(tmp_path / "corpus/b/x.1.wav"), str(tmp_path / "corpus/a/c")]
    assert list(open_source({"type": "audio", "path": files}).tags) == ["b/x.1", "a/c/x"]


def test_tags_of_a_manifest_are_its_paths_as_written(tmp_path: Path) -> None:
    write(tmp_path / "sound/a.b.wav", noise(10))
    other = write(tmp_path / "other.wav", noise(10))
    manifest = tmp_path / "lists/all.csv"
    manifest.parent.mkdir()
    manifest.write_text(f"tag,path\n,../sound/a.b.wav\nnamed,{other}\n")
    assert list(listed(manifest).tags) == ["../sound/a.b", "named"]


def test_files_that_differ(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", noise(10))
    write(tmp_path / "b.wav", noise(10, 2))
    with pytest.raises(SourceError, match=r"b\.wav has 2 channels at 8000 Hz, but .*a\.wav has 1 channel at 8000 Hz; "):
        audio(tmp_path)
    write(tmp_path / "b.wav", noise(10), rate=16000)
    with pytest.raises(SourceError, match=r"b\.wav has 1 channel at 16000 Hz, but .*a\.wav has 1 channel at 8000 Hz; "):
        audio(tmp_path)


def test_features_take_one_channel(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", noise(4000, 2))
    with pytest.raises(SourceError, match=r"a\.wav: features are made of one channel, and it has 2; "):
        audio(tmp_path, features={})


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        (0, {}, r"b\.wav: has no sample \(1 such of 2 files\); .* source.on_empty: keep"),
        (199, {"features": {}}, r"b\.wav: has 199 samples, too few for one frame \(1 such of 2 files\)"),
    ],
)
def test_empty_files(tmp_path: Path, samples: int, options: dict[str, Any], message: str) -> None:
    write(tmp_path / "a.wav", noise(4000))
    write(tmp_path / "b.wav", noise(samples))
    with pytest.raises(SourceError, match=message):
        audio(tmp_path, **options)
    source = audio(tmp_path, on_empty="keep", **options)
    assert source.lengths("data")[1] == 0
    assert source.read("data", 1).shape == (0, *source.keys["data"].shape)


@pytest.mark.parametrize(
    ("name", "how"),
    [("a.wav", {"subtype": "FLOAT"}), ("a.ogg", {"subtype": "VORBIS"}), ("a.mp3", {})],
)
def test_floats_are_not_read_as_integers(tmp_path: Path, name: str, how: dict[str, Any]) -> None:
    path = write(tmp_path / name, noise(2000) / 32768, **how)
    with pytest.raises(SourceError, match=r"its samples are floats \(\w+\), of which source.sample_type int16"):
        audio(path, sample_type="int16")
    assert_same(audio(path).read("data", 0), soundfile.read(path, dtype="float32")[0])


def test_not_audio(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_text("hello")
    with pytest.raises(SourceError, match=r"a\.wav: can't be read as audio: Format not recognised; "):
        audio(tmp_path)


def test_a_wav_cut_off_before(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", noise(1000))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(SourceError, match=r"a\.wav: cut off: its header tells of 2000 bytes, and 956 are there; "):
        audio(path)


def test_a_wav_from_a_pipe(tmp_path: Path) -> None:
    """Programs that can't go back to the header claim the most that fits there."""
    path = write(tmp_path / "a.wav", noise(1000))
    content = bytearray(path.read_bytes())
    content[40:44] = struct.pack("<I", 0xFFFFFFFF)
    path.write_bytes(content)
    assert_same(audio(path, sample_type="int16").read("data", 0), noise(1000))


@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
@pytest.mark.parametrize("options", [{}, {"features": {}}])
def test_files_cut_off_after_opening(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    path = write(tmp_path / name, noise(20000))
    source = audio(path, **options)
    path.write_bytes(path.read_bytes()[:4000])
    with pytest.raises(SourceError, match=rf"{name}(, sequence 'a': cut off: \d+ of|: can't be read as audio)"):
        source.read("data", 0)


def test_a_flac_cut_off_before(tmp_path: Path) -> None:
    path = write(tmp_path / "a.flac", noise(20000))
    path.write_bytes(path.read_bytes()[:4000])
    source = audio(path)
    assert source.lengths("data").tolist() == [20000]
    with pytest.raises(SourceError, match=r"a\.flac(, sequence 'a': cut off|: can't be read as audio)"):
        source.read("data", 0)


def test_a_file_replaced_or_removed_after_opening(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", noise(1000))
    source = audio(path)
    write(path, noise(1000, 2))
    with pytest.raises(SourceError, match=r"a\.wav, sequence 'a': the file changed since it was opened"):
        source.read("data", 0)
    path.unlink()
    with pytest.raises(SourceError, match=r"a\.wav: can't be opened: No such file or directory; check the path"):
        source.read("data", 0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("m.csv", "", r"m\.csv: the manifest lists no file"),
        ("m.csv", "path,tag\n", r"m\.csv: the manifest lists no file"),
        ("m.csv", "paht,tag\na.wav,x\n", r"m\.csv: the header has no column 'path'; did you mean 'paht'"),
        ("m.csv", "path,path\na.wav,a.wav\n", r"m\.csv: the header names a column twice: path, path"),
        ("m.csv", "path,speakr\na.wav,x\n", r"m\.csv, line 2: there is no column 'speaker'; did you mean 'speakr'"),
        ("m.csv", "path,speaker\na.wav,\n", r"m\.csv, line 2: column 'speaker' is empty"),
        ("m.csv", "path,speaker\n,x\n", r"m\.csv, line 2: column 'path' is empty"),
        ("m.csv", "path,speaker\na.wav\n", r"m\.csv, line 2: the row hasn't the 2 cells"),
        ("m.csv", "path,speaker\na.wav,x,y\n", r"m\.csv, line 2: the row hasn't the 2 cells"),
        ("m.csv", 'path,speaker\n"a.wav,x\n', r"m\.csv, line 2: not valid CSV: unexpected end of data"),
        ("m.csv", "path,speaker\na.wav,x\nb.wav,y\n", r"m\.csv, line 3: .*b\.wav: can't be opened: No such file"),
        (
            "m.csv",
            "path,speaker\na.wav,99999999999999999999\n",
            r"m\.csv: column 'speaker': a label doesn't fit 64-bit",
        ),
        (
            "m.csv",
            "path,speaker\na.wav,x\n./a.wav,x\na.wav,x\n",
            r"line 2: .*a\.wav and .*line 4: .*a\.wav have the same tag 'a'",
        ),
        ("m.jsonl", "", r"m\.jsonl: the manifest lists no file"),
        (
            "m.jsonl",
            '{"path": "a.wav", "speaker": 1}\n\n{"path": \n',
            r"m\.jsonl, line 3: not valid JSON: Expecting value",
        ),
        ("m.jsonl", "[1, 2]\n", r"m\.jsonl, line 1: not a JSON object"),
        ("m.jsonl", '{"path": "a.wav"}\n', r"m\.jsonl, line 1: there is no column 'speaker'"),
        ("m.jsonl", '{"path": null, "speaker": 1}\n', r"m\.jsonl, line 1: column 'path' is empty"),
        (
            "m.jsonl",
            '{"path": "a.wav", "tag": "\\ud800", "speaker": 1}\n',
            r"m\.jsonl, line 1: not valid JSON: .*surrogates",
        ),
        ("m.jsonl", b"\xff\xfe\n", r"m\.jsonl: can't be read as a manifest: .*can't decode byte 0xff"),
        ("m.csv", b"path,speaker\n\xff,x\n", r"m\.csv: can't be read as a manifest: .*can't decode byte 0xff"),
    ],
)
def test_bad_manifests(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    write(tmp_path / "a.wav", noise(100))
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(SourceError, match=message) as caught:
        listed(tmp_path / name, labels=["speaker"])
    assert "\n" not in str(caught.value)


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none\.csv: can't be read as a manifest: No such file or directory"):
        listed(tmp_path / "none.csv")


def test_two_files_of_one_tag(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", noise(10))
    write(tmp_path / "a.flac", noise(10))
    with pytest.raises(SourceError, match=r"a\.flac and .*a\.wav have the same tag 'a'; rename one"):
        audio(tmp_path)


@pytest.mark.parametrize(("package", "options"), [("soundfile", {}), ("kaldi_native_fbank", {"features": {}})])
def test_missing_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, options: dict[str, Any]
) -> None:
    write(tmp_path / "a.wav", noise(1000))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DependencyError, match=rf"{package.replace('_', '.')}.*pip install 'seqprep\[audio\]'"):
        audio(tmp_path, **options)


def test_many_files_take_little(tmp_path: Path) -> None:
    first = write(tmp_path / "00000.wav", noise(100))
    for place in range(1, 1000):
        os.link(first, tmp_path / f"{place:05}.wav")
    before = len(os.listdir("/dev/fd"))
    source = audio(tmp_path)
    assert len(os.listdir("/dev/fd")) == before
    assert len(pickle.dumps(source)) < 1000 * (len(str(tmp_path)) + 60)


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xe9.wav")
    try:
        write(tmp_path / "plain.wav", noise(100)).rename(tmp_path / name)
    except OSError:
        pytest.skip("the file system takes UTF-8 alone")
    source = audio(tmp_path, sample_type="int16")
    assert list(source.tags) == [os.fsdecode(b"\xff\xe9")]
    assert_same(source.read("data", 0), noise(100))
