"""A disk that has lost some bytes of a dataset, and says so: that is damage like any other."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqprep import repair, verify
from seqprep.errors import DatasetError
from tests.shards.shards import KINDS

from .small import QUICK, content, make

Fail = Callable[[Path, int], None]


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Makes every read of a file fail, as long as it is the same file."""
    failing: dict[int, int] = {}

    def guarded(real: Callable[..., Any]) -> Callable[..., Any]:
        def read(descriptor: int, *arguments: Any) -> Any:
            number = failing.get(os.fstat(descriptor).st_ino)
            if number is not None:
                raise OSError(number, os.strerror(number))
            return real(descriptor, *arguments)

        return read

    real_bytes = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        number = failing.get(path.stat().st_ino)
        if number is not None:
            raise OSError(number, os.strerror(number))
        return real_bytes(path)

    monkeypatch.setattr(os, "preadv", guarded(os.preadv))
    monkeypatch.setattr(os, "pread", guarded(os.pread))
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    return lambda path, number: failing.update({path.stat().st_ino: number})


@pytest.mark.parametrize("ending", [".json", ".idx", ""])
@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_bytes_that_cannot_be_read_are_named_and_made_again(
    tmp_path: Path, format: str, compression: str, ending: str, fail: Fail
) -> None:
    folder = make(tmp_path / "out", format, compression)
    whole = content(folder)
    shard = next(path for path in sorted(folder.glob("shard-*")) if path.suffix != ".idx")
    path = folder / "index.json" if ending == ".json" else shard.with_suffix(ending or shard.suffix)
    with path.open("rb"):  # so that its inode isn't given to another file
        fail(path, errno.EIO)
        faults = verify(folder).faults
        assert faults
        assert {fault.file for fault in faults} == {path.name}
        assert all("can't be read: Input/output error" in str(fault) for fault in faults)
        repair(folder, storage=QUICK)
    assert content(folder) == whole
    assert verify(folder).faults == []


def test_what_says_nothing_of_the_bytes_is_no_fault(tmp_path: Path, fail: Fail) -> None:
    folder = make(tmp_path / "out")
    fail(folder / "shard-00001-of-00002.h5", errno.EMFILE)
    for check in (verify, repair):
        with pytest.raises(DatasetError, match="can't be read: Too many open files"):
            check(folder)
