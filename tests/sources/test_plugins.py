from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqprep import config
from seqprep.errors import ConfigError, DependencyError, SourceError
from seqprep.sources import Source, open_source, registry
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags


class Counting:
    """Sequences 0, 1, 2, …: the smallest whole source."""

    class Options(config.Options):
        sequences: int = 3

    def __init__(self, options: Options) -> None:
        self._lengths = np.arange(options.sequences)
        self.keys: Mapping[str, KeySpec] = {"data": KeySpec(dtype="int64")}
        self.tags = Tags.of(f"n {place}" for place in range(options.sequences))

    def lengths(self, key: str) -> Int64:
        return {"data": self._lengths}[key]

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        values = np.arange(sequence)[slice(*frames) if frames else slice(None)]
        if out is None:
            return values
        out[...] = values
        return out

    def fingerprint(self) -> Mapping[str, str]:
        return dict.fromkeys(("keys", "files", "tags", "lengths", "samples"), str(len(self.tags)))

    def close(self) -> None:
        pass


class Unlike(Counting):
    """Everything is there, and of the wrong kind."""

    def __init__(self, options: Counting.Options) -> None:
        super().__init__(options)
        self.keys = {"data": "float32"}  # type: ignore[dict-item]
        self.tags = ["a", "b"]  # type: ignore[assignment]


class Lacking:
    class Options(config.Options):
        pass

    keys: Mapping[str, KeySpec] = {}

    def __init__(self, options: Options) -> None:
        pass

    def read(self) -> None:
        pass


class OddLengths(Counting):
    def lengths(self, key: str) -> Any:
        return [1, 2, 3]

    def __reduce__(self) -> Any:
        raise TypeError("not today")


class Twice(Counting):
    def __init__(self, options: Counting.Options) -> None:
        super().__init__(options)
        self.tags = Tags.of("aba")


class Failing(Counting):
    def __init__(self, options: Counting.Options) -> None:
        raise OSError("no connection")


class Refusing(Counting):
    def __init__(self, options: Counting.Options) -> None:
        raise SourceError("there: is nothing; look elsewhere")


class NoOptions:
    pass


ME = __name__


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, ME, sys.modules[__name__])


def test_a_class_by_its_name() -> None:
    source = open_source({"type": f"{ME}:Counting", "sequences": 5})
    assert isinstance(source, Source)
    assert source.read("data", 4).tolist() == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match=r"source.sequence is not a setting; did you mean 'sequences'"):
        open_source({"type": f"{ME}:Counting", "sequence": 5})


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("Lacking", SourceError, r"the source lacks tags, lengths, fingerprint, close; seqprep.sources.protocol.Source says"),
        ("Unlike", SourceError, r"keys has to be a property that maps names to seqprep.types.KeySpec; tags has to be a property .*Tags.of"),
        ("OddLengths", SourceError, r"lengths\('data'\) has to be an int64 array of 3 numbers.*; it can't be pickled, .*: not today"),
        ("Twice", SourceError, r"tag 'a' stands twice"),
        ("Failing", SourceError, r"the reader failed: OSError: no connection"),
        ("Refusing", SourceError, r"^there: is nothing; look elsewhere$"),
        ("NoOptions", ConfigError, r"has no options; give it an inner class Options that derives from seqprep.config.Options"),
        ("Nothing", ConfigError, r"but module .*test_plugins has no class 'Nothing'"),
        ("ME", ConfigError, r"has no class 'ME'"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        open_source({"type": f"{ME}:{name}"})


@pytest.fixture
def current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_module_in_the_current_folder(current_folder: Path) -> None:
    (current_folder / "counting_plugin.py").write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    assert len(open_source({"type": "counting_plugin:Counting"}).tags) == 3


def test_modules_that_are_missing(current_folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"source.type is 'no_such.module:Reader', but there is no module 'no_such'"):
        open_source({"type": "no_such.module:Reader"})
    (current_folder / "needs_more.py").write_text("import something_else_entirely\n")
    with pytest.raises(
        DependencyError, match=r"'needs_more:Reader', whose module needs something_else_entirely; install"
    ):
        open_source({"type": "needs_more:Reader"})
    (current_folder / "wrong.py").write_text("def (\n")
    with pytest.raises(ConfigError, match=r"'wrong:Reader', whose module can't be imported: SyntaxError: "):
        open_source({"type": "wrong:Reader"})


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name, value = "counting", f"{ME}:Counting"

    monkeypatch.setattr(registry, "entry_points", lambda group: [Entry])
    assert len(open_source({"type": "counting", "sequences": 2}).tags) == 2
    with pytest.raises(
        ConfigError, match=r"source.type is 'countin', which no reader goes by; did you mean 'counting'"
    ):
        open_source({"type": "countin"})
