"""Rows and batches of a well-known training toolkit, recorded by running it on random cases."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import seqprep
from seqprep.config import load_config
from seqprep.planning import ShardPlan, align_lengths, make_plan, resolve
from seqprep.types import KeySpec, Tags

RECORD = Path(__file__).resolve().parents[2].parent / "shared" / "oracles" / "returnn_chunks_batches.json"
CASES: list[dict[str, Any]] = json.loads(RECORD.read_text()) if RECORD.is_file() else []
FEATURES = 3

pytestmark = pytest.mark.skipif(not CASES, reason="the recorded cases aren't here")


def varied_cases() -> list[int]:
    """A case of each combination of features; of one combination the one with the most batches."""
    found: dict[tuple[Any, ...], int] = {}
    for number, case in enumerate(CASES):
        features = case["rate"], case["chunking"] is None, any(case["context"])
        best = found.setdefault(features, number)
        if len(case["batches"]) > len(CASES[best]["batches"]):
            found[features] = number
    return sorted(found.values())


def settings_of(case: dict[str, Any]) -> dict[str, Any]:
    left, right = case["context"]
    settings = {
        "source": {"type": "hdf5", "path": "corpus.hdf"},
        "keys": {"data": {}, "classes": {"rate": case["rate"]}},
        "context": {"left": left, "right": right},
        "batch": {"max_frames": case["batch_size"], "max_sequences": case["max_seqs"]},
        "output": {"path": "shards"},
    }
    if case["chunking"]:
        size, step = case["chunking"]
        settings["chunk"] = {"size": size, "step": step, "min_size": case["min_chunk"]}
    return settings


def plan_of(case: dict[str, Any]) -> ShardPlan:
    specs = {"data": KeySpec(dtype="float32", shape=(FEATURES,)), "classes": KeySpec(dtype="int32")}
    rules, _ = resolve(load_config(settings_of(case)), specs)
    lengths = {key: np.array(case[key]) for key in specs}
    plan = make_plan(align_lengths(lengths, rules, Tags.of(str(i) for i in range(len(case["data"])))).lengths, rules)
    assert len(plan) == 1
    return plan.shard(0)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_rows_and_batches_of_the_plan(number: int) -> None:
    case = CASES[number]
    left = case["context"][0]
    shard = plan_of(case)
    chunks, rows = [], []
    data, classes = shard.keys["data"], shard.keys["classes"]
    for i, sequence in enumerate(shard.sequence.tolist()):
        start, label_start = int(data.start[i]), int(classes.start[i])
        labels = [label_start, label_start + int(classes.core[i])]
        chunks.append([sequence, [start, start + int(data.core[i])], labels])
        rows.append([sequence, [start - left, start - left + int(data.frames[i])], labels])
        assert int(classes.frames[i]) == int(classes.core[i])
    assert chunks == case["chunks"]
    assert [rows[a:b] for a, b in pairwise(shard.bounds.tolist())] == case["batches"]


def write_corpus(path: Path, case: dict[str, Any]) -> dict[str, list[np.ndarray]]:
    """Writes a case's sequences in the toolkit's flat layout, with values that say where they come from."""
    random = np.random.default_rng(3)
    sequences = {
        "data": [random.normal(size=(n, FEATURES)).astype(np.float32) for n in case["data"]],
        "classes": [random.integers(1, 1000, n).astype(np.int32) for n in case["classes"]],
    }
    with h5py.File(path, "w") as file:
        file["inputs"] = np.concatenate(sequences["data"])
        file["targets/data/classes"] = np.concatenate(sequences["classes"])
        file["seqLengths"] = np.stack([case["data"], case["classes"]], axis=1).astype(np.int32)
        file["seqTags"] = np.array([f"corpus/{i}" for i in range(len(case["data"]))], dtype="S")
    return sequences


@pytest.mark.parametrize("output_format", ["hdf5", "tfrecord"])
@pytest.mark.parametrize("number", varied_cases())
def test_batches_end_to_end(number: int, output_format: str, tmp_path: Path) -> None:
    case = CASES[number]
    left, right = case["context"]
    sequences = write_corpus(tmp_path / "corpus.hdf", case)
    settings = settings_of(case)
    settings["source"]["path"] = str(tmp_path / "corpus.hdf")
    settings["output"] = {"path": str(tmp_path / "shards"), "format": output_format}
    summary = seqprep.chunk(settings)
    assert (summary.batches, summary.rows) == (len(case["batches"]), len(case["chunks"]))

    around = [np.zeros((n, FEATURES), np.float32) for n in (left, right)]
    padded = [np.concatenate([around[0], values, around[1]]) for values in sequences["data"]]
    with seqprep.Loader(tmp_path / "shards") as loader:
        assert len(loader) == len(case["batches"])
        for expected, batch in zip(case["batches"], loader, strict=True):
            assert batch["seq_idx"].tolist() == [sequence for sequence, _, _ in expected]
            assert list(batch["seq_tag"]) == [f"corpus/{sequence}" for sequence, _, _ in expected]
            assert batch["data/start"].tolist() == [start + left for _, (start, _), _ in expected]
            assert batch["data/size0"].tolist() == [stop - start for _, (start, stop), _ in expected]
            cores = [[left, stop - start - left - right] for _, (start, stop), _ in expected]
            assert batch["data/core"].tolist() == cores
            assert batch["data/length"].tolist() == [case["data"][sequence] for sequence, _, _ in expected]
            assert batch["classes/start"].tolist() == [start for _, _, (start, _) in expected]
            assert batch["classes/size0"].tolist() == [stop - start for _, _, (start, stop) in expected]
            assert batch["classes/core"].tolist() == [[0, stop - start] for _, _, (start, stop) in expected]
            for row, (sequence, (start, stop), (label_start, label_stop)) in enumerate(expected):
                size, labels = stop - start, label_stop - label_start
                assert (batch["data"][row, :size] == padded[sequence][start + left : stop + left]).all()
                assert (batch["data"][row, size:] == 0).all()
                assert (batch["classes"][row, :labels] == sequences["classes"][sequence][label_start:label_stop]).all()
                assert (batch["classes"][row, labels:] == 0).all()
            assert batch["data"].shape == (len(expected), max(batch["data/size0"]), FEATURES)
            assert batch["classes"].shape == (len(expected), max(batch["classes/size0"]))
