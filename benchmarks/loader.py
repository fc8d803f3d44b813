"""How near the loader comes to the raw speed of reading, over a warm dataset of about 500 MB.

python benchmarks/loader.py [--folder FOLDER] [--format hdf5] [--rounds 15]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from corpus import configuration, write_source

import seqprep
from seqprep.report.bench import bench


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", help="where to put the data; a temporary folder unless given")
    arguments.add_argument("--format", default="hdf5", choices=["hdf5", "tfrecord"])
    arguments.add_argument("--rounds", type=int, default=15)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_source(folder / "source.hdf")
        seqprep.chunk(configuration(folder / "source.hdf", folder / "shards", options.format))
        result = bench(folder / "shards", rounds=options.rounds, staging=False)
    print(f"{result.batches} batches, {result.bytes / 1e6:.0f} MB, {options.format}, medians of {result.rounds} rounds")
    for reading in result.readings:
        print(f"{reading.name:20} {reading.gigabytes_per_second:6.2f} GB/s  {reading.share_of_limit:5.2f} of the limit")


if __name__ == "__main__":
    main()
