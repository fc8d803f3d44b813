"""Length classes, packed rows, passes, parts and selections from a source to the loader, in both formats."""

from __future__ import annotations

import json
import logging
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest

import seqprep
from seqprep.errors import ConfigError, MismatchError
from seqprep.execution import verify
from seqprep.shards import Dataset, read_index

FORMATS = ["hdf5", "tfrecord"]
SEQUENCES, PAD = 40, -3.0


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[np.ndarray]]]:
    """40 sequences of 1 to 60 frames by 6 speakers, with a label for every 3 frames."""
    random = np.random.default_rng(4)
    lengths = random.integers(1, 60, SEQUENCES, endpoint=True)
    values = {
        "data": [random.standard_normal((n, 3)).astype(np.float32) for n in lengths],
        "classes": [random.integers(1, 99, -(-n // 3)).astype(np.int32) for n in lengths],
    }
    path = tmp_path_factory.mktemp("corpus") / "corpus.hdf"
    with h5py.File(path, "w") as file:
        file["inputs"] = np.concatenate(values["data"])
        file["targets/data/classes"] = np.concatenate(values["classes"])
        file["seqLengths"] = np.array([[len(values[key][i]) for key in values] for i in range(SEQUENCES)], np.int32)
        file["seqTags"] = [f"spk{i % 6}/ü{i}".encode() for i in range(SEQUENCES)]
    return path, values


def settings(path: Path, folder: Path | str, format: str = "hdf5", **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "source": {"type": "hdf5", "path": str(path)},
        "keys": {"data": {"pad_value": PAD}, "classes": {"rate": 3}},
        "chunk": {"size": 12, "step": 6},
        "context": {"left": 2, "right": 1},
        "batch": {"max_frames": {"data": 150}, "max_sequences": 9},
        "order": {"by": "random", "seed": 5},
        "output": {"path": str(folder), "format": format, "shard_size": 4000},
    }
    for name, value in changes.items():
        base[name] = base[name] | value if isinstance(base.get(name), dict) and isinstance(value, dict) else value
    return base


def entries(batch: Any) -> Iterator[tuple[int, str, int, np.ndarray, np.ndarray]]:
    """Of each row that holds something: its sequence, tag, start, and what it holds per key without padding."""
    data, classes = seqprep.unpack(batch, "data"), seqprep.unpack(batch, "classes")
    columns = (batch["seq_idx"].tolist(), batch["seq_tag"], batch["data/start"].tolist(), data, classes)
    for sequence, tag, start, frames, labels in zip(*columns, strict=True):
        if sequence >= 0:
            yield sequence, tag, start, frames, labels
        else:
            assert (tag, start, len(frames), len(labels)) == ("", 0, 0, 0)


def expected_rows(
    values: dict[str, list[np.ndarray]], whole: bool = False
) -> dict[tuple[int, int], tuple[bytes, bytes]]:
    rows = {}
    for sequence, (frames, labels) in enumerate(zip(values["data"], values["classes"], strict=True)):
        padded = np.concatenate([np.zeros((2, 3), np.float32), frames, np.zeros((1, 3), np.float32)])
        for start in [0] if whole else range(0, len(frames), 6):
            size = len(frames) if whole else 12
            core = min(size, len(frames) - start)
            cut = padded[start : start + core + 3].tobytes(), labels[start // 3 : start // 3 + -(-size // 3)].tobytes()
            rows[sequence, start] = cut
    return rows


MODES: dict[str, dict[str, Any]] = {
    "sorted rows": {"batch": {"bucket": "sorted"}},
    "static shapes": {"batch": {"bucket": {"auto": 3}, "pad_to": "bucket", "pad_rows": True}},
    "given boundaries": {"batch": {"bucket": {"boundaries": [6, 14]}, "pad_to": "bucket"}},
    "multiples": {"batch": {"pad_to": 6, "pad_rows": True}},
    "drop_last": {"batch": {"drop_last": True}},
    "drop_last, some shards empty": {"batch": {"drop_last": True}, "output": {"shard_size": 1500}},
    "drop_last of classes": {"batch": {"bucket": "auto:2", "drop_last": True}},
    "packed chunks": {"batch": {"pack": True, "row_frames": 48}},
    "packed sequences": {"batch": {"pack": True, "row_frames": 75, "pad_to": 75, "pad_rows": True}, "chunk": None},
    "packed, last dropped": {"batch": {"pack": True, "row_frames": 60, "drop_last": True}, "chunk": None},
    "all rows shuffled": {"order": {"scope": "global"}},
    "laplace": {"order": {"by": "laplace:4"}},
    "two passes": {"epochs": 2},
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("mode", MODES)
def test_from_source_to_loader(tmp_path: Path, corpus: Any, mode: str, format: str) -> None:
    path, values = corpus
    summary = seqprep.chunk(settings(path, tmp_path / "out", format, **MODES[mode]))
    dataset = Dataset(tmp_path / "out")
    assert verify(dataset.path, against_source=True).faults == []
    epochs = MODES[mode].get("epochs", 1)
    expected, seen, shapes = expected_rows(values, whole="chunk" in MODES[mode]), [], set()
    padding = {"data": 0, "classes": 0}
    with seqprep.Loader(tmp_path / "out") as loader:
        assert sum(loader.lengths) == summary.batches == dataset.index.batches
        for _ in range(epochs):
            for batch in loader:
                shapes.add((batch["data"].shape, batch["classes"].shape))
                for key in padding:
                    padding[key] += batch[key].shape[0] * batch[key].shape[1] - int(batch[f"{key}/size0"].sum())
                check_padding(batch)
                for sequence, tag, start, frames, labels in entries(batch):
                    assert tag == f"spk{sequence % 6}/ü{sequence}"
                    assert (frames.tobytes(), labels.tobytes()) == expected[sequence, start]
                    seen.append((sequence, start))
                assert sorted(batch) == sorted(dict(batch))
    assert summary.padding == dataset.index.padding == padding
    dropped = summary.report["left_out"].get("batch.drop_last", {"rows": 0, "frames": 0})
    assert ("drop" in mode) == (dropped["rows"] > 0)
    assert len(seen) + dropped["rows"] == epochs * len(expected)
    assert all(seen.count(row) <= epochs for row in set(seen))
    assert set(seen) <= set(expected)
    if "empty" in mode:
        assert min(shard.batches for shard in dataset.index.shards) == 0
    if mode == "static shapes":
        assert len(shapes) <= 3
    if mode == "packed sequences":
        assert {shape[0] for shape, _ in shapes} == {2}
        assert {shape[1] for shape, _ in shapes} == {75}
        assert summary.rows < SEQUENCES
    again = seqprep.chunk(settings(path, tmp_path / "out", format, **MODES[mode]))
    assert again.already_complete
    assert (again.report, again.padding, again.rows) == (summary.report, summary.padding, summary.rows)


def check_padding(batch: Any) -> None:
    """Everything behind and between the entries is padding, and in packed rows ids and positions say what isn't."""
    for key, pad in (("data", PAD), ("classes", 0)):
        inside = np.zeros(batch[key].shape[:2], np.int32)
        sizes = batch[f"{key}/size0"].tolist()
        if "segment_row" not in batch:
            for row, size in enumerate(sizes):
                inside[row, :size] = 1
        else:
            starts = batch["segment_start"] // (3 if key == "classes" else 1)
            assert key == "data" or (batch["classes/segment_start"] == starts).all()
            place, count = inside.copy(), [0] * len(inside)
            for row, start, size in zip(batch["segment_row"].tolist(), starts.tolist(), sizes, strict=True):
                count[row] += 1
                inside[row, start : start + size] = count[row]
                place[row, start : start + size] = np.arange(size)
            for name, values in (("segment_ids", inside), ("positions", place)):
                found = batch[f"{key}/{name}"]
                assert found.dtype == np.int32
                assert found.ctypes.data % 64 == 0
                np.testing.assert_array_equal(found, values)
        assert (batch[key][inside == 0] == pad).all()


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.*"))}


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": {"pack": True, "row_frames": 48, "drop_last": True}},
        {
            "epochs": 2,
            "order": {"scope": "global"},
            "batch": {"bucket": "auto:3", "pad_to": "bucket", "pad_rows": True},
        },
    ],
    ids=["packed", "all rows shuffled, in classes"],
)
def test_workers_and_resuming_leave_the_same_bytes(tmp_path: Path, corpus: Any, changes: dict[str, Any]) -> None:
    path, _ = corpus
    one, two = tmp_path / "one", tmp_path / "two"
    first = seqprep.chunk(settings(path, one, **changes))
    seqprep.chunk(settings(path, two, **changes), workers=2)
    assert content(one) == content(two)
    (two / "index.json").unlink()
    sorted(two.glob("*.h5"))[1].unlink()
    done: list[Any] = []
    again = seqprep.chunk(settings(path, two, **changes), progress=done.append)
    assert content(one) == content(two)
    assert again.report == first.report
    assert done[-1].rows == done[-1].rows_total


@pytest.fixture(scope="module")
def dataset(corpus: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("passes") / "out"
    seqprep.chunk(settings(corpus[0], output, epochs=3, batch={"max_frames": None}, order={"by": "random"}))
    return output


@pytest.fixture(scope="module")
def packed(corpus: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("packed") / "out"
    seqprep.chunk(settings(corpus[0], output, batch={"pack": True, "row_frames": 75}, chunk=None, context=0))
    return output


class TestPasses:
    def rows(self, batches: Any) -> list[list[tuple[int, int]]]:
        return [list(zip(b["seq_idx"].tolist(), b["data/start"].tolist(), strict=True)) for b in batches]

    def test_the_index_says_which_shards_are_of_which_pass(self, dataset: Path) -> None:
        index = json.loads((dataset / "index.json").read_bytes())
        epochs = [shard["epoch"] for shard in index["shards"]]
        assert index["statistics"]["epochs"] == 3
        assert epochs == sorted(epochs)
        assert set(epochs) == {0, 1, 2}

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_epoch_e_reads_pass_e_modulo_their_number(self, dataset: Path, shuffle: bool) -> None:
        bounds = Dataset(dataset).pass_bounds()
        with seqprep.Loader(dataset, shuffle=shuffle) as loader:
            whole = self.rows(loader.batch(number) for number in range(bounds[-1]))
            epochs = []
            for epoch in range(5):
                assert len(loader) == bounds[epoch % 3 + 1] - bounds[epoch % 3]
                epochs.append(self.rows(loader))
        for epoch, found in enumerate(epochs):
            expected = whole[bounds[epoch % 3] : bounds[epoch % 3 + 1]]
            assert (sorted(found) if shuffle else found) == (sorted(expected) if shuffle else expected)
        assert sorted(row for batch in epochs[0] for row in batch) == sorted(
            row for batch in epochs[1] for row in batch
        )
        assert epochs[0] != epochs[1] != epochs[2]
        assert (epochs[0] != epochs[3]) == shuffle

    def test_every_position_of_every_pass_is_restored(self, dataset: Path) -> None:
        with seqprep.Loader(dataset, shuffle=True, seed=2) as loader:
            states, tail = [], []
            for _ in range(4):
                states.append(loader.state_dict())
                for batch in loader:
                    tail += self.rows([batch])
                    states.append(loader.state_dict())
        starts = [0]
        for epoch in range(4):
            starts.append(starts[-1] + loader.lengths[epoch % 3] + 1)
        for number in range(0, len(states), 7):
            epoch = sum(start <= number for start in starts[1:])
            taken = number - epoch  # every epoch has one state more than batches
            with seqprep.Loader(dataset, shuffle=True, seed=2) as other:
                other.load_state_dict(states[number])
                found: list[Any] = []
                while len(found) < 12 and len(found) < len(tail) - taken:
                    found += self.rows(other)
                assert found[:12] == tail[taken:][: len(found[:12])]

    @pytest.mark.parametrize("even", ["pad", "drop", "none"])
    def test_ranks_share_each_pass(self, dataset: Path, even: str) -> None:
        with seqprep.Loader(dataset) as loader:
            whole = [self.rows(loader) for _ in range(3)]
        loaders = [seqprep.Loader(dataset, rank=rank, world_size=4, even=even) for rank in range(4)]
        for epoch in range(3):
            lengths = {len(loader) for loader in loaders}
            found = [self.rows(loader) for loader in loaders]
            assert lengths == {len(some) for some in found}
            together = sorted(batch for some in found for batch in some)
            if even == "none":
                assert together == sorted(whole[epoch])
            else:
                assert len(lengths) == 1
            if even == "pad":
                assert {tuple(batch) for batch in together} == {tuple(batch) for batch in whole[epoch]}
        for loader in loaders:
            loader.close()


class TestParts:
    SPLIT: ClassVar = {"split": {"train": 0.3, "dev": 0.38, "by": r"^(spk\d)/"}}

    def test_each_part_is_a_dataset(self, tmp_path: Path, corpus: Any) -> None:
        path, values = corpus
        summary = seqprep.chunk(settings(path, tmp_path / "{split}", **self.SPLIT, select={"min_frames": 9}))
        assert list(summary.parts) == ["train", "dev"]
        assert sorted(found.name for found in tmp_path.iterdir()) == ["dev", "train"]
        speakers, rows, sequences = {}, 0, 0
        for name, part in summary.parts.items():
            assert part.path == tmp_path / name
            with seqprep.Loader(part.path) as loader:
                tags = {tag for batch in loader for tag in batch["seq_tag"]}
            speakers[name] = {tag[:4] for tag in tags}
            assert len(tags) == part.sequences
            rows, sequences = rows + part.rows, sequences + part.sequences
        assert (summary.rows, summary.sequences) == (rows, sequences)
        assert not speakers["train"] & speakers["dev"]
        left = [part.report["left_out"] for part in summary.parts.values()]
        assert left[0] == left[1]
        short = sum(len(frames) < 9 for frames in values["data"])
        assert left[0]["select.min_frames"]["sequences"] == short > 0
        assert left[0]["split"]["sequences"] + sequences + short == SEQUENCES
        fingerprints = {read_index(tmp_path / name).fingerprint for name in summary.parts}
        assert len(fingerprints) == 2
        assert seqprep.chunk(
            settings(path, tmp_path / "{split}", **self.SPLIT, select={"min_frames": 9})
        ).already_complete

    def test_a_folder_of_something_else_stops_all_parts(self, tmp_path: Path, corpus: Any) -> None:
        path, _ = corpus
        seqprep.chunk(settings(path, tmp_path / "dev"))
        with pytest.raises(MismatchError, match=r"dev: holds a dataset of something else"):
            seqprep.chunk(settings(path, tmp_path / "{split}", **self.SPLIT))
        assert not list(tmp_path.glob("train/shard*"))

    def test_partitions_are_whole_together(self, tmp_path: Path, corpus: Any) -> None:
        path, values = corpus
        found: list[tuple[int, int]] = []
        for part in (1, 2, 3):
            output = tmp_path / str(part)
            summary = seqprep.chunk(settings(path, output, partition=f"{part}/3"))
            assert summary.sequences in (13, 14)
            with seqprep.Loader(output) as loader:
                for batch in loader:
                    found += zip(batch["seq_idx"].tolist(), batch["data/start"].tolist(), strict=True)
        assert sorted(found) == sorted(expected_rows(values))


class TestSelection:
    def test_patterns_and_lengths(self, tmp_path: Path, corpus: Any) -> None:
        path, values = corpus
        select = {"include": ["^spk[0-3]/", "ü5$"], "exclude": "ü1", "max_frames": 40}
        summary = seqprep.chunk(settings(path, tmp_path / "out", select=select))
        expected = {
            i for i, frames in enumerate(values["data"])
            if (i % 6 <= 3 or i == 5) and not str(i).startswith("1") and len(frames) <= 40
        }  # fmt: skip
        with seqprep.Loader(tmp_path / "out") as loader:
            assert {sequence for batch in loader for sequence in batch["seq_idx"].tolist()} == expected
        counted = sum(count["sequences"] for count in summary.report["left_out"].values())
        assert summary.sequences == len(expected) == SEQUENCES - counted
        assert set(summary.report["left_out"]) == {"select.include", "select.exclude", "select.max_frames"}

    def test_a_file_of_tags_is_part_of_what_a_dataset_is(self, tmp_path: Path, corpus: Any) -> None:
        path, _ = corpus
        tags = tmp_path / "tags.txt"
        tags.write_text("spk1/ü1\r\nspk2/ü2\n\nspk9/none\n", encoding="utf-8")
        select = {"select": {"tags_file": str(tags)}}
        assert seqprep.chunk(settings(path, tmp_path / "out", **select)).sequences == 2
        with seqprep.Loader(tmp_path / "out") as loader:
            assert {tag for batch in loader for tag in batch["seq_tag"]} == {"spk1/ü1", "spk2/ü2"}
        tags.write_text("spk1/ü1\n", encoding="utf-8")
        with pytest.raises(MismatchError, match=r"source\.tags_file"):
            seqprep.chunk(settings(path, tmp_path / "out", **select))
        tags.unlink()
        with pytest.raises(
            ConfigError, match=r"^settings: select\.tags_file is '.*tags\.txt', which can't be read: No such file"
        ):
            seqprep.chunk(settings(path, tmp_path / "out", **select))

    def test_a_sequence_that_isnt_taken_may_be_wrong(self, tmp_path: Path, corpus: Any) -> None:
        path, _ = corpus
        broken = tmp_path / "broken.hdf"
        broken.write_bytes(path.read_bytes())
        with h5py.File(broken, "r+") as file:
            file["seqLengths"][-1, 1] -= 1
            labels = file["targets/data/classes"][:-1]
            del file["targets/data/classes"]
            file["targets/data/classes"] = labels
        with pytest.raises(seqprep.SeqprepError, match="spk3/ü39"):
            seqprep.chunk(settings(broken, tmp_path / "out"))
        seqprep.chunk(settings(broken, tmp_path / "out", select={"exclude": "ü39$"}))

    def test_nothing_left_is_an_error(self, tmp_path: Path, corpus: Any) -> None:
        with pytest.raises(
            ConfigError,
            match=r"^select leaves none of the 40 sequences: 40 by select\.include \('[^']*'\) were left out",
        ):
            seqprep.chunk(settings(corpus[0], tmp_path / "out", select={"include": "nobody"}))
        assert not (tmp_path / "out").exists()


def test_rows_over_the_budget_are_warned_of_once(tmp_path: Path, corpus: Any, caplog: pytest.LogCaptureFixture) -> None:
    path, values = corpus
    with caplog.at_level(logging.WARNING, "seqprep"):
        summary = seqprep.chunk(settings(path, tmp_path / "out", chunk=None, batch={"max_frames": {"data": 40}}))
    longest = [len(frames) + 3 for frames in values["data"]]
    over = {"rows": sum(n > 40 for n in longest), "longest_frames": max(longest), "limit_frames": 40}
    assert summary.report["over_budget"] == {"data": over}
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'out'}: key 'data': {over['rows']} rows are longer than batch.max_frames 40 (the longest has "
        f"{over['longest_frames']} frames) and made into batches of their own; raise batch.max_frames, set chunk.size, or "
        "leave them out with select.max_frames"
    ]
    with seqprep.Loader(tmp_path / "out") as loader:
        alone = [batch for batch in loader if batch["data"].shape[1] > 40]
    assert len(alone) == over["rows"]
    assert all(len(batch["data"]) == 1 for batch in alone)


def test_a_dataset_without_a_batch_is_an_error(tmp_path: Path, corpus: Any) -> None:
    wrong = settings(corpus[0], tmp_path / "out", batch={"drop_last": True, "max_frames": None, "max_sequences": 999})
    with pytest.raises(
        ConfigError, match=r"^settings: batch\.drop_last leaves no batch, .*; set it to false, or lower"
    ):
        seqprep.chunk(wrong)
    assert not (tmp_path / "out" / "index.json").exists()


class TestUnpack:
    def test_what_was_packed_comes_out(self, packed: Path, corpus: Any) -> None:
        with seqprep.Loader(packed) as loader:
            for batch in loader:
                for form in (batch, dict(batch), pickle.loads(pickle.dumps(batch))):
                    for key in ("data", "classes"):
                        for sequence, found in zip(form["seq_idx"].tolist(), seqprep.unpack(form, key), strict=True):
                            assert found.tobytes() == corpus[1][key][sequence].tobytes()

    def test_one_key_alone(self, packed: Path, corpus: Any) -> None:
        with seqprep.Loader(packed, keys=["classes"]) as loader:
            batch = loader.batch(0)
            assert "data/segment_ids" not in batch
            assert batch["classes/segment_ids"].shape == batch["classes"].shape
            found = seqprep.unpack(batch, "classes")
        assert found[-1].tobytes() == corpus[1]["classes"][batch["seq_idx"][-1]].tobytes()

    def test_a_wrong_key_is_named(self, packed: Path) -> None:
        with (
            seqprep.Loader(packed) as loader,
            pytest.raises(ConfigError, match=r"no key 'date'; did you mean 'data'\?"),
        ):
            seqprep.unpack(loader.batch(0), "date")
        with pytest.raises(ConfigError, match=re.escape("the batch holds no key 'data/size0'; known are: data")):
            seqprep.unpack({"data": np.zeros((1, 2)), "data/size0": np.ones(1)}, "data/size0")

    def test_values_without_time(self) -> None:
        batch = {"speaker": np.arange(6).reshape(3, 2), "segment_row": np.zeros(3), "segment_start": np.zeros(3)}
        assert [value.tolist() for value in seqprep.unpack(batch, "speaker")] == [[0, 1], [2, 3], [4, 5]]
