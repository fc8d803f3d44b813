"""Writes Kaldi's archives byte by byte, so that tests need no package for it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.sources import Source, open_source
from seqprep.types import Array


def binary(array: Array) -> bytes:
    """An object as Kaldi stores it: matrices and vectors of floats and doubles, lists of 32-bit integers."""
    if array.dtype.kind == "i":
        return (
            b"\0B\4"
            + struct.pack("<i", len(array))
            + b"".join(b"\4" + struct.pack("<i", value) for value in array.tolist())
        )
    token = ("F" if array.dtype == np.float32 else "D") + ("M" if array.ndim == 2 else "V")
    sizes = array.shape if array.size else (0,) * array.ndim  # an empty matrix has no columns either
    return (
        b"\0B" + token.encode() + b" " + b"".join(b"\4" + struct.pack("<i", size) for size in sizes) + array.tobytes()
    )


def text(array: Array) -> bytes:
    """An object as text."""
    if array.dtype.kind == "i":
        return " ".join(map(str, array.tolist())).encode() + b"\n"
    if array.ndim == 1 or not array.size:
        return f" [ {' '.join(repr(float(value)) for value in array.ravel())} ]\n".encode()
    rows = "\n".join("  " + " ".join(repr(float(value)) for value in row) for row in array)
    return f" [\n{rows} ]\n".encode()


def write_ark(path: Path, objects: Mapping[str, bytes]) -> dict[str, str]:
    """Writes an archive; gives each tag's place as scp files name it."""
    places = {}
    with path.open("wb") as file:
        for tag, content in objects.items():
            file.write(tag.encode() + b" ")
            places[tag] = f"{path.name}:{file.tell()}"
            file.write(content)
    return places


def write_table(path: Path, rows: Mapping[str, Any]) -> Path:
    path.write_text("".join(f"{tag} {value}\n" for tag, value in rows.items()), encoding="utf-8")
    return path


def opened(path: Any, **options: Any) -> Source:
    """Opens a file, or with a mapping several as keys."""
    where = {"keys": {key: str(own) for key, own in path.items()}} if isinstance(path, dict) else {"path": str(path)}
    return open_source({"type": "kaldi", **where, **options})
