"""How fast batches reach one fixed buffer that stands for a device, by seqprep and by other tools, in one run.

The limit reads each array by one preadv into one warm buffer and copies it. The page cache is warm for everybody.

    python benchmarks/reading.py [--folder FOLDER] [--rounds 5] [--peers]

benchmarks/requirements.txt installs the other tools.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from corpus import FEATURES, configuration, write_source
from rounds import measure_apart, report
from writing import KEYS, Batches, array_record, mosaic, webdataset

import seqprep
from seqprep import Loader
from seqprep.files import read_exactly
from seqprep.shards import Dataset

MOST_SECONDS = 4.0  # after which a slow reader is stopped; its rate counts
SHAPES = {"data": (60, FEATURES), "classes": (50,)}
DTYPES = {"data": np.float32, "classes": np.int32}
SIZE, STEP, CONTEXT, ROWS = 50, 25, 5, 40

Item = Mapping[str, Any]


def to_device(items: Iterable[Item], device: np.ndarray[Any, Any]) -> tuple[int, float]:
    """Copies every array; gives the bytes and the seconds."""
    size, started = 0, time.perf_counter()
    for item in items:
        for array in item.values():
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            device[: len(flat)] = flat
            size += len(flat)
        if time.perf_counter() - started > MOST_SECONDS:
            break
    return size, time.perf_counter() - started


class Limit:
    """One preadv an array."""

    def __init__(self, path: Path) -> None:
        dataset = Dataset(path)
        self.ranges: list[tuple[int, int, int]] = []
        for shard in range(len(dataset.index.shards)):
            sidecar, file = dataset.sidecar(shard), os.open(dataset.shard_path(shard), os.O_RDONLY)
            sizes = {key: sidecar.table.array_bytes(key).tolist() for key in KEYS}
            self.ranges += [
                (file, int(sidecar.offsets[key][batch]), sizes[key][batch])
                for batch in range(len(sizes["data"]))
                for key in KEYS
            ]
        self.buffer = np.zeros(max(size for _, _, size in self.ranges), np.uint8)

    def read(self, device: np.ndarray[Any, Any]) -> tuple[int, float]:
        """Reads all batches once; gives the bytes and the seconds."""
        started = time.perf_counter()
        for file, offset, size in self.ranges:
            read_exactly(file, self.buffer[:size], offset)
            device[:size] = self.buffer[:size]
        return sum(size for _, _, size in self.ranges), time.perf_counter() - started


def h5py_slices(path: Path) -> Iterator[Item]:
    """As docs/format.md shows it."""
    import h5py

    for shard in sorted(path.glob("*.h5")):
        with h5py.File(shard) as file:
            rows = file["batches/rows"][:]
            places = {key: (file[f"batches/{key}.offset"][:], file[f"batches/{key}.frames"][:]) for key in KEYS}
            for batch, count in enumerate(rows.tolist()):
                item = {}
                for key in KEYS:
                    start, frames = int(places[key][0][batch]), int(places[key][1][batch])
                    values = file[key][start : start + count * frames]
                    item[key] = values.reshape(count, frames, *values.shape[1:])
                yield item


def tf_data(path: Path) -> Iterator[Item]:
    """TFRecord shards by tf.data's own operations."""
    import tensorflow as tf

    def parse(record: Any) -> Any:
        found = tf.io.parse_single_example(record, {key: tf.io.FixedLenFeature([], tf.string) for key in KEYS})
        return {key: tf.io.parse_tensor(found[key], tf.as_dtype(DTYPES[key])) for key in KEYS}

    files = sorted(map(str, path.glob("*.tfrecord")))
    dataset = tf.data.TFRecordDataset(files, num_parallel_reads=2).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


def tf_data_on_the_fly(source: Path) -> Iterator[Item]:
    """Cut, padded and batched by tf.data from sequences in memory."""
    import tensorflow as tf

    sequences = list(sequences_of(source))

    def chunks(data: Any, classes: Any) -> Any:
        count = -(-tf.shape(data)[0] // STEP)
        wide = tf.pad(data, [[CONTEXT, CONTEXT + SIZE], [0, 0]])
        places = tf.range(count)[:, None] * STEP
        return tf.data.Dataset.from_tensor_slices({
            "data": tf.gather(wide, places + tf.range(SIZE + 2 * CONTEXT)),
            "classes": tf.gather(tf.pad(classes, [[0, SIZE]]), places + tf.range(SIZE)),
        })  # fmt: skip

    signature = (tf.TensorSpec([None, FEATURES], tf.float32), tf.TensorSpec([None], tf.int32))
    dataset = tf.data.Dataset.from_generator(lambda: iter(sequences), output_signature=signature)
    return dataset.flat_map(chunks).batch(ROWS).prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


def sequences_of(source: Path) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    import h5py

    with h5py.File(source) as file:
        data, classes = file["inputs"][:], file["targets/data/classes"][:]
        ends = np.cumsum(file["seqLengths"][:, 0])
    for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        yield data[begin:end], classes[begin:end]


def returnn_on_the_fly(source: Path) -> Iterator[Item]:
    """Cut and batched by the package returnn, the rows put together as its feed loop does."""
    from returnn.datasets.hdf import HDFDataset

    dataset = HDFDataset(files=[str(source)], chunking=f"{SIZE}:{STEP}", context_window=2 * CONTEXT + 1)
    dataset.initialize()
    dataset.init_seq_order(epoch=1)
    batches = dataset.generate_batches(recurrent_net=True, batch_size=10**9, max_seqs=ROWS)
    while batches.has_more():
        (batch,) = batches.peek_next_n(1)
        item = {key: np.zeros((batch.num_slices, *SHAPES[key]), DTYPES[key]) for key in KEYS}
        for row in batch.seqs:
            dataset.load_seqs(row.seq_idx, row.seq_idx + 1)
            for key in KEYS:
                begin, end = row.seq_start_frame[key], row.seq_end_frame[key]
                values = dataset.get_data_slice(row.seq_idx, key, begin, end)
                item[key][row.batch_slice, : len(values)] = values[: SHAPES[key][0]]
        batches.advance(1)
        yield item


def split(record: bytes) -> Item:
    """A record of all keys' bytes."""
    item, begin = {}, 0
    rows = len(record) // sum(int(np.prod(SHAPES[key])) * np.dtype(DTYPES[key]).itemsize for key in KEYS)
    for key in KEYS:
        count = rows * int(np.prod(SHAPES[key]))
        item[key] = np.frombuffer(record, DTYPES[key], count, begin)
        begin += item[key].nbytes
    return item


def from_bytes(sample: Mapping[str, bytes]) -> Item:
    return {key: np.frombuffer(sample[key], DTYPES[key]) for key in KEYS}


def mosaic_streaming(folder: Path) -> Iterator[Item]:
    from streaming import StreamingDataset

    return map(from_bytes, StreamingDataset(local=str(folder / "mds"), shuffle=False, batch_size=1))


def read_webdataset(folder: Path) -> Iterator[Item]:
    from webdataset import WebDataset

    samples = WebDataset(str(folder / "batches.tar"), shardshuffle=False)
    return ({key: np.frombuffer(sample[f"{key}.bin"], DTYPES[key]) for key in KEYS} for sample in samples)


def grain_array_record(folder: Path) -> Iterator[Item]:
    import grain.python as grain

    source = grain.ArrayRecordDataSource([str(folder / "batches.array_record")])
    return map(split, iter(grain.MapDataset.source(source).to_iter_dataset()))


def write_hf(folder: Path, batches: Batches) -> None:
    import datasets

    def rows() -> Iterator[dict[str, Any]]:
        for batch in batches:
            for row in range(len(batch["data"])):
                yield {key: batch[key][row].reshape(-1) for key in KEYS}

    datasets.disable_progress_bars()
    made = datasets.Dataset.from_generator(rows, cache_dir=str(folder / "cache"))
    made.save_to_disk(str(folder / "hf"))


def huggingface(folder: Path) -> Iterator[Item]:
    import datasets

    datasets.disable_progress_bars()
    loaded = datasets.load_from_disk(str(folder / "hf")).with_format("numpy")
    return ({key: np.asarray(found[key]) for key in KEYS} for found in loaded.iter(ROWS))


def read_through(folder: Path, options: str) -> Callable[[], Iterable[Item]]:
    """Our loader over one format, verified or not; opened once."""
    loader = Loader(folder / options.split()[0], verify="always" if options.endswith("verified") else "never")
    return lambda: ({key: batch[key] for key in KEYS} for batch in loader)


OURS = ["hdf5", "hdf5 verified", "tfrecord", "tfrecord verified"]
PEERS: dict[str, Callable[[Path], Iterable[Item]]] = {
    "h5py, slices of our shards": lambda folder: h5py_slices(folder / "hdf5"),
    "tf.data, our TFRecord shards": lambda folder: tf_data(folder / "tfrecord"),
    "tf.data, cutting on the fly": lambda folder: tf_data_on_the_fly(folder / "source.hdf"),
    "RETURNN, cutting on the fly": lambda folder: returnn_on_the_fly(folder / "source.hdf"),
}
TOOLS: dict[str, tuple[Callable[..., None], Callable[[Path], Iterable[Item]]]] = {
    "MosaicML Streaming": (mosaic, mosaic_streaming),
    "WebDataset": (webdataset, read_webdataset),
    "grain + ArrayRecord": (array_record, grain_array_record),
}


def reader(folder: Path, name: str) -> Callable[[], Iterable[Item]]:
    """What reads the batches once, under this name."""
    if name in OURS:
        return read_through(folder, name)
    if name in PEERS:
        return lambda: PEERS[name](folder)
    with closing(Loader(folder / "hdf5")) as loader:
        part: Batches = [{key: batch[key].copy() for key in KEYS} for batch in islice(loader, len(loader) // 4)]
    place = folder / name.replace(" ", "-")
    place.mkdir(exist_ok=True)
    if name.startswith("HF"):
        write_hf(place, part)
        return lambda: huggingface(place)
    tool, _, what = name.rpartition(", ")
    write, read = TOOLS[tool]
    write(place, part, by_chunk=what == "chunks")
    return lambda: read(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where to put the data; a temporary folder unless given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", action="store_true", help="measure the other tools too")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(Path(options.folder), options.measure, options.rounds)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_source(folder / "source.hdf")
        for output_format in ("hdf5", "tfrecord"):
            seqprep.chunk(configuration(folder / "source.hdf", folder / output_format, output_format))
        names = list(OURS)
        if options.peers:
            names += [*PEERS, "HF datasets, 40 rows a time"]
            names += [f"{tool}, {what}" for tool in TOOLS for what in ("batches", "chunks")]
        print(f"medians of {options.rounds} rounds")
        measure_apart(__file__, folder, names, options.rounds)


def measure(folder: Path, name: str, rounds: int) -> None:
    """Measures one reader beside the limit."""
    limit = Limit(folder / "hdf5")
    device = np.zeros(len(limit.buffer), np.uint8)
    try:
        read = reader(folder, name)
    except Exception as error:  # noqa: BLE001 - a peer that isn't installed is named in the result
        print(json.dumps({"failure": f"{type(error).__name__}: {error}".splitlines()[0][:100]}))
        return
    report(lambda: to_device(read(), device), lambda: limit.read(device), rounds)


if __name__ == "__main__":
    main()
