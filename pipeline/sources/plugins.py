"""Readers from outside: found by name, and held against the protocol before they are used."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from seqprep.config import Options
from seqprep.errors import ConfigError, DependencyError, SeqprepError, SourceError
from seqprep.sources.protocol import Source
from seqprep.types import KeySpec, Tags

_MEMBERS = ("keys", "tags", "lengths", "read", "fingerprint", "close")
_SEE = "seqprep.sources.protocol.Source says what a source owes"


def load(target: str, where: str) -> Any:
    """Imports a reader.

    Args:
        target: "package.module:Class"; a module may also lie in the current folder.
        where: the setting that names it, for messages.

    Raises:
        ConfigError: there is no such module or class, or the class has no options.
        DependencyError: the module needs a package that isn't installed.
    """
    module_name, _, attribute = target.partition(":")
    module = _import(module_name, target, where)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(f"{where} is {target!r}, but module {module_name} has no class {attribute!r}")
    options = getattr(found, "Options", None)
    if not (isinstance(options, type) and issubclass(options, Options)):
        raise ConfigError(
            f"{where} is {target!r}, which has no options; give it an inner class Options that derives from "
            "seqprep.config.Options"
        )
    return found


def _import(module_name: str, target: str, where: str) -> Any:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)  # and it stays there, for worker processes import the module too
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == module_name or module_name.startswith(f"{missing}."):
            raise ConfigError(
                f"{where} is {target!r}, but there is no module {missing!r}; install it, or start in its folder"
            ) from error
        raise DependencyError(f"{where} is {target!r}, whose module needs {missing}; install that package") from error
    except Exception as error:
        raise ConfigError(
            f"{where} is {target!r}, whose module can't be imported: {type(error).__name__}: {error}"
        ) from error


def open_checked(reader: Any, options: Options, name: str) -> Source:
    """Opens a plug-in's source, and holds it against the protocol.

    Raises:
        SourceError: it lacks something, or something is of the wrong kind; says all that is missing.
    """
    try:
        source = reader(options)
        missing = [member for member in _MEMBERS if not hasattr(source, member)]
        if missing:
            raise SourceError(f"source.type {name}: the source lacks {', '.join(missing)}; {_SEE}")
        faults = _faults(source)
    except SeqprepError:
        raise
    except Exception as error:
        raise SourceError(f"source.type {name}: the reader failed: {type(error).__name__}: {error}") from error
    if faults:
        raise SourceError(f"source.type {name}: {'; '.join(faults)}; {_SEE}")
    checked: Source = source
    return checked


def _faults(source: Any) -> list[str]:
    """What is of the wrong kind."""
    found = [f"{name} has to be a method" for name in _MEMBERS[2:] if not callable(getattr(source, name))]
    keys, tags = source.keys, source.tags
    if not (isinstance(keys, Mapping) and keys and all(isinstance(spec, KeySpec) for spec in keys.values())):
        found.append("keys has to be a property that maps names to seqprep.types.KeySpec")
    if not isinstance(tags, Tags):
        found.append("tags has to be a property that is a seqprep.types.Tags (Tags.of(names) makes one)")
    if found:
        return found
    if tags.duplicate() is not None:
        found.append(f"tag {tags[tags.duplicate()[0]]!r} stands twice")
    for key, spec in keys.items():
        lengths = source.lengths(key) if spec.has_time else np.zeros(len(tags), np.int64)
        if not (isinstance(lengths, np.ndarray) and lengths.dtype == np.int64 and lengths.shape == (len(tags),)):
            found.append(f"lengths({key!r}) has to be an int64 array of {len(tags)} numbers, one for each tag")
    prints = source.fingerprint()
    if not (isinstance(prints, Mapping) and all(isinstance(part, str) for part in prints.values())):
        found.append("fingerprint() has to map names to strings")
    try:
        pickle.dumps(source)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is told
        found.append(f"it can't be pickled, as worker processes need it: {error}")
    return found
