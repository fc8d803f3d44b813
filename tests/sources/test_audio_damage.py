"""Audio files that are damaged, cut off, or change: one clear message each, and no wrong sample."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from seqprep.errors import SourceError

from .audio_files import audio, noise, write
from .source_contract import assert_same


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
