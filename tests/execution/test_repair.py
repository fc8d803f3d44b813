"""Damage is made good, to the same bytes or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seqprep
from seqprep import repair, verify
from seqprep.errors import CorruptError, MismatchError

from .small import content, corpus, make, small


def test_a_whole_dataset_is_left_alone(tmp_path: Path) -> None:
    folder = make(tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert repair(folder) == seqprep.execution.Repair(index=False, sidecars=[], shards=[])
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times


def test_shards_are_only_made_from_the_same_source(tmp_path: Path) -> None:
    source = corpus(tmp_path / "corpus.hdf")
    folder = make(tmp_path / "out", source=source)
    whole = content(folder)
    (folder / "shard-00001-of-00002.h5").unlink()
    left = content(folder)
    corpus(tmp_path / "corpus.hdf", seed=1)
    with pytest.raises(MismatchError, match=r"source\.samples"):
        repair(folder)
    assert content(folder) == left
    (tmp_path / "moved").mkdir()
    corpus(tmp_path / "moved" / "corpus.hdf")
    with pytest.raises(MismatchError, match=r"configuration\.chunk\.step"):
        repair(folder, config=small(folder, source=source, chunk__step=10))
    with pytest.raises(MismatchError, match=r"configuration\.source\.path"):
        repair(
            folder,
            config=small(tmp_path / "x", source={"type": "hdf5", "path": str(tmp_path / "moved" / "corpus.hdf")}),
        )
    corpus(tmp_path / "corpus.hdf")
    assert repair(folder, workers=2).shards == ["shard-00001-of-00002.h5"]
    assert content(folder) == whole


def test_shards_that_another_release_compressed_are_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "out", compression="gzip")
    (folder / "shard-00000-of-00002.h5").write_bytes(b"")
    monkeypatch.setattr("seqprep.execution.run.codec_release", lambda compression: "zlib 99")
    with pytest.raises(MismatchError, match="another release compresses here") as caught:
        repair(folder)
    assert "now: zlib 99" in str(caught.value)


def test_shards_of_two_datasets_are_told_apart(tmp_path: Path) -> None:
    one, two = make(tmp_path / "one"), make(tmp_path / "two", output__shard_size=100_000)
    (one / "index.json").unlink()
    shutil.copy(two / "shard-00000-of-00001.h5", one)
    for check in (verify, repair):
        with pytest.raises(CorruptError, match="holds shards of several datasets"):
            check(one)
