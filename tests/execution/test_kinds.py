"""Every kind of dataset goes through verify, repair, convert and the loader without losing a byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqprep
from seqprep.shards import INDEX_NAME

from .test_layouts import FORMATS, MODES, corpus, settings

__all__ = ["corpus"]  # a fixture

KINDS: dict[str, dict[str, Any]] = {
    **MODES,
    "normalised": {"keys": {"data": {"normalize": "sequence", "dtype": "bfloat16"}}},
    "trimmed and padded": {"context": {"pad": "reflect", "left_initial": 0}, "chunk": {"tail": "shift"}},
    "a part": {"split": {"train": 0.7, "dev": 0.3}},
    "gzip": {"output": {"compression": "gzip"}},
    "gzip, packed": {"batch": {"pack": True, "row_frames": 48}, "output": {"compression": "gzip"}},
    "gzip, two passes": {"epochs": 2, "output": {"compression": "gzip"}},
}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.startswith(".")}


def batches(folder: Path) -> list[dict[str, Any]]:
    with seqprep.Loader(folder) as loader:
        found = []
        for _ in range(loader.passes if hasattr(loader, "passes") else 1):
            found += [{name: np.array(value) for name, value in batch.items()} for batch in loader]
        return found


def assert_equal(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert list(a) == list(b)
        for name in a:
            assert a[name].dtype == b[name].dtype
            np.testing.assert_array_equal(a[name], b[name])


# Each kind from one format to the other and back, and in the longer run the other way, too.
WAYS = [
    pytest.param(kind, format, marks=pytest.mark.slow if (number + other) % 2 else ())
    for number, kind in enumerate(KINDS)
    for other, format in enumerate(FORMATS)
]


@pytest.mark.parametrize(("kind", "format"), WAYS)
def test_nothing_is_lost(
    corpus: tuple[Path, Any],
    tmp_path: Path,
    kind: str,
    format: str,
) -> None:
    split = "split" in KINDS[kind]
    made = tmp_path / ("made/{split}" if split else "made")
    seqprep.chunk(settings(corpus[0], made, format, **KINDS[kind]))
    folder = tmp_path / "made" / ("train" if split else "")
    whole, read = content(folder), batches(folder)
    assert seqprep.verify(folder, against_source=True).faults == []

    (folder / INDEX_NAME).unlink()
    for sidecar in folder.glob("*.idx"):
        sidecar.unlink()
    repaired = seqprep.repair(folder)
    assert repaired.index
    assert content(folder) == whole
    damaged = sorted(folder.glob("shard-*"))[-1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\x00\x01")
    seqprep.repair(folder)
    assert content(folder) == whole

    other = "tfrecord" if format == "hdf5" else "hdf5"
    seqprep.convert(folder, tmp_path / "other", format=other)
    assert seqprep.verify(tmp_path / "other").faults == []
    assert_equal(batches(tmp_path / "other"), read)
    seqprep.convert(tmp_path / "other", tmp_path / "back", format=format)
    assert content(tmp_path / "back") == whole
    seqprep.convert(folder, tmp_path / "few", shard_bytes=1 << 30)
    assert_equal(batches(tmp_path / "few"), read)
