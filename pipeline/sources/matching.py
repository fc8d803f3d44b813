"""Finds the tags of one list in another, without an object per tag."""

from __future__ import annotations

import numpy as np

from seqprep.types import Int64, Tags


def match_tags(wanted: Tags, present: Tags) -> Int64:
    """Finds where tags stand.

    Args:
        wanted: the tags to look for.
        present: where; each at most once.

    Returns:
        [wanted]: its place in `present`, or −1.
    """
    if not len(present):
        return np.full(len(wanted), -1)
    hashes = present.hashes()
    order = np.argsort(hashes, kind="stable")
    near = np.minimum(np.searchsorted(hashes[order], wanted.hashes()), len(order) - 1)
    places = order[near]
    places[hashes[places] != wanted.hashes()] = -1
    found = np.flatnonzero(places >= 0)
    if present.take(places[found]) != wanted.take(found):  # two tags of one hash
        by_tag = {tag: place for place, tag in enumerate(present)}
        return np.array([by_tag.get(tag, -1) for tag in wanted], np.int64)
    return places
