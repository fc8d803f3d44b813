"""Which rows the new batches hold where a loader mixes those of several stored ones.

A rank's batches, in its order, are taken in windows; the rows of each window are shuffled, and all windows' rows, one
behind the other, are a stream that is cut into batches of equal numbers of rows. So a batch may hold rows of two windows,
only an epoch's last one is smaller, and nothing is lost. Everything about the stream follows from the numbers of rows
alone, so a position in it is found without reading what comes before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqprep import hashing
from seqprep.config import shown
from seqprep.errors import ConfigError
from seqprep.runtime.order import Order
from seqprep.types import Int64

_ROWS = 5  # what the draw is for; part of its key


@dataclass(frozen=True, kw_only=True)
class RebatchOptions:
    """How rows are mixed."""

    rows: int
    """Of each new batch."""
    window: int
    """Batches whose rows are mixed."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"rebatch: {name} is {shown(value)}: it has to be a whole number of at least 1")

    @classmethod
    def parse(cls, value: Any) -> RebatchOptions | None:
        """Reads {"rows": R, "window": W}.

        Raises:
            ConfigError: it is something else.
        """
        if value is None or isinstance(value, cls):
            return value
        if not isinstance(value, Mapping) or set(value) != {"rows", "window"}:
            raise ConfigError(
                f'rebatch is {shown(value)}: give {{"rows": R, "window": W}}, for batches of R rows, mixed from W batches'
            )
        return cls(**value)


@dataclass(frozen=True)
class Stretch:
    """What is left of a rank's stream of rows in an epoch."""

    batches: Int64
    """Numbers of the stored batches that have to be read."""
    window: int
    """Number of the window that they begin with."""
    skip: int
    """Rows of that window that come before."""
    sizes: tuple[int, ...]
    """Rows of each new batch; 0 for one that takes rows of the last window again."""
    again: int
    """Batches of the latter kind that come before."""


class RowOrder:
    """The order of new batches: which rows each rank's have, and how many there are; equal on all ranks unless `even`
    is none.

    With `pad`, a rank whose rows are too few for as many batches as another's takes rows of its last window again; with
    `drop`, one with more rows leaves its last batches out.

    Args:
        order: of the stored batches.
        rows_of: gives the rows of batches by their numbers, int64 [batches].
        options: how rows are mixed.
    """

    def __init__(self, order: Order, rows_of: Callable[[Int64], Int64], options: RebatchOptions) -> None:
        self.order, self.options, self._rows_of = order, options, rows_of
        self._counted: tuple[int, list[int]] = -1, []

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.order.world_size

    def _batches_of_ranks(self, epoch: int) -> list[int]:
        """New batches of each rank in an epoch."""
        known, counts = self._counted
        if known != epoch:
            order, ranks = self.order, self.world_size
            positions = order.whole(epoch)
            if order.even != "none":  # a whole number of steps
                steps = order.steps(epoch, 0)
                positions = positions[np.arange(steps * ranks) % max(len(positions), 1)]
            rows = self._rows_of(positions)
            counts = [-(-int(rows[rank::ranks].sum()) // self.options.rows) for rank in range(ranks)]
            if order.even != "none":
                counts = [max(counts) if order.even == "pad" else min(counts)] * ranks
            self._counted = epoch, counts
        return counts

    def steps(self, epoch: int, begin: int) -> int:
        """New batches that this rank still gets in an epoch, from a global position on."""
        return max(self._batches_of_ranks(epoch)[self.order.rank] - begin // self.world_size, 0)

    def ended(self, epoch: int, begin: int) -> bool:
        """Says whether no rank gets a batch of an epoch from a global position on."""
        return begin // self.world_size >= max(self._batches_of_ranks(epoch))

    def stretch(self, epoch: int, begin: int) -> Stretch:
        """What this rank has to read and hand out from a global position on."""
        batches = self.order.of_epoch(epoch, 0)
        before = np.append(0, np.cumsum(self._rows_of(batches)))
        bounds = before[:: self.options.window]  # where the stream's windows begin
        total, size, taken = int(before[-1]), self.options.rows, begin // self.world_size
        first = taken * size
        sizes = [min(size, max(total - first - step * size, 0)) for step in range(self.steps(epoch, begin))]
        window = int(np.searchsorted(bounds, min(first, max(total - 1, 0)), side="right")) - 1
        skip = min(first, total) - int(bounds[window])
        again = max(taken - -(-total // size), 0)
        return Stretch(batches[window * self.options.window :], window, skip, tuple(sizes), again)

    def mixed(self, epoch: int, window: int, rows: int) -> Int64:
        """The order of a window's rows; int64 [rows]."""
        return hashing.permutation(hashing.key_of(self.order.seed, epoch, _ROWS, self.order.rank, window), rows)
