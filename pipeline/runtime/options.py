"""What a loader is told, checked and brought to one form."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from seqprep.config import shown
from seqprep.errors import ConfigError
from seqprep.runtime.order import Even, GlobalOrder, Shuffle, parse_shuffle
from seqprep.runtime.reporting import OnMetrics, parse_on_metrics
from seqprep.runtime.row_order import RebatchOptions
from seqprep.types import Int64

Verify = Literal["always", "first", "never"]

EVENS: tuple[str, ...] = get_args(Even)
_MOST = 2**31 - 1
_MOST_PREFETCHED = 2**16  # batches; each has a buffer


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """The arguments of `seqprep.Loader`, which says what they mean.

    Raises:
        ConfigError: one is impossible, or two don't go together.
    """

    keys: Sequence[str] | None
    shuffle: Shuffle
    seed: int
    rank: int
    world_size: int
    even: Even
    same_shape: bool
    rebatch: RebatchOptions | None
    prefetch: int
    threads: int
    verify: Verify
    on_metrics: OnMetrics | None

    @classmethod
    def parse(cls, rank: int | None, world_size: int | None, shuffle: Any, rebatch: Any, **rest: Any) -> LoaderOptions:
        """Fills in what the environment says, and parses what has more than one form."""
        rank, world_size = rank_of(rank, world_size)
        return cls(
            rank=rank,
            world_size=world_size,
            shuffle=parse_shuffle(shuffle),
            rebatch=RebatchOptions.parse(rebatch),
            **rest | {"on_metrics": parse_on_metrics(rest["on_metrics"])},
        )

    def __post_init__(self) -> None:
        for name, least, most in (
            ("seed", None, None), ("rank", 0, _MOST), ("world_size", 1, _MOST), ("prefetch", 1, _MOST_PREFETCHED),
            ("threads", 0, _MOST),
        ):  # fmt: skip
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least, most))
        if self.keys is not None and (isinstance(self.keys, str) or not isinstance(self.keys, Iterable)):
            raise ConfigError(f"keys is {shown(self.keys)}: it has to be a list of names, such as ['data']")
        if self.rank >= self.world_size:
            raise ConfigError(
                f"rank is {self.rank}: with world_size {self.world_size} it has to lie in [0, {self.world_size})"
            )
        check_choice("even", self.even, EVENS)
        check_choice("verify", self.verify, ("always", "first", "never"))
        if self.same_shape and self.even == "none":
            raise ConfigError(
                "same_shape is set and even is 'none': the batches of a shape don't always divide by the ranks; "
                "set even to 'pad', which repeats some, or to 'drop', which leaves some out"
            )
        if self.same_shape and self.rebatch:
            raise ConfigError("same_shape and rebatch are both set: mixed rows have shapes of their own; keep one")

    def order(self, passes: Sequence[Int64], shapes: Int64 | None) -> GlobalOrder:
        """The order that they ask for; see `GlobalOrder`."""
        return GlobalOrder(
            passes=passes,
            shuffle=self.shuffle,
            seed=self.seed,
            rank=self.rank,
            world_size=self.world_size,
            even=self.even,
            shapes=shapes,
        )

    def identity(self, fingerprint: str, keys: Sequence[str]) -> dict[str, Any]:
        """What positions in the order belong to; plain values.

        Args:
            fingerprint: of the dataset.
            keys: those that are read.
        """
        ranks = {"world_size": self.world_size, "even": self.even}
        return {
            "fingerprint": fingerprint,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "same_shape": {**ranks, "keys": list(keys)} if self.same_shape else None,
            "rebatch": {**asdict(self.rebatch), **ranks} if self.rebatch else None,
        }


def whole_number(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Checks an integer of any library.

    Raises:
        ConfigError: it is none, less than `least`, or more than `most`.
    """
    try:
        number = operator.index(value)
    except TypeError as error:
        raise ConfigError(f"{name} is {shown(value)}: it has to be a whole number") from error
    if least is not None and number < least:
        raise ConfigError(f"{name} is {shown(number)}: it has to be at least {least}")
    if most is not None and number > most:
        raise ConfigError(f"{name} is {shown(number)}: it has to be at most {most}")
    return number


def rank_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The given rank, else that of the environment, else the only one."""
    if rank is None and world_size is None:
        told = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
        if told[0] is None or told[1] is None:
            return 0, 1
        try:
            return int(told[0]), int(told[1])
        except ValueError as error:
            raise ConfigError(
                f"RANK and WORLD_SIZE are {shown(told[0])} and {shown(told[1])}: they have to be whole numbers"
            ) from error
    if rank is None or world_size is None:
        raise ConfigError(f"rank is {shown(rank)} and world_size is {shown(world_size)}: give both or none")
    return rank, world_size


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Checks that a value is one of those there are.

    Raises:
        ConfigError: it isn't.
    """
    if value not in choices:
        raise ConfigError(f"{name} is {shown(value)}: it has to be {', '.join(choices[:-1])} or {choices[-1]}")
