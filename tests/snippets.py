"""Runs snippets of the documentation in this process, where the frameworks are imported already."""

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any


def printed(code: str, folder: Path, action: Any = "error") -> str:
    """What code prints that is run as a program of its own, in a folder; `action` is for its warnings."""
    out = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter(action)
        exec(compile(code, str(folder / "snippet.py"), "exec"), {"__name__": "__main__"})
    return out.getvalue()
