"""Many files and many reads: few are open at a time."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import soundfile

from seqprep.errors import SourceError
from seqprep.sources import open_source
from seqprep.types import FrameRange
from tests.descriptors import needs_listing, open_descriptors

from .formats import example, record

MOST_OPEN = 80


def values_of(number: int) -> list[int]:
    return list(range(number, number + 20))


def write_arrow(path: Path, number: int) -> None:
    table = pyarrow.table({"data": [values_of(number)]})
    with pyarrow.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


def write_samples(path: Path, number: int) -> None:
    soundfile.write(path, np.array(values_of(number), np.int16), 8000)


WRITERS: dict[str, tuple[str, Callable[[Path, int], object]]] = {
    ".npy": ("npz", lambda path, number: np.save(path, values_of(number))),
    ".npz": ("npz", lambda path, number: np.savez_compressed(path, data=values_of(number))),
    ".tfrecord": ("tfrecord", lambda path, number: path.write_bytes(record(example({"data": np.array(values_of(number))})))),
    ".parquet": ("parquet", lambda path, number: pyarrow.parquet.write_table(pyarrow.table({"data": [values_of(number)]}), path)),
    ".arrow": ("parquet", write_arrow),
    ".jsonl": ("jsonl", lambda path, number: path.write_text(json.dumps({"data": values_of(number)}))),
    ".wav": ("audio", write_samples),
    ".flac": ("audio", write_samples),
    ".csv": ("csv", lambda path, number: path.write_text("\n".join(map(str, values_of(number))))),
}  # fmt: skip


@needs_listing
@pytest.mark.parametrize(("files", "reads"), [(120, 1000), pytest.param(2000, 10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("suffix", WRITERS)
def test_open_files_stay_few(tmp_path: Path, suffix: str, files: int, reads: int) -> None:
    kind, write = WRITERS[suffix]
    for number in range(files):
        write(tmp_path / f"{number:04}{suffix}", number)
    before, draw = open_descriptors(), random.Random(0)
    source = open_source({"type": kind, "path": str(tmp_path), **({"sample_type": "int16"} if kind == "audio" else {})})
    assert len(source.tags) == files
    most = 0
    for count in range(reads):
        number = draw.randrange(files)
        assert source.read("data", number, FrameRange(5, 7)).reshape(-1).tolist() == [number + 5, number + 6]
        if count % 100 == 0:
            most = max(most, len(os.listdir("/dev/fd")) - before)
    assert most <= MOST_OPEN
    source.close()
    assert open_descriptors() <= before


@pytest.mark.parametrize("type", ["hdf5", "npz", "kaldi", "audio", "csv", "jsonl", "parquet", "tfrecord"])
@pytest.mark.parametrize("path", ["x" * 5000, ["x" * 5000], f"{'x' * 300}/*.y"])
def test_a_name_that_no_file_can_have_is_a_missing_file(type: str, path: str | list[str]) -> None:
    with pytest.raises(
        SourceError, match=r"(source\.path is 'xxx.*, which can't be found: File name too long; check|no file matches)"
    ):
        open_source({"type": type, "path": path})
