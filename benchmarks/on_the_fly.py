"""How fast batches come straight from a source, cut and batched on the fly: by seqprep.stream, tf.data and RETURNN.

All cut the same HDF5 file alike, and their batches are copied once into one fixed buffer that stands for a device. The
page cache is warm. The rates are set against a limit measured in turns with each: the same batches read ready-made.

    python benchmarks/on_the_fly.py [--folder FOLDER] [--rounds 5]

benchmarks/requirements.txt installs the others.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from corpus import configuration, write_source
from reading import CONTEXT, FEATURES, KEYS, ROWS, SIZE, STEP, Item, Limit, tf_data_on_the_fly, to_device
from rounds import measure_apart, report

import seqprep

OURS = {
    "seqprep.stream, without threads": {"threads": 0},
    "seqprep.stream, one thread": {"threads": 1},
    "seqprep.stream, two threads": {"threads": 2},
    "seqprep.stream, shuffled anew": {"threads": 1, "fresh": True},
}


def returnn(source: Path) -> Iterator[Item]:
    """By the package's own pipeline for TensorFlow, which fills a queue in a thread."""
    from returnn.datasets.hdf import HDFDataset
    from returnn.tensor import TensorDict
    from returnn.tf.data_pipeline import FeedDictDataProvider

    dataset = HDFDataset(files=[str(source)], chunking=f"{SIZE}:{STEP}", context_window=2 * CONTEXT + 1)
    dataset.initialize()
    dataset.init_seq_order(epoch=1)
    data = {"dim": FEATURES, "shape": (None, FEATURES), "dtype": "float32"}
    classes = {"dim": 40, "sparse": True, "shape": (None,), "dtype": "int32"}
    expected = TensorDict()
    expected.update({"data": data, "classes": classes}, auto_convert=True)
    batches = dataset.generate_batches(recurrent_net=True, batch_size=10**9, max_seqs=ROWS)
    provider = FeedDictDataProvider(dataset=dataset, batches=batches, extern_data=expected, data_keys=KEYS)
    provider.start_threads(None)
    try:
        while provider.have_more_data(None):
            batch = provider.queue.get()
            yield {key: batch[key] for key in KEYS}
    finally:
        provider.stop_threads()


PEERS: dict[str, Callable[[Path], Iterable[Item]]] = {
    "tf.data": tf_data_on_the_fly,
    "RETURNN": returnn,
}


def reader(source: Path, name: str) -> Callable[[], Iterable[Item]]:
    """What gives the batches once, under this name."""
    if name in PEERS:
        return lambda: PEERS[name](source)
    options = OURS[name]
    order = {"order": {"by": "random"}} if "fresh" in options else {}
    stream = seqprep.stream(configuration(source, Path("unused")) | order, **options)
    return lambda: ({key: batch[key] for key in KEYS} for batch in stream)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where to put the data; a temporary folder unless given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(Path(options.folder), options.measure, options.rounds)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_source(folder / "source.hdf")
        seqprep.chunk(configuration(folder / "source.hdf", folder / "hdf5"))
        shares = measure_apart(__file__, folder, [*OURS, *PEERS], options.rounds)
        for peer in PEERS.keys() & shares.keys():
            ratios = ", ".join(f"{shares[name] / shares[peer]:.0f}" for name in OURS if name in shares)
            print(f"times {peer}: {ratios}")


def measure(folder: Path, name: str, rounds: int) -> None:
    """Measures one reader beside the limit."""
    limit = Limit(folder / "hdf5")
    device = np.zeros(len(limit.buffer), np.uint8)
    try:
        read = reader(folder / "source.hdf", name)
    except Exception as error:  # noqa: BLE001 - a peer that isn't installed is named in the result
        print(json.dumps({"failure": f"{type(error).__name__}: {error}".splitlines()[0][:100]}))
        return
    report(lambda: to_device(read(), device), lambda: limit.read(device), rounds)


if __name__ == "__main__":
    main()
