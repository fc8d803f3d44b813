"""Lists the readers: their options with defaults and meaning, and the packages that each needs."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from pydantic_core import PydanticUndefined

from seqprep.config import Document, Options
from seqprep.errors import SeqprepError
from seqprep.sources.registry import BUILT_IN, ENTRY_POINT_GROUP, find_reader

_EXTRAS = {
    "audio": ("audio", ("soundfile", "kaldi_native_fbank")),
    "parquet": ("parquet", ("pyarrow",)),
    "jsonl": ("tokenizers", ("tokenizers",)),
}
"""For each reader that needs one, at least for some options: the extra, and the packages that it brings."""


@dataclass(frozen=True, kw_only=True)
class OptionDescription:
    """One option of a reader."""

    name: str
    """With the section that it stands in, such as features.bins."""
    type: str
    default: Any
    required: bool
    meaning: str


@dataclass(frozen=True, kw_only=True)
class ReaderDescription:
    """One reader."""

    type: str
    """What `source.type` calls it."""
    summary: str
    extra: str | None
    """The extra that brings what it needs; None if it needs nothing."""
    installed: bool
    options: tuple[OptionDescription, ...]
    problem: str | None = None
    """Why it can't be used, if it can't."""


def describe_readers() -> list[ReaderDescription]:
    """Describes our readers by name, then those that packages registered."""
    registered = sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)} - BUILT_IN.keys())
    return [_describe(name) for name in [*sorted(BUILT_IN), *registered]]


def _describe(name: str) -> ReaderDescription:
    extra, packages = _EXTRAS.get(name, (None, ()))
    installed = all(find_spec(package) is not None for package in packages)
    try:
        reader: Any = find_reader(name, Document("settings"))
    except SeqprepError as error:
        return ReaderDescription(type=name, summary="", extra=extra, installed=False, options=(), problem=str(error))
    summary = inspect.cleandoc(reader.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return ReaderDescription(
        type=name, summary=summary, extra=extra, installed=installed, options=tuple(_options(reader.Options, ""))
    )


def _options(model: type[Options], prefix: str) -> Iterator[OptionDescription]:
    """Describes a group of settings, and the groups in it."""
    meanings = _meanings(model)
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        yield OptionDescription(
            name=prefix + name,
            type=_shown(field.annotation),
            default=None if default is PydanticUndefined else default,
            required=field.is_required(),
            meaning=meanings.get(name, ""),
        )
        for inner in _groups(field.annotation):
            yield from _options(inner, f"{prefix}{name}.")


def _meanings(model: type[Options]) -> dict[str, str]:
    """The docstrings below a class's fields."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(model)))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef))
    found = {}
    for field, text in pairwise(body):
        is_text = (
            isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
        )
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            found[field.target.id] = " ".join(text.value.value.split())  # type: ignore[attr-defined]
    return found


def _groups(annotation: Any) -> list[type[Options]]:
    """Groups of settings that an option may hold."""
    if isinstance(annotation, type) and issubclass(annotation, Options):
        return [annotation]
    return [group for inner in typing.get_args(annotation) for group in _groups(inner)]


def _shown(annotation: Any) -> str:
    """Writes a type as users know it."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _shown(inner[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_shown(part) for part in inner))
    if origin is typing.Literal:
        return " or ".join(map(str, inner))
    if origin is list:
        return f"list of {_shown(inner[0])}"
    if origin is dict:
        return f"{{{_shown(inner[0])}: {_shown(inner[1])}}}"
    if isinstance(annotation, type) and issubclass(annotation, Options):
        return "section"
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}
    return names.get(annotation, str(annotation))
