"""Damage is made good, to the same bytes or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seqprep
from seqprep import repair, verify
from seqprep.cli.main import main
from seqprep.errors import CorruptError, MismatchError
from seqprep.shards import Dataset

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


@pytest.mark.parametrize(("format", "unchecked"), [("hdf5", 1), ("tfrecord", 0)])
def test_shards_taken_without_a_checksum_are_named(
    tmp_path: Path, format: str, unchecked: int, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make(tmp_path / "out", format)
    shard, whole = Dataset(folder).shard_path(1), content(folder)
    shard.with_suffix(".idx").unlink()
    assert repair(folder).unchecked == []  # the index has the sidecar's checksum
    shard.with_suffix(".idx").unlink()
    (folder / "index.json").unlink()
    with pytest.raises(SystemExit, match="0"):
        main(["repair", str(folder)])
    told = capsys.readouterr().err
    assert content(folder) == whole
    assert told.count(f"taken without a checksum, for none was left: {shard.name}; ") == unchecked
    assert ("--against-source" in told) == bool(unchecked)


def test_a_damaged_index_beside_the_marker_of_its_run_is_made_again(tmp_path: Path) -> None:
    folder = make(tmp_path / "out")
    whole = content(folder)
    (folder / "unfinished.json").write_text("{}")
    (folder / "index.json").write_bytes(b"{")
    assert repair(folder).index
    assert content(folder) == whole
