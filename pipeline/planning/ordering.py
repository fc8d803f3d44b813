"""Orders of sequences and rows: pure functions of seed, epoch and places, the same on every machine.

The names and rules of the orders are those of RETURNN's `seq_ordering`; its draws are not.
"""

from __future__ import annotations

import numpy as np

from seqprep import hashing
from seqprep.planning.rules import Rules
from seqprep.types import Int64

_SEQUENCES, _ROWS = 1, 2  # what a draw is for; part of its key


def order_sequences(places: Int64, lengths: Int64, rules: Rules, epoch: int = 0) -> Int64:
    """Orders sequences.

    Args:
        places: int64 [n]: their places in the source, ascending.
        lengths: int64 [n]: their frames in the input key.
        rules: the rules.
        epoch: number of the pass.

    Returns:
        int64 [n]: the places, in order.
    """
    by = rules.order
    if by == "source":
        return places
    if by == "reverse":
        return places[::-1]
    if by == "sorted":
        return places[np.argsort(lengths, kind="stable")]
    if by == "sorted_reverse":
        return places[np.argsort(-lengths, kind="stable")]
    drawn = hashing.order_of(hashing.keyed(hashing.key_of(rules.seed, epoch, _SEQUENCES), places))
    if by == "laplace":
        drawn = drawn[_up_and_down(lengths[drawn], _groups(rules, len(places)))]
    return places[drawn]


def _groups(rules: Rules, count: int) -> int:
    """Groups of laplace; given by size there are two at least, as in RETURNN."""
    if rules.order_rule.group_size is not None:
        return max(count // rules.order_rule.group_size, 2)
    return rules.order_rule.groups or 1


def _up_and_down(lengths: Int64, groups: int) -> Int64:
    """Cuts what stands in a random order into groups, and sorts the first by ascending length, the next descending, ….

    Returns:
        int64 [n]: places among the given; of equal lengths the earlier comes first.
    """
    groups = min(groups, len(lengths))  # of more, the others are empty
    group = ((np.arange(len(lengths)) + 1) * groups - 1) // len(lengths)  # group g begins at ⌊g · n / groups⌋
    return np.lexsort([np.where(group % 2 == 0, lengths, -lengths), group])


def hash_sequences(places: Int64, rules: Rules, epoch: int) -> hashing.UInt64:
    """The part of `hash_rows` that all rows of a sequence share; uint64 [sequences].

    Args:
        places: int64 [sequences]: their places in the source.
        rules: the rules.
        epoch: number of the pass.
    """
    return hashing.keyed(hashing.key_of(rules.seed, epoch, _ROWS), places)


def hash_rows(of_sequence: hashing.UInt64, number: Int64) -> hashing.UInt64:
    """The numbers that random orders of rows sort by; uint64 [rows].

    Args:
        of_sequence: uint64 [rows]: hash of the row's sequence.
        number: int64 [rows]: number of the chunk in its sequence.
    """
    return hashing.mix(of_sequence + number.astype(np.uint64))


def order_rows(sequence: Int64, number: Int64, rules: Rules, epoch: int = 0) -> Int64:
    """Orders the rows of a shard, by what they are and not by where they stand.

    Only `random` shuffles them; in every other order the rows of a sequence stay together, from its beginning to its end.

    Args:
        sequence: int64 [rows]: place of the row's sequence in the source.
        number: int64 [rows]: number of the chunk in its sequence.
        rules: the rules.
        epoch: number of the pass.

    Returns:
        int64 [rows]: places among the given rows.
    """
    if rules.order != "random":
        return np.arange(len(sequence))
    return hashing.order_of(hash_rows(hash_sequences(sequence, rules, epoch), number))
