"""Reads YAML, and remembers on which line each setting stands, so that errors can point at it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from seqprep.errors import ConfigError

SettingPath = tuple[str | int, ...]

_MOST_NESTED = 50
_NULL = "tag:yaml.org,2002:null"


@dataclass
class Document:
    """Nested settings and where each came from."""

    name: str
    """What a message calls the document: the file's path, or "settings"."""
    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[SettingPath, str] = field(default_factory=dict)
    """For a setting's path, "config.yaml:7" or the flag that set it."""
    is_flag: bool = False
    """The document is the value of one flag, so its places have no lines."""

    def place(self, mark: yaml.Mark) -> str:
        """Names the place of a mark in the document's text."""
        return self.name if self.is_flag else f"{self.name}:{mark.line + 1}"

    def where(self, path: SettingPath) -> str:
        """Names the place of a setting: its own, else that of the nearest setting around it, else the document."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.origins:
                return self.origins[path[:end]]
        return self.name

    def set(self, path: SettingPath, value: Any, origin: str) -> None:
        """Overrides one setting, as a flag does; sections on the way are made.

        Raises:
            ConfigError: a part of the path is a plain value, not a section.
        """
        section: Any = self.data
        for depth, part in enumerate(path[:-1]):
            if section.get(part) is None:
                section[part] = {}
                self.origins.setdefault(path[: depth + 1], origin)
            section = section[part]
            if not isinstance(section, dict):
                above = dotted(path[: depth + 1])
                raise ConfigError(
                    f"{origin}: {above} is {section!r}, not a section, so {dotted(path)} can't be set in it"
                )
        section[path[-1]] = value
        self.origins = {known: place for known, place in self.origins.items() if known[: len(path)] != path}
        self.origins[path] = origin


def dotted(path: Iterable[str | int]) -> str:
    """Writes a setting's path as users do: keys.data.rate."""
    return ".".join(str(part) for part in path)


def read_document(path: str | Path) -> Document:
    """Reads a YAML file of settings.

    Raises:
        ConfigError: the file is missing, no YAML, no mapping, or names a setting twice; says the line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such configuration file; check the path") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read as a configuration file: {error}") from error
    return parse_document(text, str(path))


def parse_document(text: str, name: str = "settings") -> Document:
    """Parses YAML text of settings.

    Args:
        text: the YAML.
        name: what messages call it.

    Raises:
        ConfigError: as `read_document`.
    """
    document = Document(name)
    try:
        settings = _load(text, document)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{document.place(mark) if mark else name}: not valid YAML: {problem}") from error
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{name}: not valid YAML: {error}") from error
    document.data = settings or {}  # nothing in an empty file, one of comments, one of "---" alone
    return document


def _load(text: str, document: Document, at: SettingPath = ()) -> Any:
    """Constructs plain values, and notes in the document where each stands: all settings, or the one `at` a path."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None or (not at and node.tag == _NULL):
            return None
        if not at and not isinstance(node, yaml.MappingNode):
            place = document.place(node.start_mark)
            raise ConfigError(f"{place}: settings have to be a mapping, such as 'chunk: {{size: 50}}'")
        _note_lines(node, at, document)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _note_lines(node: yaml.Node, path: SettingPath, document: Document) -> None:
    if len(path) > _MOST_NESTED:
        raise ConfigError(
            f"{document.place(node.start_mark)}: settings are nested more than {_MOST_NESTED} deep, "
            "or refer to themselves"
        )
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            place = document.place(key.start_mark)
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"{place}: the name of a setting is a list or mapping; use plain text")
            inner = (*path, key.value)
            if inner in document.origins:
                first = document.origins[inner].removeprefix(f"{document.name}:")
                which = "" if document.is_flag else f", first on line {first}"
                raise ConfigError(f"{place}: {dotted(inner)} is set twice{which}; keep one of them")
            document.origins[inner] = place
            _note_lines(value, inner, document)
    elif isinstance(node, yaml.SequenceNode):
        for place_in_list, value in enumerate(node.value):
            inner = (*path, place_in_list)
            document.origins[inner] = document.place(value.start_mark)
            _note_lines(value, inner, document)


def as_document(settings: Document | Mapping[str, Any] | str | Path) -> Document:
    """Takes settings in any of the forms users have them: a file's path, a mapping, or a document."""
    if isinstance(settings, Document):
        return settings
    if isinstance(settings, Mapping):
        return Document("settings", dict(settings))
    return read_document(settings)


def parse_assignment(text: str) -> tuple[SettingPath, Any]:
    """Splits `key.path=value` as given to --set; the value is YAML.

    Raises:
        ConfigError: there is no `=`, an empty part, or the value is no YAML.
    """
    path, equals, value = text.partition("=")
    parts = tuple(path.strip().split("."))
    if not equals or not all(parts):
        raise ConfigError(f"--set {text}: expected key.path=value, such as --set chunk.size=50")
    try:
        return parts, _load(value, Document(f"--set {text}", is_flag=True), parts)
    except ConfigError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(
            f"--set {text}: the value isn't valid YAML; quote it if it holds special characters"
        ) from error
