"""How near the loader comes to the raw speed of reading, over a warm dataset of about 500 MB.

Features of 40 float32 and a label per frame; chunks of 50 by 25 frames, 5 frames of context a side, 40 rows a batch.

    python benchmarks/loader.py [--folder FOLDER] [--format hdf5] [--rounds 15]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import h5py
import numpy as np

import seqprep
from seqprep.report.bench import bench

SEQUENCES = 2000


def write_source(path: Path) -> None:
    """1.2 million frames in RETURNN's flat layout."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(200, 1000, SEQUENCES)
    with h5py.File(path, "w") as file:
        file["inputs"] = draw.standard_normal((lengths.sum(), 40), dtype=np.float32)
        file["targets/data/classes"] = draw.integers(0, 40, lengths.sum()).astype(np.int32)
        file["seqLengths"] = np.stack([lengths, lengths], 1).astype(np.int32)
        file["seqTags"] = np.array([f"sequence-{number}".encode() for number in range(SEQUENCES)])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", help="where to put the data; a temporary folder unless given")
    arguments.add_argument("--format", default="hdf5", choices=["hdf5", "tfrecord"])
    arguments.add_argument("--rounds", type=int, default=15)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_source(folder / "source.hdf")
        seqprep.chunk(
            {
                "source": {"type": "hdf5", "path": str(folder / "source.hdf")},
                "chunk": {"size": 50, "step": 25},
                "context": 5,
                "batch": {"max_sequences": 40},
                "output": {"path": str(folder / "shards"), "format": options.format, "shard_size": "64MB"},
            }
        )
        result = bench(folder / "shards", rounds=options.rounds, staging=False)
    print(f"{result.batches} batches, {result.bytes / 1e6:.0f} MB, {options.format}, medians of {result.rounds} rounds")
    for reading in result.readings:
        print(f"{reading.name:20} {reading.gigabytes_per_second:6.2f} GB/s  {reading.share_of_limit:5.2f} of the limit")


if __name__ == "__main__":
    main()
