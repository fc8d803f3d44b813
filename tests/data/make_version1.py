"""Writes a folder of datasets like version1: `python -m tests.data.make_version1 FOLDER`, from the root of the checkout.

For a new version of the format only: datasets of a released version are never written again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from seqprep import Loader
from seqprep.types import KeySpec
from tests.shards.shards import KINDS, make_content, write_dataset

KEYS = {
    "data": KeySpec(dtype="float32", shape=(3,)),
    "brain": KeySpec(dtype="bfloat16", shape=(2,)),
    "classes": KeySpec(dtype="int32"),
    "speaker": KeySpec(dtype="int64", has_time=False),
}


def main(folder: Path) -> None:
    content = make_content(KEYS, [2, 1], [3, 2])
    for format, compression in KINDS:
        name = "-".join([format, *([compression] if compression != "none" else [])])
        write_dataset(folder / name, content, format, compression)
    expected = {}
    with Loader(folder / "hdf5", rank=0, world_size=1) as loader:
        for number, batch in enumerate(loader):
            for field, array in batch.items():
                values = np.array(list(array)) if field == "seq_tag" else np.array(array)
                expected[f"{number}/{field}"] = values.view(np.uint16) if field == "brain" else values
    np.savez(folder / "expected.npz", **expected)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
