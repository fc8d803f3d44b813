"""Settings that users may write in short forms: length classes, padding, order. Each is brought to one form here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from seqprep.config.validation import Options, shown
from seqprep.config.values import MOST_FRAMES, MOST_ROW_FRAMES

ORDERS = ("source", "reverse", "random", "sorted", "sorted_reverse", "laplace")
OrderName = Literal["source", "reverse", "random", "sorted", "sorted_reverse", "laplace"]


class BucketConfig(Options):
    """Which rows may share a batch: those of one length class; at most one of these is set."""

    sorted: bool = False
    """Rows are sorted by length within the shard instead."""
    boundaries: list[int] | None = None
    """Longest row of each class but the last, in frames of the input key, context included."""
    auto: int | None = Field(default=None, ge=1, le=MOST_FRAMES)
    """So many classes, of equal padded mass."""

    @model_validator(mode="after")
    def _one(self) -> BucketConfig:
        if self.sorted + (self.boundaries is not None) + (self.auto is not None) > 1:
            raise ValueError("batch.bucket sets more than one of sorted, boundaries and auto; keep one")
        if self.boundaries is not None:
            _check_boundaries(self.boundaries)
        return self

    @property
    def has_classes(self) -> bool:
        """Whether rows are told apart by length."""
        return self.boundaries is not None or self.auto is not None


def _check_boundaries(boundaries: list[int]) -> None:
    if not boundaries:
        raise ValueError("batch.bucket.boundaries is empty; name at least one length, or use bucket: none")
    ascending = sorted(set(boundaries))
    if ascending[0] < 1:
        raise ValueError(f"batch.bucket.boundaries holds {ascending[0]}: lengths are at least 1 frame; remove it")
    if ascending[-1] > MOST_ROW_FRAMES:
        raise ValueError(f"batch.bucket.boundaries holds {ascending[-1]}: no row is as long as that; remove it")
    if boundaries != ascending:
        raise ValueError(f"batch.bucket.boundaries is {boundaries}: boundaries have to ascend; write {ascending}")


def bucket_of(value: Any) -> Any:
    """Brings `none`, `sorted`, `auto:8`, `boundaries:100,200` and the mapping to one form: the mapping."""
    if value is None or value == "none":
        return {}
    if value == "sorted":
        return {"sorted": True}
    if isinstance(value, str):
        kind, _, numbers = value.partition(":")
        try:
            if kind.strip() == "auto":
                return {"auto": int(numbers)}
            if kind.strip() == "boundaries":
                return {"boundaries": [int(number) for number in numbers.strip(" []").split(",")]}
        except ValueError:
            pass  # said below
    if not isinstance(value, Mapping | BucketConfig):
        raise ValueError(
            f"batch.bucket is {value!r}: it has to be none, sorted, {{auto: 8}} or {{boundaries: [100, 200]}} "
            "(on the command line auto:8 or boundaries:100,200)"
        )
    return value


def pad_to_of(value: Any) -> Any:
    """Checks `longest`, `bucket`, a number, and {key: number}; numbers come as a mapping, that for all keys under ""."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    if value in ("longest", "bucket"):
        return value
    per_key = value if isinstance(value, Mapping) and value else {"": value}
    for name, frames in per_key.items():
        setting = f"batch.pad_to.{name}" if name else "batch.pad_to"
        if isinstance(frames, int) and frames > MOST_ROW_FRAMES:
            raise ValueError(
                f"{setting} is {frames}: it has to be at most {MOST_ROW_FRAMES}, the longest that a row can be"
            )
        if isinstance(frames, bool) or not isinstance(frames, int) or frames < 1:
            raise ValueError(
                f"{setting} is {frames!r}: it has to be longest, bucket, or a number of frames whose multiples rows fill up"
            )
    return dict(per_key)


def check_order(value: Any) -> Any:
    """Checks the name of an order; `laplace:BINS` and `laplace:.SIZE` carry a number."""
    name, colon, number = str(value).partition(":")
    if not isinstance(value, str) or name not in ORDERS:
        close = difflib.get_close_matches(name, ORDERS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"order.by is {value!r}: it has to be {', '.join(ORDERS[:-1])} or laplace:BINS{hint}")
    if name != "laplace":
        if colon:
            raise ValueError(f"order.by is {value!r}: {name} takes no number; write {name}")
        return value
    digits = number.removeprefix(".")
    if digits.isdecimal() and len(digits) > 15:
        raise ValueError(f"order.by is {shown(value)}: there are fewer sequences than that; lower the number")
    if not digits.isdecimal() or int(digits) < 1:
        raise ValueError(
            f"order.by is {value!r}: laplace needs the number of its groups, at least 1, such as laplace:100 "
            "(or laplace:.1000 for groups of about 1000 sequences)"
        )
    return value
