"""Shards of any content: tables and batches drawn at random, and written without a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from seqprep.shards import Index, ShardRecord, ShardTable, Storage, shard_name, write_index, write_shard
from seqprep.types import Array, KeySpec, Tags, numpy_dtype
from tests.execution.systems import QuickStorage

DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
          "float64")  # fmt: skip
KINDS = [("hdf5", "none"), ("hdf5", "gzip"), ("hdf5", "zstd"), ("tfrecord", "none"), ("tfrecord", "gzip")]


@dataclass(frozen=True)
class Content:
    """What a shard holds."""

    table: ShardTable
    batches: list[dict[str, Array]]

    @property
    def keys(self) -> dict[str, KeySpec]:
        return dict(self.table.keys)


def values(random: np.random.Generator, shape: Sequence[int], dtype: str) -> Array:
    """Values of any bits: NaN, infinities and subnormals included."""
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    kind = numpy_dtype(dtype)
    array = np.frombuffer(random.bytes(count * kind.itemsize), kind).reshape(shape).copy()
    if count and kind.name in ("float16", "bfloat16", "float32", "float64"):
        array.reshape(-1)[random.integers(0, count, 3)] = [np.nan, np.inf, -np.inf]
    return array


def make_content(keys: dict[str, KeySpec], rows: Sequence[int], frames: Sequence[int], seed: int = 0) -> Content:
    """Batches of so many rows and frames each; tags of any characters.

    Args:
        keys: at least one has time.
        rows: of each batch.
        frames: of each batch, its longest row, in every key.
        seed: of the values.
    """
    random = np.random.default_rng(seed)
    total = sum(rows)
    lengths = np.concatenate(
        [random.integers(0, longest + 1, count) for count, longest in zip(rows, frames, strict=True)]
    )
    lengths[np.cumsum(rows) - 1] = frames
    fields: dict[str, Array] = {"seq_idx": random.integers(0, 1 << 40, total)}
    for name, spec in keys.items():
        if spec.has_time:
            left = lengths // 3
            fields[f"{name}/size0"] = lengths.astype(np.int32)
            fields[f"{name}/start"] = random.integers(0, 1 << 40, total)
            fields[f"{name}/core"] = np.stack([left, lengths - left], axis=1).astype(np.int32)
            fields[f"{name}/length"] = lengths + random.integers(0, 100, total)
    table = ShardTable(
        keys=keys,
        batch_rows=np.array(rows, np.int64),
        batch_frames={name: np.array(frames, np.int64) for name, spec in keys.items() if spec.has_time},
        fields=fields,
        tags=Tags.of("/größe \n" * (row % 3) + f"{row}" * (row % 5) for row in range(total)),
    )
    batches = [
        {name: values(random, table.shape(name, batch), spec.dtype) for name, spec in keys.items()}
        for batch in range(len(rows))
    ]
    return Content(table, batches)


@st.composite
def contents(draw: st.DrawFn) -> Content:
    """Any content that a shard may have: 0-length rows, frames without features, keys without time."""
    shapes = st.lists(st.integers(0, 3), max_size=2).map(tuple)
    specs = st.builds(KeySpec, dtype=st.sampled_from(DTYPES), shape=shapes, has_time=st.booleans())
    first = draw(st.builds(KeySpec, dtype=st.sampled_from(DTYPES), shape=shapes))
    others = draw(st.dictionaries(st.sampled_from(["b", "data.x", "größe", "size0"]), specs, max_size=2))
    rows = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    frames = draw(st.lists(st.integers(0, 6), min_size=len(rows), max_size=len(rows)))
    return make_content({"data": first, **others}, rows, frames, draw(st.integers(0, 1000)))


def index_of(content: Content, format: str, compression: str = "none") -> Index:
    """The index of a dataset of this shard, without it."""
    codec = {} if compression == "none" else {"compression": compression, "codec": "a release"}
    configuration = {"output": {"format": format, "compression": compression}}
    return Index(format=format, fingerprint="0123456789abcdef", configuration=configuration, source={"tags": "1"},
                 keys=content.keys, sequences=1 << 40, shards=(), **codec)  # fmt: skip


def write(
    path: Path, content: Content, format: str, compression: str = "none", storage: Storage | None = None
) -> ShardRecord:
    """Writes one shard with its sidecar."""
    index = index_of(content, format, compression)
    made = write_shard(path, format, content.table, content.batches, index.fingerprint, storage or QuickStorage(),
                       compression=compression, description=index.describe())  # fmt: skip
    return made.commit()


def write_dataset(folder: Path, content: Content, format: str, compression: str = "none") -> Path:
    """Writes a dataset of one shard; gives the shard's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / shard_name(0, 1, format)
    record = write(path, content, format, compression)
    index: Any = index_of(content, format, compression)
    write_index(folder, Index(**{**index.__dict__, "shards": (record,)}), QuickStorage())
    return path


def assert_equal_arrays(one: Array, other: Array) -> None:
    """Equal to the last bit, with dtype and shape."""
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    assert np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()
