"""The file in which statistics of a source's keys are kept: JSON, for people to read and other tools to write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.errors import ConfigError
from seqprep.types import Array

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class KeyStatistics:
    """What the frames of one key amount to; the arrays are of a frame's shape, float64."""

    frames: int
    mean: Array
    std: Array
    """Standard deviation, of the frames as a whole population."""
    least: Array
    greatest: Array


def describe_statistics(found: Mapping[str, KeyStatistics]) -> dict[str, Any]:
    """Statistics as they stand in the file, ready for JSON; null where a key has no frames."""
    parts = ("mean", "std", "least", "greatest")
    return {
        key: {"frames": one.frames} | {part: _listed(getattr(one, part)) for part in parts}
        for key, one in found.items()
    }


def encode_statistics(found: Mapping[str, KeyStatistics]) -> bytes:
    """The file's bytes."""
    return json.dumps({"version": VERSION, "keys": describe_statistics(found)}, indent=1, allow_nan=False).encode()


def _listed(values: Array) -> Any:
    listed = np.asarray(values).astype(object)
    listed[np.isnan(values)] = None
    return listed.tolist()


def read_statistics(path: Path, place: str) -> dict[str, KeyStatistics]:
    """Reads a file of statistics.

    Args:
        path: the file.
        place: the setting that names it, for messages.

    Raises:
        ConfigError: it can't be read, or is no such file.
    """
    try:
        content = json.loads(path.read_bytes())
        version = int(content["version"])
        found = {} if version > VERSION else {str(key): _parsed(one) for key, one in content["keys"].items()}
    except OSError as error:
        raise ConfigError(
            f"{place}: {path} can't be read: {error.strerror}; make it with seqprep stats, or use 'sequence'"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{place}: {path} is no file of statistics; make it with seqprep stats") from error
    if version > VERSION:
        raise ConfigError(f"{place}: {path} is of a newer version ({version}); update seqprep")
    return found


def _parsed(one: Mapping[str, Any]) -> KeyStatistics:
    parts = {part: np.array(one[part], np.float64) for part in ("mean", "std", "least", "greatest")}
    return KeyStatistics(frames=int(one["frames"]), **parts)
