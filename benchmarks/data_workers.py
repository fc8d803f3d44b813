"""What data workers cost by themselves, per batch, beside a plain queue.Queue and tf.data's from_generator.

Batches of 40 rows of 60 frames of 40 float32 (384 kB) with a label per frame. The fetch functions cost next to nothing
(they give arrays that are there already), so that what is measured is handing over: in `as fetched` each call gives a
whole batch, in `rebatched` 7 rows, so that a batch takes six calls and has to be copied together; numpy's part in that is
measured by itself. `flat out` takes batches one after the other. `under a step` sleeps for a millisecond after each, as
a training step on a device would, and measures how long it takes to get the next. Medians of interleaved rounds, in
microseconds a batch: as time goes by, and of processors (all threads), which other programs on the machine change less.

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


def measure(batches: Iterator[Any], count: int, step: float) -> tuple[float, float]:
    """Microseconds of getting a batch, without the step, and of all processors in that and the step."""
    for _ in range(2 * BUFFERED):
        next(batches)
    spent, processors = 0.0, time.process_time()
    for _ in range(count):
        begun = time.perf_counter()
        next(batches)
        spent += time.perf_counter() - begun
        if step:
            time.sleep(step)
    return spent / count * 1e6, (time.process_time() - processors) / count * 1e6


@contextlib.contextmanager
def copying() -> Iterator[Iterator[Any]]:
    """Numpy's putting batches together from parts, in one thread and always the same memory."""
    parts = [rows(PART)] * (ROWS // PART) + [rows(ROWS % PART)]
    made = rows(ROWS)

    def endless() -> Iterator[Any]:
        while True:
            yield [np.concatenate([part[name] for part in parts], out=array) for name, array in made.items()]

    yield endless()


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
        "  of that, numpy's copying": copying,
        "queue.Queue": lambda: plain_queue(threads),
    }
    if not options.no_tensorflow:
        contenders["tf.data from_generator"] = lambda: from_generator(threads)
    found: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for _ in range(options.rounds):
        for name, made in contenders.items():
            for step, count in ((0.0, options.batches), (STEP_SECONDS, options.batches // 4)):
                with made() as batches:
                    found.setdefault((name, step), []).append(measure(batches, count, step))
    print(f"{threads} threads, medians of {options.rounds} rounds of {options.batches} batches, microseconds a batch")
    print(f"{'':28} {'flat out':>20} {'':10} {'under a step':>20}")
    print(f"{'':28} {'time (least to most)':>20} {'processors':>10} {'time (least to most)':>20} {'processors':>10}")
    for name in contenders:
        shown = ""
        for step in (0.0, STEP_SECONDS):
            times, processors = zip(*found[name, step], strict=True)
            spread = f"{statistics.median(times):.0f} ({min(times):.0f} to {max(times):.0f})"
            shown += f" {spread:>20} {statistics.median(processors):10.0f}"
        print(f"{name:28}{shown}")


if __name__ == "__main__":
    main()
