"""Turns nested settings into checked, frozen options; what is wrong is said with its place and the likely cause."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from seqprep.config.document import Document, SettingPath, dotted
from seqprep.errors import ConfigError


class Options(BaseModel):
    """Base of all groups of settings: frozen, keyword-only, no unknown names, no silent conversions.

    An empty group (`order:` and nothing behind it) has its defaults.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=True)

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, value: Any) -> Any:
        return {} if value is None else value


AT = "{at}"
"""Stands in a validator's message for the path of the settings that it validates, which may be one key's among many."""

OptionsT = TypeVar("OptionsT", bound=Options)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Says what was probably meant: "; did you mean 'size'?", or lists the few known names, or nothing."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known are: {', '.join(names)}" if 0 < len(names) <= 20 else ""


def build(model: type[OptionsT], data: Mapping[str, Any], document: Document, at: SettingPath = ()) -> OptionsT:
    """Checks settings against a model.

    Args:
        model: the options to make.
        data: the settings, nested.
        document: where they came from.
        at: the path of `data` inside the document.

    Raises:
        ConfigError: one line per fault: where it stands, the setting, its value, the remedy.
    """
    impossible = [
        f"{document.where(path)}: {dotted(path)} is {shown(value)}: {why}"
        for path, value in _plain_values(data, at)
        if (why := _impossible(value))
    ]
    if impossible:
        raise ConfigError("\n".join(impossible))
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        lines = dict.fromkeys(_describe(fault, model, document, at) for fault in error.errors(include_url=False))
        raise ConfigError("\n".join(lines)) from error


def _plain_values(value: Any, path: SettingPath) -> Iterator[tuple[SettingPath, int | str]]:
    """All integers and texts of nested settings, each with its path."""
    if isinstance(value, int | str) and not isinstance(value, bool):
        yield path, value
    elif isinstance(value, Mapping | list):
        for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _plain_values(inner, (*path, name))


def _impossible(value: int | str) -> str:
    """Says why nothing can be done with a number or text, whatever setting it is of; nothing if there is no reason."""
    if isinstance(value, int):
        return "" if -(1 << 63) <= value < 1 << 63 else "no setting has a number of more than 63 bits"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return f"character {error.start} is half of one, which no file or name can hold; correct it"
    return "no file or name can hold the character of code 0; remove it" if "\0" in value else ""


def _describe(fault: ErrorDetails, model: type[Options], document: Document, at: SettingPath) -> str:
    kind, loc = fault["type"], fault["loc"]
    if kind == "invalid_key" or loc[-1:] == ("[key]",):
        path = at + tuple(str(part) for part in loc if part not in ("", "[key]"))
        return f"{document.where(path)}: {dotted(path)}: a name has to be text; write it in quotes, as '{path[-1]}'"
    path = at + tuple(part for part in loc if part != "")
    where, name = document.where(path), dotted(path)
    if kind == "extra_forbidden":
        known = _field_names(model, loc[:-1])
        if loc[-1] == "":
            return f"{where}: {name} holds a setting without a name; write one of {', '.join(sorted(known))}"
        return f"{where}: {name} is not a setting{suggestion(str(path[-1]), known)}"
    if kind == "missing":
        return f"{document.where(path[:-1])}: {name} is missing; set it in the file or with --set {name}=…"
    if kind == "value_error":
        return f"{where}: {fault['msg'].removeprefix('Value error, ').replace(AT, name)}"
    message = fault["msg"].removeprefix("Input ").replace("should be", "has to be")
    if kind in ("model_type", "dict_type"):
        message = "has to be a section, with settings or names and their values"
    return f"{where}: {name} is {shown(fault['input'])}: it {message}"


def shown(value: Any) -> str:
    """Writes a value for a message; of a long one only its beginning."""
    try:
        text = repr(value)
    except ValueError:  # Python doesn't write integers of thousands of digits
        return f"a number of some {int(value.bit_length() * 0.30103)} digits" if isinstance(value, int) else "?"
    return text if len(text) <= 200 else f"{text[:160]}… ({len(text)} characters)"


def _field_names(model: Any, loc: tuple[int | str, ...]) -> list[str]:
    """Names of the settings at a place inside a model; empty where they are the user's own."""
    for part in loc:
        if isinstance(model, type) and issubclass(model, Options):
            if part not in model.model_fields:
                return []
            model = model.model_fields[str(part)].annotation
        else:
            model = _inner(model, dict)
        model = _inner(model, None)
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, Options) else []


def _inner(annotation: Any, container: type | None) -> Any:
    """Steps from dict[str, Model] (or Model | None) to Model."""
    arguments = getattr(annotation, "__args__", ())
    if container is not None:
        return arguments[-1] if arguments else annotation
    if getattr(annotation, "__origin__", None) is None and arguments:  # a union
        for argument in arguments:
            if isinstance(argument, type) and issubclass(argument, Options):
                return argument
    return annotation
