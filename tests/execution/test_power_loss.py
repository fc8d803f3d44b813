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
from .tools import TOOLS, Trial

USED = [name for name in TOOLS if not name.startswith(("chunk", "overwrite"))]
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


def using(place: Path, name: str, step: int) -> None:
    """A tool that makes or mends something, in a place of its own."""
    trial = Trial(TOOLS[name], place)
    torn = place / trial.tool.result / "export.unfinished"  # while it is there, files of its export may be cut

    def check(folder: Path) -> None:
        if not torn.exists():
            trial.tool.check(place, trial.before, trial.whole)

    every_power_loss(
        place / trial.tool.result,
        lambda storage: trial.tool.run(place, storage),
        trial.before,
        trial.whole,
        step,
        check,
    )


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("overwrite", [False, True])
def test_some_moments(tmp_path: Path, format: str, overwrite: bool) -> None:
    making(tmp_path / "out", format, overwrite, step=9)


@pytest.mark.parametrize("name", USED)
def test_some_moments_of_other_tools(tmp_path: Path, name: str) -> None:
    using(tmp_path / "here", name, step=9)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("overwrite", [False, True])
def test_every_moment(tmp_path: Path, format: str, overwrite: bool) -> None:
    making(tmp_path / "out", format, overwrite, step=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", USED)
def test_every_moment_of_other_tools(tmp_path: Path, name: str) -> None:
    using(tmp_path / "here", name, step=1)


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
