"""What is in the output folder when a run begins, and what becomes of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import seqprep
from seqprep import Loader
from seqprep.errors import BusyError, CorruptError, DatasetError, MismatchError
from seqprep.shards import FolderLock, Storage

from .small import QUICK, arrays, content, make, small


def test_a_finished_dataset_is_left_as_it_is(tmp_path: Path) -> None:
    folder = make(tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]}
    assert seqprep.chunk(small(folder)).already_complete
    assert seqprep.chunk(small(folder), overwrite=True).already_complete
    assert {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]} == times


def test_what_a_stopped_run_left_in_a_finished_dataset_goes(tmp_path: Path) -> None:
    folder = make(tmp_path / "out")
    whole = content(folder)
    for name in ("unfinished.json", "index.json.partial", "shard-00001-of-00002.idx.partial", "seqprep.lock"):
        (folder / name).write_text("")
    (folder / "notes.txt").write_text("mine")
    assert seqprep.chunk(small(folder)).already_complete
    assert content(folder) == whole | {"notes.txt": b"mine"}


def test_shards_of_another_count_go_when_told_to_overwrite(tmp_path: Path) -> None:
    folder = make(tmp_path / "out", output__shard_size=500)
    (folder / "notes.txt").write_text("mine")
    whole = content(make(tmp_path / "model"))
    with pytest.raises(MismatchError, match=r"output\.shard_size +there: 500 +now: 2500"):
        seqprep.chunk(small(folder))
    seqprep.chunk(small(folder), overwrite=True, storage=QUICK)
    assert content(folder) == whole | {"notes.txt": b"mine"}


@pytest.mark.parametrize("format", ["hdf5", "tfrecord"])
def test_a_shard_is_kept_only_if_it_is_the_one_due(tmp_path: Path, format: str) -> None:
    folder = make(tmp_path / "out", format)
    whole = content(folder)
    names = sorted(name for name in whole if name.startswith("shard"))
    for name, other in zip(names[:2] + names[2:], names[2:] + names[:2], strict=True):  # the two are swapped
        (folder / name).write_bytes(whole[other])
    (folder / "index.json").unlink()
    seqprep.chunk(small(folder, format), storage=QUICK)
    assert content(folder) == whole


def test_a_damaged_shard_is_not_kept(tmp_path: Path) -> None:
    folder = make(tmp_path / "out")
    whole = content(folder)
    (folder / "index.json").unlink()
    path = folder / "shard-00000-of-00002.h5"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    seqprep.chunk(small(folder), storage=QUICK)
    assert content(folder) == whole


def test_another_run_that_was_stopped_is_not_mixed_in(tmp_path: Path) -> None:
    folder = tmp_path / "out"

    class Stopping(type(QUICK)):  # type: ignore[misc]
        def write_file(self, path: Path, data: bytes, sync: bool = True) -> None:
            if path.name == "index.json":
                raise KeyboardInterrupt
            super().write_file(path, data, sync)

    with pytest.raises(KeyboardInterrupt):
        seqprep.chunk(small(folder, order__seed=5), storage=Stopping())
    assert "seqprep.lock" not in content(folder)
    with pytest.raises(MismatchError, match=r"holds the unfinished run of something else:") as caught:
        seqprep.chunk(small(folder))
    assert "configuration.order.seed  there: 5" in str(caught.value)
    with pytest.raises(DatasetError, match="no finished dataset"):
        Loader(folder)
    seqprep.chunk(small(folder), overwrite=True, storage=QUICK)
    assert content(folder) == content(make(tmp_path / "model"))


def test_shards_without_an_index_are_not_lost(tmp_path: Path) -> None:
    folder = make(tmp_path / "out", order__seed=5)
    whole = content(folder)
    (folder / "index.json").unlink()
    with pytest.raises(MismatchError, match=r"holds shards of \w{16} without their index; seqprep repair"):
        seqprep.chunk(small(folder))
    seqprep.repair(folder)
    assert content(folder) == whole


def test_a_damaged_dataset_is_told_and_made_anew_if_wanted(tmp_path: Path) -> None:
    folder = make(tmp_path / "out")
    whole = content(folder)
    damages = {"shard-00000-of-00002.h5": b"cut off", "shard-00001-of-00002.idx": None, "index.json": b"{}"}
    for name, data in damages.items():
        (folder / name).unlink()
        if data is not None:
            (folder / name).write_bytes(data)
        with pytest.raises(
            DatasetError, match=r"seqprep repair makes it again, or --overwrite makes all anew"
        ) as caught:
            seqprep.chunk(small(folder))
        assert isinstance(caught.value, CorruptError) == (data is not None)
        seqprep.chunk(small(folder), overwrite=True, storage=QUICK)
        assert content(folder) == whole


def test_two_runs_in_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with FolderLock(folder, Storage()), pytest.raises(BusyError, match="another run is writing there"):
        seqprep.chunk(small(folder))
    assert content(folder) == {}
    make(folder)
    with FolderLock(folder, Storage()):
        assert seqprep.chunk(small(folder)).already_complete  # reading needs no lock
        for write in (
            lambda: seqprep.repair(folder),
            lambda: seqprep.chunk(small(folder, order__seed=2), overwrite=True),
        ):
            with pytest.raises(BusyError, match="another run is writing there"):
                write()
    assert len(arrays(folder)) > 3


def test_no_reader_meets_another_dataset_while_one_is_replaced(tmp_path: Path) -> None:
    """The old index goes before any of its shards, and the new one comes when all of its own are there."""
    folder = make(tmp_path / "out")
    seen: list[set[str]] = []

    class Watching(type(QUICK)):  # type: ignore[misc]
        def remove(self, path: Path) -> None:
            seen.append({name for name in content(folder) if name == "index.json" or name == "unfinished.json"})
            super().remove(path)

    seqprep.chunk(small(folder, order__seed=3), overwrite=True, storage=Watching())
    assert seen[0] == {"index.json", "unfinished.json"}  # what comes is written down before anything goes
    assert all("index.json" not in names for names in seen[1:-1])
    assert json.loads((folder / "index.json").read_bytes())["configuration"]["order"]["seed"] == 3
    shutil.rmtree(folder)
