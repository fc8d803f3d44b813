"""Which sequences are taken, and into which part of a split each goes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from seqprep import hashing
from seqprep.config import Config, exact_share
from seqprep.errors import ConfigError
from seqprep.planning.report import Count
from seqprep.types import Array, Int64, Tags

_SPLIT = 4  # what the draw is for; part of its key


@dataclass(frozen=True, kw_only=True)
class SelectRule:
    """What a sequence has to be like."""

    include: tuple[str, ...] | None = None
    """Regular expressions, one of which is found in the tag."""
    exclude: tuple[str, ...] = ()
    """Regular expressions, none of which is."""
    min_frames: int | None = None
    """Of the input key."""
    max_frames: int | None = None
    wanted: Tags | None = None
    """The only tags that are taken."""

    @classmethod
    def of(cls, config: Config, wanted: Tags | None) -> SelectRule:
        """Takes it from the configuration.

        Args:
            config: the configuration.
            wanted: what `select.tags_file` holds.
        """
        select = config.select
        return cls(
            include=None if select.include is None else tuple(select.include),
            exclude=tuple(select.exclude),
            min_frames=select.min_frames,
            max_frames=select.max_frames,
            wanted=wanted,
        )

    def value_of(self, setting: str) -> str:
        """Writes a setting's value in parentheses, for messages; nothing for the file of tags."""
        value = getattr(self, setting.removeprefix("select."), None)
        if isinstance(value, tuple):
            value = ", ".join(map(repr, value))
        return "" if value is None else f" ({value})"


@dataclass(frozen=True)
class Selected:
    """Some sequences of a source, and what became of the others."""

    places: Int64
    """int64 [n], ascending: places in the source."""
    left_out: Mapping[str, Count]


def select(lengths: Int64, counts: Int64, tags: Tags, rule: SelectRule) -> Selected:
    """Takes the sequences that a rule allows; each of the others is counted for the first reason against it.

    Args:
        lengths: int64 [sequences]: frames of the input key.
        counts: int64 [sequences]: rows of each.
        tags: of all sequences.
        rule: what they have to be like.

    Raises:
        ConfigError: none is left; says what left them out.
    """
    kept = np.ones(len(lengths), bool)
    left_out = {}
    for reason, passes in _tests(lengths, tags, rule):
        gone = kept & ~passes
        kept &= passes
        if gone.any():
            left_out[reason] = count_of(gone, lengths, counts)
    if len(kept) and not kept.any():
        reasons = ", ".join(
            f"{count.sequences:,} by {reason}{rule.value_of(reason)}" for reason, count in left_out.items()
        )
        raise ConfigError(f"select leaves none of the {len(kept):,} sequences: {reasons} were left out; loosen that")
    return Selected(np.flatnonzero(kept), left_out)


def count_of(which: Array, lengths: Int64, counts: Int64) -> Count:
    """Counts whole sequences.

    Args:
        which: bool [sequences], or their places.
        lengths: int64 [sequences]: frames of the input key.
        counts: int64 [sequences]: rows of each.
    """
    lengths, counts = lengths[which], counts[which]
    return Count(sequences=len(lengths), rows=int(counts.sum()), frames=int(lengths.sum()))


def _tests(lengths: Int64, tags: Tags, rule: SelectRule) -> Iterable[tuple[str, Array]]:
    """For each setting that is in use, which sequences pass it; bool [sequences]."""
    if rule.wanted is not None:
        yield "select.tags_file", np.isin(tags.hashes(), rule.wanted.hashes())
    if rule.include is not None:
        yield "select.include", _found(rule.include, tags)
    if rule.exclude:
        yield "select.exclude", ~_found(rule.exclude, tags)
    if rule.min_frames is not None:
        yield "select.min_frames", lengths >= rule.min_frames
    if rule.max_frames is not None:
        yield "select.max_frames", lengths <= rule.max_frames


def _found(patterns: tuple[str, ...], tags: Tags) -> Array:
    """In which tags one of the patterns is found; the one place where each sequence has to be looked at by Python."""
    searches = [re.compile(pattern).search for pattern in patterns]
    if len(searches) == 1:
        search = searches[0]
        return np.array([search(tag) is not None for tag in tags], bool)
    return np.array([any(search(tag) for search in searches) for tag in tags], bool)


@dataclass(frozen=True)
class SplitRule:
    """How sequences are divided into parts."""

    shares: Mapping[str, float]
    """Of each part, in order; at most 1 together."""
    by: str | None
    """A regular expression with one group; sequences with the same stay together."""

    @classmethod
    def of(cls, config: Config) -> SplitRule | None:
        """Takes it from the configuration."""
        return None if config.split is None else cls(config.split.parts, config.split.by)


REST = ""
"""Name of the part that no part of the split takes."""


def split(places: Int64, tags: Tags, rule: SplitRule) -> dict[str, Int64]:
    """Divides sequences by a hash of their tag, or of what the pattern finds in it: no seed, no order, no neighbour
    has a say, so that a sequence stays in its part when others come or go.

    Args:
        places: int64 [n], ascending: places in the source.
        tags: of all sequences of the source.
        rule: the parts.

    Returns:
        For each part its places, int64, ascending; what the shares leave under REST.

    Raises:
        ConfigError: the pattern isn't found in a tag, or a part is empty.
    """
    names = tags.take(places)
    hashes = names.hashes() if rule.by is None else _group_hashes(names, rule.by)
    drawn = hashing.keyed(hashing.key_of(_SPLIT), hashes)
    limits = [int(end * (1 << 64)) for end in accumulate(map(exact_share, rule.shares.values()))]
    inner = np.array([limit for limit in limits if limit < 1 << 64], np.uint64)  # what lies at 1 bounds nothing
    part = np.searchsorted(inner, drawn, side="right")
    found = {name: places[part == number] for number, name in enumerate(rule.shares)}
    for name, share in rule.shares.items():
        if not len(found[name]):
            raise ConfigError(
                f"split.{name} is {share:g}, which gives none of the {len(places):,} sequences; "
                "raise it, or split by something finer than split.by"
            )
    return found | {REST: places[part == len(rule.shares)]}


def _group_hashes(tags: Tags, pattern: str) -> hashing.UInt64:
    """A hash of what the pattern's group finds in each tag; uint64 [tags]."""
    search = re.compile(pattern).search
    known: dict[str | None, int] = {}
    numbers = [known.setdefault(found[1], len(known)) if (found := search(tag)) else -1 for tag in tags]
    nothing = known.get(None, -1)  # a group that takes no part in the match
    missing = [place for place, number in enumerate(numbers) if number in (-1, nothing)]
    if missing:
        more = f" (nor in {len(missing) - 1:,} others)" if len(missing) > 1 else ""
        raise ConfigError(
            f"split.by is {pattern!r}, whose group isn't found in tag {tags[missing[0]]!r}{more}; "
            "change the pattern, or leave such sequences out with select"
        )
    groups = Tags.of(group for group in known if group is not None)
    return groups.hashes()[np.array(numbers, np.int64)]
