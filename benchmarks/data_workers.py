"""What data workers cost by themselves, per batch, beside a plain queue.Queue and tf.data's from_generator.

Batches of 40 rows of 60 frames of 40 float32 (384 kB) with a label per frame. The fetch functions cost next to nothing
(they give arrays that are there already), so that what is measured is handing over: in `as fetched` each call gives a
whole batch, in `rebatched` 7 rows, whose copying into batches is measured by itself and taken off. In `under a step` the
consumer sleeps for a millisecond after each batch, and what is measured is how long it takes to get one. Medians of
interleaved rounds, in microseconds.

    python benchmarks/data_workers.py [--threads 4] [--rounds 9] [--batches 2000] [--no-tensorflow]
"""

from __future__ import annotations

import argparse
import contextlib
import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import seqprep

ROWS, PART = 40, 7
STEP_SECONDS = 0.001
BUFFERED = 16
Batches = Callable[[], contextlib.AbstractContextManager[Iterator[Any]]]


def rows(count: int) -> dict[str, np.ndarray]:
    return {"data": np.ones((count, 60, 40), np.float32), "classes": np.ones((count, 60), np.int32)}


@contextlib.contextmanager
def data_workers(threads: int, given: int) -> Iterator[Iterator[Any]]:
    batch = rows(given)
    with seqprep.DataWorkers(
        lambda _worker, _size: batch, batch_size=ROWS, num_workers=threads, max_buffered_batches=BUFFERED
    ) as workers:
        yield iter(workers)


@contextlib.contextmanager
def plain_queue(threads: int) -> Iterator[Iterator[Any]]:
    batch = rows(ROWS)
    buffer: queue.Queue[Any] = queue.Queue(BUFFERED)
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            with contextlib.suppress(queue.Full):
                buffer.put(batch, timeout=0.5)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    yield iter(buffer.get, None)
    ended.set()
    for worker in workers:
        worker.join()


@contextlib.contextmanager
def from_generator(threads: int) -> Iterator[Iterator[Any]]:
    import tensorflow as tf

    batch = rows(ROWS)

    def endless() -> Iterator[Any]:
        while True:
            yield batch

    spec = {name: tf.TensorSpec(array.shape, array.dtype) for name, array in batch.items()}

    def one(_: Any) -> Any:
        return tf.data.Dataset.from_generator(endless, output_signature=spec)

    dataset = tf.data.Dataset.range(threads).interleave(one, cycle_length=threads, num_parallel_calls=threads)
    yield iter(dataset.prefetch(BUFFERED))


def microseconds(made: Batches, batches: int, step: float) -> float:
    """Of getting a batch; with a step, without the step."""
    with made() as source:
        for _ in range(2 * BUFFERED):
            next(source)
        spent = 0.0
        started = time.perf_counter()
        for _ in range(batches):
            begun = time.perf_counter()
            next(source)
            spent += time.perf_counter() - begun
            if step:
                time.sleep(step)
        return (spent if step else time.perf_counter() - started) / batches * 1e6


def copying(batches: int) -> float:
    """Microseconds of numpy's putting a batch together from parts, one thread, warm memory."""
    parts = [rows(PART)] * (ROWS // PART) + [rows(ROWS % PART)]
    made = rows(ROWS)
    started = time.perf_counter()
    for _ in range(batches):
        for name, array in made.items():
            np.concatenate([part[name] for part in parts], out=array)
    return (time.perf_counter() - started) / batches * 1e6


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--threads", type=int, default=4)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--batches", type=int, default=2000)
    arguments.add_argument("--no-tensorflow", action="store_true")
    options = arguments.parse_args()
    threads = options.threads
    contenders: dict[str, Batches] = {
        "DataWorkers, as fetched": lambda: data_workers(threads, ROWS),
        "DataWorkers, rebatched": lambda: data_workers(threads, PART),
        "queue.Queue": lambda: plain_queue(threads),
    }
    if not options.no_tensorflow:
        contenders["tf.data from_generator"] = lambda: from_generator(threads)
    found: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name, made in contenders.items():
            found.setdefault(name, []).append(microseconds(made, options.batches, 0))
            found.setdefault(f"{name}, under a step", []).append(microseconds(made, options.batches // 4, STEP_SECONDS))
        found.setdefault("copying parts into a batch", []).append(copying(options.batches))
    medians = {name: statistics.median(times) for name, times in found.items()}
    print(f"{threads} threads, medians of {options.rounds} rounds of {options.batches} batches, microseconds a batch")
    for name, value in medians.items():
        print(f"{name:38} {value:8.1f}   ({min(found[name]):.1f} to {max(found[name]):.1f})")
    own = medians["DataWorkers, rebatched"] - medians["copying parts into a batch"]
    print(f"{'DataWorkers, rebatched, less copying':38} {own:8.1f}")


if __name__ == "__main__":
    main()
