"""Measures several ways of doing one thing in turns, for a machine's speed drifts: medians over the rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass
class Measured:
    """How one way fared."""

    gigabytes_per_second: list[float] = field(default_factory=list)
    failure: str | None = None
    """Why it couldn't be measured."""


def take_turns(ways: Mapping[str, Callable[[], tuple[int, float]]], rounds: int) -> dict[str, Measured]:
    """Lets each way run once uncounted, then `rounds` times in turns.

    Args:
        ways: name to a function that does it once and gives the bytes it moved and the seconds it took.
        rounds: how often.
    """
    measured = {name: Measured() for name in ways}
    for turn in range(rounds + 1):
        for name, run in ways.items():
            if measured[name].failure is not None:
                continue
            try:
                size, seconds = run()
            except Exception as error:  # noqa: BLE001 - a peer that isn't installed, or fails, is named in the result
                measured[name].failure = f"{type(error).__name__}: {error}".splitlines()[0][:100]
                continue
            if turn:
                measured[name].gigabytes_per_second.append(size / seconds / 1e9)
    return measured


def print_shares(measured: Mapping[str, Measured], limit: str, per_gigabyte: float, unit: str) -> None:
    """Prints each way's median, and its median share of the limit's speed in the same round.

    Args:
        measured: from `take_turns`.
        limit: the name of the one that the others are held against.
        per_gigabyte: how many `unit` a gigabyte is.
        unit: such as "chunks".
    """
    width = max(map(len, measured))
    top = measured[limit].gigabytes_per_second
    print(f"{'':{width}}  {'GB/s':>7}  {unit + '/s':>12}  {'of the limit':>12}")
    for name, one in measured.items():
        if one.failure is not None:
            print(f"{name:{width}}  not measured: {one.failure}")
            continue
        speed = statistics.median(one.gigabytes_per_second)
        share = statistics.median(own / other for own, other in zip(one.gigabytes_per_second, top, strict=True))
        print(f"{name:{width}}  {speed:7.3f}  {speed * per_gigabyte:12,.0f}  {share:12.3f}")
