"""Sources of the streaming tests, and configurations drawn at random."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags

SEQUENCES = 22


def write_corpus(path: Path) -> None:
    """Up to 60 frames of features with a label for every 3, in RETURNN's layout."""
    draw = np.random.default_rng(4)
    lengths = np.concatenate([[0, 1, 3], draw.integers(1, 60, SEQUENCES - 3, endpoint=True)])
    with h5py.File(path, "w") as file:
        file["inputs"] = draw.standard_normal((lengths.sum(), 3)).astype(np.float32)
        file["targets/data/classes"] = draw.integers(0, 99, (-(-lengths // 3)).sum()).astype(np.int32)
        file["seqLengths"] = np.stack([lengths, -(-lengths // 3)], axis=1).astype(np.int32)
        file["seqTags"] = [f"größe/{i % 5}/{'語' * i}".encode() for i in range(SEQUENCES)]


class ManyKinds:
    """Even and ragged frames, a transcript with a time of its own, and a key without time; counts what is read."""

    keys: Mapping[str, KeySpec] = {
        "data": KeySpec(dtype="float32", shape=(2,)),
        "boxes": KeySpec(dtype="float64", shape=(None, 4)),
        "text": KeySpec(dtype="int32"),
        "speaker": KeySpec(dtype="int64", shape=(2,), has_time=False),
    }
    tags = Tags.of(f"ü{number}" for number in range(30))

    def __init__(self, fail_at: str = "") -> None:
        self.fail_at = fail_at  # the tag of a sequence that can't be read
        self.reads: list[tuple[str, int, int]] = []
        frames = {"data": np.arange(30) % 11 + 1, "boxes": np.arange(30) % 11 + 1, "text": np.arange(30) * 9 % 40}
        draw = np.random.default_rng(2)
        self.values = {
            name: [
                draw.integers(
                    0,
                    99,
                    ((int(frames[name][i]),) if spec.has_time else ()) + spec.shape_of([i % 4] if spec.ragged else []),
                ).astype(spec.dtype)
                for i in range(30)
            ]
            for name, spec in self.keys.items()
        }

    def lengths(self, key: str) -> Int64:
        return np.array([len(values) for values in self.values[key]], np.int64)

    def axis_sizes(self, key: str) -> Int64:
        return np.arange(30)[:, None] % 4

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        if self.tags[sequence] == self.fail_at:
            raise RuntimeError(f"the disk of {self.fail_at} is gone")
        found = self.values[key][sequence][slice(*frames)] if frames else self.values[key][sequence]
        self.reads.append((key, sequence, len(found) if self.keys[key].has_time else 1))
        if out is None:
            return found
        out[...] = found
        return out

    def fingerprint(self) -> Mapping[str, str]:
        return {"all": "the same"}

    def close(self) -> None:
        pass


def _maybe(draw: random.Random, **choices: list[Any]) -> dict[str, Any]:
    return {name: draw.choice(values) for name, values in choices.items() if draw.random() < 0.4}


def random_configuration(draw: random.Random, corpus: Path, folder: Path) -> dict[str, Any]:
    """Any settings that may or may not go together."""
    cut = draw.random() < 0.7
    size = draw.choice([3, 6, 12, 30])
    kinds = not cut and draw.random() < 0.4
    config: dict[str, Any] = {
        "source": {"type": "tests.streaming.corpora:ManyKinds"} if kinds else {"type": "hdf5", "path": str(corpus)},
        "keys": {"data": _maybe(draw, dtype=["float16"], normalize=["sequence"], pad_value=[-1.5])},
        "batch": draw.choice([{"max_frames": 150}, {"max_sequences": 5}, {"max_frames": 90, "max_sequences": 7}]),
        "order": {"by": draw.choice(["source", "random", "random", "sorted", "laplace:3", "reverse"]), "seed": draw.randrange(9)},
        "output": {"format": draw.choice(["hdf5", "tfrecord"]), "shard_size": draw.choice([1, 700, 4000, 10**6])},
    } | _maybe(draw, epochs=[2, 3], partition=["2/3"])  # fmt: skip
    if kinds:
        config["keys"] |= {"boxes": {}, "text": {"rate": None}, "speaker": {}}
        config["select"] = {"min_frames": 1}
    else:
        config["keys"]["classes"] = {"rate": 3}
    if cut:
        config["chunk"] = {"size": size, "step": draw.choice([3, size, 2 * size])} | _maybe(
            draw,
            tail=["drop", "shift"],
            min_size=[0, 2],
            jitter=[True],
            stop_when_covered=[True],
        )
        if draw.random() < 0.7:
            pad = draw.choice(["zero", "edge", "reflect", "clip", "drop", 2.5])
            config["context"] = {"left": draw.choice([0, 1, 9]), "right": draw.choice([0, 4]), "pad": pad}
    config["batch"] |= _maybe(
        draw,
        bucket=["sorted", {"boundaries": [8, 16]}, {"auto": 3}],
        pad_to=["longest", 6, "bucket"],
        pad_rows=[True],
        drop_last=[True],
    )
    if draw.random() < 0.2:
        config["batch"] = {"max_sequences": 3, "pack": True, "row_frames": 90}
    if config["order"]["by"] == "random" and draw.random() < 0.3:
        config["order"]["scope"] = "global"
    if draw.random() < 0.2:
        config["split"] = {"one": 0.6, "two": 0.4}
    config["output"]["path"] = str(folder / "{split}") if "split" in config else str(folder / "out")
    return config


def random_options(draw: random.Random, keys: list[str]) -> dict[str, Any]:
    """Any options of a loader that go together."""
    world_size = draw.choice([1, 1, 2, 3])
    options: dict[str, Any] = {"rank": draw.randrange(world_size), "world_size": world_size} | _maybe(
        draw,
        shuffle=[True, "shards", "window:2"],
        even=["drop", "none"],
        keys=[[draw.choice(keys)], keys],
        seed=[1, 7],
        threads=[1, 3],
        prefetch=[1, 3],
    )
    kind = draw.random()
    if kind < 0.15 and options.get("even") != "none":
        options["same_shape"] = True
    elif kind < 0.35:
        options["rebatch"] = {"rows": draw.choice([1, 4, 9]), "window": draw.choice([1, 3])}
    return options
