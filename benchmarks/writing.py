"""How fast shards are written, beside a plain write of the same bytes and other tools writing the same batches.

The limit writes the batches' bytes by `pwrite` into fresh files of the same sizes and syncs them. What seqprep does in
the same time: read the source, cut, gather, checksum, write, sync. The others get the finished batches in memory.

    python benchmarks/writing.py [--folder /dev/shm] [--rounds 5] [--workers 1] [--sequences 2000] [--peers]

Opening the source and planning are timed apart. With several workers, what it takes to start them is, too, and isn't
counted: before each run, one with next to nothing to do is timed. It is of the order of a second and varies, so the run
should last longer (--sequences 12000). The plain write by as many processes stands beside it.
benchmarks/requirements.txt installs the other tools.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from corpus import SEQUENCES, configuration, write_source
from rounds import Way, measure_apart, report

import seqprep
from seqprep import Loader
from seqprep.execution import plan_source

Batches = list[dict[str, np.ndarray[Any, Any]]]
KEYS = ("data", "classes")
SHARDS = 8


def array_bytes(batches: Batches) -> int:
    return sum(array.nbytes for batch in batches for array in batch.values())


def plain(folder: Path, batches: Batches) -> None:
    """Each array by one pwrite, into as many files as the shards are."""
    each = -(-len(batches) // SHARDS)
    for number in range(SHARDS):
        descriptor = os.open(folder / str(number), os.O_CREAT | os.O_WRONLY)
        offset = 0
        for batch in batches[number * each : (number + 1) * each]:
            for array in batch.values():
                offset += os.pwrite(descriptor, array.reshape(-1).view(np.uint8).data, offset)
        os.fsync(descriptor)
        os.close(descriptor)


def savez(folder: Path, batches: Batches) -> None:
    for number, batch in enumerate(batches):
        np.savez(folder / f"{number}.npz", **batch)


def h5py_chunked(folder: Path, batches: Batches) -> None:
    import h5py

    rows = sum(len(batch["data"]) for batch in batches)
    with h5py.File(folder / "batches.h5", "w") as file:
        made = {
            key: file.create_dataset(key, (rows, *batches[0][key].shape[1:]), batches[0][key].dtype,
                                     chunks=batches[0][key].shape)
            for key in KEYS
        }  # fmt: skip
        row = 0
        for batch in batches:
            for key in KEYS:
                made[key][row : row + len(batch[key])] = batch[key]
            row += len(batch["data"])


def tf_examples(folder: Path, batches: Batches) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(folder / "batches.tfrecord")) as writer:
        for batch in batches:
            feature = {
                key: tf.train.Feature(bytes_list=tf.train.BytesList(value=[array.tobytes()]))
                for key, array in batch.items()
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def records(batches: Batches, by_chunk: bool) -> Iterator[dict[str, bytes]]:
    """Bytes of whole batches, or of each row."""
    for batch in batches:
        for row in range(len(batch["data"])) if by_chunk else [slice(None)]:
            yield {key: array[row].tobytes() for key, array in batch.items()}


def mosaic(folder: Path, batches: Batches, by_chunk: bool) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(folder / "mds"), columns=dict.fromkeys(KEYS, "bytes")) as writer:
        for record in records(batches, by_chunk):
            writer.write(record)


def array_record(folder: Path, batches: Batches, by_chunk: bool) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(folder / "batches.array_record"), "group_size:1")
    for record in records(batches, by_chunk):
        writer.write(b"".join(record.values()))
    writer.close()


def webdataset(folder: Path, batches: Batches, by_chunk: bool) -> None:
    from webdataset import TarWriter

    with TarWriter(str(folder / "batches.tar")) as writer:
        for number, record in enumerate(records(batches, by_chunk)):
            writer.write({"__key__": f"{number:08}"} | {f"{key}.bin": value for key, value in record.items()})


PEERS: dict[str, Callable[[Path, Batches], None]] = {
    "numpy.savez, batches": savez,
    "h5py chunked, batches": h5py_chunked,
    "tf.train.Example, batches": tf_examples,
    "MDSWriter, batches": partial(mosaic, by_chunk=False),
    "MDSWriter, chunks": partial(mosaic, by_chunk=True),
    "ArrayRecord, batches": partial(array_record, by_chunk=False),
    "ArrayRecord, chunks": partial(array_record, by_chunk=True),
    "WebDataset, batches": partial(webdataset, by_chunk=False),
    "WebDataset, chunks": partial(webdataset, by_chunk=True),
}


def fresh(folder: Path, run: Callable[[Path], object], size: int) -> tuple[int, float]:
    """Runs in an empty folder, and removes it."""
    folder.mkdir()
    try:
        started = time.perf_counter()
        run(folder)
        return size, time.perf_counter() - started
    finally:
        shutil.rmtree(folder)


def plain_share(number: int, processes: int, folder: Path, shapes: list[tuple[tuple[int, ...], ...]]) -> float:
    """One process's share of the plain write, of arrays that it has made beforehand; gives its seconds."""
    arrays = {shape: np.ones(shape, np.float32) for shape in {shape for batch in shapes for shape in batch}}
    batches = [{str(place): arrays[shape] for place, shape in enumerate(batch)} for batch in shapes[number::processes]]
    own = folder / str(number)
    own.mkdir(parents=True)
    started = time.perf_counter()
    plain(own, batches)
    return time.perf_counter() - started


def plain_by(pool: Any, processes: int, folder: Path, batches: Batches) -> tuple[int, float]:
    """The plain write by several processes at once: the seconds of the slowest."""
    shapes = [tuple(array.shape for array in batch.values()) for batch in batches]
    try:
        seconds = pool.starmap(plain_share, [(number, processes, folder, shapes) for number in range(processes)], 1)
        return array_bytes(batches), max(seconds)
    finally:
        shutil.rmtree(folder)


def starting(folder: Path, workers: int) -> float:
    """Seconds to start workers: of a run with so little to do that it is nothing else."""
    if workers == 1:
        return 0.0
    source, out = folder / "small.hdf", folder / "small"
    if not source.exists():
        write_source(source, 20 * workers)
    config = configuration(source, out, shard_size="1MB")
    return fresh(out, lambda _: seqprep.chunk(config, workers=workers), 0)[1]


def start_up(config: dict[str, Any]) -> float:
    """Seconds for opening the source and planning: the median of five."""
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        loaded = seqprep.load_config(config)
        source = seqprep.open_source(loaded.source, loaded.document)
        plan_source(loaded, source)
        source.close()
        seconds.append(time.perf_counter() - started)
    return sorted(seconds)[2]


def ways(folder: Path, name: str, workers: int) -> tuple[Way, Way]:
    """The way of this name, and the limit."""
    with Loader(folder / "batches") as loader:
        batches: Batches = [{key: batch[key].copy() for key in KEYS} for batch in loader]
    size, part = array_bytes(batches), batches
    out = folder / "out"

    def limit() -> tuple[int, float]:
        return fresh(out, lambda place: plain(place, batches), size)

    if name in PEERS:
        return lambda: fresh(out, lambda place: PEERS[name](place, part), array_bytes(part)), limit
    if name.startswith("plain"):
        pool = multiprocessing.get_context("spawn").Pool(workers)
        return lambda: plain_by(pool, workers, out, batches), limit
    config = configuration(folder / "source.hdf", out / "shards", name.split()[-1])

    def run() -> tuple[int, float]:
        start = starting(folder, workers)
        done, seconds = fresh(out, lambda _: seqprep.chunk(config, workers=workers), size)
        return done, seconds - start

    return run, limit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="/dev/shm", help="where to put the data; a memory file system by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--sequences", type=int, default=SEQUENCES)
    parser.add_argument("--peers", action="store_true", help="measure the other tools too")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        report(*ways(Path(options.folder), options.measure, options.workers), options.rounds)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        write_source(folder / "source.hdf", options.sequences)
        config = configuration(folder / "source.hdf", folder / "batches")
        made = seqprep.chunk(config, workers=1)
        print(f"{made.bytes / 1e6:.0f} MB, {made.rows:,} chunks, {options.workers} workers, {options.rounds} rounds")
        names = ["seqprep hdf5", "seqprep tfrecord"]
        if options.workers > 1:
            names.append(f"plain write by {options.workers}")
        names += PEERS if options.peers else ()
        measure_apart(__file__, folder, names, options.rounds, "--workers", str(options.workers))
        print(f"opening the source and planning, part of the above: {start_up(config) * 1e3:.0f} ms")
        if options.workers > 1:
            start = sorted(starting(folder, options.workers) for _ in range(5))[2]
            print(f"starting {options.workers} workers, taken off the above: {start:.2f} s")


if __name__ == "__main__":
    main()
