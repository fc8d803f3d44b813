"""Both formats hold the same batches, to the bit, whatever is stored: any dtype, shape, length and value."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seqprep
from seqprep import Loader
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags, numpy_dtype
from tests.examples import examples

from .small import QUICK

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
    "float64",
)  # fmt: skip


@dataclass
class Drawn:
    """A source of arrays in memory."""

    keys: Mapping[str, KeySpec]
    tags: Tags
    values: Mapping[str, list[Array]]
    ragged: Int64
    """int64 [sequences]: the size of the axis that varies."""

    def lengths(self, key: str) -> Int64:
        return np.array([len(values) for values in self.values[key]], np.int64)

    def axis_sizes(self, key: str) -> Int64:
        return self.ragged[:, None]

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        found = self.values[key][sequence]
        if frames is not None:
            found = found[frames.start : frames.stop]
        if out is None:
            return found
        out[...] = found
        return out

    def fingerprint(self) -> Mapping[str, str]:
        return {"all": "the same"}

    def close(self) -> None:
        pass


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    """An input key, and others: with further axes (of no size, too, or varying), without time."""
    count = draw(st.integers(1, 6))
    lengths = np.array(draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)), np.int64)
    ragged = np.array(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)), np.int64)
    shapes = st.lists(st.integers(0, 3), max_size=2).map(tuple)
    keys = {"data": KeySpec(dtype=draw(st.sampled_from(DTYPES)), shape=draw(shapes))}
    keys["more"] = KeySpec(dtype=draw(st.sampled_from(DTYPES)), shape=(None, *draw(shapes)))
    keys["once"] = KeySpec(dtype=draw(st.sampled_from(DTYPES)), shape=draw(shapes), has_time=False)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    values: dict[str, list[Array]] = {}
    for name, spec in keys.items():
        values[name] = []
        for length, size in zip(lengths.tolist(), ragged.tolist(), strict=True):
            shape = ((length,) if spec.has_time else ()) + spec.shape_of([size] if spec.ragged else [])
            values[name].append(any_bits(random, spec.dtype, shape))
    tags = draw(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=count, max_size=count, unique=True))  # fmt: skip
    return Drawn(keys, Tags.of(tags), values, ragged)


def any_bits(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Every pattern of bits that the dtype has: NaN with payloads, infinities, negative zeros among them."""
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    values = np.frombuffer(random.bytes(int(np.prod(shape)) * numpy_dtype(dtype).itemsize), numpy_dtype(dtype)).reshape(shape).copy()  # fmt: skip
    if values.size and np.issubdtype(numpy_dtype(dtype), np.floating):
        values.reshape(-1)[:3:1] = np.array([np.nan, np.inf, -0.0])[: min(values.size, 3)]
    return values


def bits(value: Any) -> Any:
    return list(value) if isinstance(value, Tags) else (value.dtype.name, value.shape, value.tobytes())


def batches(folder: Path) -> list[dict[str, Any]]:
    with Loader(folder, rank=0, world_size=1) as loader:
        return [{name: bits(value) for name, value in batch.items()} for batch in loader]


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    source=drawn(), rows=st.integers(1, 4), packed=st.booleans(), compression=st.sampled_from(["none", "gzip", "zstd"])
)
def test_content_is_the_same(
    monkeypatch: pytest.MonkeyPatch, source: Drawn, rows: int, packed: bool, compression: str
) -> None:
    monkeypatch.setattr("seqprep.execution.run.open_source", lambda *_: source)
    found = {}
    with tempfile.TemporaryDirectory() as name:
        for output in ("hdf5", "tfrecord"):
            folder = Path(name) / output
            own = "gzip" if output == "tfrecord" and compression == "zstd" else compression
            seqprep.chunk(
                {
                    "source": {"type": "made up"},
                    "keys": {"data": {}, "more": {}, "once": {}},
                    "chunk": None,
                    "batch": {"max_sequences": rows} | ({"pack": True, "row_frames": 20} if packed else {}),
                    "output": {"path": str(folder), "format": output, "compression": own, "shard_size": 200},
                },
                storage=QUICK,
            )
            assert seqprep.verify(folder, workers=1).faults == []
            found[output] = batches(folder)
    assert found["hdf5"] == found["tfrecord"]
    assert_rows_are_the_sources(found["hdf5"], source)


def assert_rows_are_the_sources(given: list[dict[str, Any]], source: Drawn) -> None:
    """Every row's values are those of its sequence, bit for bit, with what fills it up behind them."""
    seen = []
    for batch in given:
        arrays = {
            name: np.frombuffer(value[2], numpy_dtype(value[0])).reshape(value[1])
            for name, value in batch.items()
            if name != "seq_tag"
        }
        for entry, number in enumerate(arrays["seq_idx"].tolist()):
            seen.append(number)
            assert batch["seq_tag"][entry] == source.tags[number]
            row, start = entry, 0
            if "segment_row" in arrays:
                row, start = int(arrays["segment_row"][entry]), int(arrays["segment_start"][entry])
            frames = len(source.values["data"][number])
            for name in ("data", "more"):
                own = arrays[name][row, start : start + frames]
                if source.keys[name].ragged:
                    own = own[:, : int(source.ragged[number])]
                assert own.tobytes() == source.values[name][number].tobytes()
            assert arrays["once"][entry].tobytes() == source.values["once"][number].tobytes()
    assert sorted(seen) == list(range(len(source.tags)))
