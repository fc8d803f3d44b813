"""Sizes in bytes, and durations, as users write them."""

from __future__ import annotations

import re
from fractions import Fraction

from seqprep.errors import ConfigError

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{letter}B": 1000**power for power, letter in enumerate("KMGTPE", 1)}
_UNITS |= {f"{letter}IB": 1024**power for power, letter in enumerate("KMGTPE", 1)}


def parse_bytes(value: int | str, setting: str) -> int:
    """Reads a size: 256MB (powers of 1000), 256MiB (powers of 1024), or plain bytes.

    Args:
        value: a number of bytes, or text.
        setting: the setting's name, for the message.

    Raises:
        ConfigError: not a size, or not positive.
    """
    found = re.fullmatch(r"\s*(\d{1,1000}(?:\.\d{1,1000})?)\s*([A-Za-z]*)\s*", str(value))
    unit = _UNITS.get(found[2].upper()) if found else None
    size = Fraction(found[1]) * unit if found and unit else Fraction(0)
    if isinstance(value, bool) or size < 1:
        raise ConfigError(f"{setting} is {value!r}: give a size of at least one byte, such as 256MB or 1GiB")
    return int(size)


_SECONDS = {
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}


_MOST_SECONDS = 10**15
_MOST_DECIMALS = 24  # of seconds


def parse_seconds(text: str) -> Fraction | None:
    """Reads a duration: 0.5s, 250ms, 20us, 1.5min or 1h.

    Returns:
        Its seconds, exactly; None if it is no duration, one of 10^15 seconds or more, or finer than 10^-24 seconds. What
        isn't None can be written by `format_seconds`, and read again.
    """
    found = re.fullmatch(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([a-z]+)\s*", text)
    if not found or found[2] not in _SECONDS:
        return None
    seconds = Fraction(found[1]) * _SECONDS[found[2]]
    is_sane = seconds < _MOST_SECONDS and (seconds * 10**_MOST_DECIMALS).denominator == 1
    return seconds if is_sane else None


def format_seconds(seconds: Fraction) -> str:
    """Writes a duration that `parse_seconds` has read, in its one form: 0.25s."""
    whole, rest = divmod(int(seconds * 10**_MOST_DECIMALS), 10**_MOST_DECIMALS)
    decimals = f"{rest:0{_MOST_DECIMALS}d}".rstrip("0")
    return f"{whole}.{decimals}s" if decimals else f"{whole}s"


def format_bytes(size: float) -> str:
    """Writes a size with three digits, in powers of 1000: 1.23 MB."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if abs(size) < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.0f} EB" if abs(size) >= 999.5 else f"{size:.3g} EB"
