"""Cuts the ordered sequences into shards, by the bytes of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seqprep.planning.chunking import Cuts
from seqprep.planning.rules import Rules
from seqprep.planning.sizes import chunk_bytes, sequence_bytes
from seqprep.types import Int64


@dataclass(frozen=True)
class ShardCuts:
    """Shards as stretches of the ordered sequences; a long sequence may be split at a chunk.

    Shard i goes from chunk `chunk[i]` of the sequence at `place[i]` up to the same of i + 1.
    """

    place: Int64
    """int64 [shards + 1]: place in the order."""
    chunk: Int64
    """int64 [shards + 1]: number of the chunk in that sequence; 0 at a sequence's start."""
    row_bytes: int
    """Of all rows, context included and padding not."""

    def __len__(self) -> int:
        return len(self.place) - 1


def cut_shards(
    order: Int64, cuts: Cuts, lengths: Mapping[str, Int64], rules: Rules, units: Mapping[str, Int64]
) -> ShardCuts:
    """Closes a shard before the sequence that would take it past its size.

    A sequence larger than a shard starts one, and is split at chunk boundaries; the shard of its last part goes on
    with the sequences behind it.

    Args:
        order: int64 [n]: the sequences' places in the source.
        cuts: how each sequence is cut, in the source's order.
        lengths: for each key with time, int64 [sequences].
        rules: the rules.
        units: for keys with ragged axes, int64 [sequences]: the product of those axes' sizes.
    """
    counts = cuts.count
    sizes = sequence_bytes(lengths, cuts, rules, units)[order]
    large = (sizes > rules.shard_bytes) & (counts[order] > 1)
    # Pieces that stay together: sequences that have rows, and of the large ones their chunks.
    parts = np.where(large, counts[order], counts[order] > 0)
    place = np.repeat(np.arange(len(order)), parts)
    number = np.arange(len(place)) - np.repeat(np.cumsum(parts) - parts, parts)
    of_large = large[place]
    sizes = sizes[place]
    sizes[of_large] = chunk_bytes(order[place[of_large]], number[of_large], lengths, cuts, rules, units)

    starts = _greedy_starts(np.cumsum(sizes), rules.shard_bytes, forced=np.flatnonzero(of_large & (number == 0)))
    return ShardCuts(np.append(place[starts], len(order)), np.append(number[starts], 0), int(sizes.sum()))


def cut_rows(sizes: Int64, rules: Rules) -> Int64:
    """Closes a shard before the row that would take it past its size.

    Args:
        sizes: int64 [rows]: bytes of each row, from `chunk_bytes`, in their order.
        rules: the rules.

    Returns:
        int64 [shards + 1]: shard i begins at this row.
    """
    return np.append(_greedy_starts(np.cumsum(sizes), rules.shard_bytes, np.zeros(0, np.int64)), len(sizes))


def _greedy_starts(ends: Int64, limit: int, forced: Int64) -> Int64:
    """Where shards begin among pieces whose sizes, summed up, are `ends`; `forced` pieces begin one whatever fits."""
    starts, begin = [], 0
    while begin < len(ends):
        starts.append(begin)
        before = int(ends[begin - 1]) if begin else 0
        fit = max(int(np.searchsorted(ends, before + limit, side="right")), begin + 1)
        ahead = int(np.searchsorted(forced, begin, side="right"))
        begin = min(fit, int(forced[ahead])) if ahead < len(forced) else fit
    return np.array(starts, np.int64)
