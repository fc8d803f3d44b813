"""Several sources joined by tag: the features from one, the labels from another."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from seqprep import config
from seqprep.config import Document, suggestion
from seqprep.errors import ConfigError, SourceError
from seqprep.sources.fingerprint import fingerprint_of, short_hash
from seqprep.sources.protocol import Source
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags

TAKE = "take"
"""The setting of an entry that says which of its source's keys are taken."""
_SHOWN = 3
_log = logging.getLogger("seqprep")


class JoinOptions(config.Options):
    """What a section `source` of several sources holds beside them."""

    on_missing: Literal["error", "drop"] = "error"
    """What becomes of tags that not all sources have: an error, or they are left out, counted."""


def is_join(settings: Mapping[str, Any]) -> bool:
    """Tells sources to be joined from a single one, whose `type` is text: each entry but `on_missing` is a section."""
    entries = [value for name, value in settings.items() if name not in JoinOptions.model_fields]
    return bool(entries) and all(isinstance(value, Mapping) for value in entries)


class JoinedSource:
    """Sequences put together from several sources by their tags, in the order of the first.

    Args:
        sources: for each entry of the configuration, its source.
        takes: for each entry, its setting `take`, or None.
        on_missing: what becomes of tags that not all sources have.
        document: where the settings came from, for messages.

    Raises:
        ConfigError: a source lacks a key that is taken, or two keys have one name.
        SourceError: tags are missing and `on_missing` is error, or no tag is in all sources.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        takes: Mapping[str, Any],
        on_missing: Literal["error", "drop"],
        document: Document,
    ) -> None:
        self._sources = dict(sources)
        self._homes: dict[str, tuple[str, str]] = {}
        """For each key, its entry and what it is called there."""
        for entry, source in sources.items():
            for key, own in _taken(entry, source.keys, takes.get(entry), document).items():
                if key in self._homes:
                    where = document.where(("source", entry))
                    raise ConfigError(
                        f"{where}: key {key!r} comes from source.{self._homes[key][0]} and source.{entry}; rename one with "
                        f"take: {{another: {own}}}"
                    )
                self._homes[key] = (entry, own)
        self._places = _align({entry: source.tags for entry, source in sources.items()}, on_missing)
        first = next(iter(sources))
        self._tags = sources[first].tags.take(self._places[first])
        self._keys = {key: sources[entry].keys[own] for key, (entry, own) in self._homes.items()}
        self._lengths = {
            key: sources[entry].lengths(own)[self._places[entry]]
            for key, (entry, own) in self._homes.items()
            if self._keys[key].has_time
        }

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """The keys taken, entry by entry."""
        return self._keys

    @property
    def tags(self) -> Tags:
        """The tags that all sources have, in the order of the first."""
        return self._tags

    def lengths(self, key: str) -> Int64:
        """Frames of every sequence in one key; int64 [sequences]."""
        return self._lengths[key]

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        """Reads frames of one sequence; see `Source.read`."""
        entry, own = self._homes[key]
        return self._sources[entry].read(own, int(self._places[entry][sequence]), frames, out)

    def fingerprint(self) -> Mapping[str, str]:
        """As `Source.fingerprint`, of the sequences as they are joined, and each part of each source: `<entry>.<part>`."""
        per_entry = {entry: dict(source.fingerprint()) for entry, source in self._sources.items()}
        parts = fingerprint_of(self._keys, self._tags, self._lengths)
        for name in ("files", "samples"):
            parts[name] = short_hash(own[name].encode() for own in per_entry.values())
        return parts | {f"{entry}.{name}": value for entry, own in per_entry.items() for name, value in own.items()}

    def close(self) -> None:
        """Gives back the open files of all sources."""
        for source in self._sources.values():
            source.close()


def _taken(entry: str, keys: Mapping[str, KeySpec], take: Any, document: Document) -> dict[str, str]:
    """For each key that an entry gives, what its source calls it.

    One key is called as the entry; several are `<entry>_<key>`, unless `take` is a mapping that names them.
    """
    where = document.where(("source", entry, TAKE))
    if isinstance(take, str):
        taken = {entry: take}
    elif isinstance(take, Mapping):
        taken = {str(key): str(own) for key, own in take.items()}
    elif take is None or (isinstance(take, Sequence) and all(isinstance(own, str) for own in take)):
        chosen = list(keys) if take is None else list(take)
        taken = {entry: chosen[0]} if len(chosen) == 1 else {f"{entry}_{own}": own for own in chosen}
    else:
        raise ConfigError(f"{where}: source.{entry}.{TAKE} is {take!r}: give a key, a list of keys, or {{name: key}}")
    for own in taken.values():
        if own not in keys:
            raise ConfigError(f"{where}: source.{entry} has no key {own!r}{suggestion(own, keys)}")
    return taken


def _align(tags: Mapping[str, Tags], on_missing: Literal["error", "drop"]) -> dict[str, Int64]:
    """For each entry, the places of the common tags in its source; int64 [sequences], in the order of the first."""
    (first, wanted), *others = tags.items()
    found = {entry: places_of(own, wanted) for entry, own in others}
    common = np.ones(len(wanted), bool)
    complaints = []
    for entry, places in found.items():
        common &= places >= 0
        extra = np.ones(len(tags[entry]), bool)
        extra[places[places >= 0]] = False
        complaints += _complaint(entry, first, wanted, places < 0) + _complaint(first, entry, tags[entry], extra)
    if complaints and on_missing == "error":
        raise SourceError("; ".join(complaints) + "; complete them, or set source.on_missing: drop")
    if not common.any() and len(wanted):
        raise SourceError(f"sources {' and '.join(tags)} have no tag in common; {'; '.join(complaints)}")
    for complaint in complaints:
        _log.warning("%s; left out", complaint)
    kept = np.flatnonzero(common)
    return {first: kept} | {entry: places[kept] for entry, places in found.items()}


def _complaint(lacking: str, having: str, tags: Tags, missing: Any) -> list[str]:
    """Says which tags one source lacks; nothing if it lacks none."""
    places = np.flatnonzero(missing)
    if not len(places):
        return []
    names = ", ".join(repr(tags[int(place)]) for place in places[:_SHOWN]) + (", …" if len(places) > _SHOWN else "")
    return [f"source.{lacking} lacks {len(places):,} of the {len(tags):,} tags of source.{having}: {names}"]


def places_of(tags: Tags, wanted: Tags) -> Int64:
    """Finds tags among others.

    Args:
        tags: where to look; all different.
        wanted: what to find.

    Returns:
        int64 [wanted]: the place of each in `tags`; −1 where it isn't there.
    """
    if not len(tags) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    hashes, sought = tags.hashes(), wanted.hashes()
    order = np.argsort(hashes, kind="stable")
    found = order[np.minimum(np.searchsorted(hashes[order], sought), len(order) - 1)]
    same = hashes[found] == sought
    if tags.take(found[same]) != wanted.take(np.flatnonzero(same)):  # two tags of one hash
        known = {tag: place for place, tag in enumerate(tags)}
        return np.array([known.get(tag, -1) for tag in wanted], np.int64)
    return np.where(same, found, -1)
