"""A dataset per sequence (`/utt1`), a group per sequence (`/utt1/data`, nested or not), a group per key (`/feats/utt1`),
and a file per sequence.

A sequence's tag is its place in the file: of `/speaker/utt1/data` it is `speaker/utt1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from seqprep.errors import SourceError
from seqprep.sources.hdf5.columns import THROUGH_H5PY, Column, Content, PerSequence
from seqprep.sources.hdf5.naming import KNOWN_NAMES, chosen, input_first, number_type
from seqprep.sources.hdf5.options import TAG, Hdf5Options
from seqprep.sources.hdf5.strings import is_text
from seqprep.sources.hdf5.survey import Leaf, Survey
from seqprep.types import Int64, KeySpec, Tags


def describe_groups(path: str, found: Survey, options: Hdf5Options) -> Content:
    """Describes a file with a dataset per sequence and key.

    Args:
        path: the file.
        found: its datasets.
        options: the keys to take.

    Raises:
        SourceError: there is none, a sequence lacks a key, or their frames differ.
    """
    patterns = options.datasets or chosen(_patterns(path, found), options, path)
    if options.keys is None:
        patterns = _without_text(patterns, found)
    tags = Tags.of(_tags(found, next(iter(patterns.values()))))
    if not len(tags):
        raise SourceError(
            f"{path}: holds no dataset {next(iter(patterns.values()))!r}, with a sequence's tag for {TAG}; check source.keys"
        )
    columns: dict[str, Column] = {}
    lengths: dict[str, Int64] = {}
    for key, pattern in patterns.items():
        column, frames = describe_datasets(path, found, pattern, tags, timed=key not in options.without_time)
        columns[key] = column
        if column.spec.has_time:
            lengths[key] = frames
    return Content(path=path, tags=tags, columns=columns, lengths=lengths)


def _tags(found: Iterable[str], pattern: str) -> Iterator[str]:
    """What stands for the tag in those paths that are of the pattern."""
    before, _, after = pattern.partition(TAG)
    for name in found:
        if name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after):
            yield name[len(before) : len(name) - len(after)]


def _without_text(patterns: dict[str, str], found: Survey) -> dict[str, str]:
    """Leaves out keys of strings, such as transcripts, if there are others."""
    of_key = {key: next(_tags(found, pattern), "") if TAG in pattern else "" for key, pattern in patterns.items()}
    leaves = {key: found.get(pattern.replace(TAG, of_key[key])) for key, pattern in patterns.items()}
    kept = {key: patterns[key] for key, leaf in leaves.items() if leaf is None or not is_text(leaf.dtype)}
    return kept or patterns


def _patterns(path: str, found: Iterable[str]) -> dict[str, str]:
    """Tells from the names of all datasets what stands for the tag in them, and what for the key."""
    if not found:
        raise SourceError(f"{path}: holds no dataset; check source.path")
    inside: dict[str, set[str]] = {}
    for name in found:
        group, _, own = name.rpartition("/")
        inside.setdefault(group, set()).add(own)
    tops = {name.partition("/")[0] for name in found}
    if "" not in inside and tops <= KNOWN_NAMES:
        return {top: f"{top}/{TAG}" for top in input_first(tops)}
    names = set.union(*inside.values())
    shared = set.intersection(*inside.values())
    if "" not in inside and (names <= KNOWN_NAMES or (shared == names and len(inside) > 1)):
        return {own: f"{TAG}/{own}" for own in input_first(names)}
    if shared & KNOWN_NAMES and len(inside) > 1:
        odd = next(group for group, own in inside.items() if own != names)
        raise SourceError(
            f"{path}: sequence {odd!r} has no {sorted(names - inside[odd])[0]!r}, unlike others; name the keys that all "
            "sequences have in source.keys"
        )
    return {"data": TAG}


def describe_datasets(
    path: str, found: Survey, pattern: str, tags: Tags, *, slash: str = "/", timed: bool = True
) -> tuple[PerSequence, Int64]:
    """Describes one key with a dataset per sequence.

    Args:
        path: the file.
        found: its datasets.
        pattern: path of a sequence's dataset, with `{tag}` for its tag.
        tags: all sequences; at least one.
        slash: what stands in paths for a slash of a tag.
        timed: False if a dataset is one value; a dataset of shape [] always is.

    Returns:
        The key, and the frames of each sequence, int64 [sequences].

    Raises:
        SourceError: a sequence has no dataset, or they differ in dtype or shape.
    """
    lengths, offsets = np.ones(len(tags), np.int64), np.full(len(tags), THROUGH_H5PY)
    spec, last = None, None
    for place, tag in enumerate(tags):
        name = pattern.replace(TAG, tag.replace("/", slash))
        leaf = found.get(name)
        if leaf is None:
            raise SourceError(
                f"{path}: sequence {tag!r} has no dataset {name!r}; add it, or name the keys that all have in source.keys"
            )
        if last is None or not timed or _kind(leaf) != _kind(last):
            own = _spec(path, leaf, name, timed)
            spec, last = spec or own, leaf
            if own != spec:
                raise SourceError(
                    f"{path}: sequence {tag!r}: {name!r} is {own.dtype} {list(leaf.shape)}, but that of sequence "
                    f"{tags[0]!r} is {spec.dtype} with {'frames' if spec.has_time else 'one value'} of {list(spec.shape)}; "
                    "make them alike"
                    + (
                        "; or if each dataset holds all sequences, set source.layout and source.lengths"
                        if pattern == TAG
                        else ""
                    )
                )
        offsets[place] = leaf.offset
        if spec and spec.has_time:
            lengths[place] = leaf.shape[0]
    if spec is None:
        raise SourceError(f"{path}: holds no sequence; check source.path")
    return PerSequence(path=path, tags=tags, pattern=pattern, slash=slash, spec=spec, offsets=offsets), lengths


def _kind(leaf: Leaf) -> tuple[object, ...]:
    """What datasets of a key with time have alike."""
    return leaf.dtype, len(leaf.shape), leaf.shape[1:]


def _spec(path: str, leaf: Leaf, name: str, timed: bool) -> KeySpec:
    has_time = timed and len(leaf.shape) > 0
    dtype = number_type(leaf.dtype, path, name)
    spec = KeySpec(dtype=dtype, shape=leaf.shape[1:] if has_time else leaf.shape, has_time=has_time)
    if spec.nbytes == 0:
        raise SourceError(f"{path}: dataset {name!r} has shape {list(leaf.shape)}: its frames hold no value")
    return spec


def describe_file(path: str, tag: str, found: Survey, options: Hdf5Options) -> Content:
    """Describes a file that holds one sequence: a dataset per key.

    Args:
        path: the file.
        tag: its sequence's tag.
        found: its datasets.
        options: the keys to take.

    Raises:
        SourceError: a key is missing, or there is none.
    """
    if not found:
        raise SourceError(f"{path}: holds no dataset; check source.path")
    columns: dict[str, Column] = {}
    lengths: dict[str, Int64] = {}
    taken = chosen({name: name for name in input_first(found)}, options, path)
    for key, name in (_without_text(taken, found) if options.keys is None else taken).items():
        timed = key not in options.without_time
        column, frames = describe_datasets(path, found, name, Tags.of([tag]), timed=timed)
        columns[key] = column
        if column.spec.has_time:
            lengths[key] = frames
    return Content(path=path, tags=Tags.of([tag]), columns=columns, lengths=lengths)
