"""Every configuration and the reader of docs/sources_more.md are run."""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import yaml

from seqprep.sources import open_source

from .formats import example, record, sequence_example
from .test_jsonl import write_tokenizer

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "sources_more.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which everything is there that the examples name."""
    for name in ("features/speaker1", "frames", "records", "tokens", "sensors/2024"):
        (tmp_path / name).mkdir(parents=True)
    frames = np.zeros((6, 40), np.float32)
    np.savez(tmp_path / "features/speaker1/a.npz", data=frames, embedding=np.zeros(8))
    np.save(tmp_path / "frames/a.npy", frames)
    np.savez(
        tmp_path / "corpus.npz", feats=frames, labels=np.arange(3), n_feats=[4, 2], n_labels=[2, 1], names=["a", "b"]
    )
    (tmp_path / "records/a.tfrecord").write_bytes(record(sequence_example({"utterance": [b"a"]}, {"data": frames})))
    mask = b"\x08\x0a\x12\x04\x12\x02\x08\x02\x22\x02\x00\x01"
    flat = example(
        {"audio/features": frames.reshape(-1), "samples": [bytes(8)], "mask": [mask], "speaker": np.array([1, 2])}
    )
    (tmp_path / "examples.tfrecord.gz").write_bytes(gzip.compress(record(flat)))
    pyarrow.parquet.write_table(
        pyarrow.table({"id": ["x"], "input_ids": [[1, 2]], "label": [3]}), tmp_path / "tokens/a.parquet"
    )
    pyarrow.parquet.write_table(pyarrow.table({"id": ["a"], "classes": [[1] * 6]}), tmp_path / "labels.parquet")
    (tmp_path / "tokens.jsonl").write_text(json.dumps({"id": "x", "tokens": [1, 2]}))
    (tmp_path / "texts.jsonl.gz").write_bytes(gzip.compress(b'{"text": "the cat"}'))
    write_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "sensors/2024/a.csv").write_text("x,label,y,z\n1,7,2,3\n")
    (tmp_path / "sales.csv").write_text("store,amount\nnorth,5\nsouth,1\nnorth,\n")
    (tmp_path / "my_reader.py").write_text(re.findall(r"```python\n(.*?)```", TEXT, re.S)[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples(inputs: Path, example: str) -> None:
    settings = yaml.safe_load(example)["source"]
    source = open_source(settings)
    for key, spec in source.keys.items():
        for sequence in range(len(source.tags)):
            assert source.read(key, sequence).dtype == spec.dtype
    sys.modules.pop("my_reader", None)


def test_there_are_examples_of_every_reader() -> None:
    assert {re.search(r"type: \"?(\w+)", example)[1] for example in EXAMPLES} == {  # type: ignore[index]
        "npz", "tfrecord", "parquet", "jsonl", "csv", "my_reader",
    }  # fmt: skip
