"""Audio files that are damaged, cut off, or change: one clear message each, and no wrong sample."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
import soundfile

from seqprep.errors import SourceError
from seqprep.types import FrameRange

from .audio_files import audio, noise, write
from .source_contract import assert_same, ranges


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
    with pytest.raises(SourceError, match=rf"{name}, sequence 'a': (cut off: \d+ of|can't be read as audio)"):
        source.read("data", 0)


def test_a_flac_cut_off_before(tmp_path: Path) -> None:
    path = write(tmp_path / "a.flac", noise(20000))
    path.write_bytes(path.read_bytes()[:4000])
    source = audio(path)
    assert source.lengths("data").tolist() == [20000]
    with pytest.raises(SourceError, match=r"a\.flac, sequence 'a': (cut off|can't be read as audio)"):
        source.read("data", 0)


def test_a_file_replaced_or_removed_after_opening(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", noise(1000))
    source = audio(path)
    write(path, noise(1000, 2))
    with pytest.raises(SourceError, match=r"a\.wav, sequence 'a': the file changed since it was opened"):
        source.read("data", 0)
    path.unlink()
    with pytest.raises(
        SourceError, match=r"a\.wav, sequence 'a': can't be opened: No such file or directory; check the path"
    ):
        source.read("data", 0)


def ogg_pages(content: bytes) -> list[int]:
    return [place for place in range(len(content)) if content[place : place + 4] == b"OggS"]


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_an_ogg_cut_off_before(tmp_path: Path, subtype: str) -> None:
    """The decoder gives what is there, and a header that agrees with it."""
    path = write(tmp_path / "a.ogg", noise(20000), rate=16000, subtype=subtype)
    content = path.read_bytes()
    last = ogg_pages(content)[-1]
    for size in (len(content) - 1, last + 30, last + 10, last, len(content) // 2 + 200):
        path.write_bytes(content[:size])
        with pytest.raises(
            SourceError, match=r"a\.ogg: (cut off: its last page isn't there, or isn't whole|can't be read)"
        ):
            audio(path)
    path.write_bytes(content + b"and something behind it")
    assert audio(path).lengths("data").tolist() == [20000]
    assert len(audio(path).read("data", 0)) == 20000


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_an_ogg_with_a_damaged_page(tmp_path: Path, subtype: str) -> None:
    """The decoder passes over the page: what follows would move forward, and a range of it be another's."""
    path = write(tmp_path / "a.ogg", noise(60000), rate=16000, subtype=subtype)
    content, source = path.read_bytes(), audio(path)
    middle = ogg_pages(content)[-2]
    path.write_bytes(content[: middle + 300] + bytes([content[middle + 300] ^ 1]) + content[middle + 301 :])
    assert audio(path).lengths("data").tolist() == [60000]
    for frames in (FrameRange(0, 60000), FrameRange(58000, 59000), FrameRange(0, 10)):
        with pytest.raises(
            SourceError, match=rf"a\.ogg, sequence 'a': damaged at byte {middle} of {len(content)}; restore it"
        ):
            source.read("data", 0, frames)


def test_a_flac_without_a_sample(tmp_path: Path) -> None:
    """An encoder given no sample writes metadata alone, in which a length of 0 means that it isn't known."""
    path = write(tmp_path / "a.flac", noise(2000))
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0
    content[22:26] = bytes(4)
    at = 4
    while True:  # to the end of the metadata
        is_last, at = content[at] & 0x80, at + 4 + int.from_bytes(content[at + 1 : at + 4], "big")
        if is_last:
            break
    path.write_bytes(content[:at])
    with pytest.raises(
        SourceError, match=r"a\.flac: has no sample \(1 such of 1 sequences\); .* source.on_empty: keep"
    ):
        audio(path)
    source = audio(path, on_empty="keep")
    assert source.lengths("data").tolist() == [0]
    assert source.read("data", 0).shape == (0,)
    path.write_bytes(content)
    with pytest.raises(
        SourceError, match=r"a\.flac: its header doesn't say how long it is; write it again, not into a pipe"
    ):
        audio(path)


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.ogg"])
def test_empty_files(tmp_path: Path, name: str) -> None:
    """Of 0 bytes, as libsndfile itself writes a FLAC without a sample."""
    (tmp_path / name).touch()
    with pytest.raises(SourceError, match=r"a\.\w+: it is empty \(0 bytes\); restore it or leave it out"):
        audio(tmp_path / name)


@pytest.mark.parametrize(("name", "how"), [("a.ogg", {"subtype": "VORBIS"}), ("a.mp3", {}), ("a.flac", {})])
def test_ranges_of_compressed_files_are_those_of_the_whole(tmp_path: Path, name: str, how: dict[str, Any]) -> None:
    path = write(tmp_path / name, noise(50000), rate=16000, **how)
    source, whole = audio(path), soundfile.read(path, dtype="float32")[0]
    for _, _, frames, expected in ranges({"data": [whole]}, 60):
        assert_same(source.read("data", 0, frames), expected)
