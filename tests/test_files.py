from __future__ import annotations

import os
import pickle
import random
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from seqprep.files import DescriptorCache, read_exactly


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


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


def first_byte(cache: DescriptorCache, path: Path) -> int:
    buffer = bytearray(1)
    with cache.open(path) as descriptor:
        assert read_exactly(descriptor, buffer, 500) == 1
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


def test_descriptors_are_reused_and_bounded(paths: list[Path]) -> None:
    cache, before = DescriptorCache(8), descriptors()
    for _ in range(3):
        for place, path in enumerate(paths):
            assert first_byte(cache, path) == place
            assert descriptors() <= before + 8
    assert descriptors() == before + 8
    with cache.open(paths[-1]) as one, cache.open(paths[-1]) as other:
        assert one == other
    cache.close()
    assert descriptors() == before


def test_those_used_last_stay(paths: list[Path]) -> None:
    cache = DescriptorCache(2)
    with cache.open(paths[0]) as kept:
        pass
    for path in paths[1:]:
        first_byte(cache, path)
        first_byte(cache, paths[0])
        assert is_open(kept)
    with cache.open(paths[0]) as again:
        assert again == kept
    cache.close()


def test_more_may_be_in_use_than_are_kept(paths: list[Path]) -> None:
    cache, before = DescriptorCache(4), descriptors()
    with ExitStack() as stack:
        lent = [stack.enter_context(cache.open(path)) for path in paths]
        assert len(set(lent)) == len(paths)
    assert descriptors() == before + 4
    cache.close()


def test_threads(paths: list[Path]) -> None:
    cache, before, most = DescriptorCache(4), descriptors(), []
    start = threading.Barrier(8)

    def read(seed: int) -> None:
        draw = random.Random(seed)
        start.wait()
        for _ in range(300):
            place = draw.randrange(len(paths))
            assert first_byte(cache, paths[place]) == place
        most.append(descriptors())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))
    assert max(most) <= before + 4 + 8 + 8  # kept, in use, and those that list /dev/fd
    assert descriptors() == before + 4
    cache.close()
    assert descriptors() == before


def test_a_forked_process_opens_its_own(paths: list[Path]) -> None:
    cache = DescriptorCache()
    with cache.open(paths[7]) as parents:

        def check() -> bool:
            with cache.open(paths[7]) as own:
                differs = own != parents
            right = first_byte(cache, paths[8]) == 8
            cache.close()
            return differs and right and not is_open(own) and is_open(parents)

        assert in_fork(check)
        assert is_open(parents)
    assert first_byte(cache, paths[7]) == 7
    cache.close()


def test_closing_in_a_forked_process_leaves_the_parents(paths: list[Path]) -> None:
    cache = DescriptorCache()
    first_byte(cache, paths[3])

    def check() -> bool:
        before = descriptors()
        cache.close()
        return descriptors() == before

    assert in_fork(check)
    assert first_byte(cache, paths[3]) == 3
    cache.close()


def test_close_waits_for_users(paths: list[Path]) -> None:
    cache = DescriptorCache()
    with cache.open(paths[0]) as descriptor:
        cache.close()
        assert is_open(descriptor)
    assert not is_open(descriptor)
    cache.close()


def test_after_close_it_reads_on_and_keeps_nothing(paths: list[Path]) -> None:
    cache, before = DescriptorCache(), descriptors()
    cache.close()
    assert first_byte(cache, paths[5]) == 5
    assert descriptors() == before


def test_a_pickled_copy_opens_its_own(paths: list[Path]) -> None:
    cache = DescriptorCache(3)
    with cache.open(paths[0]) as own:
        copy = pickle.loads(pickle.dumps(cache))
        with copy.open(paths[0]) as others:
            assert own != others
    for path in paths:
        first_byte(copy, path)
    copy.close()
    cache.close()


def test_a_file_that_is_missing(paths: list[Path], tmp_path: Path) -> None:
    cache, before = DescriptorCache(), descriptors()
    for _ in range(3):
        with pytest.raises(FileNotFoundError, match="No such file"), cache.open(tmp_path / "none"):
            pass
    assert descriptors() == before
    assert first_byte(cache, paths[2]) == 2
    cache.close()


def test_a_failing_user_gives_back(paths: list[Path]) -> None:
    cache, before = DescriptorCache(), descriptors()
    with pytest.raises(ZeroDivisionError, match="by zero"), cache.open(paths[0]):
        1 / 0  # noqa: B018
    cache.close()
    assert descriptors() == before
