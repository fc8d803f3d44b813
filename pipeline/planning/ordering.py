"""Orders of sequences and rows: pure functions of seed, epoch and places, the same on every machine."""

from __future__ import annotations

import numpy as np

from seqprep import hashing
from seqprep.planning.rules import Rules
from seqprep.types import Int64

_SEQUENCES, _ROWS = 1, 2  # what a draw is for; part of its key


def order_sequences(count: int, rules: Rules, epoch: int = 0) -> Int64:
    """Orders the sequences of a source.

    Returns:
        int64 [count]: places in the source.
    """
    if rules.order == "source":
        return np.arange(count)
    return hashing.permutation(hashing.key_of(rules.seed, epoch, _SEQUENCES), count)


def order_rows(sequence: Int64, number: Int64, rules: Rules, epoch: int = 0) -> Int64:
    """Orders the rows of a shard, by what they are and not by where they stand.

    Args:
        sequence: int64 [rows]: place of the row's sequence in the source.
        number: int64 [rows]: number of the chunk in its sequence.

    Returns:
        int64 [rows]: places among the given rows.
    """
    if rules.order == "source":
        return np.arange(len(sequence))
    key = hashing.key_of(rules.seed, epoch, _ROWS)
    return np.argsort(hashing.mix(hashing.keyed(key, sequence) + number.astype(np.uint64)), kind="stable")
