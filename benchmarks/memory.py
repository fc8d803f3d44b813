"""The most memory that `seqprep chunk` takes, on inputs of several sizes, above what one shard needs of its input.

    python benchmarks/memory.py [--folder FOLDER] [--gigabytes 1 8] [--shard-size 256MB]

Each input is made in the folder and removed again; the output takes as much again twice over. One process makes shards;
its peak is what the kernel says of it (ru_maxrss), the interpreter and its libraries included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
from corpus import FEATURES, configuration

FRAMES = 600  # of each sequence
CHUNK = """
import json, resource, sys
import seqprep
empty = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
made = seqprep.chunk(json.loads(sys.argv[1]), workers=1)
print(made.bytes, made.shards, empty * 1024, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def write_large(path: Path, gigabytes: float) -> None:
    """Writes sequences in RETURNN's layout, block by block."""
    block = np.random.default_rng(0).standard_normal((100 * FRAMES, FEATURES), dtype=np.float32)
    count = int(gigabytes * 1e9 / block.nbytes) * 100
    with h5py.File(path, "w") as file:
        inputs = file.create_dataset("inputs", (count * FRAMES, FEATURES), np.float32)
        for begin in range(0, count * FRAMES, len(block)):
            inputs[begin : begin + len(block)] = block
        file["targets/data/classes"] = np.zeros(count * FRAMES, np.int32)
        file["seqLengths"] = np.full((count, 2), FRAMES, np.int32)
        file["seqTags"] = np.array([f"sequence-{number}".encode() for number in range(count)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where to put the data; a temporary folder unless given")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1, 8])
    parser.add_argument("--shard-size", default="256MB")
    options = parser.parse_args()
    for gigabytes in options.gigabytes:
        for output_format in ("hdf5", "tfrecord"):
            with tempfile.TemporaryDirectory(dir=options.folder) as name:
                folder = Path(name)
                write_large(folder / "source.hdf", gigabytes)
                config = configuration(folder / "source.hdf", folder / "out", output_format, options.shard_size)
                config["order"] = {"by": "random"}
                command = [sys.executable, "-c", CHUNK, json.dumps(config)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
            written, shards, empty, peak = map(int, done.stdout.split())
            # the input is spread over the shards evenly
            shard = gigabytes * 1e9 / shards
            print(f"{gigabytes} GB, {output_format}: {written / 1e9:.1f} GB in {shards} shards; peak {peak / 1e6:.0f} MB "
                  f"({empty / 1e6:.0f} before it began), {(peak - shard) / 1e6:.0f} above a shard's input of {shard / 1e6:.0f}",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
