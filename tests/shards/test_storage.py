from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqprep.errors import OutputError
from seqprep.shards import Storage, partial_path
from tests.descriptors import needs_listing, open_descriptors
from tests.execution.systems import FailingStorage


class Grudging:
    """The module os, but a write takes few bytes at a time."""

    def __init__(self, most: int) -> None:
        self.most, self.calls = most, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pwritev(self, descriptor: int, buffers: list[Any], offset: int) -> int:
        self.calls += 1
        assert len(buffers) <= 1024
        return os.pwrite(descriptor, b"".join(bytes(buffer) for buffer in buffers)[: self.most], offset)


@pytest.mark.parametrize("most", [1, 3, 4, 5, 1000])
def test_short_writes_are_completed(tmp_path: Path, most: int) -> None:
    storage = Storage()
    storage.system = Grudging(most)
    path = tmp_path / "file"
    descriptor = storage.open(path)
    parts = [b"abcd", b"", np.arange(5, dtype=np.uint8), memoryview(b"xyz"), b"0123456789"]
    assert storage.write(descriptor, parts, 2, path) == 22
    storage.truncate(descriptor, 30, path)
    os.close(descriptor)
    assert path.read_bytes() == b"\0\0abcd" + bytes(range(5)) + b"xyz0123456789" + bytes(6)


def test_more_buffers_than_a_call_takes(tmp_path: Path) -> None:
    storage, path = Storage(), tmp_path / "file"
    descriptor = storage.open(path)
    parts = [bytes([n % 251]) for n in range(3000)]
    assert storage.write(descriptor, parts, 0, path) == 3000
    os.close(descriptor)
    assert path.read_bytes() == b"".join(parts)


def test_a_disk_that_takes_nothing_is_no_endless_loop(tmp_path: Path) -> None:
    storage = Storage()
    storage.system = Grudging(0)
    descriptor = storage.open(tmp_path / "file")
    with pytest.raises(OutputError, match=r"file: can't be written: .*check the disk"):
        storage.write(descriptor, [b"x"], 0, tmp_path / "file")
    os.close(descriptor)


@needs_listing
def test_no_descriptor_is_closed_twice_or_left_open(tmp_path: Path) -> None:
    """A number closed twice may by then be another thread's file."""
    counting = FailingStorage()
    counting.write_file(tmp_path / "a", b"x")
    before = open_descriptors()
    for number in range(len(counting.system.calls)):
        storage = FailingStorage(number, errno.EIO)
        opened: list[int] = []
        closed: list[int] = []
        storage.system.opened, storage.system.closed = opened, closed
        real_open, real_close = storage.system.open, storage.system.close

        def watch_open(*arguments: Any, call: Any = real_open, seen: list[int] = opened) -> int:
            seen.append(call(*arguments))
            return seen[-1]

        def watch_close(descriptor: int, call: Any = real_close, seen: list[int] = closed) -> None:
            seen.append(descriptor)
            call(descriptor)

        storage.system.open, storage.system.close = watch_open, watch_close
        if counting.system.calls[number] == "close":
            storage.write_file(tmp_path / "a", b"y")
        else:
            with pytest.raises(OutputError, match=str(tmp_path)):
                storage.write_file(tmp_path / "a", b"y")
        assert sorted(opened) == sorted(closed)
    assert open_descriptors() <= before


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    storage, path = Storage(), tmp_path / "file"
    storage.write_file(path, b"old")
    counting = FailingStorage()
    counting.write_file(tmp_path / "other", b"new")
    for number, call in enumerate(counting.system.calls):
        storage.write_file(path, b"old")
        if call == "close":
            continue
        with pytest.raises(OutputError, match="free some space"):
            FailingStorage(number, errno.ENOSPC).write_file(path, b"new")
        renamed = "rename" in counting.system.calls[:number]
        assert path.read_bytes() == (b"new" if renamed else b"old")
        assert not partial_path(path).exists()


def test_folders_are_made_with_those_above_and_synced(tmp_path: Path) -> None:
    storage = FailingStorage()
    storage.make_folder(tmp_path / "a" / "b" / "c")
    storage.make_folder(tmp_path / "a" / "b" / "c")
    assert [call for call in storage.system.calls if call in ("mkdir", "fsync")] == ["mkdir", "fsync"] * 3
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="a file of that name stands in the way"):
        storage.make_folder(tmp_path / "file")
    with pytest.raises(OutputError, match="file"):
        storage.make_folder(tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("error", "remedy"),
    [(errno.ENOSPC, "free some space"), (errno.EDQUOT, "your quota"), (errno.EROFS, "read-only"), (errno.EACCES, "the right"),
     (errno.EPERM, "the right"), (errno.EIO, "check the disk"), (errno.EXDEV, "another file system")],
)  # fmt: skip
def test_an_error_names_path_cause_and_remedy(tmp_path: Path, error: int, remedy: str) -> None:
    with pytest.raises(OutputError, match=remedy) as caught:
        FailingStorage(0, error).open(tmp_path / "file")
    assert os.strerror(error) in str(caught.value)
    assert str(tmp_path / "file") in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(OutputError, match="can't be removed"):
        FailingStorage(0, error).remove(tmp_path / "file")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EFBIG, "choose smaller shards"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "fs.file-max"),
        (errno.EMLINK, "as many names as its file system allows"),
        (errno.ENAMETOOLONG, "choose a shorter one"),
    ],
)
def test_errors_that_a_disk_is_not_to_blame_for_have_a_remedy_of_their_own(
    tmp_path: Path, number: int, remedy: str
) -> None:
    with pytest.raises(OutputError, match=remedy):
        FailingStorage(0, number).write_file(tmp_path / "file", b"data")


def test_an_error_at_close_is_told_where_nothing_else_is_synced(tmp_path: Path) -> None:
    storage = FailingStorage()
    storage.write_file(tmp_path / "file", b"data", sync=False)
    (tmp_path / "file").unlink()
    storage = FailingStorage(storage.system.calls.index("close"), errno.EDQUOT)
    with pytest.raises(OutputError, match="quota"):
        storage.write_file(tmp_path / "file", b"data", sync=False)
    assert list(tmp_path.iterdir()) == []
