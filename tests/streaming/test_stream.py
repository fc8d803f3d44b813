"""What a stream does beyond giving the right batches: passes without an end, resuming, errors, memory, ends."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqprep
from seqprep import Loader, stream
from seqprep.errors import ClosedError, ConfigError, MismatchError, SourceError
from tests.descriptors import needs_listing, open_descriptors
from tests.execution.small import QUICK, small
from tests.runtime.conftest import bounded, our_threads, wait_for_threads
from tests.runtime.resumable import assert_resumable, plain

from .corpora import ManyKinds, write_corpus

__all__ = ["bounded"]
pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """Several shards of chunks in random order."""
    write_corpus(tmp_path / "corpus.hdf")
    return {
        "source": {"type": "hdf5", "path": str(tmp_path / "corpus.hdf")},
        "keys": {"data": {}, "classes": {"rate": 3}},
        "chunk": {"size": 12, "step": 6},
        "context": 2,
        "batch": {"max_sequences": 6},
        "order": {"by": "random"},
        "output": {"shard_size": 4000},
    }


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> ManyKinds:
    """A source that counts reads; what `stream` opens."""
    source = ManyKinds()
    monkeypatch.setattr("seqprep.streaming.live.open_source", lambda *_: source)
    return source


KINDS: dict[str, Any] = {
    "source": {"type": "made up"},
    "keys": {"data": {}, "boxes": {}, "text": {"rate": None}, "speaker": {}},
    "batch": {"max_sequences": 4},
    "output": {"shard_size": 4000},
}


def sequences(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch["seq_idx"].tolist()]


# -- passes --


@pytest.mark.parametrize("threads", [0, 2])
def test_fresh_passes_are_those_that_epochs_would_write(config: dict[str, Any], tmp_path: Path, threads: int) -> None:
    config["chunk"]["jitter"] = True
    stored = config | {"epochs": 4, "output": config["output"] | {"path": str(tmp_path / "out")}}
    seqprep.chunk(stored, storage=QUICK)
    with Loader(tmp_path / "out") as loader, stream(config, fresh=True, threads=threads) as live:
        assert not live.same_length
        for epoch in range(4):
            assert (live.epoch, live.lengths) == (epoch, (loader.lengths[epoch],))
            assert plain(live.batch(-1)) == plain(loader.batch(sum(loader.lengths[: epoch + 1]) - 1))
            assert [plain(batch) for batch in live] == [plain(batch) for batch in loader]
        assert [plain(batch) for batch in live] != [plain(batch) for batch in loader]  # which begins anew


def test_planned_passes_come_over_and_over(config: dict[str, Any]) -> None:
    with stream(config | {"epochs": 2}) as live:
        count = sum(live.lengths)
        batches = [plain(batch) for batch in itertools.islice(live.endless(), 2 * count)]
    assert batches[:count] == batches[count:]
    assert batches[: count // 2] != batches[count // 2 : count]


@pytest.mark.parametrize("options", [{}, {"fresh": True, "shuffle": "window:2", "rank": 1, "world_size": 3}])
def test_every_position_can_be_restored(config: dict[str, Any], options: dict[str, Any]) -> None:
    assert_resumable(lambda: stream(config, **options), 3)


def test_rows_are_mixed_anew_in_fresh_passes(config: dict[str, Any]) -> None:
    options: dict[str, Any] = {"fresh": True, "rebatch": {"rows": 5, "window": 3}}
    batches = assert_resumable(lambda: stream(config, **options), 2)
    with stream(config, fresh=True) as live:
        rows = [sorted(sequences(live)) for _ in range(2)]
    own = [int(number) for batch in batches for number in np.frombuffer(batch["seq_idx"][2], np.int64)]
    assert [sorted(own[: len(rows[0])]), sorted(own[len(rows[0]) :])] == rows


def test_a_position_goes_over_to_shards_and_back(config: dict[str, Any], tmp_path: Path) -> None:
    config["output"]["path"] = str(tmp_path / "out")
    seqprep.chunk(config, storage=QUICK)
    with stream(config, shuffle=True) as live, Loader(tmp_path / "out", shuffle=True) as loader:
        iterator = iter(live)
        for _ in range(3):
            next(iterator)
        loader.load_state_dict(live.state_dict())
        assert [plain(batch) for batch in loader] == [plain(batch) for batch in iterator]
        live.load_state_dict(loader.state_dict())
        assert [plain(batch) for batch in live] == [plain(batch) for batch in loader]


def test_a_position_of_something_else_is_refused(config: dict[str, Any]) -> None:
    with stream(config) as live, stream(config, fresh=True) as fresh, stream(config, seed=3) as other:
        for state in (fresh.state_dict(), other.state_dict()):
            with pytest.raises(MismatchError, match="saved state is of another"):
                live.load_state_dict(state)


# -- what it says --


def test_train_and_eval_side_by_side(config: dict[str, Any]) -> None:
    """Both parts of a split, and whole sequences of another configuration, read in turns."""
    parts = config | {"split": {"train": 0.7, "dev": 0.3}}
    whole = config | {"chunk": None, "context": {}, "order": {"by": "source"}}
    with (
        stream(parts, part="train", fresh=True) as train,
        stream(parts, part="dev") as dev,
        stream(whole, name="eval") as evaluated,
    ):
        assert [live.dataset_name for live in (train, dev, evaluated)] == ["train", "dev", "eval"]
        seen: dict[str, list[int]] = {"train": [], "dev": [], "eval": []}
        for _ in range(2):
            for live in (train, dev, evaluated):
                for batch in itertools.islice(live, 2):
                    seen[live.dataset_name] += sequences([batch])
        assert not set(seen["train"]) & set(seen["dev"])
        assert not evaluated.have_more() or evaluated.complete_fraction < 1
        assert sequences(evaluated) == list(range(22))  # every one exactly once, in order, the empty one, too
        assert not evaluated.have_more()
        assert evaluated.complete_fraction == 1
        assert evaluated.metrics().frames == sum(int(batch["data/size0"].sum()) for batch in evaluated) + sum(
            int(evaluated.batch(0)["data/size0"].sum() + evaluated.batch(1)["data/size0"].sum()) for _ in range(2)
        )


def test_needs_no_output(config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir(tmp_path))
    with stream({name: section for name, section in config.items() if name != "output"}) as live:
        assert sum(1 for _ in live) == len(live)
        assert live.dataset_name == "stream"
    (tmp_path / "config.yaml").write_text("source: {type: synthetic, sequences: 5}\nbatch: {max_sequences: 2}\n")
    with stream(tmp_path / "config.yaml") as live:
        assert [len(batch["seq_tag"]) for batch in live] == [2, 2, 1]
    assert sorted([*before, "config.yaml"]) == sorted(os.listdir(tmp_path))


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"split": {"a": 0.5, "b": 0.5}}, {}, "part isn't given; give one of a, b"),
        ({"split": {"train": 0.5, "b": 0.5}}, {"part": "trian"}, "part is 'trian', and there is no such part; did you mean 'train'.*; give one of train, b"),
        ({}, {"part": "train"}, "part is 'train', and there is no such part; there is no split"),
        ({}, {"keys": ["dat"]}, "there is no key 'dat'; did you mean 'data'"),
        ({}, {"memory": 3000}, r"2 shards .* take [\d,]+ bytes, more than memory, which is 3,000: lower output.shard_size"),
        ({}, {"memory": "4kB", "shuffle": True}, r"\d+ shards are held in memory at a time"),
        ({}, {"memory": "much"}, "memory is 'much': give a size"),
        ({"batch": {"max_sequences": 999, "drop_last": True}}, {}, r"batch\.drop_last leaves no batch"),
        ({"chunk": {"size": 12, "jitter": True}, "batch": {"max_sequences": 3, "bucket": {"auto": 2}, "pad_to": "bucket"}},
         {"fresh": True}, r"fresh is set, and batch.pad_to is 'bucket' with chunk.jitter"),
        ({"batch": {"max_sequences": 3, "pack": True, "row_frames": 99}}, {"rebatch": {"rows": 2, "window": 2}},
         "rebatch is set, but the rows of this dataset are packed"),
        ({"source": {"type": "hdf5", "path": "/none.hdf"}}, {}, "/none.hdf"),
    ],
)  # fmt: skip
def test_what_is_refused(
    config: dict[str, Any], changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ConfigError, SourceError), match=message):
        stream(config | changes, **options)


def test_rows_over_the_budget_are_warned_of(config: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with stream(config | {"batch": {"max_frames": 10}}, name="train"):
        assert any(record.message.startswith("train: ") and "batch" in record.message for record in caplog.records)


# -- reading --


@pytest.mark.parametrize("threads", [0, 1, 4])
@pytest.mark.parametrize("by", ["source", "random"])
def test_each_sequence_is_read_once_and_no_sooner_than_needed(kinds: ManyKinds, threads: int, by: str) -> None:
    with stream(KINDS | {"order": {"by": by}}, threads=threads, prefetch=1) as live:
        iterator = iter(live)
        first = next(iterator)
        if not threads:
            assert {sequence for _, sequence, _ in kinds.reads} == set(first["seq_idx"].tolist())
        assert sorted(sequences([first, *iterator])) == list(range(30))
    assert len(kinds.reads) == len(set(kinds.reads)) <= 4 * 30  # frames without a unit aren't read at all


def test_shards_that_were_read_are_let_go(kinds: ManyKinds) -> None:
    with stream(KINDS | {"output": {"shard_size": 1000}}, threads=2) as live:
        stock: Any = live._stock
        assert len(stock._pass(0).bounds) > 8
        for _ in live:
            assert len(stock._shards) <= 2
    with stream(KINDS | {"output": {"shard_size": 1000}}, shuffle=True) as live:
        stock = live._stock
        for _ in range(3):
            list(live)
        assert live.metrics().shards_opened == len(stock._pass(0).bounds) - 1
        assert len(kinds.reads) <= 8 * 30  # in memory they stay, over epochs, too


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_failure_reaches_the_caller_with_its_place(kinds: ManyKinds, threads: int) -> None:
    kinds.fail_at = "ü13"
    with stream(KINDS, threads=threads, name="train") as live:
        iterator = iter(live)
        with pytest.raises(RuntimeError, match="the disk of ü13 is gone") as caught:
            list(iterator)
        assert any("while train, pass 0, shard" in note for note in caught.value.__notes__)
        assert not our_threads()
        kinds.fail_at = ""  # what could be read is kept, and the rest tried again
        assert sorted(sequences(live)) == list(range(30))


def test_two_threads_that_need_one_sequence_read_it_once(kinds: ManyKinds, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the first; and reads it itself, if that fails."""
    entered, go, fail = threading.Event(), threading.Event(), threading.Event()
    read, readers = kinds.read, []

    def slow(key: str, sequence: int, *args: Any, **options: Any) -> Any:
        if key == "data" and sequence == 2:
            readers.append(threading.get_ident())
            if len(readers) == 1:
                entered.set()
                assert go.wait(20)
                if fail.is_set():
                    raise RuntimeError("gone for a moment")
        return read(key, sequence, *args, **options)

    monkeypatch.setattr(kinds, "read", slow)
    for failing in (False, True):
        readers.clear()
        entered.clear(), go.clear()
        if failing:
            fail.set()
        with stream(KINDS, threads=0) as live:
            results: list[Any] = []

            def take(live: Any = live, results: list[Any] = results) -> None:
                try:
                    results.append(plain(live.batch(0)))
                except RuntimeError as error:
                    results.append(str(error))

            threads = [threading.Thread(target=take) for _ in range(2)]
            threads[0].start()
            assert entered.wait(20)
            threads[1].start()
            time.sleep(0.05)
            assert not results
            go.set()
            for thread in threads:
                thread.join(20)
            if failing:
                assert sorted(map(type, results), key=str) == [dict, str]
                assert len(set(readers)) == 2
            else:
                assert results[0] == results[1]
                assert len(readers) == 1


def test_values_that_the_stored_dtype_cant_hold(config: dict[str, Any], tmp_path: Path) -> None:
    config["keys"]["classes"]["dtype"] = "uint8"
    import h5py

    with h5py.File(tmp_path / "corpus.hdf", "r+") as file:
        file["targets/data/classes"][-1] = 700
    with (
        stream(config) as live,
        pytest.raises(SourceError, match=r"key 'classes': holds values outside the range of uint8"),
    ):
        list(live)


# -- ends --


@needs_listing
def test_many_streams_half_read_and_dropped_leave_nothing(config: dict[str, Any]) -> None:
    with stream(config) as live:
        list(live)
    before = open_descriptors()
    for number in range(20):
        iterator = iter(stream(config, threads=number % 3))
        for _ in range(number % 5):
            next(iterator)
    del iterator
    assert not wait_for_threads()
    gc.collect()
    assert open_descriptors() <= before


def test_closed_is_closed(config: dict[str, Any]) -> None:
    live = stream(config)
    iterator = iter(live)
    kept = next(iterator)
    copy = plain(kept)
    live.close()
    live.close()
    assert not our_threads()
    with pytest.raises(ClosedError, match="closed"):
        next(iterator)
    with pytest.raises(ClosedError, match="stream: the loader is closed"):
        iter(live)
    assert plain(kept) == copy


def test_a_copy_goes_on_where_it_was(config: dict[str, Any]) -> None:
    with stream(config, fresh=True, shuffle="window:2", name="train") as live:
        iterator = iter(live)
        next(iterator)
        with pickle.loads(pickle.dumps(live)) as copy:
            assert copy.dataset_name == "train"
            assert [plain(batch) for batch in copy] == [plain(batch) for batch in iterator]
            assert [plain(batch) for batch in copy] == [plain(batch) for batch in live]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_reads_the_same(config: dict[str, Any]) -> None:
    with stream(config, threads=2) as live:
        expected = [plain(batch) for batch in live]
        iterator = iter(live)
        next(iterator)
        child = os.fork()
        if not child:
            status = 1
            try:
                live.load_state_dict(live.state_dict() | {"epoch": 1, "position": 0})
                status = 0 if [plain(batch) for batch in live] == expected else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert 1 + sum(1 for _ in iterator) == len(live)


# -- in place of a loader --


@pytest.mark.parametrize("framework", ["tensorflow", "torch", "jax"])
def test_stages_take_streams(config: dict[str, Any], framework: str) -> None:
    pytest.importorskip(framework)
    import importlib

    adapter = importlib.import_module(f"seqprep.{framework}")
    with stream(config, fresh=True) as live, stream(config, fresh=True) as plainly:
        staged = adapter.stage(live, device="cpu" if framework != "tensorflow" else "/CPU:0")
        for _ in range(2):
            count = 0
            for batch, expected in zip(staged, plainly, strict=True):
                np.testing.assert_array_equal(np.asarray(batch["data"]), expected["data"])
                assert list(batch["seq_tag"]) == list(expected["seq_tag"])
                count += 1
                assert staged.state_dict() == plainly.state_dict()
            assert count > 5


def test_tensorflow_datasets_take_streams(config: dict[str, Any]) -> None:
    pytest.importorskip("tensorflow")
    from seqprep.tensorflow import dataset

    with stream(config) as live, stream(config) as plainly:
        made = dataset(live, inputs=["data"], targets=["classes"])
        for _ in range(2):
            for (inputs, targets), expected in zip(made, plainly, strict=True):
                np.testing.assert_array_equal(inputs["data"] if isinstance(inputs, dict) else inputs, expected["data"])
                np.testing.assert_array_equal(
                    targets["classes"] if isinstance(targets, dict) else targets, expected["classes"]
                )


def test_mixed_with_shards(config: dict[str, Any], tmp_path: Path) -> None:
    path = seqprep.chunk(small(tmp_path / "small"), storage=QUICK).path
    with stream(config) as live, Loader(path) as loader:
        mixed = seqprep.mix([(live, 2.0), (loader, 1.0)], seed=1)
        names = {batch["dataset_name"] for batch in itertools.islice(mixed, 20)}
        assert len(names) == 2
        mixed.close()
