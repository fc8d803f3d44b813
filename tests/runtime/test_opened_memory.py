"""The tables of opened shards take bounded memory, counted as it is; what was handed out stays valid."""

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqprep
from seqprep import Loader
from seqprep.runtime import opened, ranges
from seqprep.runtime.opened import OpenedShard
from seqprep.runtime.pool import lease_once
from seqprep.runtime.ranges import BatchReader
from seqprep.shards import Dataset

from .conftest import write_corpus
from .resumable import plain

pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 batches of one row in about 20 shards."""
    folder = tmp_path_factory.mktemp("opened")
    write_corpus(folder / "corpus.hdf", 400)
    seqprep.chunk(
        {
            "source": {"type": "hdf5", "path": str(folder / "corpus.hdf")},
            "batch": {"max_sequences": 1},
            "output": {"path": str(folder / "shards"), "shard_size": 14_000},
        }
    )
    return folder / "shards"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """A bound of few shards."""
    monkeypatch.setattr(ranges, "_MOST_OPENED_BYTES", 120_000)
    return 120_000


def test_bytes_are_counted_as_they_are(path: Path) -> None:
    dataset = Dataset(path)
    for keys in (["data", "classes"], ["classes"]):
        for small_bytes in (0, opened.SMALL_BYTES):
            gc.collect()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            shards = [
                OpenedShard(dataset.shard_path(number), dataset.sidecar(number), keys, small_bytes and 1 << 26, True)
                for number in range(len(dataset.index.shards))
            ]
            gc.collect()
            taken = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            assert 0.85 < sum(shard.nbytes for shard in shards) / taken < 1.25


def test_what_is_open_is_bounded(path: Path, small: int) -> None:
    reader = BatchReader(Dataset(path))
    shards = len(reader._dataset.index.shards)
    reader.read(0, lease_once, True)
    each = reader._shards[0].nbytes
    assert 2 < small / each < shards / 2
    order = np.random.default_rng(0).permutation(len(reader)).tolist()
    for number in order:
        reader.read(number, lease_once, True)
        kept = reader._shards.values()
        assert sum(shard.nbytes for shard in kept) <= small
        assert reader._may_open == small - sum(shard.nbytes for shard in kept)
        assert reader._may_hold == ranges._MOST_HELD_BYTES - sum(shard.held_bytes for shard in kept)
    assert reader.shards_opened > 2 * shards


def test_one_shard_stays_open_however_large(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_MOST_OPENED_BYTES", 1)
    reader = BatchReader(Dataset(path))
    for number in range(len(reader)):
        reader.read(number, lease_once, True)
        assert len(reader._shards) == 1
    assert reader.shards_opened == len(reader._dataset.index.shards)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shuffle", [False, "shards", "window:4"])
def test_shuffles_by_shards_open_each_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: Any, threads: int
) -> None:
    with Loader(path, shuffle=shuffle) as loader:
        expected = [plain(batch) for batch in loader]
        shards = loader.metrics().shards_opened
    monkeypatch.setattr(ranges, "_MOST_OPENED_BYTES", 1)
    with Loader(path, shuffle=shuffle, threads=threads, prefetch=2) as loader:
        assert [plain(batch) for batch in loader] == expected
        assert loader.metrics().shards_opened <= 2 * shards  # again at most where one comes behind another


def test_a_global_shuffle_reads_tables_again(path: Path, small: int) -> None:
    with Loader(path, shuffle=True) as loader:
        assert len({batch["seq_tag"][0] for batch in loader}) == 400
        assert loader.metrics().shards_opened > 100


def test_batches_outlive_their_shards(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Loader(path) as loader:
        expected = [plain(batch) for batch in loader]
    monkeypatch.setattr(ranges, "_MOST_OPENED_BYTES", 1)
    with Loader(path, prefetch=1) as loader:
        held = list(loader)  # no array of them is made yet
    assert [plain(batch) for batch in held] == expected


def test_tables_dont_keep_the_sidecar(path: Path) -> None:
    dataset = Dataset(path)
    shard = OpenedShard(dataset.shard_path(0), dataset.sidecar(0), ["data"], 0, False)
    for array in (shard.tags.data, shard.tags.ends):
        assert array.base is None
