"""One key's part of a configuration, worked out: plain numbers in the key's own frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any, Literal, NoReturn

import numpy as np

from seqprep.config import Config, KeyConfig
from seqprep.config.units import parse_seconds
from seqprep.config.values import MOST_FRAMES, MOST_ROW_FRAMES, FrameCount
from seqprep.errors import ConfigError
from seqprep.planning.layout_rules import pad_multiple
from seqprep.types import KeySpec, numpy_dtype

_LARGEST_BFLOAT16 = (2 - 2**-7) * 2.0**127


@dataclass(frozen=True, kw_only=True)
class ChunkRule:
    """How one key is cut, in its own frames."""

    size_frames: int
    step_frames: int
    min_size_frames: int = 0
    """No chunk but the first starts where this many frames or fewer are left."""


@dataclass(frozen=True, kw_only=True)
class KeyRule:
    """Everything that is decided about one key with a time axis."""

    name: str
    rate: int | None = 1
    """Frames of the input key for each of its frames; None has a time axis of its own."""
    align: Literal["ceil", "floor", "exact"] = "ceil"
    tolerance_frames: int = 0
    on_mismatch: Literal["error", "trim", "pad", "drop"] = "error"
    chunk: ChunkRule | None = None
    """None keeps sequences whole."""
    left_frames: int = 0
    right_frames: int = 0
    left_initial_frames: int | None = None
    """In place of `left_frames` for cores that begin at a sequence's first frame; None is the same."""
    right_final_frames: int | None = None
    """In place of `right_frames` for cores that end with a sequence's last frame; None is the same."""
    pad: Literal["zero", "edge", "reflect", "constant", "clip", "drop"] = "zero"
    """What stands outside the sequence."""
    pad_constant: float = 0.0
    """What frames outside the sequence hold, where `pad` is constant."""
    max_frames: int | None = None
    """Budget of a batch, rows times longest row, context included; None is no limit."""
    pad_multiple: int = 1
    """Rows become a multiple of so many frames long."""
    frame_bytes: int = 0
    """Stored bytes of a frame; with ragged axes, of one of size 1 along all of them."""


class KeyResolver:
    """Works out the rules of keys with a time axis, one after the other.

    Args:
        config: the configuration.
        input_name: the input key.
        frame_rates: frames per second, of keys whose source knows.
    """

    def __init__(self, config: Config, input_name: str, frame_rates: Mapping[str, Fraction]) -> None:
        self._config, self._input = config, input_name
        self._source_rates = frame_rates

    def rule(self, name: str, spec: KeySpec) -> KeyRule:
        """Works out one key's rule.

        Args:
            name: the key.
            spec: what it looks like in the shards.

        Raises:
            ConfigError: a number doesn't divide by the key's rate, a duration isn't whole, a setting has no effect, …
        """
        config = self._config
        key = config.keys.get(name, KeyConfig())
        check_no_idle_settings(name, key, config, is_input=name == self._input)
        self._check_frame_rate(name, key)
        budget = config.batch.max_frames or {}
        own = name if name in budget else ""
        fixed = [size for size in spec.shape if size is not None]
        return KeyRule(
            name=name,
            rate=key.rate,
            align=key.align,
            tolerance_frames=self._frames(key.tolerance, name, "keys", name, "tolerance"),
            on_mismatch=key.on_mismatch,
            chunk=self._chunk(name, key.rate),
            pad_multiple=pad_multiple(name, key.rate or 1, config),
            max_frames=self._frames(budget[own], name, "batch", "max_frames", own) if own in budget else None,
            frame_bytes=int(numpy_dtype(spec.dtype).itemsize * np.prod(fixed, dtype=np.int64)),
            **self._context(name, spec),
        )

    def _context(self, name: str, spec: KeySpec) -> dict[str, Any]:
        contexts = self._config.context
        own = name if name in contexts or name != self._input else ""
        context = contexts.get(own)
        if context is None:
            return {}
        whole = self._config.chunk.size is None
        idle = {"pad": context.pad in ("clip", "drop"), "left_initial": context.left_initial is not None,
                "right_final": context.right_final is not None}  # fmt: skip
        for setting in [setting for setting, is_set in idle.items() if is_set and whole]:
            raise ConfigError(
                f"{self._where('context', own, setting)} is {getattr(context, setting)!r}, but chunk.size is null: whole "
                "sequences have no neighbours, and all their context lies outside; "
                + ("pad it otherwise" if setting == "pad" else f"set {setting.partition('_')[0]}")
            )
        sides = {}
        for setting in ("left", "right", "left_initial", "right_final"):
            frames = getattr(context, setting)
            sides[f"{setting}_frames"] = None if frames is None else self._frames(frames, name, "context", own, setting)
        if isinstance(context.pad, str):
            return sides | {"pad": context.pad}
        check_holds(context.pad, spec.dtype, self._where("context", own, "pad"))
        return sides | {"pad": "constant", "pad_constant": context.pad}

    def _chunk(self, name: str, rate: int | None) -> ChunkRule | None:
        chunk = self._config.chunk
        if chunk.size is None or rate is None:
            return None
        size = self._own_frames("size", chunk.size, name, rate)
        step = self._own_frames("step", chunk.step or chunk.size, name, rate)
        minimum = self._own_frames("min_size", chunk.min_size, name, rate)
        if size is None or step is None:
            setting = "size" if size is None else "step"
            raise ConfigError(
                f"{self._where('chunk', setting)} is for {' and '.join(getattr(chunk, setting))} alone, so key {name!r} has "
                f"none; add chunk.{setting}.{name}, or give one number for all"
            )
        return ChunkRule(size_frames=size, step_frames=step, min_size_frames=minimum or 0)

    def _own_frames(self, setting: str, per_key: Mapping[str, FrameCount], name: str, rate: int) -> int | None:
        """Frames of the key: given outright for the key, or those of the input key by the rate."""
        least = 0 if setting == "min_size" else 1
        if name in per_key:
            return self._frames(per_key[name], name, "chunk", setting, name, least=least)
        if "" not in per_key:
            return None
        frames = self._frames(per_key[""], self._input, "chunk", setting, least=least)
        if frames % rate:
            below = frames - frames % rate
            choices = f"{below} or {below + rate}" if below >= least else f"{rate}"
            raise ConfigError(
                f"{self._where('chunk', setting)} is {frames}, which the rate {rate} of key {name!r} doesn't divide; "
                f"use {choices}, or give it per key"
            )
        return frames // rate

    def _frames(self, value: FrameCount, name: str, *path: str, least: int = 0) -> int:
        """A number of a key's frames, from a setting that may be a duration."""
        seconds = parse_seconds(value) if isinstance(value, str) else None
        if seconds is None:
            return int(value)
        per_second = self._frame_rate(name)
        if per_second is None:
            raise ConfigError(
                f"{self._where(*path)} is {value}, but the source doesn't say how many frames of {name!r} make a second; "
                f"set keys.{name}.frame_rate, or give frames"
            )
        frames = seconds * per_second
        most = MOST_ROW_FRAMES if path[0] in ("keys", "context") else MOST_FRAMES
        if frames.denominator == 1 and least <= frames <= most:
            return int(frames)
        choices = sorted({min(max(floor(frames), least), most), min(max(ceil(frames), least), most)})
        raise ConfigError(
            f"{self._where(*path)} is {value}: {_decimal(frames)} frames of {name!r} at {_decimal(per_second)} per second; "
            f"use {' or '.join(_with_seconds(choice, per_second) for choice in choices)}"
        )

    def _frame_rate(self, name: str) -> Fraction | None:
        """Frames per second of a key: as set, else as the source says, else by the rate from those of the input key."""
        key = self._config.keys.get(name, KeyConfig())
        if key.frame_rate is not None:
            return Fraction(key.frame_rate)
        if name in self._source_rates or name == self._input or key.rate is None:
            return self._source_rates.get(name)
        of_input = self._frame_rate(self._input)
        return None if of_input is None else of_input / key.rate

    def _check_frame_rate(self, name: str, key: KeyConfig) -> None:
        of_input = self._frame_rate(self._input)
        if key.frame_rate is None or key.rate is None or of_input is None:
            return
        own = Fraction(key.frame_rate)
        if own * key.rate != of_input:
            raise ConfigError(
                f"{self._where('keys', name, 'frame_rate')} is {_decimal(own)}, but {self._input!r} has "
                f"{_decimal(of_input)} frames per second and the rate of {name!r} is {key.rate}; correct one of them"
            )

    def _where(self, *path: str) -> str:
        """Place and name of a setting."""
        named = tuple(part for part in path if part)
        return f"{self._config.document.where(named)}: {'.'.join(named)}"


def _decimal(number: Fraction) -> str:
    return str(number) if number.denominator == 1 else f"{float(number):.6g}"


def _with_seconds(frames: int, per_second: Fraction) -> str:
    return f"{frames} ({_decimal(frames / per_second)}s)"


def check_no_idle_settings(name: str, key: KeyConfig, config: Config, is_input: bool) -> None:
    """Refuses settings of a key with time that would have no effect.

    Raises:
        ConfigError: the key is the input key or has its own time axis but is to be aligned; or `tolerance` and
            `on_mismatch` make no sense together.
    """

    def refuse(setting: str, why: str) -> NoReturn:
        place = config.document.where(("keys", name, setting))
        raise ConfigError(f"{place}: keys.{name}.{setting} is {getattr(key, setting)!s}: {why}".replace("None", "null"))

    if is_input and key.rate != 1:
        refuse("rate", "the input key's rate is 1 by definition; remove it")
    for setting in ("align", "tolerance", "on_mismatch"):
        if getattr(key, setting) != KeyConfig.model_fields[setting].default:
            if is_input:
                refuse(setting, "other keys are aligned to the input key, which is this; set it for them")
            if key.rate is None:
                refuse(setting, "rate is null, a time axis of its own, so the key isn't aligned; remove it")
    if key.rate is None and config.chunk.size is not None:
        refuse("rate", "a key with a time axis of its own can't be cut with the others; set chunk.size to null")
    if key.on_mismatch != "error" and key.tolerance in (0, "0s"):
        refuse("on_mismatch", f"the tolerance is 0, so nothing is within it; set keys.{name}.tolerance")
    if key.on_mismatch == "error" and key.tolerance not in (0, "0s"):
        refuse(
            "tolerance",
            f"on_mismatch is error, so nothing is tolerated; set keys.{name}.on_mismatch to trim, pad or drop",
        )


def check_holds(value: float, dtype_name: str, setting: str) -> None:
    """Refuses a number for frames that the stored dtype can't hold; floats are rounded.

    Args:
        value: the number.
        dtype_name: the dtype.
        setting: place and name of the setting.

    Raises:
        ConfigError: it can't be stored.
    """
    dtype = numpy_dtype(dtype_name)
    if dtype.kind == "f" or dtype_name == "bfloat16":
        largest = float(np.finfo(dtype).max) if dtype.kind == "f" else _LARGEST_BFLOAT16
        with np.errstate(over="ignore"):
            if np.isfinite(value) and not np.isfinite(np.array(value, np.float64).astype(dtype).astype(np.float64)):
                raise ConfigError(f"{setting} is {value}, which {dtype} can't hold; use a number up to {largest:g}")
        return
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if not (np.isfinite(value) and value == int(value) and least <= value <= most):
        raise ConfigError(f"{setting} is {value}, which {dtype} can't hold; use a whole number from {least} to {most}")
