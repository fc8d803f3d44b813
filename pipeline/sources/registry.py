"""Finds the readers for the section `source` of a configuration."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol

from seqprep.config import Document, Options, build, suggestion
from seqprep.errors import ConfigError, DependencyError
from seqprep.sources import plugins
from seqprep.sources.joined import TAKE, JoinedSource, JoinOptions, is_join
from seqprep.sources.protocol import Source

BUILT_IN = {
    "audio": "seqprep.sources.audio:AudioSource",
    "csv": "seqprep.sources.csv_series:CsvSource",
    "hdf5": "seqprep.sources.hdf5:Hdf5Source",
    "jsonl": "seqprep.sources.jsonl:JsonlSource",
    "kaldi": "seqprep.sources.kaldi:KaldiSource",
    "npz": "seqprep.sources.npz:NpzSource",
    "parquet": "seqprep.sources.parquet:ParquetSource",
    "synthetic": "seqprep.sources.synthetic:SyntheticSource",
    "tfrecord": "seqprep.sources.tfrecord:TfRecordSource",
}
ENTRY_POINT_GROUP = "seqprep.sources"


class SourceClass(Protocol):
    """A reader: its options, and how it is made from them."""

    Options: ClassVar[type[Options]]

    def __call__(self, options: Any) -> Source:
        """Opens the input."""


def open_source(settings: Mapping[str, Any], document: Document | None = None) -> Source:
    """Opens an input, or several joined by tag.

    Args:
        settings: the section `source` of a configuration: `type`, and the reader's own options; or such a section for
            each source to be joined, and `on_missing`.
        document: where the settings came from, for messages.

    Raises:
        ConfigError: the type or an option is unknown or wrong.
        DependencyError: the reader needs an extra that isn't installed.
        SourceError: the input is missing, empty or damaged.
    """
    document = document or Document("settings", {"source": dict(settings)})
    source = _open_join(settings, document) if is_join(settings) else _open_one(settings, document, ("source",))
    if len(source.tags) == 0:
        path = settings.get("path", settings.get("manifest"))
        where = f"{document.where(('source',))}: {path}" if isinstance(path, str) else document.where(("source",))
        raise ConfigError(f"{where}: the source holds no sequence; check its path and options")
    return source


def _open_one(settings: Mapping[str, Any], document: Document, at: tuple[str, ...]) -> Source:
    name = str(settings.get("type"))
    reader = find_reader(name, document, at)
    options = build(reader.Options, {key: value for key, value in settings.items() if key != "type"}, document, at=at)
    return reader(options) if name in BUILT_IN else plugins.open_checked(reader, options, name)


def _open_join(settings: Mapping[str, Any], document: Document) -> Source:
    own = {name: value for name, value in settings.items() if name in JoinOptions.model_fields}
    options = build(JoinOptions, own, document, at=("source",))
    opened: dict[str, Source] = {}
    takes = {}
    try:
        for entry, inner in settings.items():
            if entry not in own:
                takes[entry] = inner.get(TAKE)
                rest = {name: value for name, value in inner.items() if name != TAKE}
                opened[entry] = _open_one(rest, document, ("source", entry))
        return JoinedSource(opened, takes, options.on_missing, document)
    except BaseException:
        for source in opened.values():
            source.close()
        raise


def find_reader(name: str, document: Document, at: tuple[str, ...] = ("source",)) -> SourceClass:
    """Finds a reader by its type: one of ours, one that a package registered as an entry point, or "module:Class".

    Raises:
        ConfigError: nobody knows the type.
        DependencyError: its module needs a package that isn't installed.
    """
    where = f"{document.where((*at, 'type'))}: {'.'.join(at)}.type"
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        try:
            reader: SourceClass = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise DependencyError(
                f"source.type {name}: {error}; pip install 'seqprep[{name}]' brings what it needs"
            ) from error
        return reader
    registered = {entry.name: entry.value for entry in entry_points(group=ENTRY_POINT_GROUP)}
    target = registered.get(name, name)
    if ":" not in target:
        raise ConfigError(f"{where} is {name!r}, which no reader goes by{suggestion(name, [*BUILT_IN, *registered])}")
    loaded: SourceClass = plugins.load(target, where)
    return loaded
