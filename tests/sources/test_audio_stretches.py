"""Stretches of files as sequences: start and end in a manifest, Kaldi's wav.scp and segments; and one channel of several."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from seqprep.errors import ConfigError, SourceError
from seqprep.sources import Source
from seqprep.types import Array

from .audio_files import audio, listed, noise, write
from .kaldi_files import write_table
from .source_contract import SourceContract, Truth, assert_same

TAGS = ("a b", "über/1", "日本", "z")
STEREO = noise(8000, 2, seed=5)


class OfAList(SourceContract):
    """A list that names stretches; subclasses write one."""

    reader = "audio"
    options: ClassVar[dict[str, Any]] = {"sample_type": "int16", "on_empty": "keep"}
    tags: ClassVar[tuple[str, ...]] = TAGS

    def write(self, folder: Path, samples: Array, tags: tuple[str, ...]) -> Path:
        raise NotImplementedError

    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        return listed(self.write(tmp_path, STEREO, self.tags), **self.options)

    @pytest.fixture
    def reopen(self, tmp_path: Path, source: Source) -> Callable[[], Source]:
        return lambda: listed(self.write(tmp_path, STEREO, self.tags), **self.options)

    @pytest.fixture
    def changed(self, tmp_path: Path) -> Callable[[], Source]:
        return lambda: listed(self.write(tmp_path, STEREO + 1, self.tags), **self.options)

    @pytest.fixture
    def names(self) -> list[str]:
        return list(self.tags)

    @pytest.fixture
    def twice(self, tmp_path: Path) -> Callable[[], Source]:
        return lambda: listed(self.write(tmp_path, STEREO, ("double", "b", "double", "d")), **self.options)


class TestStretchesOfAManifest(OfAList):
    def write(self, folder: Path, samples: Array, tags: tuple[str, ...]) -> Path:
        write(folder / "x.wav", samples)
        rows = [
            {"path": "x.wav", "tag": tags[0], "start": 0.1, "end": 0.35, "channel": 0},
            {"path": "x.wav", "tag": tags[1], "start": "0.25", "channel": 1},
            {"path": "x.wav", "tag": tags[2], "start": 0.5, "end": 0.5, "channel": 1},
            {"path": "x.wav", "tag": tags[3], "end": 0.0126, "channel": 0},
        ]
        manifest = folder / "all.jsonl"
        manifest.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        return manifest

    @pytest.fixture
    def truth(self) -> Truth:
        return {"data": [STEREO[800:2800, 0], STEREO[2000:, 1], STEREO[:0, 0], STEREO[:101, 0]]}


class TestSegments(OfAList):
    """As Kaldi's data folders have them, the archive of WAVs included."""

    options: ClassVar[dict[str, Any]] = {"on_empty": "keep", "labels": {"speaker": "utt2spk"}}
    tags: ClassVar[tuple[str, ...]] = ("a", "über/1", "日本", "z")

    def write(self, folder: Path, samples: Array, tags: tuple[str, ...]) -> Path:
        write(folder / "audio" / "x.wav", samples[:, 0])
        with (folder / "y.ark").open("wb") as file:
            file.write(b"y ")
            file.write(write(folder / "y.wav", samples[:, 1]).read_bytes() + b"z RIFF")
        spans = ("x 0.1 0.35", "y 0.25 -1", "x 0.5 0.5", "y 0.9 1.3")
        lines = [f"{tag} {span}\n" for tag, span in zip(tags, spans, strict=True)]
        (folder / "segments").write_text("".join(lines), encoding="utf-8")
        write_table(folder / "utt2spk", {tag: tag[0] for tag in (*tags, "other")})
        return write_table(folder / "wav.scp", {"x": "audio/x.wav", "y": "y.ark:2"})

    @pytest.fixture
    def truth(self) -> Truth:
        data = [STEREO[800:2800, 0], STEREO[2000:, 1], STEREO[:0, 0], STEREO[7200:, 1]]
        speakers = [np.array(number, np.int64) for number in (0, 2, 3, 1)]
        return {"data": [array / np.float32(32768) for array in data], "speaker": speakers}

    def test_whole_recordings(self, tmp_path: Path) -> None:
        source = listed(self.write(tmp_path, STEREO, self.tags), segments="none")
        assert list(source.tags) == ["x", "y"]
        assert source.lengths("data").tolist() == [8000, 8000]


class TestSegmentsOfChannels(OfAList):
    tags: ClassVar[tuple[str, ...]] = ("a", "b", "日本", "z")

    def write(self, folder: Path, samples: Array, tags: tuple[str, ...]) -> Path:
        write(folder / "x.wav", samples)
        spans = ("x 0.1 0.35 0", "x 0.25 -1 1", "x 0.5 0.5 1", "x 0.9 1 0")
        (folder / "own").write_text("".join(f"{tag} {span}\n" for tag, span in zip(tags, spans, strict=True)))
        return write_table(folder / "wav.scp", {"x": "x.wav"})

    @pytest.fixture(autouse=True)
    def _named(self, tmp_path: Path) -> None:
        type(self).options = {"sample_type": "int16", "on_empty": "keep", "segments": str(tmp_path / "own")}

    @pytest.fixture
    def truth(self) -> Truth:
        return {"data": [STEREO[800:2800, 0], STEREO[2000:, 1], STEREO[:0, 0], STEREO[7200:, 0]]}


def test_features_of_a_stretch_are_those_of_its_samples(tmp_path: Path) -> None:
    write(tmp_path / "whole.wav", STEREO[:, 0])
    write(tmp_path / "cut" / "part.wav", STEREO[1000:5000, 0])
    (tmp_path / "m.csv").write_text("path,start,end\nwhole.wav,0.125,0.625\n")
    for snip_edges in (True, False):
        features = {"snip_edges": snip_edges}
        one = listed(tmp_path / "m.csv", features=features)
        other = audio(tmp_path / "cut", features=features)
        assert_same(one.read("data", 0), other.read("data", 0))


def test_tags_of_stretches_without_their_own(tmp_path: Path) -> None:
    write(tmp_path / "x.wav", STEREO)
    (tmp_path / "m.csv").write_text("path,start,end\nx.wav,0,0.5\nx.wav,0.5,\nx.wav,,\n")
    assert list(listed(tmp_path / "m.csv").tags) == ["x_0-0.5", "x_0.5-", "x"]


def test_seconds_are_taken_as_they_are_written(tmp_path: Path) -> None:
    """In binary floating point, 0.29 · 100 is 28.999…: the sample before."""
    write(tmp_path / "x.wav", noise(200), rate=100)
    (tmp_path / "m.csv").write_text("path,start,end\nx.wav,0.29,1.16\n")
    assert_same(listed(tmp_path / "m.csv", sample_type="int16").read("data", 0), noise(200)[29:116])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            "0.9,2",
            r"line 2: .*x\.wav: the stretch of samples \[7200, 16000\) is outside of the file, which has 8000 at 8000",
        ),
        ("1.1,", r"line 2: .*x\.wav: the stretch of samples \[8800, 8000\) is outside"),
        ("0.5,0.4", r"line 2: start 0\.5 and end 0\.4 are no stretch; give both in seconds"),
        ("-1,0.4", r"line 2: start -1 and end 0\.4 are no stretch"),
        ("1:00,", r"line 2: '1:00' isn't a time in seconds, such as 1\.25"),
    ],
)
def test_impossible_stretches(tmp_path: Path, cells: str, message: str) -> None:
    write(tmp_path / "x.wav", STEREO)
    (tmp_path / "m.csv").write_text(f"path,start,end\nx.wav,{cells}\n")
    with pytest.raises(SourceError, match=message):
        listed(tmp_path / "m.csv")


def test_one_channel(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", STEREO)
    write(tmp_path / "b.flac", STEREO[:, 1])
    source = audio(tmp_path / "a.wav", channel=1, sample_type="int16")
    assert source.keys["data"].shape == ()
    assert_same(source.read("data", 0), STEREO[:, 1].copy())
    mean = audio(tmp_path, channel="mean").read("data", 0)
    np.testing.assert_allclose(mean, STEREO.mean(axis=1) / 32768, atol=1e-7)
    assert_same(audio(tmp_path, channel=0).read("data", 1), STEREO[:, 1] / np.float32(32768))
    with pytest.raises(SourceError, match=r"b\.flac: it has no channel 1: there are 1, counted from 0"):
        audio(tmp_path, channel=1)
    assert audio(tmp_path, channel="mean", features={}).keys["data"].shape == (40,)
    assert audio(tmp_path, channel="mean").fingerprint() != audio(tmp_path, channel=0).fingerprint()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "x", "channel": -1}, r"source.channel is -1; channels are counted from 0"),
        (
            {"path": "x", "channel": "mean", "sample_type": "int16"},
            r"sample_type is int16 but source.channel: mean makes",
        ),
        ({"manifest": "m.csv", "segments": "x"}, r"source.segments is 'x' without a wav\.scp"),
        ({"path": "x", "allow_pipes": True}, r"source.allow_pipes is set without a wav\.scp"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    from seqprep.sources import open_source

    with pytest.raises(ConfigError, match=message):
        open_source({"type": "audio", **options})


def test_a_channel_that_is_no_number(tmp_path: Path) -> None:
    write(tmp_path / "x.wav", STEREO)
    (tmp_path / "m.csv").write_text("path,channel\nx.wav,left\n")
    with pytest.raises(SourceError, match=r"m\.csv, line 2: channel is 'left'; channels are counted from 0"):
        listed(tmp_path / "m.csv")


def test_commands_run_only_where_they_are_allowed(tmp_path: Path) -> None:
    write(tmp_path / "x.wav", STEREO)
    scp = write_table(tmp_path / "wav.scp", {"x": f"cat {tmp_path}/x.wav |"})
    with pytest.raises(
        SourceError, match=r"wav\.scp, line 1: 'cat .*' is a shell command, .* source.allow_pipes: true"
    ):
        listed(scp)
    source = listed(scp, allow_pipes=True, sample_type="int16")
    assert_same(source.read("data", 0), STEREO)
    before = source.fingerprint()
    write(tmp_path / "x.wav", STEREO + 1)
    assert listed(scp, allow_pipes=True, sample_type="int16").fingerprint() != before
    write_table(scp, {"x": "false |"})
    with pytest.raises(SourceError, match=r"the command 'false' failed with status 1: it said nothing"):
        listed(scp, allow_pipes=True)


@pytest.mark.parametrize(
    ("scp", "segments", "message"),
    [
        ("", None, r"wav\.scp: the manifest lists no file"),
        ("x\n", None, r"wav\.scp, line 1: 'x' stands alone"),
        ("x none.wav\n", None, r"wav\.scp, line 1: .*none\.wav: can't be opened: No such file or directory"),
        ("x x.wav:3\n", None, r"wav\.scp, line 1: .*x\.wav:3: there is no WAV at this byte; check the scp file"),
        ("x x.wav\n", "u y 0 1\n", r"segments, line 1: recording 'y' isn't in .*wav\.scp; complete it"),
        ("x x.wav\n", "u x 0 1\nv x 0\n", r"segments, line 2: 'x 0' isn't a recording, a start and an end in seconds"),
        (
            "x x.wav\n",
            "u x 0.5 1.6\n",
            r"segments, line 1: .*x\.wav: the stretch of samples \[4000, 12800\) is outside",
        ),
    ],
)
def test_bad_data_folders(tmp_path: Path, scp: str, segments: str | None, message: str) -> None:
    write(tmp_path / "x.wav", STEREO)
    (tmp_path / "wav.scp").write_text(scp)
    if segments is not None:
        (tmp_path / "segments").write_text(segments)
    with pytest.raises(SourceError, match=message):
        listed(tmp_path / "wav.scp")


def test_a_table_that_lacks_a_sequence(tmp_path: Path) -> None:
    write(tmp_path / "x.wav", STEREO)
    write_table(tmp_path / "wav.scp", {"x": "x.wav", "y": "x.wav"})
    write_table(tmp_path / "utt2spk", {"x": "s"})
    with pytest.raises(SourceError, match=r"utt2spk: sequence 'y' of .*wav\.scp isn't in it; complete it"):
        listed(tmp_path / "wav.scp", labels=["utt2spk"])
