"""What epochs are made of: batches that can be read one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from seqprep.runtime.options import LoaderOptions
from seqprep.runtime.order import Order
from seqprep.runtime.ranges import Batch, LeaseOf
from seqprep.types import Int64, KeySpec


class Stock(Protocol):
    """Batches that can be read one by one, each by its number. Reading is safe from several threads."""

    shards_opened: int

    @property
    def keys(self) -> tuple[str, ...]:
        """Those that are read, the input key first if it is among them."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def specs(self) -> Mapping[str, KeySpec]:
        """Of the keys that are read."""

    @property
    def fingerprint(self) -> str:
        """Equal where all batches are."""

    @property
    def passes(self) -> int | None:
        """Epoch e gives pass e modulo their number; None if each epoch has a pass of its own."""

    @property
    def packed(self) -> bool:
        """Whether several sequences share a row."""

    @property
    def pads(self) -> Mapping[str, float]:
        """What rows of each key hold beyond their valid frames."""

    def order(self, options: LoaderOptions) -> Order:
        """The order of the batches."""

    def rows_of(self, batches: Int64) -> Int64:
        """Rows of batches, those left out that only fill one up; int64 [batches]."""

    def numbers(self, epoch: int) -> range:
        """Numbers of the batches from which `Epochs.batch` chooses."""

    def read(self, batch: int, lease_of: LeaseOf, verify: bool) -> Batch:
        """Reads one batch."""

    def describe(self, batch: int) -> str:
        """Names a batch's place."""

    def renew_locks(self) -> None:
        """Makes the stock a forked child's own."""

    def close(self) -> None:
        """Closes files."""
