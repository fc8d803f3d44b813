from __future__ import annotations

import contextlib
import gzip
import importlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqprep.errors import DependencyError
from seqprep.shards import codec_release, codecs
from seqprep.shards.codecs import codec_for

KINDS = [("gzip", "hdf5"), ("gzip", "tfrecord"), ("zstd", "hdf5")]


@pytest.fixture(autouse=True)
def _package() -> None:
    pytest.importorskip("zstandard")


@pytest.mark.parametrize(("compression", "format"), KINDS)
@given(parts=st.lists(st.binary(max_size=2000), max_size=4))
def test_round_trip(compression: str, format: str, parts: list[bytes]) -> None:
    codec, whole = codec_for(compression, format), b"".join(parts)
    encoded = codec.compress(parts)
    assert codec_for(compression).decompress(encoded, len(whole)) == whole
    assert codec.compress([whole]) == encoded


@pytest.mark.parametrize(("compression", "format"), KINDS)
@given(data=st.binary(max_size=300), where=st.integers(min_value=0), bit=st.integers(0, 7))
def test_damage_is_refused_or_changes_nothing(compression: str, format: str, data: bytes, where: int, bit: int) -> None:
    codec = codec_for(compression, format)
    encoded = bytearray(codec.compress([data]))
    for wrong in (encoded[:-1], encoded[: len(encoded) // 2], b"", bytes(encoded) + b"x"):
        if compression == "zstd" and (len(wrong) > len(encoded) or not data):  # nothing of the result is missing
            with contextlib.suppress(ValueError):
                assert codec.decompress(bytes(wrong), len(data)) == data
            continue
        with pytest.raises(ValueError, match=r".+"):
            codec.decompress(bytes(wrong), len(data))
    for size in (len(data) + 1, *([len(data) - 1] if data else [])):
        with pytest.raises(ValueError, match=r"are due|stream|frame"):
            codec.decompress(bytes(encoded), size)
    encoded[where % len(encoded)] ^= 1 << bit
    try:
        decoded = codec.decompress(bytes(encoded), len(data))
    except ValueError:
        return
    assert len(decoded) == len(data)  # whether it is right, the checksum of the array tells


def test_stock_tools_read_it() -> None:
    assert zlib.decompress(codec_for("gzip", "hdf5").compress([b"ab", b"c"])) == b"abc"
    member = codec_for("gzip", "tfrecord").compress([b"ab", b"c"])
    assert gzip.decompress(member + member) == b"abcabc"
    assert member[4:8] == bytes(4)  # no time


def test_a_bomb_does_not_go_off() -> None:
    for compression in ("gzip", "zstd"):
        codec = codec_for(compression)
        with pytest.raises(ValueError, match=r"stream|frame|are due"):
            codec.decompress(codec.compress([bytes(50_000_000)]), 100)


def test_releases_are_named() -> None:
    assert codec_release("none") == ""
    assert codec_release("gzip") == f"zlib {zlib.ZLIB_RUNTIME_VERSION}"
    assert codec_release("zstd").startswith("zstd 1.")


def test_a_missing_package_is_said_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    codecs._zstd.cache_clear()
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(DependencyError, match=r"pip install 'seqprep\[zstd\]'"):
        codec_for("zstd")
    monkeypatch.undo()
    codecs._zstd.cache_clear()
