"""Power that fails at any moment: of what was not synced, any part may be lost. A reader then finds no dataset or a
whole one, and the run goes on to the same bytes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seqprep
from seqprep.shards import Storage

from .small import FORMATS, assert_none_or_whole, content, small
from .systems import Disk, JournalStorage, QuickStorage

Keep = Callable[[str], bool]


def fates(seed: int) -> Iterator[Keep]:
    """What may become of changes that were not synced."""
    yield lambda kind: False
    yield lambda kind: kind == "name"
    yield lambda kind: kind == "data"
    draw = random.Random(seed)
    yield lambda kind: draw.random() < 0.5


def put(folder: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def every_power_loss(
    folder: Path,
    run: Callable[[Storage], Any],
    before: dict[str, bytes],
    whole: dict[str, bytes],
    step: int,
    check: Callable[[Path], object],
) -> None:
    put(folder, before)
    storage = JournalStorage(folder)
    run(storage)
    assert content(folder) == whole
    disk = Disk()
    for name, data in before.items():
        disk.apply(("create", name))
        disk.apply(("write", name, 0, data))
        disk.apply(("fsync", name))
    disk.apply(("sync_folder",))
    quick = QuickStorage()
    for number, operation in enumerate([*storage.system.journal, None]):
        if number % step == 0 or operation is None:
            for keep in fates(number):
                put(folder, disk.after_power_loss(keep))
                check(folder)
                run(quick)
                assert content(folder) == whole, (number, operation)
        if operation is not None:
            disk.apply(operation)
    assert disk.after_power_loss(lambda kind: False).items() >= whole.items()  # what is done is safe


def making(folder: Path, format: str, overwrite: bool, step: int) -> None:
    quick = QuickStorage()
    old: dict[str, bytes] = {}
    if overwrite:
        seqprep.chunk(small(folder, format, order__seed=7), storage=quick)
        old = content(folder)
        shutil.rmtree(folder)
    config = small(folder, format)
    seqprep.chunk(config, storage=quick)
    whole = content(folder)
    every_power_loss(
        folder,
        lambda storage: seqprep.chunk(config, storage=storage, overwrite=overwrite),
        old,
        whole,
        step,
        lambda path: assert_none_or_whole(path, whole, old) if old else assert_none_or_whole(path, whole),
    )


def repairing(folder: Path, format: str, step: int) -> None:
    quick = QuickStorage()
    seqprep.chunk(small(folder, format), storage=quick)
    whole = content(folder)
    ending = {"hdf5": "h5", "tfrecord": "tfrecord"}[format]
    lost = ("shard-00000-of-00002.idx", f"shard-00001-of-00002.{ending}")
    left = {name: data for name, data in whole.items() if name not in lost}
    every_power_loss(
        folder, lambda storage: seqprep.repair(folder, storage=storage), left, whole, step, lambda path: None
    )


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("overwrite", [False, True])
def test_some_moments(tmp_path: Path, format: str, overwrite: bool) -> None:
    making(tmp_path / "out", format, overwrite, step=9)


@pytest.mark.parametrize("format", FORMATS)
def test_some_moments_of_a_repair(tmp_path: Path, format: str) -> None:
    repairing(tmp_path / "out", format, step=9)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("overwrite", [False, True])
def test_every_moment(tmp_path: Path, format: str, overwrite: bool) -> None:
    making(tmp_path / "out", format, overwrite, step=1)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_every_moment_of_a_repair(tmp_path: Path, format: str) -> None:
    repairing(tmp_path / "out", format, step=1)


def test_what_was_never_synced_is_lost_here() -> None:
    disk = Disk()
    for operation in (("create", "a.partial"), ("write", "a.partial", 0, b"xy"), ("rename", "a.partial", "a")):
        disk.apply(operation)
    assert disk.after_power_loss(lambda kind: False) == {}
    assert disk.after_power_loss(lambda kind: kind == "name") == {"a": b""}
    assert disk.after_power_loss(lambda kind: True) == {"a": b"xy"}
    disk.apply(("fsync", "a"))
    disk.apply(("sync_folder",))
    assert disk.after_power_loss(lambda kind: False) == {"a": b"xy"}
