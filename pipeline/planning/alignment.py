"""Holds each key's lengths against those of the input key."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seqprep.errors import SourceError
from seqprep.planning.rules import KeyRule, Rules
from seqprep.types import Int64, Tags


def expected_lengths(input_lengths: Int64, rule: KeyRule) -> Int64:
    """Frames that a key should have, from those of the input key and the rate.

    Args:
        input_lengths: int64 [sequences].

    Returns:
        int64 [sequences]; with align "exact", −1 where the rate doesn't divide.
    """
    whole, rest = np.divmod(input_lengths, rule.rate)
    if rule.align == "floor":
        return whole
    if rule.align == "ceil":
        return whole + (rest > 0)
    return np.where(rest == 0, whole, -1)


def check_lengths(lengths: Mapping[str, Int64], rules: Rules, tags: Tags) -> None:
    """Checks that all keys of every sequence fit together.

    Args:
        lengths: for each key with time, int64 [sequences].
        rules: the rules.
        tags: of all sequences, for the message.

    Raises:
        SourceError: a length is negative or doesn't fit; names the first such sequence and both lengths.
    """
    inputs = lengths[rules.input.name]
    for rule in rules.keys:
        wrong = np.flatnonzero((lengths[rule.name] != expected_lengths(inputs, rule)) | (lengths[rule.name] < 0))
        if not len(wrong):
            continue
        first = int(wrong[0])
        have, frames = int(lengths[rule.name][first]), int(inputs[first])
        if have < 0:
            raise SourceError(
                f"sequence {tags[first]!r}: key {rule.name!r} has {have} frames; the source's lengths are damaged"
            )
        rest = f" ({len(wrong)} such sequences)" if len(wrong) > 1 else ""
        raise SourceError(
            f"sequence {tags[first]!r}: key {rule.name!r} has {have} frames where {rules.input.name!r} has {frames}, "
            f"which doesn't fit rate {rule.rate} with align {rule.align}{rest}; "
            f"correct keys.{rule.name}.rate or align, or the source"
        )
