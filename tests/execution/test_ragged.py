"""Keys whose frames have axes of varying size, from a source through both formats to batches."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqprep
from seqprep.config import load_config
from seqprep.errors import SourceError
from seqprep.execution import plan_source
from seqprep.shards.table import parse_keys
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags

ROOT = Path(__file__).resolve().parents[2]
LENGTHS = [7, 1, 12, 3, 9]
BOXES = [3, 0, 1, 5, 2]
CELLS = [(2, 1), (1, 3), (4, 2), (0, 0), (1, 1)]


class RaggedSource:
    """`boxes` [T, N, 2] and `cells` [ceil(T / 3), 2, N, M] beside an even key, all with numbers of their own."""

    keys: Mapping[str, KeySpec] = {
        "data": KeySpec(dtype="float32", shape=(3,)),
        "boxes": KeySpec(dtype="float32", shape=(None, 2)),
        "cells": KeySpec(dtype="int16", shape=(2, None, None)),
    }
    tags = Tags.of(f"s{i}" for i in range(len(LENGTHS)))

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self.values: dict[str, list[Array]] = {"data": [], "boxes": [], "cells": []}
        for length, boxes, cells in zip(LENGTHS, BOXES, CELLS, strict=True):
            self.values["data"].append(random.normal(size=(length, 3)).astype(np.float32))
            self.values["boxes"].append(random.normal(size=(length, boxes, 2)).astype(np.float32))
            self.values["cells"].append(random.integers(1, 999, (-(-length // 3), 2, *cells)).astype(np.int16))

    def lengths(self, key: str) -> Int64:
        return np.array([len(values) for values in self.values[key]], np.int64)

    def axis_sizes(self, key: str) -> Int64:
        return np.array({"boxes": [[n] for n in BOXES], "cells": CELLS}[key], np.int64)

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        found = self.values[key][sequence][slice(*frames)] if frames else self.values[key][sequence]
        if out is None:
            return found
        out[...] = found
        return out

    def fingerprint(self) -> Mapping[str, str]:
        return {"all": "the same"}

    def close(self) -> None:
        pass


def settings(path: Path, **more: Any) -> dict[str, Any]:
    return {
        "source": {"type": "made up"},
        "keys": {"data": {}, "boxes": {"pad_value": -1}, "cells": {"rate": 3, "pad_value": -2, "dtype": "int32"}},
        "chunk": {"size": 6, "step": 3},
        "context": {"boxes": {"left": 2, "right": 1, "pad": 7}},
        "batch": {"max_sequences": 3},
        "order": {"by": "random", "seed": 1},
        "output": {"path": str(path), "shard_size": 600},
    } | more


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> RaggedSource:
    source = RaggedSource()
    monkeypatch.setattr("seqprep.execution.run.open_source", lambda *_: source)
    return source


def expected_row(source: RaggedSource, key: str, sequence: int, start: int, core: int) -> Array:
    values = source.values[key][sequence]
    if key != "boxes":
        return values[start : start + core]
    padded = np.pad(values, [(2, 1), (0, 0), (0, 0)], constant_values=7)
    return padded[start : start + core + 3]


@pytest.mark.parametrize("format", ["hdf5", "tfrecord"])
def test_batches_hold_every_sequence_in_its_own_size(tmp_path: Path, source: RaggedSource, format: str) -> None:
    made = seqprep.chunk(settings(tmp_path, output={"path": str(tmp_path), "format": format, "shard_size": 600}))
    assert made.shards > 2
    assert seqprep.verify(tmp_path).faults == []
    rows = 0
    with seqprep.Loader(tmp_path) as loader:
        assert loader.keys["cells"] == KeySpec(dtype="int32", shape=(2, None, None))
        for batch in loader:
            assert set(batch) >= {"boxes/size0", "boxes/size1", "cells/size2", "cells/size3"}
            assert batch["boxes/size1"].dtype == np.int32
            sequences = batch["seq_idx"].tolist()
            assert batch["boxes/size1"].tolist() == [BOXES[n] for n in sequences]
            assert batch["cells/size2"].tolist() == [CELLS[n][0] for n in sequences]
            assert batch["cells/size3"].tolist() == [CELLS[n][1] for n in sequences]
            assert batch["boxes"].shape[2:] == (max(batch["boxes/size1"]), 2)
            assert batch["cells"].shape[2:] == (2, max(batch["cells/size2"]), max(batch["cells/size3"]))
            for key, pad in (("data", 0), ("boxes", -1), ("cells", -2)):
                for row, sequence in enumerate(sequences):
                    core = int(batch[f"{key}/core"][row, 1])
                    expected = expected_row(source, key, sequence, int(batch[f"{key}/start"][row]), core)
                    whole = np.full(batch[key].shape[1:], pad, batch[key].dtype)
                    whole[tuple(slice(size) for size in expected.shape)] = expected
                    np.testing.assert_array_equal(batch[key][row], whole)
            rows += len(sequences)
    assert rows == made.rows == sum(-(-length // 3) for length in LENGTHS)


def test_shards_are_cut_by_the_bytes_that_rows_really_have(tmp_path: Path, source: RaggedSource) -> None:
    planned = plan_source(load_config(settings(tmp_path)), source)
    plan, stored = planned.parts[""], planned.stored
    for shard in (plan.shard(i) for i in range(len(plan))):
        total = sum(shard.keys["data"].frames * 12)
        total += sum(shard.keys["boxes"].frames * shard.sizes["boxes"][:, 0] * 8)
        total += sum(shard.keys["cells"].frames * 2 * shard.sizes["cells"].prod(axis=1) * 4)
        assert total <= 600 or len(shard.sequence) == 1
    assert stored["boxes"].units(source.axis_sizes("boxes")).tolist() == BOXES


def test_budgets_count_frames_of_time_only(tmp_path: Path, source: RaggedSource) -> None:
    whole = settings(tmp_path, chunk=None, batch={"max_frames": {"boxes": 24}}, order={"by": "source"}, context={})
    whole["output"]["shard_size"] = "1MB"
    shard = plan_source(load_config(whole), source).parts[""].shard(0)
    assert shard.batch_rows.tolist() == [2, 2, 1]  # of 7, 1, 12, 3 and 9 frames


def test_h5py_alone_reads_them_as_documented(tmp_path: Path, source: RaggedSource) -> None:
    seqprep.chunk(settings(tmp_path, output={"path": str(tmp_path)}))
    snippet = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "format.md").read_text(encoding="utf-8"), re.S)[1]
    assert len(snippet.strip().splitlines()) - snippet.count("import ") <= 5
    with seqprep.Loader(tmp_path) as loader:
        np.savez(tmp_path / "expected.npz", *(batch["boxes"] for batch in loader))
    code = (
        "import sys\nsys.modules['seqprep'] = None\nimport numpy, h5py\n"
        f"path = {str(next(tmp_path.glob('*.h5')))!r}\nexpected = numpy.load({str(tmp_path / 'expected.npz')!r})\n"
        "assert len(expected.files) == h5py.File(path)['batches/rows'].shape[0] > 2\n"
        "for i, name in enumerate(expected.files):\n"
        + "".join(f"    {line}\n" for line in snippet.splitlines())
        + "    numpy.testing.assert_array_equal(expected[name], boxes, strict=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_tensorflow_reads_them(tmp_path: Path, source: RaggedSource) -> None:
    import tensorflow as tf

    output = {"path": str(tmp_path), "format": "tfrecord"}
    seqprep.chunk(settings(tmp_path, output=output))
    names = {"boxes": tf.float32, "boxes/size1": tf.int32}
    spec = {name: tf.io.FixedLenFeature([], tf.string) for name in names}
    records = [
        tf.io.parse_single_example(r, spec) for r in tf.data.TFRecordDataset(str(next(tmp_path.glob("*.tfrecord"))))
    ]
    with seqprep.Loader(tmp_path) as loader:
        for batch, record in zip(loader, records, strict=True):
            for name, dtype in names.items():
                np.testing.assert_array_equal(tf.io.parse_tensor(record[name], dtype).numpy(), batch[name], strict=True)
    from seqprep.tensorflow import dataset

    with seqprep.Loader(tmp_path) as loader:
        made = dataset(loader, inputs=["boxes", "boxes/size1"])
        assert made.element_spec["boxes"].shape.as_list() == [None, None, None, 2]
        assert sum(int(values["boxes_size1"].shape[0]) for values in made) == sum(-(-length // 3) for length in LENGTHS)


def test_a_source_that_doesnt_tell_its_sizes(tmp_path: Path, source: RaggedSource) -> None:
    source.axis_sizes = lambda key: np.zeros((2, 1))  # type: ignore[method-assign]
    with pytest.raises(
        SourceError, match=r"key 'boxes': axis_sizes\(\) of its source gave \[2, 1\] values, .* \[5, 1\] si"
    ):
        seqprep.chunk(settings(tmp_path))
    source.axis_sizes = None  # type: ignore[method-assign, assignment]
    with pytest.raises(
        SourceError, match=r"key 'boxes' has an axis of varying size, but its source lacks axis_sizes\(\)"
    ):
        seqprep.chunk(settings(tmp_path))


def test_shapes_in_an_index() -> None:
    assert parse_keys({"x": {"dtype": "int8", "shape": [None, 2], "has_time": True}})["x"].shape == (None, 2)
    with pytest.raises(ValueError, match="invalid literal"):
        parse_keys({"x": {"dtype": "int8", "shape": ["N"], "has_time": True}})
