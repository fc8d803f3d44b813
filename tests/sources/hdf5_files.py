"""Sequences for tests of HDF5, and the contract over a folder of files of one layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest

from seqprep.sources import Source, open_source
from seqprep.types import Array

from .source_contract import LARGE_BYTES, MANY_FILES, SourceContract, Truth, assert_same

TAGS = ("corpus/rec 0/über", "corpus/rec 0/b", "corpus/rec-1", "日本", "e f")
LENGTHS = (31, 0, 7, 100, 1)


def arrays(lengths: Sequence[int] = LENGTHS, seed: int = 0, features: int = 5) -> dict[str, list[Array]]:
    """Features, and a label for every 3 frames, rounded up."""
    draw = np.random.default_rng(seed)
    return {
        "data": [draw.standard_normal((length, features)).astype(np.float32) for length in lengths],
        "classes": [draw.integers(0, 9, -(-length // 3)).astype(np.int32) for length in lengths],
    }


def write_flat(path: Path, tags: Sequence[str], truth: Truth, **how: Any) -> None:
    """RETURNN's flat layout."""
    others = sorted(key for key in truth if key != "data")
    with h5py.File(path, "w") as file:
        file.create_dataset("inputs", data=np.concatenate(truth["data"]), **how)
        for key in others:
            file.create_dataset(f"targets/data/{key}", data=np.concatenate(truth[key]), **how)
        columns = [[len(array) for array in truth[key]] for key in ("data", *others)]
        file["seqLengths"] = np.array(columns, np.int32).T
        file.create_dataset("seqTags", data=list(tags), dtype=h5py.string_dtype())


def opened(path: Path | Sequence[Path], **options: Any) -> Source:
    paths = str(path) if isinstance(path, Path) else [str(one) for one in path]
    return open_source({"type": "hdf5", "path": paths, **options})


class OfLayout(SourceContract):
    """Two files of one layout: the first holds all sequences but the last two."""

    reader = "hdf5"
    options: ClassVar[Mapping[str, Any]] = {}
    keys: ClassVar[tuple[str, ...]] = ("data", "classes")
    tags: ClassVar[tuple[str, ...]] = TAGS

    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        """Writes a file."""
        raise NotImplementedError

    def values(self) -> dict[str, list[Array]]:
        """What is written, by key."""
        return arrays()

    def write(self, folder: Path, truth: Truth) -> Path:
        folder.mkdir(exist_ok=True)
        for name, part in (("a.h5", slice(None, -2)), ("b.h5", slice(-2, None))):
            self.make(folder / name, self.tags[part], {key: values[part] for key, values in truth.items()})
        return folder

    def open(self, path: Path) -> Source:
        return opened(path, **self.options)

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return self.write(tmp_path / "corpus", self.values())

    @pytest.fixture
    def truth(self) -> Truth:
        values = self.values()
        return {key: values[key] for key in self.keys}

    @pytest.fixture
    def source(self, folder: Path) -> Source:
        return self.open(folder)

    @pytest.fixture
    def reopen(self, folder: Path) -> Callable[[], Source]:
        return lambda: self.open(folder)

    @pytest.fixture
    def changed(self, folder: Path) -> Callable[[], Source]:
        values = self.values()
        for array in values["data"]:
            array += 1
        return lambda: self.open(self.write(folder, values))

    @pytest.fixture
    def names(self) -> list[str]:
        return list(self.tags)

    @pytest.fixture
    def twice(self, tmp_path: Path) -> Callable[[], Source]:
        for name in ("one.h5", "two.h5"):
            values = {key: own[2:4] for key, own in self.values().items()}
            self.make(tmp_path / name, (f"double{name}", "double") if name == "one.h5" else ("double", "z"), values)
        return lambda: opened([tmp_path / "one.h5", tmp_path / "two.h5"], **self.options)

    @pytest.fixture
    def large(self, tmp_path: Path) -> Callable[[], Source]:
        lengths = [LARGE_BYTES // 4 // 50] * 4
        values = self.values_of(lengths)
        self.make(tmp_path / "large.h5", list("abcd"), values)
        return lambda: self.open(tmp_path / "large.h5")

    def test_neighbours_read_together_are_those_read_alone(self, source: Source, truth: Truth) -> None:
        count = len(source.tags)
        for key, spec in source.keys.items():
            if not spec.has_time or spec.ragged:
                continue
            for first, last in combinations(range(count + 1), 2):
                expected = np.concatenate(truth[key][first:last])
                out = np.full_like(expected, 77)
                if source.read_together(key, first, last, out):  # type: ignore[attr-defined]
                    assert_same(out, expected)
                else:
                    assert (out == 77).all()

    def values_of(self, lengths: Sequence[int]) -> dict[str, list[Array]]:
        """Values of other lengths; at least 50 bytes a frame."""
        return arrays(lengths, features=13)


def write_many(folder: Path, write: Callable[[Path, str], None]) -> Path:
    """A folder of MANY_FILES small files, each of one sequence with its own tag."""
    folder.mkdir()
    for number in range(MANY_FILES):
        write(folder / f"{number:04}.h5", f"tag {number}")
    return folder
