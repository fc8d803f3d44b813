"""How rows are ordered and laid into batches, worked out from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import lcm
from typing import Any, cast

from seqprep.config import Config, OrderName
from seqprep.errors import ConfigError
from seqprep.types import KeySpec


@dataclass(frozen=True, kw_only=True)
class BatchRule:
    """Which rows make a batch beside their budgets, and how long rows become."""

    drop_last: bool = False
    sort_rows: bool = False
    """Rows of a shard are sorted by length before they are batched."""
    boundaries: tuple[int, ...] | None = None
    """Longest row of each length class but perhaps the last, ascending."""
    auto_classes: int | None = None
    """So many classes of equal padded mass; None with boundaries, or without classes."""
    pad_to_class: bool = False
    """Rows become as long as their class may be; else as the longest of the batch."""
    pad_rows: bool = False
    row_frames: int | None = None
    """Longest packed row, in frames of the input key; None doesn't pack."""

    @property
    def has_classes(self) -> bool:
        """Whether rows are told apart by length."""
        return self.boundaries is not None or self.auto_classes is not None


@dataclass(frozen=True, kw_only=True)
class OrderRule:
    """What decides the order of sequences and rows, beside its name and the seed."""

    groups: int | None = None
    """Of laplace: how many …"""
    group_size: int | None = None
    """… or how large, about."""
    all_rows: bool = False
    """All rows of the dataset are shuffled, not sequences and then the rows of a shard."""
    partition: tuple[int, int] = (1, 1)
    """(k, n): only part k, from 1 on, of n."""

    @classmethod
    def of(cls, config: Config) -> OrderRule:
        """Takes it from the configuration."""
        _, _, number = config.order.by.partition(":")
        of_size = number.startswith(".")
        part, _, parts = (config.partition or "1/1").partition("/")
        return cls(
            groups=int(number) if number and not of_size else None,
            group_size=int(number[1:]) if of_size else None,
            all_rows=config.order.scope == "global",
            partition=(int(part), int(parts)),
        )


def order_name(config: Config) -> OrderName:
    """The name of the order, without laplace's number."""
    return cast(OrderName, config.order.by.partition(":")[0])


def batch_rule(config: Config, rates: Mapping[str, int | None], stored: Mapping[str, KeySpec]) -> BatchRule:
    """Takes the settings of `batch` from the configuration.

    Args:
        config: the configuration.
        rates: of each key with time.
        stored: the keys as they will be stored.

    Raises:
        ConfigError: rows can't be packed at these rates.
    """
    batch = config.batch
    if batch.row_frames is not None:
        _check_row_frames(batch.row_frames, _packed_rates(rates, stored, config), config)
    bucket = batch.bucket
    return BatchRule(
        drop_last=batch.drop_last,
        sort_rows=bucket.sorted,
        boundaries=None if bucket.boundaries is None else tuple(bucket.boundaries),
        auto_classes=bucket.auto,
        pad_to_class=batch.pad_to == "bucket",
        pad_rows=batch.pad_rows,
        row_frames=batch.row_frames,
    )


def _packed_rates(rates: Mapping[str, int | None], stored: Mapping[str, KeySpec], config: Config) -> dict[str, int]:
    """The rates, if segments of all keys can stand at equal places."""
    place = config.document.where(("batch", "pack"))
    packed = {}
    for name, rate in rates.items():
        if rate is None or stored[name].ragged:
            what = "a time axis of its own" if rate is None else "an axis of varying size"
            raise ConfigError(f"{place}: batch.pack is true, but key {name!r} has {what}, so it can't be packed")
        packed[name] = rate
    return packed


def _check_row_frames(row_frames: int, rates: Mapping[str, int], config: Config) -> None:
    """Packed rows have to hold a whole number of frames of every key."""
    grid = lcm(*rates.values())
    if row_frames % grid:
        below = row_frames - row_frames % grid
        raise ConfigError(
            f"{config.document.where(('batch', 'row_frames'))}: batch.row_frames is {row_frames}, which isn't a multiple "
            f"of {grid}, as the rates of {_named(rates)} ask for; use {f'{below} or ' if below else ''}{below + grid}"
        )


def check_packing(row_frames: int, rate: int, name: str, max_frames: int | None, config: Config) -> None:
    """A batch has to hold a packed row at least.

    Raises:
        ConfigError: the key's budget is below that.
    """
    if max_frames is not None and max_frames * rate < row_frames:
        raise ConfigError(
            f"{config.document.where(('batch', 'max_frames'))}: batch.max_frames is {max_frames} for key {name!r}, less "
            f"than one packed row of {row_frames // rate} frames (batch.row_frames {row_frames}); raise it, or lower that"
        )


def _named(rates: Mapping[str, int]) -> str:
    return " and ".join(f"{name!r} ({rate})" for name, rate in rates.items() if rate != 1)


def pad_multiple(name: str, rate: int, config: Config) -> int:
    """Of which number of its own frames a key's rows become a multiple; 1 where they are padded otherwise.

    Raises:
        ConfigError: the number for all keys doesn't divide by this key's rate.
    """
    pad_to: Any = config.batch.pad_to
    if isinstance(pad_to, str):
        return 1
    if name in pad_to or "" not in pad_to:
        return int(pad_to.get(name, 1))
    frames = int(pad_to[""])
    if frames % rate:
        below = frames - frames % rate
        raise ConfigError(
            f"{config.document.where(('batch', 'pad_to'))}: batch.pad_to is {frames}, which the rate {rate} of key {name!r} "
            f"doesn't divide; use {f'{below} or ' if below else ''}{below + rate}, or give it per key"
        )
    return frames // rate
