"""Settings that say which sequences are taken: selection, split, partition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from seqprep.config.validation import Options

_PART_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Patterns = Annotated[list[str], BeforeValidator(_as_list)]
"""One regular expression, or a list of them."""


def compile_pattern(pattern: str, setting: str) -> re.Pattern[str]:
    """Compiles a user's regular expression.

    Raises:
        ValueError: it is none; names the setting, and where it is wrong.
    """
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{setting} holds {pattern!r}, which is no regular expression: {error}; correct it") from error


class SelectConfig(Options):
    """Which sequences are taken at all."""

    include: Patterns | None = None
    """Only sequences in whose tag one of these is found."""
    exclude: Patterns = Field(default=[])
    """No sequence in whose tag one of these is found."""
    min_frames: int | None = Field(default=None, ge=0)
    """Shortest sequence that is taken, in frames of the input key."""
    max_frames: int | None = Field(default=None, ge=0)
    """Longest."""
    tags_file: str | None = None
    """A text file; only sequences whose tag is a line of it."""

    @field_validator("include", "exclude")
    @classmethod
    def _patterns(cls, patterns: list[str] | None, info: Any) -> list[str] | None:
        for pattern in patterns or ():
            compile_pattern(pattern, f"select.{info.field_name}")
        return patterns

    @model_validator(mode="after")
    def _range(self) -> SelectConfig:
        if self.min_frames is not None and self.max_frames is not None and self.min_frames > self.max_frames:
            raise ValueError(
                f"select.min_frames is {self.min_frames} and select.max_frames is {self.max_frames}: "
                "no sequence is both; swap them"
            )
        return self


class SplitConfig(Options):
    """Parts of the sequences, each a dataset of its own."""

    parts: dict[str, float]
    """Share of each part, in order."""
    by: str | None = None
    """A regular expression with one group: sequences with equal groups stay together. null: by the whole tag."""


def split_of(value: Any) -> Any:
    """Brings {train: 0.9, dev: 0.1, by: REGEX} to one form, checked."""
    if value is None or isinstance(value, SplitConfig):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"split is {value!r}: it has to name parts and their shares, such as {{train: 0.9, dev: 0.1}}")
    parts = {name: share for name, share in value.items() if name != "by"}
    for name, share in parts.items():
        if not isinstance(name, str) or not _PART_NAME.fullmatch(name):
            raise ValueError(f"split.{name}: a part's name becomes a folder; use letters, digits, '_' and '-'")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise ValueError(f"split.{name} is {share!r}: a share is above 0 and at most 1, such as 0.9")
    total = sum(map(exact_share, parts.values()))
    if not parts or total > 1:
        said = f"the shares of {', '.join(parts)} come to {float(total):g}, more than 1; lower them" if parts else (
            "split names no part; name some with their shares, such as {train: 0.9, dev: 0.1}"
        )  # fmt: skip
        raise ValueError(f"split: {said}" if parts else said)
    by = value.get("by")
    if by is not None:
        _check_group(by)
    return {"parts": {name: float(share) for name, share in parts.items()}, "by": by}


def _check_group(by: Any) -> None:
    if not isinstance(by, str):
        raise ValueError(
            f"split.by is {by!r}: it has to be a regular expression with one group, such as '^(spk[0-9]+)'"
        )
    groups = compile_pattern(by, "split.by").groups
    if groups != 1:
        raise ValueError(
            f"split.by is {by!r}, which has {groups} groups; put exactly one in parentheses, such as '^(spk[0-9]+)' "
            "(others as (?:…))"
        )


def exact_share(share: float) -> Fraction:
    """The decimal that the user wrote, so that 0.7, 0.2 and 0.1 come to 1."""
    return Fraction(repr(float(share)))  # numpy's floats write themselves otherwise


def check_partition(value: Any) -> Any:
    """Checks `k/n`: part k of n, counted from 1."""
    if value is None:
        return None
    found = re.fullmatch(r"\s*(\d{1,15})\s*/\s*(\d{1,15})\s*", str(value))
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError(f"partition is {value!r}: it has to be k/n with k from 1 to n, such as 1/4")
    return f"{int(found[1])}/{int(found[2])}"
