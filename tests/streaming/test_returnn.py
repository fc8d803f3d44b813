"""What RETURNN's pipeline does, done by a stream: rows and batches against its rules written down in plain Python."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from seqprep import stream
from seqprep.types import Array
from tests.runtime.conftest import bounded, our_threads

from .corpora import ManyKinds

__all__ = ["bounded"]
pytestmark = pytest.mark.usefixtures("bounded")

KINDS: dict[str, Any] = {
    "source": {"type": "made up"},
    "keys": {"data": {}, "boxes": {}, "text": {"rate": None}, "speaker": {}},
    "batch": {"max_sequences": 1},
}
LENGTHS = [7, 1, 30, 12, 25, 3, 50]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("corpus") / "corpus.hdf"
    with h5py.File(path, "w") as file:
        file["inputs"] = draw.standard_normal((sum(LENGTHS), 2)).astype(np.float32)
        file["targets/data/classes"] = draw.integers(0, 9, sum(LENGTHS)).astype(np.int32)
        file["seqLengths"] = np.stack([LENGTHS, LENGTHS], axis=1).astype(np.int32)
        file["seqTags"] = [f"s{number}".encode() for number in range(len(LENGTHS))]
    return path


def sequences(corpus: Path) -> list[dict[str, Array]]:
    with h5py.File(corpus) as file:
        ends = np.cumsum(LENGTHS)[:-1]
        arrays = {"data": np.split(file["inputs"][:], ends), "classes": np.split(file["targets/data/classes"][:], ends)}
    return [dict(zip(arrays, pair, strict=True)) for pair in zip(*arrays.values(), strict=True)]


def zero_padded(values: Array, begin: int, end: int) -> Array:
    """The frames from begin up to end; zeros where there are none."""
    out = np.zeros((end - begin, *values.shape[1:]), values.dtype)
    first, last = max(begin, 0), min(end, len(values))
    out[first - begin : last - begin] = values[first:last]
    return out


def chunks(corpus: Path, size: int | None, step: int, context: int) -> Iterator[dict[str, Array]]:
    """The rule of its chunking: from every step on, `size` frames or what is left, and the context of the input."""
    for sequence in sequences(corpus):
        for start in range(0, len(sequence["data"]), step if size else 10**9):
            stop = min(start + (size or 10**9), len(sequence["data"]))
            yield {
                "data": zero_padded(sequence["data"], start - context, stop + context),
                "classes": sequence["classes"][start:stop],
            }


def batched(lengths: list[int], batch_size: int, max_seqs: int) -> Iterator[int]:
    """The rule of its batching: a batch is given as soon as it is full, or before the row that is too much."""
    count = longest = 0
    for length in lengths:
        count, longest = count + 1, max(longest, length)
        if count >= 2 and count * longest > batch_size:
            yield count - 1
            count, longest = 1, length
        if count >= max_seqs:
            yield count
            count = longest = 0
    if count:
        yield count


def rows(batches: Any) -> Iterator[dict[str, Array]]:
    for batch in batches:
        for row in range(len(batch["seq_idx"])):
            yield {key: batch[key][row, : batch[f"{key}/size0"][row]] for key in ("data", "classes")}


def settings(corpus: Path, **sections: Any) -> dict[str, Any]:
    return {
        "source": {"type": "hdf5", "path": str(corpus)},
        "batch": {"max_frames": 150, "max_sequences": 6},
    } | sections


@pytest.mark.parametrize(
    ("size", "step", "context"), [(None, 1, 0), (None, 1, 5), (10, 5, 0), (10, 5, 4), (3, 7, 1), (1, 1, 5)]
)
def test_rows_are_those_of_its_chunking(corpus: Path, size: int | None, step: int, context: int) -> None:
    """Whole sequences, chunks, and single frames with their surroundings."""
    chunk = {"size": size, "step": step} if size else None
    with stream(settings(corpus, chunk=chunk, context=context)) as live:
        for own, expected in zip(rows(live), chunks(corpus, size, step, context), strict=True):
            for key, values in expected.items():
                np.testing.assert_array_equal(own[key], values)


@pytest.mark.parametrize(("batch_size", "max_seqs"), [(60, 40), (5000, 3), (100, 4), (1, 40)])
def test_batches_are_those_of_its_batching(corpus: Path, batch_size: int, max_seqs: int) -> None:
    batch = {"max_frames": batch_size, "max_sequences": max_seqs}
    with stream(settings(corpus, chunk={"size": 10, "step": 5}, context=2, batch=batch)) as live:
        lengths = [len(row["data"]) for row in chunks(corpus, 10, 5, 2)]
        assert [len(given["seq_idx"]) for given in live] == list(batched(lengths, batch_size, max_seqs))


def test_sequences_and_chunks_are_shuffled_anew_in_every_epoch(corpus: Path) -> None:
    order = {"by": "random", "seed": 4}
    with stream(settings(corpus, chunk={"size": 5, "step": 5}, order=order), fresh=True) as live:
        epochs = [
            [tuple(pair) for batch in live for pair in zip(batch["seq_idx"], batch["data/start"], strict=True)]
            for _ in range(3)
        ]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(epochs[2])
    assert len({tuple(epoch) for epoch in epochs}) == 3
    numbers = [number for number, _ in epochs[0]]
    assert numbers != sorted(numbers)
    assert any(one != other for one, other in zip(sorted(numbers, key=numbers.index), numbers, strict=True))


def test_what_comes_along_with_rows(corpus: Path) -> None:
    with stream(settings(corpus), name="dev") as live:
        assert (live.dataset_name, live.epoch) == ("dev", 0)
        tags, numbers = [], []
        for batch in live:
            tags += list(batch["seq_tag"])
            numbers += batch["seq_idx"].tolist()
        assert tags == [f"s{number}" for number in range(len(LENGTHS))]
        assert numbers == list(range(len(LENGTHS)))
        assert (live.epoch, live.have_more(), live.complete_fraction) == (1, False, 1.0)
        assert (live.metrics().frames, live.metrics().rows) == (sum(LENGTHS), len(LENGTHS))


@pytest.mark.parametrize("prefetch", [1, 3])
def test_no_more_is_read_ahead_than_allowed(monkeypatch: pytest.MonkeyPatch, prefetch: int) -> None:
    monkeypatch.setattr("seqprep.streaming.live.open_source", lambda *_: ManyKinds())
    with stream(KINDS, keys=["data"], prefetch=prefetch, threads=2) as live:
        iterator = iter(live)
        kept = next(iterator)
        limit, until = prefetch + 2, time.monotonic() + 10  # and the buffers of two batches in hand
        while live.metrics().ready < prefetch:
            assert time.monotonic() < until
            time.sleep(0.001)
        time.sleep(0.05)
        assert prefetch <= live.metrics().ready < limit
        assert kept["seq_idx"].tolist() == [0]


def test_threads_stop_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    source, inside, go = ManyKinds(), threading.Event(), threading.Event()
    read = source.read

    def slow(key: str, sequence: int, *args: Any, **options: Any) -> Any:
        if sequence == 3:
            inside.set()
            assert go.wait(20)
        return read(key, sequence, *args, **options)

    monkeypatch.setattr(source, "read", slow)
    monkeypatch.setattr("seqprep.streaming.live.open_source", lambda *_: source)
    live = stream(KINDS, keys=["data"], threads=2)
    iterator = iter(live)
    next(iterator)
    assert inside.wait(20)
    threading.Timer(0.05, go.set).start()
    live.close()
    assert not our_threads()


def test_orders_never_depend_on_threads(corpus: Path) -> None:
    config = settings(corpus, chunk={"size": 5, "step": 5}, order={"by": "random"}, output={"shard_size": 500})
    orders = []
    for threads in (0, 1, 4):
        with stream(config, fresh=True, shuffle="window:2", threads=threads) as live:
            orders.append([batch["data"].tobytes() for _ in range(2) for batch in live])
    assert orders[0] == orders[1] == orders[2]
