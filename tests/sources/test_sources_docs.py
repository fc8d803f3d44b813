"""docs/sources.md: its examples are run, and it names all options that there are, and no other."""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import yaml

from seqprep.config import load_config
from seqprep.sources import open_source
from seqprep.sources.catalogue import describe_readers
from seqprep.sources.joined import TAKE, JoinOptions

from .audio_files import noise, write
from .formats import example, record, sequence_example
from .hdf5_files import write_flat
from .kaldi_files import binary, write_ark, write_table
from .test_jsonl import write_tokenizer

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "sources.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)
SECTIONS = dict(re.findall(r"\n## [^\n`]*`(\w+)`\n(.*?)(?=\n## |\Z)", TEXT, re.S))
READERS = {reader.type: reader for reader in describe_readers()}
FRAMES = np.zeros((6, 40), np.float32)


def write_hdf5(folder: Path) -> None:
    (folder / "corpus").mkdir()
    write_flat(folder / "corpus/a.hdf", ["a"], {"data": [FRAMES], "classes": [np.arange(6)]})
    with h5py.File(folder / "corpus.h5", "w") as file:
        file["all/feats"], file["all/ali"] = FRAMES, np.arange(3)
        file["all/begin"], file["all/ali_begin"], file["all/who"] = [0, 4], [0, 2], [b"a", b"b"]
    with h5py.File(folder / "groups.h5", "w") as file:
        file["utterances/a/feats"], file["utterances/a/xvector"] = FRAMES, np.zeros(8)
    with h5py.File(folder / "rows.h5", "w") as file:
        file.create_dataset("data", (1,), h5py.vlen_dtype("f4"))[0] = FRAMES.reshape(-1)


def write_kaldi(folder: Path) -> None:
    for name in ("data/train", "exp", "recordings"):
        (folder / name).mkdir(parents=True)
    write_table(folder / "data/train/feats.scp", write_ark(folder / "data/train/a.ark", {"a": binary(FRAMES)}))
    write_table(folder / "data/train/utt2spk", {"a": "ann"})
    write_table(folder / "exp/ali.scp", write_ark(folder / "exp/ali.ark", {"a": binary(np.arange(2))}))
    write_table(folder / "recordings/feats.scp", write_ark(folder / "recordings/r.ark", {"rec": binary(FRAMES)}))
    write_table(folder / "recordings/segments", {"a": "rec 0.01 0.05", "b": "rec 0.02 -1"})


def write_audio(folder: Path) -> None:
    write(folder / "recordings/a.wav", noise(8000, 2))
    write(folder / "a.wav", noise(8000))
    np.save(folder / "ali.npy", np.arange(98))
    (folder / "recordings.csv").write_text("path,speaker,ali\na.wav,ann,ali.npy\n")
    write_table(folder / "data/wav.scp", {"a": folder / "a.wav"})
    write_table(folder / "data/utt2spk", {"a": "ann"})


def write_arrays_and_text(folder: Path) -> None:
    for name in ("features/speaker1", "frames", "records", "tokens", "sensors/2024"):
        (folder / name).mkdir(parents=True)
    np.savez(folder / "features/speaker1/a.npz", data=FRAMES, embedding=np.zeros(8))
    np.save(folder / "frames/a.npy", FRAMES)
    np.savez(
        folder / "corpus.npz", feats=FRAMES, labels=np.arange(3), n_feats=[4, 2], n_labels=[2, 1], names=["a", "b"]
    )
    (folder / "records/a.tfrecord").write_bytes(record(sequence_example({"utterance": [b"a"]}, {"data": FRAMES})))
    mask = b"\x08\x0a\x12\x04\x12\x02\x08\x02\x22\x02\x00\x01"
    flat = example(
        {"audio/features": FRAMES.reshape(-1), "samples": [bytes(8)], "mask": [mask], "speaker": np.array([1, 2])}
    )
    (folder / "examples.tfrecord.gz").write_bytes(gzip.compress(record(flat)))
    pyarrow.parquet.write_table(
        pyarrow.table({"id": ["x"], "input_ids": [[1, 2]], "label": [3]}), folder / "tokens/a.parquet"
    )
    pyarrow.parquet.write_table(pyarrow.table({"id": ["a"], "classes": [[1] * 6]}), folder / "labels.parquet")
    (folder / "tokens.jsonl").write_text(json.dumps({"id": "x", "tokens": [1, 2]}))
    (folder / "texts.jsonl.gz").write_bytes(gzip.compress(b'{"text": "the cat"}'))
    write_tokenizer(folder / "tokenizer.json")
    (folder / "sensors/2024/a.csv").write_text("x,label,y,z\n1,7,2,3\n")
    (folder / "sales.csv").write_text("store,amount\nnorth,5\nsouth,1\nnorth,\n")
    (folder / "my_reader.py").write_text(re.findall(r"```python\n(.*?)```", TEXT, re.S)[0], encoding="utf-8")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything is there that the examples name."""
    folder = tmp_path_factory.mktemp("inputs")
    write_hdf5(folder)
    write_kaldi(folder)
    write_audio(folder)
    write_arrays_and_text(folder)
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples(inputs: Path, monkeypatch: pytest.MonkeyPatch, example: str) -> None:
    monkeypatch.chdir(inputs)
    monkeypatch.setattr(sys, "path", [*sys.path])
    settings = yaml.safe_load(example)
    assert load_config({**settings, "batch": {"max_sequences": 1}, "output": {"path": "out"}})
    source = open_source(settings["source"])
    for key, spec in source.keys.items():
        for sequence in range(min(3, len(source.tags))):
            assert source.read(key, sequence).dtype == spec.dtype
    sys.modules.pop("my_reader", None)


def test_there_are_examples_of_every_reader() -> None:
    found = {re.search(r"type: \"?(\w+)", example)[1] for example in EXAMPLES}  # type: ignore[index]
    assert found == {*READERS, "my_reader"}


@pytest.mark.parametrize("name", READERS)
def test_all_options_are_named(name: str) -> None:
    groups = {option.name.partition(".")[0] for option in READERS[name].options if "." in option.name}
    for option in READERS[name].options:
        own = option.name.rpartition(".")[2]
        if name != "tfrecord" or option.name not in groups:
            assert re.search(rf"\b{own}\b", SECTIONS[name]), option.name


OTHER_NAMES = {
    "hdf5": {"inputs", "data", "data_lengths", "utt_ids", "flat", "padded", "vlen", "returnn", "streams", "per_sequence",
             "per_file", "seq_names", "sizes", "seqLengths", "seqTags"},
    "kaldi": {"utt2num_frames"},
    "audio": {"log_mel", "mfcc", "none", "start", "end", "tag"},
    "npz": {"data"},
    "tfrecord": {"SequenceExample", "Example", "data"},
    "jsonl": {"tokens"},
}  # fmt: skip
"""What else stands in backquotes: values of options, and names in files."""


@pytest.mark.parametrize("name", READERS)
def test_no_other_options_are_named(name: str) -> None:
    known = {part for option in READERS[name].options for part in option.name.split(".")} | {"type"}
    prose = re.sub(r"```.*?```", "", SECTIONS[name], flags=re.S)
    named = {word for word, _ in re.findall(r"`(\w+)(: [^`]*)?`", prose)}
    assert named <= known | OTHER_NAMES.get(name, set())
    assert OTHER_NAMES.get(name, set()).isdisjoint(known - {"tag", "start", "end"})


def test_options_of_joins_are_named() -> None:
    section = TEXT[TEXT.index("## Sources joined by tag") : TEXT.index("## A reader of your own")]
    assert all(f"{name}: " in section for name in [*JoinOptions.model_fields, TAKE])
