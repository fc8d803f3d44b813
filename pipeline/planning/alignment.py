"""Holds each key's lengths against those of the input key, and brings those that differ a little to one moment.

Where a sequence's keys differ within their tolerance, its length is decided once, in input frames: that of the shortest
(`trim`) or of the longest (`pad`) of the keys that don't fit and of the input key. Every key then has the length that
follows from it, so a key that did fit may be cut or filled up with the others. Where keys that don't fit are set
differently, `drop` goes before `trim`, and `trim` before `pad`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from seqprep.errors import SourceError
from seqprep.planning.key_rules import KeyRule
from seqprep.planning.rules import Rules
from seqprep.types import Int64, Tags

Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Alignment:
    """Lengths that fit together."""

    lengths: Mapping[str, Int64]
    """For each key with time, int64 [sequences]. Frames beyond those of the source hold the key's pad_value."""
    dropped: Bool
    """bool [sequences]: left out, because the keys' lengths differ."""
    counts: Mapping[str, Any]
    """What of `CutReport` is about alignment."""


def expected_lengths(input_lengths: Int64, rule: KeyRule) -> Int64:
    """Frames that a key should have, from those of the input key and the rate.

    Args:
        input_lengths: int64 [sequences].
        rule: the key's rule, which has a rate.

    Returns:
        int64 [sequences]; with align "exact", −1 where the rate doesn't divide.
    """
    whole, rest = np.divmod(input_lengths, rule.rate or 1)
    if rule.align == "floor":
        return whole
    if rule.align == "ceil":
        return whole + (rest > 0)
    return np.where(rest == 0, whole, -1)


def align_lengths(lengths: Mapping[str, Int64], rules: Rules, tags: Tags) -> Alignment:
    """Checks that all keys of every sequence fit together, and makes them where the rules allow it.

    Args:
        lengths: for each key with time, int64 [sequences], as the source has them.
        rules: the rules.
        tags: of all sequences, for messages.

    Raises:
        SourceError: a length is negative, or doesn't fit and mustn't; names the first such sequence and both lengths.
    """
    lengths = {rule.name: np.asarray(lengths[rule.name], np.int64) for rule in rules.keys}
    inputs = lengths[rules.input.name]
    wanted = {mode: np.zeros(len(inputs), bool) for mode in ("error", "trim", "pad", "drop")}
    shortest, longest = inputs, inputs
    for rule in rules.keys:
        frames = lengths[rule.name]
        _check_not_negative(frames, rule, tags)
        if rule.rate is None:
            continue
        least, most = _inputs_for(frames, rule)
        misfit = (inputs < least) | (inputs > most)
        if misfit.any():
            _check_tolerance(np.flatnonzero(misfit), frames, inputs, rules, rule, tags)
            wanted[rule.on_mismatch] |= misfit
            if rule.on_mismatch == "trim":
                shortest = np.where(misfit, np.minimum(shortest, most), shortest)
            elif rule.on_mismatch == "pad":
                longest = np.where(misfit, np.maximum(longest, least), longest)
    dropped = wanted["drop"]
    trimmed, padded = wanted["trim"] & ~dropped, wanted["pad"] & ~dropped & ~wanted["trim"]
    if not (trimmed | padded).any():
        return Alignment(lengths, dropped, {})
    exact = lcm(*(rule.rate for rule in rules.keys if rule.rate is not None and rule.align == "exact"))
    decided = np.where(trimmed, shortest // exact * exact, np.where(padded, -(-longest // exact) * exact, inputs))
    fitting = {
        rule.name: lengths[rule.name]
        if rule.rate is None
        else np.where(trimmed | padded, expected_lengths(decided, rule), lengths[rule.name])
        for rule in rules.keys
    }
    return Alignment(fitting, dropped, _changes(lengths, fitting))


def _inputs_for(frames: Int64, rule: KeyRule) -> tuple[Int64, Int64]:
    """The least and the most input frames from which a key has so many frames."""
    rate = rule.rate or 1
    if rule.align == "ceil":
        return np.maximum((frames - 1) * rate + 1, 0), frames * rate
    return frames * rate, frames * rate + (rate - 1 if rule.align == "floor" else 0)


def _changes(before: Mapping[str, Int64], after: Mapping[str, Int64]) -> dict[str, Any]:
    """Counts what was cut off and what was added."""
    change = {name: after[name] - before[name] for name in before}
    trimmed = {name: int(-np.minimum(frames, 0).sum()) for name, frames in change.items()}
    padded = {name: int(np.maximum(frames, 0).sum()) for name, frames in change.items()}
    return {
        "sequences_trimmed": int(np.any([frames < 0 for frames in change.values()], axis=0).sum()),
        "sequences_padded": int(np.any([frames > 0 for frames in change.values()], axis=0).sum()),
        "frames_trimmed": {name: count for name, count in trimmed.items() if count},
        "frames_padded": {name: count for name, count in padded.items() if count},
    }


def _check_not_negative(frames: Int64, rule: KeyRule, tags: Tags) -> None:
    wrong = np.flatnonzero(frames < 0)
    if len(wrong):
        raise SourceError(
            f"sequence {tags[wrong[0]]!r}: key {rule.name!r} has {frames[wrong[0]]} frames; "
            "the source's lengths are damaged"
        )


def _check_tolerance(misfit: Int64, frames: Int64, inputs: Int64, rules: Rules, rule: KeyRule, tags: Tags) -> None:
    """Refuses sequences that don't fit and mustn't, or not by so much."""
    have, rate = frames[misfit], rule.rate or 1
    low, high = inputs[misfit] // rate, -(-inputs[misfit] // rate)  # the same, or no length is exact
    short = (high if rule.align != "floor" else low) - have
    long = have - (low if rule.align != "ceil" else high)
    off = np.maximum(short, long)
    wrong = np.ones(len(misfit), bool) if rule.on_mismatch == "error" else off > rule.tolerance_frames
    if not wrong.any():
        return
    first = int(np.argmax(wrong))
    place, count = int(misfit[first]), int(wrong.sum())
    rest = f" ({count} such sequences)" if count > 1 else ""
    setting = f"keys.{rule.name}"
    allow = f"allow it with {setting}.tolerance and on_mismatch"
    if rule.on_mismatch != "error":
        allow = f"raise {setting}.tolerance, which is {rule.tolerance_frames} where {int(off[first])} are needed"
    raise SourceError(
        f"sequence {tags[place]!r}: key {rule.name!r} has {frames[place]} frames where {rules.input.name!r} has "
        f"{inputs[place]}, which doesn't fit rate {rule.rate} with align {rule.align}{rest}; "
        f"correct {setting}.rate or align, or the source, or {allow}"
    )
