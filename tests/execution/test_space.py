"""What a disk can't hold is refused before anything is made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import seqprep
from seqprep import convert, export
from seqprep.errors import OutputError
from seqprep.execution import space
from seqprep.shards import Dataset

from .small import QUICK, make, small


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what every file system says that it has free."""

    def free(size: int, blocks: int = 1 << 40) -> None:
        monkeypatch.setattr(space, "file_system", lambda folder: "ext4")
        stats = SimpleNamespace(f_bfree=size, f_bavail=size, f_frsize=1, f_blocks=blocks)
        monkeypatch.setattr(os, "statvfs", lambda path: stats)

    return free


@pytest.mark.parametrize("order", [{"by": "random"}, {"by": "random", "scope": "global"}])
def test_chunk(tmp_path: Path, free: Callable[..., None], order: dict[str, str]) -> None:
    config = small(tmp_path / "deep" / "out", order=order)
    free(3000)
    with pytest.raises(OutputError, match=r"out: the output takes at least [\d,]+ bytes, but only 3,000 are free"):
        seqprep.chunk(config, storage=QUICK)
    assert list(tmp_path.iterdir()) == []
    compressed = small(tmp_path / "gzip", order=order, output__compression="gzip")
    seqprep.chunk(compressed, storage=QUICK)  # nobody knows what it takes
    free(0, blocks=0)  # a file system that says nothing
    seqprep.chunk(config, storage=QUICK)
    free(1)
    assert seqprep.chunk(config, storage=QUICK).already_complete
    with pytest.raises(OutputError, match="only 1 are free"):
        convert(tmp_path / "gzip", tmp_path / "plain", compression="none", storage=QUICK)
    for name in ("npz", "flat.h5"):
        with pytest.raises(OutputError, match="only 1 are free"):
            export(tmp_path / "gzip", tmp_path / name, storage=QUICK)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "gzip"]


@pytest.mark.parametrize("format", ["hdf5", "tfrecord"])
def test_what_fits_is_never_refused(tmp_path: Path, free: Callable[..., None], format: str) -> None:
    made = make(tmp_path / "first", format)
    size = Dataset(made).index.shard_bytes
    free(size)
    make(tmp_path / "second", format)
    convert(made, tmp_path / "third", format="hdf5", storage=QUICK)


def test_shards_that_are_there_take_no_room(tmp_path: Path, free: Callable[..., None]) -> None:
    made = make(tmp_path / "out")
    (made / "index.json").unlink()
    (made / "shard-00001-of-00002.idx").unlink()
    free(1)
    make(tmp_path / "out")


def test_a_file_system_that_may_compress_is_only_warned_of(
    tmp_path: Path, free: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    free(3000)
    monkeypatch.setattr(space, "file_system", lambda folder: "zfs")
    make(tmp_path / "out")
    (message,) = [record.getMessage() for record in caplog.records]
    assert "but only 3,000 are free there; it may not fit, unless the file system compresses it" in message


def test_the_innermost_and_latest_mount_holds_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "a b" / "deep"
    inner.mkdir(parents=True)
    mounts = tmp_path / "mounts"
    escaped = str(tmp_path / "a b").replace(" ", "\\040")
    mounts.write_text(f"x / ext4 rw 0 0\ny {escaped} xfs rw 0 0\nz {escaped} btrfs rw 0 0\n")
    monkeypatch.setattr(space, "_MOUNTS", str(mounts))
    assert space.file_system(inner) == "btrfs"
    assert space.file_system(tmp_path) == "ext4"
    monkeypatch.setattr(space, "_MOUNTS", str(tmp_path / "missing"))
    assert space.file_system(inner) == ""
