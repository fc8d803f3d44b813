"""Kinds of values that several settings take: frames or durations, one number or one per key, what stands in for frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, PlainValidator
from pydantic_core import PydanticCustomError

from seqprep.config.units import format_seconds, parse_seconds

MOST_FRAMES = 1 << 53
"""More than any sequence has, and small enough that sums and products of frames stay below 2^63."""
MOST_ROW_FRAMES = (1 << 31) - 1
"""Frames of one row are int32."""

FrameCount = int | str
"""A number of frames, or a duration in its one form, such as "0.5s"; the key's frame rate turns it into frames."""


def _frame_count(least: int, most: int) -> Callable[[Any], FrameCount]:
    def check(value: Any) -> FrameCount:
        seconds = parse_seconds(value) if isinstance(value, str) else None
        if seconds is not None:
            return format_seconds(seconds)
        if isinstance(value, bool) or not isinstance(value, int):
            raise PydanticCustomError(
                "frames", "has to be a whole number of frames, such as 50, or a duration, such as 0.5s"
            )
        if value < least:
            raise PydanticCustomError("frames", f"has to be at least {least}")
        if value > most:
            raise PydanticCustomError("frames", f"has to be at most {most}")
        return value

    return check


def _per_key(value: Any) -> Any:
    """Brings one number for every key, and {key: number}, to one form: the number for the rest under ""."""
    return value if value is None or isinstance(value, Mapping) else {"": value}


_Count = Annotated[FrameCount, PlainValidator(_frame_count(0, MOST_FRAMES))]
_PositiveCount = Annotated[FrameCount, PlainValidator(_frame_count(1, MOST_FRAMES))]

Frames = Annotated[dict[str, _Count], BeforeValidator(_per_key)]
"""Frames of the input key (under ""), or per key."""
PositiveFrames = Annotated[dict[str, _PositiveCount], BeforeValidator(_per_key)]
RowFrames = Annotated[FrameCount, PlainValidator(_frame_count(0, MOST_ROW_FRAMES))]
"""Frames of one key, so few that a row can have them."""


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("number", "has to be a number")
    return float(value) if abs(value) <= MOST_FRAMES else value  # a large integer stays what it is


Number = Annotated[int | float, PlainValidator(_number)]
"""A value for frames; 0 and 0.0 are the same."""


def _frame_rate(value: Any) -> str | None:
    try:
        if value is None:
            return None
        rate = Fraction(str(value)) if not isinstance(value, bool) else Fraction(0)
        if 0 < rate.numerator < MOST_FRAMES and rate.denominator < MOST_FRAMES:
            return str(rate)
    except (ValueError, ZeroDivisionError):
        pass
    raise PydanticCustomError("frame_rate", "has to be frames per second, such as 100, 62.5 or 44100/441")


FrameRate = Annotated[str | None, PlainValidator(_frame_rate)]
"""Frames per second, as an exact fraction in text."""

PadMode = Literal["zero", "edge", "reflect", "clip", "drop"]


def _pad(value: Any) -> PadMode | float | int:
    if isinstance(value, Mapping) and set(value) == {"constant"}:
        value = value["constant"]
    elif value in get_args(PadMode):
        mode: PadMode = value
        return mode
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError(
            "pad", f"has to be {', '.join(get_args(PadMode))}, a number, or {{constant: a number}}"
        )
    return _number(value)


Pad = Annotated[PadMode | float | int, PlainValidator(_pad)]
"""What stands outside the sequence; a number is a constant."""


def _is_frames(value: Any) -> bool:
    if isinstance(value, str):
        return parse_seconds(value) is not None
    return isinstance(value, int) and not isinstance(value, bool)


def context_forms(value: Any) -> Any:
    """Brings 5, {left, right, …} for the input key, and {key: {left, …}}, to one form: the input key under ""."""
    if _is_frames(value):
        return {"": {"left": value, "right": value}}
    if not isinstance(value, Mapping):
        return {} if value is None else value
    own = [name for name, inner in value.items() if not isinstance(inner, Mapping | None) or _is_constant(name, inner)]
    keys = [name for name in value if name not in own]
    if own and keys:
        raise PydanticCustomError(
            "mixed",
            f"mixes {own[0]} with {keys[0]}: give left, right and pad alone, for the input key, or all of it per key, "
            f"as {keys[0]}: {{left: 5}}",
        )
    return {"": dict(value)} if own else value


def _is_constant(name: Any, value: Any) -> bool:
    """Tells the setting `pad: {constant: 3}` from a key called "pad"."""
    return name == "pad" and isinstance(value, Mapping) and set(value) == {"constant"}
