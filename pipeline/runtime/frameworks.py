"""Imports frameworks when they are first used, with a hint where one is missing."""

from __future__ import annotations

import importlib
from typing import Any

from seqprep.errors import DependencyError


def import_framework(name: str) -> Any:
    """Imports a framework that an extra of the same name brings.

    Returns:
        The module; untyped, for frameworks' own annotations are of little use.

    Raises:
        DependencyError: it isn't installed, or can't be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DependencyError(f"{name} can't be imported ({error}); pip install 'seqprep[{name}]' brings it") from error
