"""What training meets of the loader: small batches, compressed shards, the first batch, and waiting under a step.

    python benchmarks/runtime.py [--folder /dev/shm] [small] [compressed] [first] [restored] [staged]

- small: batches of 64 kB in a second, by one thread.
- compressed: zstd and gzip, against the codec's own rate (decoding the same pieces in a loop) times the threads.
- first: milliseconds from `Loader(path)` to its first batch; median of 20.
- restored: milliseconds from `load_state_dict` to the next batch, at the start and at the end of epochs of 100,000 batches;
  medians of 20 in turns, each with a loader opened anew.
- staged: the share of an epoch in which the consumer is blocked because nothing is staged, under a step that lets go of
  the interpreter lock and lasts 1.2 times reading and staging, at least 500 µs.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from corpus import configuration, write_source

import seqprep
from seqprep import Loader
from seqprep.shards import Dataset
from seqprep.shards.codecs import codec_for

ROUNDS = 5


def small(folder: Path) -> None:
    """Rows of 100 frames of 40 float32: four of them are 64 kB."""
    config = configuration(folder / "source.hdf", folder / "small")
    seqprep.chunk(config | {"chunk": {"size": 100}, "context": 0, "batch": {"max_sequences": 4}}, overwrite=True)
    for threads in (0, 1):
        with Loader(folder / "small", keys=["data"], threads=threads, verify="never") as loader:
            rates = []
            for _ in range(ROUNDS + 1):
                started = time.perf_counter()
                size = sum(batch["data"].nbytes for batch in loader)
                rates.append(len(loader) / (time.perf_counter() - started))
            what = "reading in the consumer's thread" if threads == 0 else "one reading thread"
            print(
                f"small batches, {size / len(loader) / 1e3:.0f} kB, {what}: {statistics.median(rates[1:]):,.0f} a second"
            )


def compressed(folder: Path) -> None:
    """Both measure decoding alone: checksums off, nothing copied."""
    for compression in ("zstd", "gzip"):
        config = configuration(folder / "source.hdf", folder / compression)
        config["output"]["compression"] = compression
        seqprep.chunk(config | {"select": {"max_frames": 700}}, workers=2, overwrite=True)
        dataset, decompress_into = Dataset(folder / compression), codec_for(compression).decompress_into
        pieces = []
        for shard in range(len(dataset.index.shards)):
            found = dataset.sidecar(shard).pieces
            assert found is not None
            data = dataset.shard_path(shard).read_bytes()
            places = zip(found.offset.tolist(), found.size.tolist(), found.decoded.tolist(), strict=True)
            pieces += [(data[offset : offset + size], decoded) for offset, size, decoded in places]
        target = memoryview(bytearray(max(decoded for _, decoded in pieces)))
        for threads in (1, 2):
            shares, rates = [], []
            with Loader(folder / compression, threads=threads, verify="never") as loader:
                for _ in range(ROUNDS):
                    started = time.perf_counter()
                    for stored, decoded in pieces:
                        decompress_into(stored, target[:decoded])
                    codec = sum(decoded for _, decoded in pieces) / (time.perf_counter() - started)
                    started = time.perf_counter()
                    size = sum(batch["data"].nbytes + batch["classes"].nbytes for batch in loader)
                    rates.append(size / (time.perf_counter() - started))
                    shares.append(rates[-1] / (codec * threads))
            print(f"{compression}, {threads} threads: {statistics.median(rates) / 1e9:.3f} GB/s, "
                  f"{statistics.median(shares):.2f} of the codec's rate times the threads")  # fmt: skip


def first(folder: Path) -> None:
    for output_format in ("hdf5", "tfrecord"):
        path = dataset(folder, output_format)
        seconds = []
        for _ in range(20):
            started = time.perf_counter()
            with Loader(path) as loader:
                next(iter(loader))
                seconds.append(time.perf_counter() - started)
        print(
            f"first batch, {output_format}: {statistics.median(seconds) * 1e3:.1f} ms, at most {max(seconds) * 1e3:.1f}"
        )


def restored(folder: Path) -> None:
    source = {
        "type": "synthetic",
        "sequences": 2000,
        "features": 4,
        "min_frames": 500,
        "mean_frames": 500,
        "max_frames": 500,
    }
    path = seqprep.chunk(
        {
            "source": source,
            "chunk": {"size": 10},
            "batch": {"max_sequences": 1},
            "output": {"path": str(folder / "many"), "shard_size": "1MB"},
        }
    ).path
    for shuffle in (False, True):
        seconds: dict[tuple[int, int], list[float]] = {}
        for _ in range(20):
            with Loader(path) as loader:
                count = len(loader)
            for epoch, position in ((0, 0), (0, count // 2), (0, count - 1), (1000, 0), (1000, count - 1)):
                with Loader(path, shuffle=shuffle) as loader:
                    state = loader.state_dict() | {"epoch": epoch, "position": position}
                    started = time.perf_counter()
                    loader.load_state_dict(state)
                    next(iter(loader))
                    seconds.setdefault((epoch, position), []).append(time.perf_counter() - started)
        for (epoch, position), of in seconds.items():
            print(f"restored, shuffle={shuffle}, epoch {epoch}, batch {position:,} of {count:,}: "
                  f"{statistics.median(of) * 1e3:.1f} ms, at most {max(of) * 1e3:.1f}")  # fmt: skip


def staged(folder: Path) -> None:
    path = dataset(folder, "hdf5")
    for framework, device in (("tensorflow", "/CPU:0"), ("torch", "cpu"), ("jax", None)):
        try:
            adapter: Any = importlib.import_module(f"seqprep.{framework}")
            importlib.import_module(framework)
        except ImportError as error:
            print(f"staged, {framework}: not measured: {error}")
            continue
        with Loader(path) as loader, adapter.stage(loader, device=device) as stage:
            for _ in itertools.islice(stage, 100):
                pass
            started = time.perf_counter()
            for _ in stage:
                pass
            each = (time.perf_counter() - started) / len(loader)  # reading and staging, side by side
            step, shares = max(1.2 * each, 500e-6), []
            for _ in range(3):
                before, started = stage.metrics().blocked_seconds, time.perf_counter()
                for _ in stage:
                    time.sleep(step)
                total = time.perf_counter() - started
                shares.append((stage.metrics().blocked_seconds - before) / total)
            print(f"staged, {framework}: reading and staging {each * 1e6:.0f} µs a batch, step {step * 1e6:.0f} µs, "
                  f"blocked {statistics.median(shares):.2%}")  # fmt: skip


def dataset(folder: Path, output_format: str) -> Path:
    """The corpus in one format, made once."""
    path = folder / output_format
    if not path.exists():
        seqprep.chunk(configuration(folder / "source.hdf", path, output_format))
    return path


PARTS = {"small": small, "compressed": compressed, "first": first, "restored": restored, "staged": staged}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[], help="which of them; all unless given")
    parser.add_argument("--folder", default="/dev/shm", help="where to put the data; a memory file system by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        write_source(Path(name) / "source.hdf")
        for part in options.parts or PARTS:
            PARTS[part](Path(name))


if __name__ == "__main__":
    main()
