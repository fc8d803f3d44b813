"""Audio files keep the contract of sources; raw samples, tags, and files that differ."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import soundfile

from seqprep.errors import ConfigError, DependencyError, SourceError
from seqprep.sources import open_source
from tests.descriptors import needs_listing, open_descriptors

from .audio_files import LENGTHS, OfFiles, audio, noise, write
from .source_contract import Truth, assert_same


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


def test_tags_are_paths_below_the_shared_folder(tmp_path: Path) -> None:
    for name in ("corpus/b/x.1.wav", "corpus/a/y z.wav", "corpus/a/c/x.FLAC"):
        write(tmp_path / name, noise(10))
    assert list(audio(tmp_path).tags) == ["a/c/x", "a/y z", "b/x.1"]
    assert list(audio(tmp_path / "corpus/a/*.wav").tags) == ["y z"]
    files = [str(tmp_path / "corpus/b/x.1.wav"), str(tmp_path / "corpus/a/c")]
    assert list(open_source({"type": "audio", "path": files}).tags) == ["b/x.1", "a/c/x"]


def test_files_that_differ(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", noise(10))
    write(tmp_path / "b.wav", noise(10, 2))
    with pytest.raises(SourceError, match=r"b\.wav has 2 channels at 8000 Hz, but .*a\.wav has 1 channel at 8000 Hz; "):
        audio(tmp_path)
    write(tmp_path / "b.wav", noise(10), rate=16000)
    with pytest.raises(SourceError, match=r"b\.wav has 1 channel at 16000 Hz, but .*a\.wav has 1 channel at 8000 Hz; "):
        audio(tmp_path)


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        (0, {}, r"b\.wav: has no sample \(1 such of 2 sequences\); .* source.on_empty: keep"),
        (199, {"features": {}}, r"b\.wav: has 199 samples, too few for one frame \(1 such of 2 sequences\)"),
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


@needs_listing
def test_many_files_take_little(tmp_path: Path) -> None:
    first = write(tmp_path / "00000.wav", noise(100))
    for place in range(1, 1000):
        os.link(first, tmp_path / f"{place:05}.wav")
    before = open_descriptors()
    source = audio(tmp_path)
    assert open_descriptors() <= before
    assert len(pickle.dumps(source)) < 1000 * (len(str(tmp_path)) + 100)


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xe9.wav")
    try:
        write(tmp_path / "plain.wav", noise(100)).rename(tmp_path / name)
    except OSError:
        pytest.skip("the file system takes UTF-8 alone")
    source = audio(tmp_path, sample_type="int16")
    assert list(source.tags) == [os.fsdecode(b"\xff\xe9")]
    assert_same(source.read("data", 0), noise(100))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"source.path and source.manifest: neither of them is set; set one"),
        ({"path": "x", "manifest": "y"}, r"source.path and source.manifest: both of them is set"),
        ({"path": "x", "labels": ["speaker"]}, r"source.labels is set without source.manifest"),
        ({"manifest": "x", "labels": ["data"]}, r"a key 'data', which holds the audio"),
        (
            {"path": "x", "features": {}, "sample_type": "int16"},
            r"sample_type is int16 but source.features makes float32",
        ),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_source({"type": "audio", **options})
