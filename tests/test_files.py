from __future__ import annotations

import os
import pickle
import random
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from seqprep.files import FileCache, read_exactly
from tests.descriptors import open_descriptors


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def in_fork(check: Callable[[], bool]) -> bool:
    """Runs a check in a forked child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy has threads of its own; they don't matter here
        child = os.fork()
    if child == 0:
        status = 2
        try:
            status = 0 if check() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Files that hold their own place, a thousand times."""
    paths = [tmp_path / f"{place}" for place in range(50)]
    for place, path in enumerate(paths):
        path.write_bytes(bytes([place]) * 1000)
    return paths


def first_byte(cache: FileCache, path: Path) -> int:
    buffer = bytearray(1)
    assert read_exactly(cache.get(str(path)).descriptor, buffer, 500) == 1
    return buffer[0]


@pytest.mark.parametrize(
    ("offset", "size", "read"), [(0, 10, 10), (3, 4, 4), (8, 4, 2), (10, 4, 0), (99, 4, 0), (0, 0, 0), (0, 20, 10)]
)
def test_read_exactly(tmp_path: Path, offset: int, size: int, read: int) -> None:
    path = tmp_path / "digits"
    path.write_bytes(b"0123456789")
    buffer = np.full(size, ord("x"), np.uint8)
    with path.open("rb") as file:
        assert read_exactly(file.fileno(), buffer, offset) == read
    assert buffer.tobytes() == b"0123456789"[offset : offset + size].ljust(size, b"x")


def test_read_exactly_goes_on_after_short_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "digits"
    path.write_bytes(b"0123456789")
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda descriptor, views, at: whole(descriptor, [memoryview(views[0])[:3]], at))
    buffer = np.zeros(8, np.uint8)
    with path.open("rb") as file:
        assert read_exactly(file.fileno(), buffer, 1) == 8
        assert buffer.tobytes() == b"12345678"
        assert read_exactly(file.fileno(), buffer, 5) == 5


def test_files_are_reused_and_bounded(paths: list[Path]) -> None:
    cache, before = FileCache(8), open_descriptors()
    for _ in range(3):
        for place, path in enumerate(paths):
            assert first_byte(cache, path) == place
            assert open_descriptors(collect=False) <= before + 9
    assert open_descriptors() <= before + 8
    assert cache.get(str(paths[-1])) is cache.get(str(paths[-1]))
    cache.close()
    assert open_descriptors() <= before


def test_a_file_in_use_stays_open_when_it_has_left_the_cache(paths: list[Path]) -> None:
    cache, before = FileCache(2), open_descriptors()
    kept = cache.get(str(paths[0]))
    for path in paths[1:]:
        first_byte(cache, path)
    buffer = bytearray(1)
    assert read_exactly(kept.descriptor, buffer, 500) == 1
    assert buffer[0] == 0
    assert open_descriptors() <= before + 3
    del kept
    assert open_descriptors() <= before + 2
    cache.close()


def test_threads(paths: list[Path]) -> None:
    cache, before, most = FileCache(4), open_descriptors(), []
    start = threading.Barrier(8)

    def read(seed: int) -> None:
        draw = random.Random(seed)
        start.wait()
        for _ in range(300):
            place = draw.randrange(len(paths))
            assert first_byte(cache, paths[place]) == place
        most.append(open_descriptors(collect=False))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))
    assert max(most) <= before + 4 + 16 + 8  # kept, in use or being replaced, and those that list /dev/fd
    assert open_descriptors() <= before + 4
    cache.close()
    assert open_descriptors() <= before


def test_a_forked_process_reads_and_closes_for_itself(paths: list[Path]) -> None:
    cache = FileCache()
    first_byte(cache, paths[7])

    def check() -> bool:
        right = first_byte(cache, paths[7]) == 7 and first_byte(cache, paths[8]) == 8
        cache.close()
        return right

    assert in_fork(check)
    assert first_byte(cache, paths[7]) == 7
    cache.close()


def test_after_close_it_opens_anew(paths: list[Path]) -> None:
    cache, before = FileCache(), open_descriptors()
    first_byte(cache, paths[4])
    cache.close()
    assert open_descriptors() <= before
    assert first_byte(cache, paths[5]) == 5
    cache.close()
    assert open_descriptors() <= before


def test_a_pickled_copy_opens_its_own(paths: list[Path]) -> None:
    cache = FileCache(3)
    own = cache.get(str(paths[0]))
    copy = pickle.loads(pickle.dumps(cache))
    assert copy.get(str(paths[0])).descriptor != own.descriptor
    copy.close()
    cache.close()


def test_a_file_that_is_missing(paths: list[Path], tmp_path: Path) -> None:
    cache, before = FileCache(), open_descriptors()
    for _ in range(3):
        with pytest.raises(FileNotFoundError, match="No such file"):
            cache.get(str(tmp_path / "none"))
    assert open_descriptors() <= before
    assert first_byte(cache, paths[2]) == 2
    cache.close()
