"""Damaged files of every format: an error of ours that names file and sequence, or right values; never a crash."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .formats import (
    TAGS,
    Corpus,
    Settings,
    corpus,
    write_arrow,
    write_csv_files,
    write_jsonl,
    write_npz_pair,
    write_parquet,
    write_tfrecord,
)

CASES = 300


def write_npy(folder: Path, made: Corpus, order: Any) -> Settings:
    np.save(folder / "all.npy", made["data"][2])
    return {"type": "npz", "path": str(folder / "all.npy")}


def write_one_csv(folder: Path, made: Corpus, order: Any) -> Settings:
    (folder / "files").mkdir()
    settings = write_csv_files(folder / "files", {key: values[2:3] for key, values in made.items()}, ["all"])
    return settings | {"path": str(folder / "files" / "all.csv")}


FORMATS: dict[str, tuple[Callable[..., Settings], bool]] = {
    "npz": (write_npz_pair, True),
    "npz, compressed": (partial(write_npz_pair, save=np.savez_compressed), True),
    "npy": (write_npy, False),
    "tfrecord": (write_tfrecord, True),
    "tfrecord, gzip": (partial(write_tfrecord, name="all.tfrecord.gz"), True),
    "parquet": (write_parquet, False),
    "parquet, zstd": (partial(write_parquet, compression="zstd", write_page_checksum=True), False),
    "arrow": (write_arrow, False),
    "arrow, lz4": (partial(write_arrow, compression="lz4"), False),
    "arrow stream": (partial(write_arrow, kind="stream"), False),
    "jsonl": (write_jsonl, False),
    "jsonl, gzip": (partial(write_jsonl, name="all.jsonl.gz"), True),
    "csv": (write_one_csv, False),
}
"""Each with whether a checksum covers its values."""


def write_sample(folder: Path, kind: str) -> None:
    write, has_checksum = FORMATS[kind]
    made = corpus()
    folder.mkdir()
    settings = write(folder, made, TAGS)
    truth = {}
    if settings.keys() & {"tag", "tags", "id"}:
        truth = {key: dict(zip(TAGS, values, strict=True)) for key, values in made.items()}
    (folder / "truth.pickle").write_bytes(pickle.dumps((settings, truth, has_checksum)))


@pytest.mark.parametrize("family", ["np", "tfrecord", "parquet", "arrow", "jsonl", "csv"])
def test_damaged_files(tmp_path: Path, family: str) -> None:
    kinds = [kind for kind in FORMATS if kind.startswith(family)]
    for kind in kinds:
        write_sample(tmp_path / kind, kind)
    child = subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__).with_name("fuzz_child.py")), str(tmp_path), "0", str(CASES)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, f"{(tmp_path / 'progress').read_text()}: {child.returncode}\n{child.stderr[-3000:]}"
    outcomes = json.loads(child.stdout)
    assert outcomes.keys() == set(kinds)
    for counts in outcomes.values():
        assert sum(counts.values()) == CASES
        assert counts.get("refused", 0) + counts.get("failed", 0) > CASES / 10
