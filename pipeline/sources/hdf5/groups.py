"""A dataset per sequence (`/utt1`), a group per sequence (`/utt1/data`, nested or not), a group per key (`/feats/utt1`),
and a file per sequence.

A sequence's tag is its place in the file: of `/speaker/utt1/data` it is `speaker/utt1`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from seqprep.errors import SourceError
from seqprep.sources.hdf5.columns import THROUGH_H5PY, Column, Content, PerSequence
from seqprep.sources.hdf5.files import check_size, file_number, plain_offset
from seqprep.sources.hdf5.naming import KNOWN_NAMES, chosen, input_first, number_type
from seqprep.sources.hdf5.options import TAG, Hdf5Options
from seqprep.types import Int64, KeySpec, Tags


def leaves(file: Any) -> list[tuple[str, bool]]:
    """Lists all datasets of a file, in the order of their paths, level by level.

    Returns:
        For each its path, and whether its bytes may be in another file.

    Raises:
        SourceError: a link leads to a group of another file.
    """
    import h5py

    links: list[tuple[bytes, int]] = []
    file.id.links.visit(lambda name, info: links.append((name, info.type)), info=True)
    groups = {name.rpartition(b"/")[0] for name, _ in links}
    found = []
    for name, kind in sorted(links, key=lambda link: link[0].split(b"/")):
        if name in groups:
            continue
        try:
            item = h5py.h5o.open(file.id, name)
        except KeyError:
            if kind == h5py.h5l.TYPE_HARD:
                raise
            continue  # a soft link to nothing
        if isinstance(item, h5py.h5d.DatasetID):
            found.append((name.decode("utf-8", "surrogateescape"), kind != h5py.h5l.TYPE_HARD))
        elif isinstance(item, h5py.h5g.GroupID) and kind == h5py.h5l.TYPE_EXTERNAL:
            raise SourceError(
                f"{file.filename}: {name.decode()!r} leads to a group of another file; name that in source.path"
            )
    return found


def describe_groups(path: str, file: Any, options: Hdf5Options) -> Content:
    """Describes a file with a dataset per sequence and key.

    Raises:
        SourceError: there is none, a sequence lacks a key, or their frames differ.
    """
    found = [name for name, _ in leaves(file)]
    patterns = options.datasets or chosen(_patterns(path, found, options), options, path)
    tags = Tags.of(_tags(found, next(iter(patterns.values()))))
    if not len(tags):
        raise SourceError(
            f"{path}: holds no dataset {next(iter(patterns.values()))!r}, with a sequence's tag for {TAG}; check source.keys"
        )
    columns: dict[str, Column] = {}
    lengths: dict[str, Int64] = {}
    for key, pattern in patterns.items():
        column, frames = describe_datasets(path, file, pattern, tags, timed=key not in options.without_time)
        columns[key] = column
        if column.spec.has_time:
            lengths[key] = frames
    return Content(path=path, tags=tags, columns=columns, lengths=lengths)


def _tags(found: list[str], pattern: str) -> Iterator[str]:
    """What stands for the tag in those paths that are of the pattern."""
    before, _, after = pattern.partition(TAG)
    for name in found:
        if name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after):
            yield name[len(before) : len(name) - len(after)]


def _patterns(path: str, found: list[str], options: Hdf5Options) -> dict[str, str]:
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
    path: str, file: Any, pattern: str, tags: Tags, *, slash: str = "/", timed: bool = True
) -> tuple[PerSequence, Int64]:
    """Describes one key with a dataset per sequence.

    Args:
        path: the file.
        file: the same, opened.
        pattern: path of a sequence's dataset, with `{tag}` for its tag.
        tags: all sequences.
        slash: what stands in paths for a slash of a tag.
        timed: False if a dataset is one value; a dataset of shape [] always is.

    Returns:
        The key, and the frames of each sequence, int64 [sequences].

    Raises:
        SourceError: a sequence has no dataset, or they differ in dtype or shape.
    """
    import h5py

    home = file_number(file)
    lengths, offsets = np.ones(len(tags), np.int64), np.full(len(tags), THROUGH_H5PY)
    spec = None
    for place, tag in enumerate(tags):
        name = pattern.replace(TAG, tag.replace("/", slash))
        try:
            item = h5py.h5o.open(file.id, name.encode("utf-8", "surrogateescape"))
        except KeyError as error:
            raise SourceError(
                f"{path}: sequence {tag!r} has no dataset {name!r}; add it, or name the keys that all have in source.keys"
            ) from error
        if not isinstance(item, h5py.h5d.DatasetID):
            raise SourceError(f"{path}: {name!r} of sequence {tag!r} is no dataset; check source.keys")
        dataset = h5py.Dataset(item)
        own = _spec(path, dataset, name, timed)
        spec = spec or own
        if own != spec:
            raise SourceError(
                f"{path}: sequence {tag!r}: {name!r} is {own.dtype} {list(dataset.shape)}, but that of sequence {tags[0]!r} "
                f"is {spec.dtype} with frames of {list(spec.shape)}; make them alike"
            )
        check_size(dataset)
        if spec.has_time:
            lengths[place] = dataset.shape[0]
        offset = plain_offset(dataset, home)
        offsets[place] = THROUGH_H5PY if offset is None else offset
    assert spec is not None  # there are tags
    return PerSequence(path=path, tags=tags, pattern=pattern, slash=slash, spec=spec, offsets=offsets), lengths


def _spec(path: str, dataset: Any, name: str, timed: bool) -> KeySpec:
    dtype, shape = number_type(dataset.dtype, path, name), dataset.shape
    has_time = timed and len(shape) > 0
    spec = KeySpec(dtype=dtype, shape=shape[1:] if has_time else shape, has_time=has_time)
    if spec.nbytes == 0:
        raise SourceError(f"{path}: dataset {name!r} has shape {list(shape)}: its frames hold no value")
    return spec


def describe_file(path: str, tag: str, file: Any, options: Hdf5Options) -> Content:
    """Describes a file that holds one sequence: a dataset per key.

    Args:
        path: the file.
        tag: its sequence's tag.
        file: the same, opened.
        options: the keys to take.

    Raises:
        SourceError: a key is missing, or there is none.
    """
    found = [name for name, _ in leaves(file)]
    if not found:
        raise SourceError(f"{path}: holds no dataset; check source.path")
    taken = chosen({name: name for name in input_first(found)}, options, path)
    columns: dict[str, Column] = {}
    lengths: dict[str, Int64] = {}
    for key, name in taken.items():
        timed = key not in options.without_time
        column, frames = describe_datasets(path, file, name, Tags.of([tag]), timed=timed)
        columns[key] = column
        if column.spec.has_time:
            lengths[key] = frames
    return Content(path=path, tags=Tags.of([tag]), columns=columns, lengths=lengths)
