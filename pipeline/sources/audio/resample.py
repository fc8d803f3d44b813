"""Brings audio to another sample rate, any range of it, with soxr.

The result is defined block by block: each block is made from its own samples and a margin on both sides that is longer
than the filter, so that a range costs no more than its blocks. It differs from resampling the whole at once by rounding
alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from seqprep.errors import DependencyError
from seqprep.types import Array, FrameRange

_BLOCK_SECONDS = 2
_MARGIN_SAMPLES = 400
"""At the lower of both rates; the filter's tails are below single precision beyond 160."""


class Resampler:
    """Resamples files of one sample rate.

    Args:
        rate: of the files, in Hz.
        wanted: the rate that is made, in Hz.

    Raises:
        DependencyError: soxr is missing.
    """

    def __init__(self, rate: int, wanted: int) -> None:
        self._rates = rate, wanted
        shared = math.gcd(rate, wanted)
        self._step_in, self._step_out = rate // shared, wanted // shared  # steps of equal duration in both rates
        self._block = _BLOCK_SECONDS * shared
        self._margin = -(-_MARGIN_SAMPLES // min(self._step_in, self._step_out))
        _soxr()

    def count(self, samples: int) -> int:
        """Counts the samples that are made of a file; the nearest number, the larger at equal distance."""
        return (2 * samples * self._step_out + self._step_in) // (2 * self._step_in)

    def fill(self, out: Array, first: int, samples: int, read: Callable[[FrameRange], Array]) -> None:
        """Makes samples first, first + 1, … of a file.

        Args:
            out: float32 [samples, …], not empty; filled.
            first: the first sample, at the rate that is made.
            samples: samples of the whole file, at its own rate.
            read: gives a range of the file's own samples, float32.
        """
        stop, size = first + len(out), self._block * self._step_out
        blocks = range(first // size, -(-stop // size))
        start = max(0, (blocks.start * self._block - self._margin) * self._step_in)
        end = min(samples, (blocks.stop * self._block + self._margin) * self._step_in)
        whole = read(FrameRange(start, end))  # at once: a compressed file is decoded from its beginning each time
        for block in blocks:
            begin = max(0, block * self._block - self._margin)
            until = ((block + 1) * self._block + self._margin) * self._step_in
            made = _soxr().resample(whole[begin * self._step_in - start : until - start], *self._rates, quality="HQ")
            low, high = max(first, block * size), min(stop, (block + 1) * size)
            out[low - first : high - first] = made[low - begin * self._step_out : high - begin * self._step_out]


def _soxr() -> Any:
    try:
        import soxr
    except ImportError as error:
        raise DependencyError(f"source.sample_rate needs soxr ({error}); pip install 'seqprep[audio]'") from error
    return soxr
