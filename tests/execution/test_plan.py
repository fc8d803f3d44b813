"""What `seqprep.plan` says is what `seqprep.chunk` then writes, to the byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import seqprep
from seqprep.errors import ConfigError, OutputError
from seqprep.shards import Dataset, tfrecord
from seqprep.types import Int64, KeySpec, Tags

from .small import FORMATS, QUICK, small
from .test_ragged import RaggedSource

SEQUENCES = 24
CHUNKS: dict[str, Any] = {"chunk": {"size": 12, "step": 6}, "context": {"left": 2, "right": 1}}
CASES: dict[str, dict[str, Any]] = {
    "whole sequences": {},
    "chunks": CHUNKS,
    "clipped context": {**CHUNKS, "context": {"left": 9, "right": 9, "pad": "clip"}},
    "mirrored context of a sorted order": {**CHUNKS, "context": {"left": 70, "pad": "reflect"}, "order": {"by": "sorted"}},
    "jitter, shifted tails, three passes": {"chunk": {"size": 12, "step": 6, "tail": "shift", "jitter": True}, "epochs": 3},
    "dropped tails and last batches": {"chunk": {"size": 12, "tail": "drop"}, "batch": {"max_frames": 100, "drop_last": True}},
    "real context alone": {**CHUNKS, "context": {"left": 6, "pad": "drop"}, "chunk": {"size": 6}},
    "classes of one shape": {**CHUNKS, "batch": {"max_sequences": 7, "bucket": {"auto": 3}, "pad_to": "bucket", "pad_rows": True}},
    "sorted, padded to multiples": {**CHUNKS, "batch": {"max_frames": 200, "bucket": "sorted", "pad_to": 9}},
    "packed": {"batch": {"max_sequences": 3, "pack": True, "row_frames": 90}},
    "packed chunks of two passes": {**CHUNKS, "batch": {"max_sequences": 3, "pack": True, "row_frames": 90}, "epochs": 2},
    "global": {**CHUNKS, "order": {"by": "random", "scope": "global"}},
    "split": {**CHUNKS, "split": {"one": 0.6, "two": 0.4}},
    "part, selection, narrower": {
        **CHUNKS, "partition": "2/3", "select": {"min_frames": 5}, "keys": {"data": {"dtype": "float16"}, "classes": {"rate": 3}},
    },
    "one shard for every chunk": {**CHUNKS, "output": {"shard_size": 1}, "select": {"max_frames": 15}},
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sequences of 1 to 60 frames with a label for every 3 and names of several letters beyond ASCII, some of them long."""
    random = np.random.default_rng(4)
    lengths = random.integers(1, 60, SEQUENCES, endpoint=True)
    path = tmp_path_factory.mktemp("corpus") / "corpus.hdf"
    with h5py.File(path, "w") as file:
        file["inputs"] = random.standard_normal((lengths.sum(), 3)).astype(np.float32)
        file["targets/data/classes"] = np.ones((-(-lengths // 3)).sum(), np.int32)
        file["seqLengths"] = np.stack([lengths, -(-lengths // 3)], axis=1).astype(np.int32)
        file["seqTags"] = [f"größe/{'語' * (i % 60)}{i}".encode() for i in range(SEQUENCES)]
    return path


class ManyKinds(RaggedSource):
    """Even and ragged frames, a transcript of its own length, and two keys without time."""

    keys: Mapping[str, KeySpec] = {
        "data": KeySpec(dtype="float32", shape=(2,)),
        "boxes": KeySpec(dtype="float32", shape=(None, 4)),
        "text": KeySpec(dtype="int32"),
        "speaker": KeySpec(dtype="int64", has_time=False),
        "größe": KeySpec(dtype="uint8", shape=(200,), has_time=False),
    }
    tags = Tags.of(f"ü{number}" for number in range(30))

    def __init__(self) -> None:
        frames = {"data": np.arange(30) % 11 + 1, "boxes": np.arange(30) % 11 + 1, "text": np.arange(30) * 9}
        self.values = {
            name: [
                np.ones(
                    ((int(frames[name][i]),) if spec.has_time else ()) + spec.shape_of([i % 4] if spec.ragged else []),
                    spec.dtype,
                )
                for i in range(30)
            ]
            for name, spec in self.keys.items()
        }

    def axis_sizes(self, key: str) -> Int64:
        return np.arange(30)[:, None] % 4


def settings(path: Path, folder: Path, format: str, changes: dict[str, Any]) -> dict[str, Any]:
    base = {
        "source": {"type": "hdf5", "path": str(path)},
        "keys": {"data": {}, "classes": {"rate": 3}},
        "batch": {"max_frames": 150},
        "order": {"by": "random", "seed": 5},
    }
    output = {"path": str(folder / "{split}" if "split" in changes else folder), "format": format, "shard_size": 7000}
    return base | changes | {"output": output | changes.get("output", {})}


def assert_same(config: dict[str, Any]) -> dict[str, Any]:
    """Plans, sees that nothing was written, writes, and compares."""
    folder = Path(config["output"]["path"].replace("{split}", ""))
    parts = seqprep.plan(config)
    assert not folder.exists()
    seqprep.chunk(config, storage=QUICK)
    for part in parts.values():
        dataset = Dataset(part.path)
        index = dataset.index
        assert part.shards == tuple(replace(shard, sidecar_crc32c=0) for shard in index.shards)
        assert [shard.bytes for shard in part.shards] == [
            (part.path / shard.name).stat().st_size for shard in index.shards
        ]
        assert (part.sequences, part.report, part.total("bytes")) == (index.sequences, index.report, index.shard_bytes)
        tables = [dataset.sidecar(shard).table for shard in range(len(index.shards))]
        assert part.chunks == sum(int((table.fields["seq_idx"] >= 0).sum()) for table in tables)
        shapes = {shape for table in tables for shape in zip(*(table.shapes(key) for key in table.keys), strict=True)}
        assert part.shapes == len(shapes)
        assert sum(part.padding.counts) == index.batches
        for key, found in part.keys.items():
            assert found.padding_frames == index.padding[key]
            assert found.frames == sum(int(table.fields[f"{key}/size0"].sum()) for table in tables)
            assert found.frames - found.context_frames == sum(
                int(table.fields[f"{key}/core"][:, 1].sum()) for table in tables
            )
        assert sum(one.bytes for one in part.passes) == index.shard_bytes
        assert len(part.passes) == index.epochs
    return parts


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", CASES)
def test_what_is_planned_is_what_is_written(corpus: Path, tmp_path: Path, format: str, case: str) -> None:
    assert_same(settings(corpus, tmp_path / "out", format, CASES[case]))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
def test_ragged_axes_keys_without_time_and_transcripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, packed: bool
) -> None:
    for module in ("predicting", "run"):
        monkeypatch.setattr(f"seqprep.execution.{module}.open_source", lambda *_: ManyKinds())
    assert_same(
        {
            "source": {"type": "made up"},
            "keys": {"data": {}, "boxes": {}, "text": {"rate": None}, "größe": {}, "speaker": {}},
            "chunk": None,
            "batch": {"max_sequences": 4} | ({"pack": True, "row_frames": 60} if packed else {}),
            "output": {"path": str(tmp_path / "out"), "format": format, "shard_size": 3000},
        }
    )


def test_frames_are_read_once_unless_shards_share_a_sequence(corpus: Path, tmp_path: Path) -> None:
    whole = seqprep.plan(settings(corpus, tmp_path / "out", "hdf5", CHUNKS))[""]
    assert whole.keys["data"].read_amplification == 1
    assert whole.keys["data"].input_frames == whole.keys["data"].read_frames
    apart = seqprep.plan(settings(corpus, tmp_path / "out", "hdf5", CASES["global"]))[""]
    assert 1 < apart.keys["data"].read_amplification <= apart.keys["data"].frames / apart.keys["data"].input_frames


def test_what_is_normalised_by_its_own_sequence_is_read_whole(corpus: Path, tmp_path: Path) -> None:
    keys = {"data": {"normalize": "sequence"}, "classes": {"rate": 3}}
    skipping: dict[str, Any] = {"chunk": {"size": 3, "step": 90}}
    plain = seqprep.plan(settings(corpus, tmp_path / "out", "hdf5", skipping))[""].keys["data"]
    whole = seqprep.plan(settings(corpus, tmp_path / "out", "hdf5", {**skipping, "keys": keys}))[""].keys["data"]
    assert plain.read_frames < plain.input_frames == whole.input_frames == whole.read_frames


def test_compressed_sizes_are_those_before(corpus: Path, tmp_path: Path) -> None:
    config = settings(corpus, tmp_path / "out", "hdf5", CHUNKS)
    plain = seqprep.plan(config)[""]
    config["output"]["compression"] = "gzip"
    packed = seqprep.plan(config)[""]
    assert not plain.as_dict()["bytes_before_compression"]
    assert packed.as_dict()["bytes_before_compression"]
    assert 0 < packed.total("bytes") - plain.total("bytes") < 200 * len(plain.shards)  # the codec's name in each


def test_histograms_hold_everything(tmp_path: Path) -> None:
    part = seqprep.plan(small(tmp_path / "out"))[""]
    assert sum(part.lengths.counts) == part.sequences == 6
    assert len(part.lengths.edges) == len(part.lengths.counts) + 1 <= 11
    assert len(part.padding.edges) == len(part.padding.counts) + 1


def test_what_chunk_refuses_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(tmp_path / "out", batch={"max_sequences": 10**6, "drop_last": True})
    with pytest.raises(ConfigError, match=r"batch\.drop_last leaves no batch"):
        seqprep.plan(config)
    monkeypatch.setattr(tfrecord, "MAX_RECORD_BYTES", 100)
    monkeypatch.setattr("seqprep.shards.prediction.MAX_RECORD_BYTES", 100)
    with pytest.raises(OutputError, match=r"batch 0 has .* bytes, more than a TFRecord can hold"):
        seqprep.plan(small(tmp_path / "out", "tfrecord"))
