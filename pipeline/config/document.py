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


@dataclass
class Document:
    """Nested settings and where each came from."""

    name: str
    """What a message calls the document: the file's path, or "settings"."""
    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[SettingPath, str] = field(default_factory=dict)
    """For a setting's path, "config.yaml:7" or the flag that set it."""

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
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return document
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(
                f"{name}:{node.start_mark.line + 1}: settings have to be a mapping, such as 'chunk: {{size: 50}}'"
            )
        _note_lines(node, (), document)
        document.data = loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{place}: not valid YAML: {problem}") from error
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{name}: not valid YAML: {error}") from error
    finally:
        if loader is not None:
            loader.dispose()
    return document


def _note_lines(node: yaml.Node, path: SettingPath, document: Document) -> None:
    if len(path) > _MOST_NESTED:
        place = f"{document.name}:{node.start_mark.line + 1}"
        raise ConfigError(f"{place}: settings are nested more than {_MOST_NESTED} deep, or refer to themselves")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            place = f"{document.name}:{key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"{place}: the name of a setting is a list or mapping; use plain text")
            inner = (*path, key.value)
            if inner in document.origins:
                first = document.origins[inner].rpartition(":")[2]
                raise ConfigError(f"{place}: {dotted(inner)} is set twice, first on line {first}; keep one of them")
            document.origins[inner] = place
            _note_lines(value, inner, document)
    elif isinstance(node, yaml.SequenceNode):
        for place_in_list, value in enumerate(node.value):
            inner = (*path, place_in_list)
            document.origins[inner] = f"{document.name}:{value.start_mark.line + 1}"
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
        return parts, yaml.safe_load(value)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(
            f"--set {text}: the value isn't valid YAML; quote it if it holds special characters"
        ) from error
