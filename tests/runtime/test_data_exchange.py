from __future__ import annotations

import threading

import numpy as np
import pytest

from seqprep.runtime.data_exchange import Consumer, Exchange
from seqprep.runtime.data_metrics import ConsumerCounters, Ledger, WorkerCounters
from seqprep.runtime.data_rows import Chunk

from .data_workers_helpers import until

pytestmark = pytest.mark.usefixtures("bounded")


def chunk(rows: int) -> Chunk:
    return Chunk((np.zeros(rows),), rows, rows)


def test_no_worker_sleeps_on_the_rows_that_a_consumer_waits_for() -> None:
    exchange = Exchange("dev", Ledger([WorkerCounters(), WorkerCounters()]), batches=1, largest=4)
    exchange.enter(-1)
    first, second = (Consumer(lambda: 4, 0, ConsumerCounters()) for _ in range(2))
    may_look = threading.Event()
    sizes: dict[str, list[int]] = {}

    def take(name: str, consumer: Consumer) -> None:
        def wait(waiting: Consumer, started: float) -> None:
            waiting.bell.get()
            may_look.wait()

        pieces = exchange.take(consumer, wait)
        exchange.refill()
        sizes[name] = [piece.end - piece.begin for piece in pieces]

    def work(worker: int, parts: list[int]) -> None:
        for rows in parts:
            exchange.put(chunk(rows), exchange.producers[worker])
        exchange.end()

    def begin(*arguments: object) -> threading.Thread:
        thread = threading.Thread(target=arguments[0], args=arguments[1:], daemon=True)  # type: ignore[arg-type]
        thread.start()
        return thread

    threads = [begin(take, "first", first)]
    until(lambda: len(exchange._waiting) == 1)
    threads.append(begin(take, "second", second))
    until(lambda: len(exchange._waiting) == 2)
    threads.append(begin(work, 0, [4, 1]))
    until(lambda: len(exchange._full) == 1)
    threads.append(begin(work, 1, [3]))
    until(lambda: len(exchange._full) == 2)  # both sleep, with four rows between them, while two consumers wait
    may_look.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert sizes["first"] == [4]
    assert sorted(sizes["second"]) == [1, 3]
