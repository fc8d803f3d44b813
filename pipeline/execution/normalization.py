"""Brings values to mean 0 and deviation 1 before anything is padded: by a file of statistics, or each sequence by its own.

    y = (x − mean) / std

A deviation of 0 counts as 1, so a constant feature becomes 0. The arithmetic is float32 (float64 for float64 input); a
narrower dtype is rounded to once, at the end: to nearest, so by at most 2⁻¹¹ of a value as float16 and 2⁻⁹ as bfloat16.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqprep.config import Config
from seqprep.errors import ConfigError
from seqprep.execution.statistics_file import read_statistics
from seqprep.types import Array, KeySpec


@dataclass(frozen=True)
class Normalizer:
    """What is subtracted from the values of one key and what they are divided by; None for each sequence's own."""

    mean: Array | None
    std: Array | None
    variance: bool

    @property
    def per_sequence(self) -> bool:
        """Whether it has to be fitted to each sequence."""
        return self.mean is None

    def fitted(self, values: Array) -> Normalizer:
        """The one for a sequence.

        Args:
            values: all its frames, at least one; [frames, …].
        """
        wide = values.astype(np.float64, copy=False)
        return Normalizer(wide.mean(axis=0), wide.std(axis=0) if self.variance else None, self.variance)

    def apply(self, values: Array) -> Array:
        """Normalises frames.

        Args:
            values: [frames, …].

        Returns:
            float32, or float64 for float64; a new array of the same shape.
        """
        dtype = working_dtype(values.dtype)
        normalized: Array = values.astype(dtype)  # a copy
        normalized -= np.asarray(self.mean, dtype)
        if self.variance and self.std is not None:
            normalized /= np.where(self.std > 0, self.std, 1).astype(dtype)
        return normalized


def working_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """The dtype in which values are normalised, and stored unless told otherwise."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def normalizers_for(config: Config, specs: Mapping[str, KeySpec]) -> dict[str, Normalizer]:
    """Reads what a configuration says of normalising.

    Args:
        config: the configuration.
        specs: the source's keys.

    Raises:
        ConfigError: a file of statistics can't be read, or doesn't go with the key.
    """
    found = {}
    for name, key in config.keys.items():
        if key.normalize is not None:
            place = config.document.where(("keys", name, "normalize"))
            by, variance = key.normalize.by, key.normalize.variance
            if by == "sequence":
                found[name] = Normalizer(None, None, variance)
            else:
                found[name] = _from_file(Path(by), name, specs[name], variance, f"{place}: keys.{name}.normalize")
    return found


def _from_file(path: Path, name: str, spec: KeySpec, variance: bool, place: str) -> Normalizer:
    known = read_statistics(path, place)
    if name not in known:
        raise ConfigError(f"{place}: {path} knows no key {name!r}, only {', '.join(sorted(known))}; make it anew")
    mean, std = known[name].mean, known[name].std
    if mean.shape != spec.unit_shape or std.shape != spec.unit_shape:
        raise ConfigError(
            f"{place}: {path} was measured on frames of shape {list(mean.shape)}, and those of the source have "
            f"{list(spec.shape)}; make it anew with seqprep stats"
        )
    if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std >= 0).all()):
        raise ConfigError(f"{place}: {path} holds values that are no means and deviations; make it anew")
    return Normalizer(mean, std, variance)


def digest(normalizers: Mapping[str, Normalizer]) -> str:
    """A hash of what files of statistics say, 16 hexadecimal digits: the values count, not where they stand."""
    hashed = hashlib.sha256()
    for name, one in sorted(normalizers.items()):
        if one.mean is not None and one.std is not None:
            hashed.update(repr((name, one.mean.tolist(), one.std.tolist())).encode())
    return hashed.hexdigest()[:16]
