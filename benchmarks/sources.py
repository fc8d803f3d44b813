"""How fast whole sequences are read of every format: warm, on one core, into one buffer, beside a plain read of the same
files in pieces of a sequence's size, and the nearest library's own reader. All take turns in every round; the figures are
medians, of ratios those within a round.

    python benchmarks/sources.py [--folder FOLDER] [--rounds 9] [--only parquet,csv]

`MB/s` counts bytes of values; `of plain` is the time of a plain read of the same files, divided by the reader's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet

from seqprep.checksum import checksum, masked
from seqprep.sources import open_source

SEQUENCES, FEATURES = 400, 40
Reader = Callable[[], Any]


class Case(NamedTuple):
    """One format."""

    settings: dict[str, Any]
    files: list[Path]
    library: str
    read_with_library: Reader


def lengths() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(300, 1500, SEQUENCES)


def frames() -> Iterator[np.ndarray[Any, Any]]:
    draw = np.random.default_rng(1)
    return (draw.standard_normal((length, FEATURES), dtype=np.float32) for length in lengths().tolist())


def tokens() -> list[np.ndarray[Any, Any]]:
    draw = np.random.default_rng(2)
    return [draw.integers(0, 50_000, 4 * length, np.int32) for length in np.tile(lengths(), 10).tolist()]


def hdf5(folder: Path, **how: Any) -> Case:
    """RETURNN's flat layout."""
    import h5py

    path, stops = folder / "all.h5", np.cumsum(lengths()).tolist()
    with h5py.File(path, "w") as file:
        file.create_dataset("inputs", data=np.concatenate(list(frames())), **how)
        file["seqLengths"], file["seqTags"] = lengths()[:, None], [f"{place}" for place in range(SEQUENCES)]

    def read() -> None:
        with h5py.File(path) as file:
            for start, stop in pairwise([0, *stops]):
                file["inputs"][start:stop]

    return Case({"type": "hdf5", "path": str(path)}, [path], "h5py", read)


def hdf5_groups(folder: Path) -> Case:
    """A dataset for each sequence."""
    import h5py

    path = folder / "all.h5"
    with h5py.File(path, "w") as file:
        for place, array in enumerate(frames()):
            file[f"data/{place:06}"] = array

    def read() -> None:
        with h5py.File(path) as file:
            for dataset in file["data"].values():
                dataset[...]

    return Case({"type": "hdf5", "path": str(path)}, [path], "h5py", read)


def kaldi(folder: Path, is_compressed: bool) -> Case:
    import kaldi_native_io

    path, names = folder / "feats.scp", f"ark,scp:{folder}/feats.ark,{folder}/feats.scp"
    if is_compressed:
        with kaldi_native_io.CompressedMatrixWriter(names) as writer:
            for place, array in enumerate(frames()):
                writer.write(f"{place:06}", array, kaldi_native_io.CompressionMethod.kSpeechFeature)
    else:
        with kaldi_native_io.FloatMatrixWriter(names) as writer:
            for place, array in enumerate(frames()):
                writer.write(f"{place:06}", array)

    def read() -> None:
        with kaldi_native_io.SequentialFloatMatrixReader(f"ark:{folder}/feats.ark") as reader:
            for _, array in reader:
                np.array(array)

    return Case({"type": "kaldi", "path": str(path)}, [folder / "feats.ark"], "kaldi_native_io", read)


def audio(folder: Path, suffix: str) -> Case:
    """Of the same numbers of bytes as the features, in 16-bit samples."""
    import soundfile

    draw = np.random.default_rng(3)
    for place, length in enumerate(lengths().tolist()):
        tone = 8000 * np.sin(np.arange(length * FEATURES) * draw.uniform(0.01, 0.3)) + 100 * draw.standard_normal()
        soundfile.write(folder / f"{place:06}.{suffix}", tone.astype(np.int16), 16000)
    files = sorted(folder.iterdir())
    return Case({"type": "audio", "path": str(folder)}, files, "soundfile",
                lambda: [soundfile.read(file, dtype="float32") for file in files])  # fmt: skip


def npz(folder: Path, save: Callable[..., None]) -> Case:
    for place, array in enumerate(frames()):
        save(folder / f"{place}.npz", data=array)
    files = sorted(folder.iterdir())
    return Case({"type": "npz", "path": str(folder)}, files, "numpy", lambda: [np.load(file)["data"] for file in files])


def npy(folder: Path) -> Case:
    for place, array in enumerate(frames()):
        np.save(folder / f"{place}.npy", array)
    files = sorted(folder.iterdir())
    return Case({"type": "npz", "path": str(folder)}, files, "numpy", lambda: [np.load(file) for file in files])


def npz_back_to_back(folder: Path) -> Case:
    path, ends = folder / "all.npz", np.cumsum(lengths())
    np.savez(path, data=np.concatenate(list(frames())), n=lengths())

    def read() -> None:
        whole = np.load(path)["data"]
        for stop, length in zip(ends.tolist(), lengths().tolist(), strict=True):
            whole[stop - length : stop].copy()

    return Case({"type": "npz", "path": str(path), "lengths": "n"}, [path], "numpy", read)


def varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def tfrecord(folder: Path, sequence_examples: bool) -> Case:
    import tensorflow as tf

    path = folder / "all.tfrecord"
    with path.open("wb") as file:
        for array in frames():
            if sequence_examples:
                entries = b"".join(field(1, field(2, field(1, frame.tobytes()))) for frame in array)
                content = field(2, field(1, field(1, b"data") + field(2, entries)))
            else:
                content = field(1, field(1, field(1, b"data") + field(2, field(2, field(1, array.tobytes())))))
            size = struct.pack("<Q", len(content))
            file.write(
                size
                + struct.pack("<I", masked(checksum(size)))
                + content
                + struct.pack("<I", masked(checksum(content)))
            )
    flat = {"data": tf.io.FixedLenSequenceFeature([FEATURES], tf.float32, allow_missing=not sequence_examples)}

    def parse(content: Any) -> Any:
        if sequence_examples:
            return tf.io.parse_single_sequence_example(content, sequence_features=flat)[1]
        return tf.io.parse_single_example(content, flat)

    shape = {} if sequence_examples else {"features": {"data": {"shape": [FEATURES]}}}
    return Case({"type": "tfrecord", "path": str(path), **shape}, [path], "tensorflow",
                lambda: list(tf.data.TFRecordDataset(str(path)).map(parse)))  # fmt: skip


def table_of(values: list[np.ndarray[Any, Any]]) -> Any:
    """A column of lists."""
    flat = pyarrow.array(np.concatenate(values).reshape(-1))
    inner = flat if values[0].ndim == 1 else pyarrow.FixedSizeListArray.from_arrays(flat, FEATURES)
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    return pyarrow.table({"x": pyarrow.ListArray.from_arrays(ends, inner)})


def parquet(folder: Path, values: list[np.ndarray[Any, Any]], **how: Any) -> Case:
    path = folder / "all.parquet"
    pyarrow.parquet.write_table(table_of(values), path, row_group_size=max(1, len(values) // 10), **how)

    def read() -> None:
        with pyarrow.parquet.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                for row in file.read_row_group(group, use_threads=False)["x"]:
                    row.values.flatten().to_numpy().copy() if values[0].ndim > 1 else row.values.to_numpy().copy()

    return Case({"type": "parquet", "path": str(path), "cache_size": "8MB"}, [path], "pyarrow", read)


def arrow(folder: Path) -> Case:
    path, table = folder / "all.arrow", table_of(tokens())
    with pyarrow.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=400)

    def read() -> None:
        with pyarrow.OSFile(str(path)) as file:
            reader = pyarrow.ipc.open_file(file)
            for group in range(reader.num_record_batches):
                for row in reader.get_batch(group)["x"]:
                    row.values.to_numpy().copy()

    return Case({"type": "parquet", "path": str(path)}, [path], "pyarrow", read)


def jsonl(folder: Path) -> Case:
    path = folder / "all.jsonl"
    path.write_text("\n".join(json.dumps({"x": array.tolist()}) for array in tokens()[:400]))
    return Case({"type": "jsonl", "path": str(path)}, [path], "json",
                lambda: [np.array(json.loads(line)["x"]) for line in path.open("rb")])  # fmt: skip


def csv(folder: Path) -> Case:
    for place, array in zip(range(100), frames(), strict=False):
        np.savetxt(folder / f"{place}.csv", array[:, :10], delimiter=",", fmt="%.6g")
    files = sorted(folder.iterdir())
    return Case({"type": "csv", "path": str(folder)}, files, "numpy.loadtxt",
                lambda: [np.loadtxt(file, np.float32, delimiter=",", ndmin=2) for file in files])  # fmt: skip


CASES: dict[str, Callable[[Path], Case]] = {
    "hdf5": hdf5,
    "hdf5, a dataset each": hdf5_groups,
    "hdf5, gzip": lambda folder: hdf5(folder, chunks=(500, FEATURES), compression="gzip", compression_opts=1),
    "kaldi": lambda folder: kaldi(folder, False),
    "kaldi, compressed": lambda folder: kaldi(folder, True),
    "audio, wav": lambda folder: audio(folder, "wav"),
    "audio, flac": lambda folder: audio(folder, "flac"),
    "npy": npy,
    "npz": lambda folder: npz(folder, np.savez),
    "npz, deflated": lambda folder: npz(folder, np.savez_compressed),
    "npz, back to back": npz_back_to_back,
    "tfrecord, Example": lambda folder: tfrecord(folder, False),
    "tfrecord, SequenceExample": lambda folder: tfrecord(folder, True),
    "parquet, tokens": lambda folder: parquet(folder, tokens()),
    "parquet, tokens, zstd": lambda folder: parquet(folder, tokens(), compression="zstd"),
    "parquet, features": lambda folder: parquet(folder, list(frames()), compression="none", use_dictionary=False),
    "arrow, tokens": arrow,
    "jsonl, tokens": jsonl,
    "csv": csv,
}


def plain_read(files: list[Path], sequences: int) -> Reader:
    """Reads whole files in pieces of a sequence's size into one warm buffer."""
    sizes = [file.stat().st_size for file in files]
    buffer = np.zeros(max(1, sum(sizes) // sequences if len(files) < sequences else max(sizes)), np.uint8)

    def read() -> None:
        for file, size in zip(files, sizes, strict=True):
            descriptor = os.open(file, os.O_RDONLY)
            for offset in range(0, size, len(buffer)):
                os.preadv(descriptor, [buffer], offset)
            os.close(descriptor)

    return read


def read_all(source: Any) -> tuple[Reader, int]:
    """Reads all sequences one after the other into one warm buffer; with the bytes of their values."""
    key, spec = next(iter(source.keys.items()))
    sizes = source.lengths(key).tolist()
    buffer = np.zeros((max(sizes), *spec.shape), spec.dtype)

    def read() -> None:
        for sequence, size in enumerate(sizes):
            source.read(key, sequence, out=buffer[:size])

    return read, sum(sizes) * spec.nbytes


def timed(read: Reader) -> float:
    started = time.perf_counter()
    read()
    return time.perf_counter() - started


def measure(name: str, make: Callable[[Path], Case], folder: Path, rounds: int) -> None:
    case = make(folder)
    opening, source = [], None
    for _ in range(3):
        started = time.perf_counter()
        source = open_source(case.settings)
        opening.append(time.perf_counter() - started)
    ours, size = read_all(source)
    first = timed(ours)
    readers = {"plain": plain_read(case.files, len(source.tags)), "ours": ours, "library": case.read_with_library}
    times: dict[str, list[float]] = {reader: [] for reader in readers}
    for _ in range(rounds + 1):
        for reader, read in readers.items():
            times[reader].append(timed(read))
    medians = {reader: statistics.median(taken[1:]) for reader, taken in times.items()}
    share = {
        reader: statistics.median(plain / own for plain, own in zip(times["plain"][1:], taken[1:], strict=True))
        for reader, taken in times.items()
    }
    print(
        f"{name:26}{size / 1e6:8.1f}{size / medians['ours'] / 1e6:10.0f}{share['ours']:10.2f}"
        f"{size / medians['library'] / 1e6:10.0f} {case.library:16}{share['library']:6.2f}"
        f"{size / first / 1e6:12.0f}{statistics.median(opening) * 1e3:12.0f}",
        flush=True,
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--folder", help="where to put the files; a temporary folder unless given")
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--only", default="", help="the beginnings of cases' names, separated by commas")
    options = arguments.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(
        f"{'':26}{'MB':>8}{'MB/s':>10}{'of plain':>10}{'library':>10} {'':16}{'of pl.':>6}{'first MB/s':>12}{'opening ms':>12}"
    )
    for name, make in CASES.items():
        if name.startswith(tuple(options.only.split(","))):
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                measure(name, make, Path(folder), options.rounds)


if __name__ == "__main__":
    main()
