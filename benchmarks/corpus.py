"""The data of the benchmarks: features of 40 float32 and a label per frame, 1.2 million frames in 2,000 sequences.

Cut into chunks of 50 by 25 frames with 5 frames of context a side, 40 rows a batch: 1,246 batches of 390 kB, 487 MB.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

SEQUENCES = 2000
FEATURES = 40


def write_source(path: Path, sequences: int = SEQUENCES) -> None:
    """Writes the sequences in RETURNN's flat layout."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(200, 1000, sequences)
    with h5py.File(path, "w") as file:
        file["inputs"] = draw.standard_normal((lengths.sum(), FEATURES), dtype=np.float32)
        file["targets/data/classes"] = draw.integers(0, 40, lengths.sum()).astype(np.int32)
        file.create_group("targets/size").attrs["classes"] = 40
        file.create_group("targets/labels")
        file.attrs["inputPattSize"], file.attrs["numLabels"] = FEATURES, 40
        file.attrs["numTimesteps"], file.attrs["numSeqs"] = lengths.sum(), sequences
        file["seqLengths"] = np.stack([lengths, lengths], 1).astype(np.int32)
        file["seqTags"] = np.array([f"sequence-{number}".encode() for number in range(sequences)])


def configuration(source: Path, output: Path, output_format: str = "hdf5", shard_size: str = "64MB") -> dict[str, Any]:
    """How the source is cut and batched."""
    return {
        "source": {"type": "hdf5", "path": str(source)},
        "chunk": {"size": 50, "step": 25},
        "context": 5,
        "batch": {"max_sequences": 40},
        "output": {"path": str(output), "format": output_format, "shard_size": shard_size},
    }
