"""Finds the reader for `source.type`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol

from seqprep.config import Document, Options, build, suggestion
from seqprep.errors import ConfigError, DependencyError
from seqprep.sources.protocol import Source

BUILT_IN = {
    "audio": "seqprep.sources.audio:AudioSource",
    "hdf5": "seqprep.sources.hdf5:Hdf5Source",
    "kaldi": "seqprep.sources.kaldi:KaldiSource",
    "synthetic": "seqprep.sources.synthetic:SyntheticSource",
}
ENTRY_POINT_GROUP = "seqprep.sources"


class SourceClass(Protocol):
    """A reader: its options, and how it is made from them."""

    Options: ClassVar[type[Options]]

    def __call__(self, options: Any) -> Source:
        """Opens the input."""


def open_source(settings: Mapping[str, Any], document: Document | None = None) -> Source:
    """Opens an input.

    Args:
        settings: the section `source` of a configuration: `type`, and the reader's own options.
        document: where the settings came from, for messages.

    Raises:
        ConfigError: the type or an option is unknown or wrong.
        DependencyError: the reader needs an extra that isn't installed.
        SourceError: the input is missing, empty or damaged.
    """
    document = document or Document("settings", {"source": dict(settings)})
    reader = find_reader(str(settings.get("type")), document)
    own = {name: value for name, value in settings.items() if name != "type"}
    source = reader(build(reader.Options, own, document, at=("source",)))
    if len(source.tags) == 0:
        raise ConfigError(f"{document.where(('source',))}: the source holds no sequence; check its path and options")
    return source


def find_reader(name: str, document: Document) -> SourceClass:
    """Finds a reader by its type: one of ours, or one that a package registered as an entry point.

    Raises:
        ConfigError: nobody knows the type.
        DependencyError: its module needs a package that isn't installed.
    """
    registered = {entry.name: entry.value for entry in entry_points(group=ENTRY_POINT_GROUP)}
    target = BUILT_IN.get(name) or registered.get(name)
    if target is None:
        known = [*BUILT_IN, *registered]
        place = document.where(("source", "type"))
        raise ConfigError(f"{place}: source.type is {name!r}, which no reader goes by{suggestion(name, known)}")
    module, _, attribute = target.partition(":")
    try:
        reader: SourceClass = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise DependencyError(
            f"source.type {name}: {error}; pip install 'seqprep[{name}]' brings what it needs"
        ) from error
    return reader
