"""A dataset beside its source."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest

from seqprep import repair, verify
from seqprep.errors import DatasetError, MismatchError, UnfinishedError
from seqprep.shards import Dataset
from tests.shards.shards import KINDS

from .small import corpus, make, small


@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_a_dataset_is_compared_with_its_source(tmp_path: Path, format: str, compression: str) -> None:
    source = corpus(tmp_path / "corpus.hdf")
    folder = make(tmp_path / "out", format, compression, source=source)
    seen: list[tuple[int, int]] = []
    result = verify(
        folder, workers=3, against_source=True, progress=lambda told: seen.append((told.rows, told.rows_total))
    )
    assert result.faults == []
    assert result.compared == Dataset(folder).index.batches
    assert seen[-1][0] == seen[-1][1] == 2 * Dataset(folder).index.rows
    with h5py.File(tmp_path / "corpus.hdf", "r+") as file:
        file["inputs"][23 + 7 + 20] += 1  # a frame of the last sequence
    result = verify(folder, against_source=small(folder, format, source=source))
    index = Dataset(folder)
    places = {(fault.file, fault.batch) for fault in result.faults}
    due = set()
    for number in range(len(index.index.shards)):
        table = index.sidecar(number).table
        for batch in range(len(table.batch_rows)):
            part = table.part(batch, batch + 1)
            start = part.fields["data/start"] - part.fields["data/core"][:, 0]
            holds = (part.fields["seq_idx"] == 3) & (start <= 20) & (start + part.fields["data/size0"] > 20)
            if holds.any():
                due.add((index.shard_path(number).name, batch))
    assert places == due
    for fault in result.faults:
        assert fault.key == "data"
        assert "hold something else than the source gives" in str(fault)
        if compression == "none":
            assert fault.size > 0
            assert fault.offset >= index.sidecar(0).offsets["data"].min()


def test_other_tags_are_told_from_other_values(tmp_path: Path) -> None:
    source = corpus(tmp_path / "corpus.hdf")
    folder = make(tmp_path / "out", "tfrecord", source=source)
    with h5py.File(tmp_path / "corpus.hdf", "r+") as file:
        file["seqTags"][2] = b"renamed"
    faults = verify(folder, against_source=True).faults
    assert faults
    assert all("seq_tag" in str(fault) and fault.key is None for fault in faults)


def test_a_source_that_gives_other_batches_is_said_with_both_sides(tmp_path: Path) -> None:
    source = corpus(tmp_path / "corpus.hdf")
    folder = make(tmp_path / "out", source=source)
    corpus(tmp_path / "corpus.hdf", frames=(23, 0, 7, 90))
    with pytest.raises(MismatchError, match=r"has \d+ batches .* where the source gives \d+") as caught:
        verify(folder, against_source=True)
    assert "source.lengths" in str(caught.value)


def test_what_is_no_dataset_is_not_verified(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such folder"):
        verify(tmp_path / "nowhere")
    with pytest.raises(UnfinishedError, match="no finished dataset"):
        verify(tmp_path)
    folder = make(tmp_path / "out")
    (folder / "index.json").rename(folder / "unfinished.json")
    for check in (verify, repair):
        with pytest.raises(UnfinishedError, match="run the same seqprep chunk again"):
            check(folder)
