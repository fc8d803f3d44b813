"""Whatever changes a folder: how to make what it starts from, how to run it, and what it may have left on the way."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import seqprep
from seqprep.shards import INDEX_NAME, LOCK_NAME, Storage

from .small import QUICK, assert_none_or_whole, content, small

KINDS = (("hdf5", "none"), ("hdf5", "gzip"), ("hdf5", "zstd"), ("tfrecord", "none"), ("tfrecord", "gzip"))


@dataclass(frozen=True)
class Tool:
    """One way to change a folder."""

    run: Callable[[Path, Storage], Any]
    """Does it, in the place where everything lies."""
    prepare: Callable[[Path], Any] = lambda place: None
    """Makes what it starts from."""
    result: str = "out"
    """The folder that it changes."""
    dataset: bool = True
    """Readers find none, that of before, or a whole new one, at every moment."""
    replaces: bool = False
    """What is there before is a dataset."""

    def check(self, place: Path, before: dict[str, bytes], whole: dict[str, bytes]) -> None:
        """Holds that what has its final name is whole, and that nobody reads half a dataset."""
        folder = place / self.result
        for name, data in content(folder).items():
            known = {part.get(name) for part in (before, whole)} - {None}
            told = name.endswith((".partial", ".lock", ".unfinished")) or name in ("unfinished.json", LOCK_NAME)
            assert told or data in known, name
        if self.dataset:
            assert_none_or_whole(folder, whole, *([before] if self.replaces else []))


def _chunk(format: str, compression: str) -> Tool:
    return Tool(lambda place, storage: seqprep.chunk(
        small(place / "out", format, output__compression=compression), storage=storage
    ))  # fmt: skip


def _overwrite(format: str) -> Tool:
    return Tool(
        lambda place, storage: seqprep.chunk(small(place / "out", format), overwrite=True, storage=storage),
        lambda place: seqprep.chunk(small(place / "out", format, order__seed=7), storage=QUICK),
        replaces=True,
    )


def _convert(format: str, compression: str) -> Tool:
    other = "hdf5" if format == "tfrecord" else "tfrecord"
    return Tool(
        lambda place, storage: seqprep.convert(
            place / "one", place / "out", format=format, compression=compression, workers=1, storage=storage
        ),
        lambda place: seqprep.chunk(small(place / "one", other), storage=QUICK),
    )


def _two(place: Path) -> None:
    seqprep.chunk(small(place / "one"), storage=QUICK)
    seqprep.chunk(small(place / "two", order__seed=2), storage=QUICK)


def _merge(refer: bool) -> Tool:
    return Tool(
        lambda place, storage: seqprep.merge(
            place / "out", [place / "one", place / "two"], refer=refer, storage=storage
        ),
        _two,
    )


def _export(format: str) -> Tool:
    return Tool(
        lambda place, storage: seqprep.export(
            place / "one",
            place / "out" / ("" if format == "npz" else "all.h5"),
            format=format,  # type: ignore[arg-type]
            overwrite=any((place / "out" / name).exists() for name in ("export.json", "all.h5")),  # whole by then
            storage=storage,
        ),
        lambda place: seqprep.chunk(small(place / "one"), storage=QUICK),
        dataset=False,
    )


def _repair(format: str, compression: str) -> Tool:
    ending = {"hdf5": "h5", "tfrecord": "tfrecord"}[format]

    def damage(place: Path) -> None:
        seqprep.chunk(small(place / "out", format, output__compression=compression), storage=QUICK)
        for name in (INDEX_NAME, "shard-00000-of-00002.idx", f"shard-00001-of-00002.{ending}"):
            (place / "out" / name).unlink()

    return Tool(lambda place, storage: seqprep.repair(place / "out", storage=storage), damage)


TOOLS: dict[str, Tool] = {
    **{f"chunk-{format}-{compression}": _chunk(format, compression) for format, compression in KINDS},
    "overwrite-hdf5": _overwrite("hdf5"),
    "overwrite-tfrecord": _overwrite("tfrecord"),
    "convert-to-tfrecord": _convert("tfrecord", "none"),
    "convert-to-zstd": _convert("hdf5", "zstd"),
    "merge-links": _merge(False),
    "merge-names": _merge(True),
    "export-npz": _export("npz"),
    "export-hdf5": _export("hdf5"),
    "repair-hdf5": _repair("hdf5", "none"),
    "repair-zstd": _repair("hdf5", "zstd"),
    "repair-tfrecord": _repair("tfrecord", "gzip"),
}


class Trial:
    """A tool tried over and over from the same beginning.

    Args:
        tool: it.
        place: an empty folder.
    """

    def __init__(self, tool: Tool, place: Path) -> None:
        self.tool, self.place = tool, place
        self._start = place.with_name(place.name + "-start")
        self._start.mkdir(parents=True)
        place.mkdir(parents=True)
        tool.prepare(place)  # in the place itself, for what is made may know where it is
        shutil.copytree(place, self._start, dirs_exist_ok=True)
        self.inputs = {path.name: content(path) for path in place.iterdir() if path.name != tool.result}
        self.before = content(place / tool.result)
        tool.run(place, QUICK)
        self.whole = content(place / tool.result)
        assert self.whole
        self.start_again()

    def start_again(self) -> None:
        """Everything is as it was before the tool was run."""
        shutil.rmtree(self.place)
        shutil.copytree(self._start, self.place)

    def finish(self) -> None:
        """What was stopped has spoilt nothing, and run again the tool does all of its work."""
        self.tool.check(self.place, self.before, self.whole)
        self.tool.run(self.place, QUICK)
        assert content(self.place / self.tool.result) == self.whole
        for name, expected in self.inputs.items():
            assert content(self.place / name) == expected
