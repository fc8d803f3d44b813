"""Holds that whatever gives batches can be stopped and resumed at every one of them."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

Plain = dict[str, tuple[Any, ...]]


class Resumable(Protocol):
    def __iter__(self) -> Iterator[Mapping[str, Any]]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def plain(batch: Mapping[str, Any]) -> Plain:
    """Copies of all values, bit by bit, that can be compared and don't keep the batch."""
    return {name: _plain(value) for name, value in batch.items()}


def _plain(value: Any) -> tuple[Any, ...]:
    array = np.asarray(value)
    if array.dtype.kind in "OU":
        return tuple(map(str, array.reshape(-1)))
    return array.dtype.name, array.shape, array.tobytes()


def assert_resumable(
    open_source: Callable[[], AbstractContextManager[Resumable]], epochs: int = 2, *, least: int = 4
) -> list[Plain]:
    """Saves the state before every batch, restores each in a source opened anew, and compares what follows exactly.

    Args:
        open_source: opens the same source, at its start.
        epochs: how many to read.
        least: batches that there have to be for this to show anything.

    Returns:
        All batches, in order.
    """
    with open_source() as source:
        points, batches = [(0, source.state_dict())], []
        for _ in range(epochs):
            for batch in source:
                batches.append(plain(batch))
                points.append((len(batches), source.state_dict()))
            # The last batch and the end are one position, but for a rank that gets fewer batches than others.
            points.append((len(batches), source.state_dict()))
            if points[-1] == points[-2]:
                del points[-1]
    assert len(batches) >= least
    for taken, state in points:
        with open_source() as source:
            source.load_state_dict(json.loads(json.dumps(state)))
            assert source.state_dict() == state
            tail: list[Plain] = []
            empty = 0
            while len(tail) < len(batches) - taken:
                before = len(tail)
                tail += [plain(batch) for batch in source]
                empty += len(tail) == before
                assert empty <= 1, "an epoch without a batch"
            assert tail == batches[taken:]
    return batches
