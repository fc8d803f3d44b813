"""A disk that is full, read-only, over quota or broken, at every call that a run makes: it is said in one clear line,
what is finished is kept, and the run goes on when the disk is well again."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

import seqprep
from seqprep.cli.main import main
from seqprep.errors import OutputError
from seqprep.shards import INDEX_NAME, LOCK_NAME, Storage

from .small import FORMATS, assert_none_or_whole, content, small
from .systems import FailingStorage, FailingSystem, QuickStorage

ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "quota",
    errno.EROFS: "read-only",
    errno.EIO: "check the disk",
}
KINDS = [(format, "none") for format in FORMATS] + [("hdf5", "gzip"), ("tfrecord", "gzip")]


def made(folder: Path, config: dict[str, Any]) -> tuple[dict[str, bytes], int]:
    """The content that a dataset has, and the number of calls that making it takes."""
    storage = FailingStorage()
    seqprep.chunk(config, storage=storage)
    return content(folder), len(storage.system.calls)


def assert_kept(folder: Path, whole: dict[str, bytes]) -> None:
    """Whatever has its name is what it should be; the rest is partial, or says what the folder is going to be."""
    for name, data in content(folder).items():
        assert name.endswith(".partial") or name in ("unfinished.json", LOCK_NAME) or whole[name] == data, name


def every_fault(folder: Path, config: dict[str, Any], sample: slice, forever: bool, each_error: bool) -> None:
    whole, calls = made(folder, config)
    quick = QuickStorage()
    for number in range(calls)[sample]:
        for error in ERRORS if each_error else (ERRORS[number % len(ERRORS)],):
            shutil.rmtree(folder)
            storage = FailingStorage(number, error, forever)
            try:
                seqprep.chunk(config, storage=storage)
            except OutputError as failure:
                message = str(failure)
                assert REMEDIES[error] in message, message
                assert str(folder.parent) in message
                assert len(message.splitlines()) == 1
            else:  # cleaning up, or closing what is safe already
                assert storage.system.calls[number] in ("unlink", "close"), storage.system.calls[number]
                assert content(folder).items() >= whole.items()
            assert_kept(folder, whole)
            assert_none_or_whole(folder, whole)
            kept = {name: (folder / name).stat().st_mtime_ns for name in content(folder) if name.endswith((".h5", ".tfrecord"))
                    and Path(name).with_suffix(".idx").name in content(folder)}  # fmt: skip
            seqprep.chunk(config, storage=quick)
            assert content(folder) == whole
            assert all((folder / name).stat().st_mtime_ns == time for name, time in kept.items())


@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_some_calls(tmp_path: Path, format: str, compression: str) -> None:
    config = small(tmp_path / "out", format, output__compression=compression)
    every_fault(tmp_path / "out", config, slice(3, None, 7), forever=True, each_error=False)


@pytest.mark.slow
@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_every_call(tmp_path: Path, format: str, compression: str, forever: bool) -> None:
    config = small(tmp_path / "out", format, output__compression=compression)
    every_fault(tmp_path / "out", config, slice(None), forever, each_error=format == "hdf5" and compression == "none")


@pytest.mark.parametrize("error", ERRORS)
def test_the_command_line_exits_with_1_and_one_line(
    tmp_path: Path, error: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Storage, "system", FailingSystem(30, error, forever=True))
    flags = ["--shard-size", "2500", "--max-frames", "60", "--set", "source.sequences=6", "--set", "source.features=2",
             "--set", "source.min_frames=5", "--set", "source.mean_frames=20", "--set", "source.max_frames=40"]  # fmt: skip
    with pytest.raises(SystemExit, match="1"):
        main(["chunk", "synthetic", "out", "--workers", "1", *flags])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("seqprep: error: ")
    assert REMEDIES[error] in lines[0]
    assert not (tmp_path / "out" / INDEX_NAME).exists()
