"""Tells which layout files have, and describes what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqprep.config import suggestion
from seqprep.errors import SourceError
from seqprep.sources.hdf5.columns import Content, Ragged
from seqprep.sources.hdf5.files import opened
from seqprep.sources.hdf5.groups import describe_file, describe_groups
from seqprep.sources.hdf5.naming import KNOWN_NAMES
from seqprep.sources.hdf5.options import TAG, Hdf5Options
from seqprep.sources.hdf5.returnn import describe_flat, describe_streams
from seqprep.sources.hdf5.survey import survey
from seqprep.sources.hdf5.tables import describe_tables, has_tables
from seqprep.sources.paths import names_below

_FLAT = ("inputs", "seqLengths", "seqTags")


def describe_files(paths: Sequence[Path], options: Hdf5Options) -> list[Content]:
    """Describes files of one layout.

    Args:
        paths: at least one.
        options: the layout, or `auto`.

    Raises:
        SourceError: a file can't be read, or isn't of the layout; names it.
    """
    layout = options.layout if options.layout != "auto" else _tell(paths, options)
    contents = []
    for path, name in zip(map(str, paths), names_below(paths), strict=True):
        with opened(path) as file:
            contents.append(_describe(path, name, file, layout, options))
        _check_options(contents[-1], options)
    return contents


def _check_options(content: Content, options: Hdf5Options) -> None:
    """Finds options about keys that there aren't, or that aren't of that kind."""
    named = {"without_time": options.without_time, "frame_shape": options.frame_shape}
    for option, keys in named.items():
        for key in keys:
            place = f"{content.path}: key {key!r}, which source.{option} names,"
            if key not in content.columns:
                raise SourceError(f"{place} isn't there{suggestion(key, content.columns)}")
            is_ragged = isinstance(content.columns[key], Ragged)
            if is_ragged != (option == "frame_shape"):
                raise SourceError(
                    f"{place} {'has' if is_ragged else 'has no'} rows that differ in length; leave it out there"
                )


def _describe(path: str, name: str, file: Any, layout: str, options: Hdf5Options) -> Content:
    if layout == "returnn":
        return describe_flat(path, file, options)
    if layout == "streams":
        return describe_streams(path, file, options)
    if layout == "per_sequence":
        return describe_groups(path, survey(path, file), options)
    if layout == "per_file":
        return describe_file(path, name, survey(path, file), options)
    return describe_tables(path, name, file, layout, options)


def _tell(paths: Sequence[Path], options: Hdf5Options) -> str:
    """The layout of the first file; `tables` if each of its datasets is to be told apart."""
    with opened(str(paths[0])) as file:
        if any(TAG in name for name in options.datasets.values()):
            return "per_sequence"
        if options.lengths is not None or options.offsets is not None or options.tags is not None:
            return "tables"
        if sum(name in file for name in _FLAT) > 1 or "targets/data" in file:
            return "returnn"
        if "streams" in file and "seq_names" in file:
            return "streams"
        if has_tables(file):
            return "tables"
        names = _leaves(file)
    if any("/" in name for name in names):
        return "per_sequence"
    if names and set(names) <= KNOWN_NAMES:
        return "per_file"
    if len(paths) > 1:
        with opened(str(paths[1])) as other:
            if names and names == _leaves(other):
                return "per_file"
    return "per_sequence"


def _leaves(file: Any) -> list[str]:
    """The paths of what is in no group, or in a group without groups."""
    names: list[str] = []
    file.visit_links(names.append)
    groups = {name.rpartition("/")[0] for name in names}
    return [name for name in names if name not in groups]
