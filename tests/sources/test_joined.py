from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqprep.config import load_config
from seqprep.errors import ConfigError, SourceError
from seqprep.hashing import mix
from seqprep.sources import Source, open_source
from seqprep.sources.joined import places_of
from seqprep.types import FrameRange, Tags

from .format_contract import FormatContract
from .formats import Corpus, Settings, corpus, write_jsonl, write_parquet, write_tfrecord
from .source_contract import assert_same


class TestJoined(FormatContract):
    """Features, labels and a value for each sequence from three formats, each in an order of its own."""

    def write(self, folder: Path, made: Corpus) -> Settings:
        backwards = list(reversed(self.order))
        turned: Corpus = {key: list(reversed(values)) for key, values in made.items()}
        write_tfrecord(folder, made, self.order)
        write_parquet(folder, turned, backwards)
        write_jsonl(folder, turned, backwards)
        return {
            "data": {"type": "tfrecord", "path": str(folder / "all.tfrecord"), "tag": "tag", "features": ["data"]},
            "classes": {"type": "parquet", "path": str(folder / "all.parquet"), "tag": "name", "take": "classes"},
            "speaker": {"type": "jsonl", "path": str(folder / "all.jsonl"), "id": "id", "fields": {"who": "speaker"}},
        }  # fmt: skip


def folder_of(root: Path, **arrays: Any) -> dict[str, Any]:
    root.mkdir(exist_ok=True)
    for tag, values in arrays.items():
        np.savez(root / f"{tag}.npz", **values) if isinstance(values, dict) else np.save(root / f"{tag}.npy", values)
    return {"type": "npz", "path": str(root)}


@pytest.fixture
def halves(tmp_path: Path) -> dict[str, Any]:
    """Of the tags a to e, one source lacks two and the other one."""
    data = folder_of(tmp_path / "x", **{tag: np.full(3, place) for place, tag in enumerate("abcd")})
    labels = folder_of(tmp_path / "y", **{tag: np.full(3, place) for place, tag in enumerate("cae")})
    return {"data": data, "labels": labels}


def test_missing_tags_are_errors(halves: dict[str, Any]) -> None:
    with pytest.raises(SourceError) as caught:
        open_source(halves)
    assert str(caught.value) == (
        "source.labels lacks 2 of the 4 tags of source.data: 'b', 'd'; source.data lacks 1 of the 3 tags of source.labels: "
        "'e'; complete them, or set source.on_missing: drop"
    )


def test_missing_tags_are_dropped_and_told(halves: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "seqprep"):
        source = open_source(halves | {"on_missing": "drop"})
    assert [record.getMessage() for record in caplog.records] == [
        "source.labels lacks 2 of the 4 tags of source.data: 'b', 'd'; left out",
        "source.data lacks 1 of the 3 tags of source.labels: 'e'; left out",
    ]
    assert list(source.tags) == ["a", "c"]
    assert [source.read(key, 1, FrameRange(1, 3)).tolist() for key in source.keys] == [[2, 2], [0, 0]]


def test_no_tag_in_common(tmp_path: Path) -> None:
    entries = {name: folder_of(tmp_path / name, **{name: np.arange(3)}) for name in ("one", "two")}
    with pytest.raises(
        SourceError, match=r"sources one and two have no tag in common; source.two lacks 1 of the 1 tags"
    ):
        open_source(entries | {"on_missing": "drop"})


def names(source: Source) -> list[str]:
    return list(source.keys)


def test_what_keys_are_called(tmp_path: Path) -> None:
    both = folder_of(tmp_path / "both", a={"x": np.arange(3), "y": np.arange(4)})
    one = folder_of(tmp_path / "one", a=np.arange(5))
    assert names(open_source({"first": both, "second": one})) == ["first_x", "first_y", "second"]
    assert names(open_source({"first": both | {"take": "y"}, "second": one})) == ["first", "second"]
    assert names(open_source({"first": both | {"take": ["y", "x"]}, "second": one})) == ["first_y", "first_x", "second"]
    assert names(open_source({"first": both | {"take": {"k": "y", "l": "x"}}, "second": one})) == ["k", "l", "second"]
    with pytest.raises(ConfigError, match=r"key 'second' comes from source.first and source.second; rename one"):
        open_source({"first": both | {"take": {"second": "y"}}, "second": one})
    with pytest.raises(ConfigError, match=r"source.first has no key 'z'"):
        open_source({"first": both | {"take": "z"}, "second": one})
    with pytest.raises(ConfigError, match=r"source.first.take is 5: give a key, a list"):
        open_source({"first": both | {"take": 5}, "second": one})


def test_an_entry_may_be_called_type(tmp_path: Path) -> None:
    entry = folder_of(tmp_path / "one", a=np.arange(5))
    settings = {"type": entry, "other": entry}
    assert names(open_source(settings)) == ["type", "other"]
    rest = {"batch": {"max_sequences": 4}, "output": {"path": "out"}}
    assert load_config({"source": settings} | rest).source == settings
    for source, message in (
        ({}, r"source.type is missing"),
        ({"path": "x"}, r"source.type is missing"),
        ({"data": {"path": "x"}}, r"source.data.type is missing"),
        ({"data": {"type": "npz"}, "on_mising": "drop"}, r"source.type is missing"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_config({"source": source} | rest)


def test_errors_name_the_entry(tmp_path: Path) -> None:
    entry = folder_of(tmp_path / "one", a=np.arange(5))
    with pytest.raises(ConfigError, match=r"source.labels.type is 'nzp', which no reader goes by; did you mean 'npz'"):
        open_source({"data": entry, "labels": {"type": "nzp"}})
    with pytest.raises(ConfigError, match=r"source.labels.pth is not a setting; did you mean 'path'"):
        open_source({"data": entry, "labels": {"type": "npz", "pth": "x"}})
    with pytest.raises(ConfigError, match=r"source.on_missing is 'keep'"):
        open_source({"data": entry, "on_missing": "keep"})


def test_fingerprints_tell_which_source_changed(tmp_path: Path) -> None:
    entries = {name: folder_of(tmp_path / name, a=np.arange(3)) for name in ("one", "two")}
    before = dict(open_source(entries).fingerprint())
    folder_of(tmp_path / "two", a=np.arange(3) + 1)
    after = dict(open_source(entries).fingerprint())
    assert {name for name in before if before[name] != after[name]} == {"samples", "two.samples"}


def test_places_of_many_tags() -> None:
    tags = Tags.of(f"tag {place}" for place in range(5000))
    wanted = Tags.of(f"tag {place}" for place in [4999, 7, 5000, 0, 7])
    assert places_of(tags, wanted).tolist() == [4999, 7, -1, 0, 7]
    assert places_of(Tags.of([]), wanted).tolist() == [-1] * 5
    assert places_of(tags, Tags.of([])).tolist() == []


def test_tags_of_one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tags, "hashes", lambda self: mix(np.zeros(len(self), np.int64)))
    assert places_of(Tags.of("abc"), Tags.of("cxab")).tolist() == [2, -1, 0, 1]


def test_a_failing_source_closes_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr("seqprep.sources.npz.NpzSource.close", lambda self: closed.append(self))
    entry = folder_of(tmp_path / "one", a=np.arange(5))
    with pytest.raises(SourceError, match=r"nowhere: no such file or folder"):
        open_source({"data": entry, "labels": {"type": "npz", "path": str(tmp_path / "nowhere")}})
    assert len(closed) == 1


def test_values_come_from_their_sources(tmp_path: Path) -> None:
    made = corpus()
    source = open_source(TestJoined().write(tmp_path, made))
    assert_same(source.read("classes", 2, FrameRange(100, 200)), made["classes"][2][100:200])
