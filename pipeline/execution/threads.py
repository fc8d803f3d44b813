"""Work done side by side in threads, with results in order and failures at the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int, stop: Callable[[], None] = lambda: None
) -> Iterator[Result]:
    """Gives the results in the items' order.

    When work fails or the caller leaves, nothing more is begun; what is under way is waited for.

    Args:
        work: safe to run in several threads.
        items: what to work on.
        workers: the number of threads.
        stop: called when the caller leaves, to tell the work under way.
    """
    with ThreadPoolExecutor(workers, thread_name_prefix="seqprep-work") as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        finally:
            stop()
            for future in futures:
                future.cancel()
