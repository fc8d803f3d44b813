"""What an input is, as a few short hashes: names, sizes, tags, lengths, and sampled blocks of the files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from seqprep.errors import SourceError
from seqprep.types import Int64, KeySpec, Tags

_SAMPLED_FILES = 64
_BLOCK = 4096


def short_hash(parts: Iterable[bytes]) -> str:
    """SHA-256 over the parts and their sizes; its first 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[:16]


def fingerprint_of(
    keys: Mapping[str, KeySpec], tags: Tags, lengths: Mapping[str, Int64], files: Sequence[Path] = ()
) -> dict[str, str]:
    """Fingerprints an input part by part.

    Args:
        keys: the keys.
        tags: all tags.
        lengths: for each key with time, int64 [sequences].
        files: the files it is read from, in their order; their folders don't count, so that an input may move.

    Raises:
        SourceError: a file can't be read.
    """
    described = [[name, spec.dtype, spec.shape, spec.has_time, spec.labels] for name, spec in keys.items()]
    try:
        names = [part for path in files for part in (os.fsencode(path.name), str(path.stat().st_size).encode())]
        samples = [block for place in _spread(len(files)) for block in _sample(files[place])]
    except OSError as error:
        raise SourceError(f"{error.filename}: can't be read: {error.strerror}") from error
    return {
        "keys": short_hash([json.dumps(described).encode()]),
        "files": short_hash(names),
        "tags": short_hash([tags.data.tobytes(), tags.ends.astype("<i8").tobytes()]),
        "lengths": short_hash(
            part for name in sorted(lengths) for part in (name.encode(), lengths[name].astype("<i8").tobytes())
        ),
        "samples": short_hash(samples),
    }


def _spread(count: int) -> list[int]:
    """At most _SAMPLED_FILES places, evenly spread over [0, count), both ends included."""
    return np.unique(np.linspace(0, count - 1, min(count, _SAMPLED_FILES)).astype(int)).tolist() if count else []


def _sample(path: Path) -> list[bytes]:
    """Blocks from a file's start, middle and end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        blocks = []
        for start in sorted({0, max(0, size // 2 - _BLOCK // 2), max(0, size - _BLOCK)}):
            file.seek(start)
            blocks.append(file.read(_BLOCK))
    return blocks
