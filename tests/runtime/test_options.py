"""What a loader is told: impossible values are refused by name, with the value, as far as a line can hold it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seqprep
from seqprep import Loader
from seqprep.errors import ConfigError, DatasetError
from seqprep.runtime.frameworks import without_notes
from tests.execution.small import QUICK, small

LONG = "y" * 10_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seqprep.chunk(small(tmp_path_factory.mktemp("options") / "out"), storage=QUICK).path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 3, "world_size": 3}, r"rank is 3: with world_size 3 it has to lie in \[0, 3\)"),
        ({"rank": 3}, "rank is 3 and world_size is None: give both or none"),
        ({"rank": 0, "world_size": 10**30}, "world_size is 1000.*: it has to be at most 2147483647"),
        ({"prefetch": 0}, "prefetch is 0: it has to be at least 1"),
        ({"prefetch": 10**6}, "prefetch is 1000000: it has to be at most 65536"),
        ({"threads": -1}, "threads is -1: it has to be at least 0"),
        ({"threads": -(10**5000)}, "threads is a number of some 5000 digits: it has to be at least 0"),
        ({"seed": 1.5}, r"seed is 1\.5: it has to be a whole number"),
        ({"even": "some"}, "even is 'some': it has to be pad, drop or none"),
        ({"verify": []}, r"verify is \[\]: it has to be always, first or never"),
        ({"shuffle": "window:" + "9" * 5000}, r"shuffle is 'window:9+… \(5009 characters\): it has to be False"),
        ({"keys": "data"}, r"keys is 'data': it has to be a list of names, such as \['data'\]"),
        ({"keys": 7}, "keys is 7: it has to be a list of names"),
        ({"keys": ["date"]}, "holds no key 'date'; did you mean 'data'"),
        ({"rebatch": {"rows": 0, "window": 2}}, "rebatch: rows is 0: it has to be a whole number of at least 1"),
        ({"on_metrics": print}, "on_metrics is <built-in.*: give a function of the metrics and the seconds"),
    ],
)
def test_impossible_options(path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Loader(path, **options)


@pytest.mark.parametrize("name", ["shuffle", "seed", "even", "verify", "keys", "rebatch", "on_metrics", "threads"])
def test_of_long_values_the_beginning_is_shown(path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 'yyy") as caught:
        Loader(path, **{name: LONG})
    assert "(10002 characters)" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_ranks_of_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with Loader(path) as loader:  # a rank alone says nothing
        assert (loader.order.rank, loader.order.world_size) == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "3")
    with Loader(path) as loader:
        assert (loader.order.rank, loader.order.world_size) == (1, 3)
    with Loader(path, rank=0, world_size=2) as loader:
        assert (loader.order.rank, loader.order.world_size) == (0, 2)
    monkeypatch.setenv("RANK", LONG)
    with pytest.raises(ConfigError, match=r"RANK and WORLD_SIZE are 'yyy.*and '3': they have to be whole") as caught:
        Loader(path)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: 7, "not a state of this: 7; give what state_dict"),
        (lambda state: {}, "'epoch' is missing"),
        (lambda state: state | {"epoch": LONG}, "epoch is 'yyy"),
        (lambda state: state | {"position": -(10**5000)}, "position is a number of some 5000 digits"),
        (lambda state: state | {"fingerprint": LONG}, "fingerprint  saved: 'yyy.*now: [0-9a-f]+"),
    ],
)
def test_what_is_no_state_is_told_in_short(path: Path, damage: Callable[[Any], Any], message: str) -> None:
    with Loader(path) as loader:
        with pytest.raises((ConfigError, DatasetError), match=message) as caught:
            loader.load_state_dict(damage(loader.state_dict()))
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a\0b", r"'a\\x00b': no folder can have this name"),
        ("x" * 300, "File name too long; check the path"),
        ("none", "no such folder; check the path"),
    ],
)
def test_folders_that_cannot_be(name: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        Loader(name)


def test_notes_of_libraries_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    with without_notes():
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n")
        os.write(2, b"I0000 00:00:1796141253.601862   31182 cudart_stub.cc:31] Could not find cuda drivers\n")
        os.write(2, b"2026-12-01 12:00:00.123456: W tensorflow/core.cc:1] slow\n")
        os.write(2, b"E0000 00:00:1796141253.601862   31182 some.cc:31] it's broken\n")
    os.write(2, b"and on\n")
    assert capfd.readouterr().err == "E0000 00:00:1796141253.601862   31182 some.cc:31] it's broken\nand on\n"
