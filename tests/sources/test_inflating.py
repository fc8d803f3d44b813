from __future__ import annotations

import gzip
import random
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqprep.sources.inflating import GZIP, RAW, Inflater


def raw_deflate(data: bytes) -> bytes:
    machine = zlib.compressobj(6, zlib.DEFLATED, RAW)
    return machine.compress(data) + machine.flush()


def inflater(packed: bytes, kind: int, most: int = 1 << 20) -> Inflater:
    """Reads from memory, as a file is read, at most `most` bytes at once."""

    def fetch(buffer: Any, offset: int) -> int:
        part = packed[offset : offset + min(most, len(buffer))]
        memoryview(buffer)[: len(part)] = part
        return len(part)

    return Inflater(fetch, kind)


def take(source: Inflater, offset: int, size: int) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: source.read(buffer, offset)])


@given(
    members=st.lists(st.binary(max_size=200), min_size=1, max_size=4),
    padding=st.integers(0, 3),
    most=st.sampled_from([1, 7, 1 << 20]),
    places=st.lists(st.tuples(st.integers(0, 900), st.integers(0, 300)), max_size=6),
)
def test_gzip_of_several_members(members: list[bytes], padding: int, most: int, places: list[tuple[int, int]]) -> None:
    packed = bytes(padding).join(map(gzip.compress, members)) + bytes(padding)
    whole, source = b"".join(members), inflater(packed, GZIP, most)
    for offset, size in [*places, (0, len(whole) + 5)]:
        assert take(source, offset, size) == whole[offset : offset + size]


@pytest.mark.parametrize("kind", [RAW, GZIP])
def test_any_range_of_a_long_stream(kind: int) -> None:
    whole = np.random.default_rng(0).integers(0, 50, 6_000_000, np.uint8).tobytes()
    packed = raw_deflate(whole) if kind == RAW else gzip.compress(whole, 1)
    source, draw = inflater(packed, kind), random.Random(0)
    for _ in range(60):
        offset, size = draw.randrange(len(whole) + 10), draw.choice([0, 1, 100, 300_000])
        assert take(source, offset, size) == whole[offset : offset + size]
    assert len(source._points) == 5

    def check(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(10):
            offset = draw.randrange(len(whole))
            assert take(source, offset, 5000) == whole[offset : offset + 5000]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check, range(8)))


def test_points_stay_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqprep.sources.inflating._SPACING", 1000)
    whole = bytes(range(256)) * 4000
    source = inflater(raw_deflate(whole), RAW)
    for offset in range(0, len(whole), 700):
        assert take(source, offset, 700) == whole[offset : offset + 700]
    assert len(source._points) <= 64
    for offset in (1_000_000, 3, 500_000):
        assert take(source, offset, 10) == whole[offset : offset + 10]


def test_reading_on_costs_no_more_than_its_own_bytes() -> None:
    whole = np.random.default_rng(0).integers(0, 50, 900_000, np.uint8).tobytes()
    packed, fetched = raw_deflate(whole), [0]

    def fetch(buffer: Any, offset: int) -> int:
        part = packed[offset : offset + len(buffer)]
        memoryview(buffer)[: len(part)] = part
        fetched[0] += len(part)
        return len(part)

    source = Inflater(fetch, RAW)
    for offset in range(0, len(whole), 1000):
        assert take(source, offset, 1000) == whole[offset : offset + 1000]
    assert fetched[0] <= len(packed)


@pytest.mark.parametrize("offset", [0, 100, 2_000_000, 5_000_000])
def test_checking_reads_on_the_way(offset: int) -> None:
    whole = np.random.default_rng(0).integers(0, 50, 3_000_000, np.uint8).tobytes()
    buffer = bytearray(300_000)
    found = inflater(raw_deflate(whole), RAW).check(buffer, offset)
    expected = whole[offset : offset + 300_000]
    assert found == (len(expected), len(whole), zlib.crc32(whole))
    assert bytes(buffer[: found.filled]) == expected


@pytest.mark.parametrize("kind", [RAW, GZIP])
def test_streams_cut_off_or_damaged(kind: int) -> None:
    whole = np.random.default_rng(0).integers(0, 50, 100_000, np.uint8).tobytes()
    packed = raw_deflate(whole) if kind == RAW else gzip.compress(whole)
    for size in (0, 5, 20, len(packed) // 2, len(packed) - 1):
        with pytest.raises(zlib.error, match="cut off"):
            take(inflater(packed[:size], kind), 0, len(whole) + 1)
    if kind == GZIP:
        with pytest.raises(zlib.error, match="incorrect data check"):
            take(inflater(packed[:-6] + b"x" + packed[-5:], kind), 0, len(whole) + 1)
        with pytest.raises(zlib.error, match="incorrect header check"):
            take(inflater(packed + b"garbage", kind), 0, len(whole) + 1)
