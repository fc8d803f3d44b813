"""Proposes a configuration for an input that nobody has described yet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from seqprep.types import Int64, KeySpec

_SHORT = 64
"""Sequences of a median length below it are kept whole."""
_CHUNKS = 4
"""About as many chunks has the median sequence."""
_ROWS = 40


class Rate(NamedTuple):
    """How a key's lengths follow from those of the input key."""

    rate: int
    align: str


def propose(
    path: str, source: Mapping[str, Any], keys: Mapping[str, KeySpec], lengths: Mapping[str, Int64]
) -> str | None:
    """Writes a configuration that cuts the input, to start from.

    Args:
        path: the input.
        source: the section `source`.
        keys: the source's keys.
        lengths: for each key with time, int64 [sequences].

    Returns:
        YAML; None if no key has frames.
    """
    totals = {name: int(frames.sum()) for name, frames in lengths.items()}
    main = max(totals, key=lambda name: totals[name], default=None)
    if main is None or totals[main] == 0:
        return None
    rates = {name: find_rate(lengths[main], frames) for name, frames in lengths.items()}
    kept = {name: rates.get(name) for name, spec in keys.items() if not spec.has_time or rates[name] is not None}
    lines = [
        f"# Proposed for {_flow([path])[1:-1]}; a start, to be changed. Save it as config.yaml, and: seqprep chunk config.yaml",
        f"source: {_flow(dict(source))}",
        *_key_lines(main, keys, kept),
        *_chunk_lines(main, lengths[main], math.lcm(*(rate.rate for rate in kept.values() if rate is not None))),
        "order: {by: random, seed: 1}",
        f"output: {_flow({'path': f'shards/{_stem(path)}', 'format': 'hdf5'})}",
    ]
    return "\n".join(lines) + "\n"


def _stem(path: str) -> str:
    name = Path(path).name.split(".")[0]
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name).strip("-") or "data"


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**6).strip()


def find_rate(main: Int64, other: Int64) -> Rate | None:
    """Finds the rate at which a key's frames follow those of another, for all sequences at once.

    Args:
        main: frames of the input key; int64 [sequences].
        other: frames of the key; int64 [sequences].

    Returns:
        None if there is none.
    """
    if np.array_equal(main, other):
        return Rate(1, "ceil")
    if not other.sum():
        return None
    about = int(main.sum()) / int(other.sum())
    for rate in dict.fromkeys(max(1, value) for value in (round(about), math.floor(about), math.ceil(about))):
        for align, expected in (("ceil", -(-main // rate)), ("floor", main // rate)):
            if np.array_equal(expected, other):
                return Rate(rate, align)
    return None


def _key_lines(main: str, keys: Mapping[str, KeySpec], kept: Mapping[str, Rate | None]) -> list[str]:
    first = next(name for name, spec in keys.items() if spec.has_time)
    if main == first and len(kept) == len(keys) and all(rate is None or rate.rate == 1 for rate in kept.values()):
        return []  # the defaults say the same
    lines = ["keys:"]
    for name, rate in kept.items():
        settings: dict[str, Any] = {"input": True} if name == main else {}
        if rate is not None and rate.rate != 1:
            settings |= {"rate": rate.rate, "align": rate.align}
        lines.append(f"  {_flow({name: settings})[1:-1]}")
    left_out = [name for name in keys if name not in kept]
    if left_out:
        lines.append(f"  # left out, for their lengths don't follow those of {_flow([main])[1:-1]}: {_flow(left_out)}")
    return lines


def _chunk_lines(main: str, frames: Int64, multiple: int) -> list[str]:
    median = float(np.median(frames[frames > 0]))
    if median < _SHORT:
        most = max(int(frames.max()), int(median) * _ROWS)
        return [
            "chunk: null          # sequences stay whole; size: N cuts them",
            f"batch: {{max_frames: {{{_flow([main])[1:-1]}: {most}}}, max_sequences: {_ROWS}}}",
        ]
    size = max(_round(median / _CHUNKS) // (2 * multiple), 1) * 2 * multiple
    return [
        f"chunk: {{size: {size}, step: {size}}}  # frames of {_flow([main])[1:-1]}; a step of {size // 2} makes chunks overlap by half",
        f"batch: {{max_frames: {{{_flow([main])[1:-1]}: {size * _ROWS}}}, max_sequences: {_ROWS}}}",
    ]


def _round(value: float) -> int:
    """The largest of 1, 2, 5, 10, 20, 50, … up to a value."""
    power = 10 ** math.floor(math.log10(value))
    return max(int(step * power) for step in (1, 2, 5) if step * power <= value)
