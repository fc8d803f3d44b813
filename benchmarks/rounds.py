"""Measures several ways of doing one thing in turns, for a machine's speed drifts: medians over the rounds."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Way = Callable[[], tuple[int, float]]
"""Does something once; gives the bytes it moved and the seconds it took."""


@dataclass
class Measured:
    """How one way fared."""

    gigabytes_per_second: list[float] = field(default_factory=list)
    failure: str | None = None
    """Why it couldn't be measured."""


def take_turns(ways: Mapping[str, Way], rounds: int) -> dict[str, Measured]:
    """Lets each way run once uncounted, then `rounds` times in turns.

    Args:
        ways: by name.
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


def measure_apart(script: str, folder: Path, names: list[str], rounds: int, *more: str) -> dict[str, float]:
    """Measures each way in a process of its own, in turns with the limit, and prints a line for it.

    Tools that can't be loaded together, or end their process, so don't hurt the others. The script is called with
    `--measure NAME --folder FOLDER --rounds N` and has to call `report`.

    Returns:
        The share of the limit that each reached; of those that could be measured.
    """
    shares = {}
    width = max(map(len, names))
    print(f"{'':{width}}  {'GB/s':>7}  {'of the limit':>12}  {'limit, GB/s':>11}")
    for name in names:
        command = [sys.executable, script, "--measure", name, "--folder", str(folder), "--rounds", str(rounds), *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        found = json.loads(lines[-1]) if lines else {"failure": f"its process ended with {done.returncode}"}
        if found["failure"] is not None:
            print(f"{name:{width}}  not measured: {found['failure']}", flush=True)
            continue
        own, top = found["own"], found["limit"]
        share = shares[name] = statistics.median(one / other for one, other in zip(own, top, strict=True))
        print(
            f"{name:{width}}  {statistics.median(own):7.3f}  {share:12.3f}  {statistics.median(top):11.2f}", flush=True
        )
    return shares


def report(own: Way, limit: Way, rounds: int) -> None:
    """Measures one way beside the limit, and prints the result for `measure_apart`."""
    measured = take_turns({"limit": limit, "own": own}, rounds)
    failure = measured["own"].failure or measured["limit"].failure
    result = {name: one.gigabytes_per_second for name, one in measured.items()}
    print("\n" + json.dumps(result | {"failure": failure}), flush=True)
