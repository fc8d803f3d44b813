"""What sources say of frames per second, so that settings may be in seconds."""

from __future__ import annotations

import wave
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from seqprep.sources import frame_rates, open_source


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ({}, Fraction(11025)),
        ({"features": {"frame_shift_ms": 10}}, Fraction(11025, 110)),  # a shift is a whole number of samples
        ({"features": {"frame_shift_ms": 20}}, Fraction(11025, 220)),
    ],
)
def test_audio(tmp_path: Path, options: dict[str, Any], rate: Fraction) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as audio:
        audio.setnchannels(1)
        audio.setsampwidth(2)
        audio.setframerate(11025)
        audio.writeframes(bytes(2 * 4000))
    (tmp_path / "list.csv").write_text("path,word\na.wav,no\n")
    source = open_source({"type": "audio", "manifest": str(tmp_path / "list.csv"), "labels": ["word"], **options})
    assert frame_rates(source) == {"data": rate}


def test_sources_that_dont_know() -> None:
    assert frame_rates(open_source({"type": "synthetic"})) == {}
