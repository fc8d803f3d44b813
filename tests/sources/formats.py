"""A small corpus with awkward names and lengths, and files of it in every format, written by other tools."""

from __future__ import annotations

import csv
import gzip
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet

from seqprep.types import Array

TAGS = ("plain", "with space", "a/b", "é ü", "日本/x", "last.one")
LENGTHS = (7, 0, 300, 1, 33, 64)

Corpus = dict[str, list[Array]]
Settings = dict[str, Any]


def corpus(seed: int = 0, order: Sequence[str] = TAGS, lengths: Mapping[str, int] | None = None) -> Corpus:
    """`data` float32 [T, 3], `classes` int64 [T], `speaker` int64 []; each tag's values depend on the seed and the tag."""
    found: Corpus = {"data": [], "classes": [], "speaker": []}
    for tag in order:
        draw = np.random.default_rng([seed, *tag.encode()])
        length = (lengths or dict(zip(TAGS, LENGTHS, strict=True)))[tag]
        found["data"].append(draw.standard_normal((length, 3)).astype(np.float32))
        found["classes"].append(draw.integers(-3, 70000, length) * draw.integers(1, 3, length))
        found["speaker"].append(np.array(draw.integers(0, 1 << 40)))
    return found


def rows(made: Corpus, order: Sequence[str] = TAGS) -> list[dict[str, Any]]:
    """As Python's lists and numbers, with an `id`."""
    return [
        {"id": tag, **{key: values[place].tolist() for key, values in made.items()}} for place, tag in enumerate(order)
    ]


def path_order(suffix: str, tags: Sequence[str] = TAGS) -> list[str]:
    """The order in which files named by tags are found."""
    return sorted(tags, key=lambda tag: Path(tag + suffix))


def write_npz_files(folder: Path, made: Corpus, order: Sequence[str], save: Callable[..., None] = np.savez) -> Settings:
    for place, tag in enumerate(order):
        (folder / tag).parent.mkdir(parents=True, exist_ok=True)
        save(folder / f"{tag}.npz", **{key: values[place] for key, values in made.items()})
    return {"type": "npz", "path": str(folder)}


def write_npz_pair(folder: Path, made: Corpus, order: Sequence[str], save: Callable[..., None] = np.savez) -> Settings:
    lengths = [len(array) for array in made["data"]]
    data, classes = np.concatenate(made["data"]), np.concatenate(made["classes"])
    names = np.array(order)
    save(folder / "all.npz", data=data, n=lengths, classes=classes, speaker=np.array(made["speaker"]), names=names)
    return {
        "type": "npz", "path": str(folder / "all.npz"), "lengths": "n", "tags": "names", "without_time": ["speaker"],
    }  # fmt: skip


def arrow_table(made: Corpus, order: Sequence[str]) -> pyarrow.Table:
    return pyarrow.table(
        {
            "name": pyarrow.array(list(order)),
            "data": pyarrow.array([array.tolist() for array in made["data"]], pyarrow.list_(pyarrow.list_(pyarrow.float32(), 3))),
            "classes": pyarrow.array([array.tolist() for array in made["classes"]], pyarrow.list_(pyarrow.int64())),
            "speaker": pyarrow.array([int(value) for value in made["speaker"]]),
        }
    )  # fmt: skip


def write_parquet(folder: Path, made: Corpus, order: Sequence[str], **how: Any) -> Settings:
    pyarrow.parquet.write_table(arrow_table(made, order), folder / "all.parquet", **{"row_group_size": 4, **how})
    return {"type": "parquet", "path": str(folder / "all.parquet"), "tag": "name"}


def write_arrow(folder: Path, made: Corpus, order: Sequence[str], kind: str = "file", **how: Any) -> Settings:
    table, path = arrow_table(made, order), str(folder / "all.arrow")
    opener = pyarrow.ipc.new_file if kind == "file" else pyarrow.ipc.new_stream
    options = pyarrow.ipc.IpcWriteOptions(**how)
    with pyarrow.OSFile(path, "wb") as file, opener(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=4)
    return {"type": "parquet", "path": path, "tag": "name"}


def write_jsonl(folder: Path, made: Corpus, order: Sequence[str], name: str = "all.jsonl") -> Settings:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows(made, order))
    content = text.encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return {"type": "jsonl", "path": str(folder / name), "id": "id"}


def write_csv_files(folder: Path, made: Corpus, order: Sequence[str]) -> Settings:
    """`data` and `classes` alone: CSV has no value for a sequence as a whole."""
    for place, tag in enumerate(order):
        (folder / tag).parent.mkdir(parents=True, exist_ok=True)
        with (folder / f"{tag}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["x", "label, of a kind", "y", "z"])
            for frame, label in zip(made["data"][place].tolist(), made["classes"][place].tolist(), strict=True):
                writer.writerow([frame[0], label, *frame[1:]])
    return {
        "type": "csv", "path": str(folder), "columns": {"data": ["x", "y", "z"], "classes": "label, of a kind"},
        "dtypes": {"classes": "int64"},
    }  # fmt: skip


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature(values: Any) -> bytes:
    """A tf.train.Feature of packed numbers, or of byte strings."""
    if isinstance(values, list):
        return field(1, b"".join(field(1, value) for value in values))
    values = np.atleast_1d(values)
    if values.dtype.kind == "f":
        return field(2, field(1, values.astype("<f4").tobytes()))
    return field(3, field(1, b"".join(map(varint, values.tolist()))))


def features(named: Mapping[str, bytes]) -> bytes:
    return b"".join(field(1, field(1, name.encode()) + field(2, content)) for name, content in named.items())


def sequence_example(context: Mapping[str, Any], lists: Mapping[str, Array]) -> bytes:
    frames = {name: b"".join(field(1, feature(frame)) for frame in array) for name, array in lists.items()}
    return field(1, features({name: feature(value) for name, value in context.items()})) + field(2, features(frames))


def example(named: Mapping[str, Any]) -> bytes:
    return field(1, features({name: feature(value) for name, value in named.items()}))


def masked(data: bytes) -> bytes:
    crc = crc32c.crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def record(content: bytes) -> bytes:
    size = struct.pack("<Q", len(content))
    return size + masked(size) + content + masked(content)


def write_tfrecord(folder: Path, made: Corpus, order: Sequence[str], name: str = "all.tfrecord") -> Settings:
    content = b"".join(
        record(
            sequence_example(
                {"tag": [tag.encode()], "speaker": made["speaker"][place]},
                {"data": made["data"][place], "classes": made["classes"][place]},
            )
        )
        for place, tag in enumerate(order)
    )
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return {"type": "tfrecord", "path": str(folder / name), "tag": "tag"}
