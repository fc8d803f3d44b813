"""A configuration worked out against a source's keys: plain numbers, checked, for the planning functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from seqprep.config import Config, suggestion
from seqprep.errors import ConfigError
from seqprep.types import KeySpec, numpy_dtype

RESERVED_NAMES = frozenset({"seq_idx", "seq_tag", "batches", "rows", "seqprep"})
"""Names that batches and shard files use themselves."""


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
    rate: int = 1
    """Frames of the input key for each of its frames."""
    align: Literal["ceil", "floor", "exact"] = "ceil"
    chunk: ChunkRule | None = None
    """None keeps sequences whole."""
    left_frames: int = 0
    right_frames: int = 0
    pad: Literal["zero", "edge"] = "zero"
    """What stands outside the sequence."""
    max_frames: int | None = None
    """Budget of a batch, rows times longest row, context included; None is no limit."""
    frame_bytes: int = 0
    """Stored bytes of a frame."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """All decisions that don't depend on the sequences."""

    keys: tuple[KeyRule, ...]
    """Keys with a time axis, the input key first."""
    row_bytes: int = 0
    """Stored bytes of a row's keys without time."""
    max_sequences: int | None = None
    order: Literal["source", "random"] = "source"
    seed: int = 0
    shard_bytes: int = 256_000_000

    @property
    def input(self) -> KeyRule:
        """The key in whose frames chunks are counted."""
        return self.keys[0]


def output_spec(name: str, spec: KeySpec, config: Config) -> KeySpec:
    """What a key looks like in the shards.

    Raises:
        ConfigError: `keys.<name>.dtype` is no dtype, or one that would change the values' kind.
        DependencyError: it is bfloat16, and ml_dtypes isn't installed.
    """
    wanted = config.keys[name].dtype if name in config.keys else None
    if wanted is None:
        return spec
    setting = f"{config.document.where(('keys', name, 'dtype'))}: keys.{name}.dtype is {wanted!r}"
    try:
        dtype = numpy_dtype(wanted)
    except (TypeError, ValueError, SyntaxError) as error:
        raise ConfigError(f"{setting}, which numpy doesn't know; use one such as float16 or int32") from error
    if _kind(dtype) not in "biuf" or dtype.itemsize > 8 or not _can_stand_for(dtype, numpy_dtype(spec.dtype)):
        raise ConfigError(
            f"{setting}, but the source holds {spec.dtype}, which it can't stand for; use a dtype of the same kind"
        )
    return KeySpec(dtype=dtype.name, shape=spec.shape, has_time=spec.has_time, labels=spec.labels)


def _can_stand_for(dtype: np.dtype[Any], held: np.dtype[Any]) -> bool:
    """Whether values go from one to the other with a float's rounding at most; what integers can't hold is an error."""
    both = {_kind(dtype), _kind(held)}
    return both <= {"i", "u"} or both == {"f"} or np.can_cast(held, dtype)


def _kind(dtype: np.dtype[Any]) -> str:
    """numpy's letter of the dtype's kind; bfloat16, which numpy takes for raw bytes, is a float."""
    return "f" if dtype.name == "bfloat16" else dtype.kind


def _check_pad_value(name: str, stored: KeySpec, config: Config) -> None:
    """Floats may be padded with anything, integers with what they hold."""
    dtype = numpy_dtype(stored.dtype)
    if name not in config.keys or _kind(dtype) == "f":
        return
    value = config.keys[name].pad_value
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if not (value.is_integer() and least <= value <= most):
        raise ConfigError(
            f"{config.document.where(('keys', name, 'pad_value'))}: keys.{name}.pad_value is {value}, "
            f"which {dtype} can't hold; use a whole number from {least} to {most}"
        )


def resolve(config: Config, specs: Mapping[str, KeySpec]) -> tuple[Rules, dict[str, KeySpec]]:
    """Works a configuration out against the keys of a source.

    Args:
        config: the configuration.
        specs: the source's keys.

    Returns:
        The rules, and the keys as they will be stored: those that `keys` names, or all; the input key first.

    Raises:
        ConfigError: a setting names a key that the source lacks, a number doesn't divide by a key's rate, …
    """
    chosen = _chosen_keys(config, specs)
    stored = {name: output_spec(name, specs[name], config) for name in chosen}
    for name in chosen:
        _check_pad_value(name, stored[name], config)
    timed = [name for name in chosen if specs[name].has_time]
    _check_names(config, timed, chosen)
    rules = Rules(
        keys=tuple(_key_rule(name, timed[0], config, stored[name]) for name in timed),
        row_bytes=sum(spec.nbytes for spec in stored.values() if not spec.has_time),
        max_sequences=config.batch.max_sequences,
        order=config.order.by,
        seed=config.order.seed,
        shard_bytes=config.output.shard_size,
    )
    _check_steps(rules, config)
    return rules, stored


def _chosen_keys(config: Config, specs: Mapping[str, KeySpec]) -> list[str]:
    """The stored keys, the input key first."""
    for name in config.keys:
        if name not in specs:
            place = config.document.where(("keys", name))
            raise ConfigError(f"{place}: keys.{name}: the source has no key {name!r}{suggestion(name, specs)}")
    chosen = [name for name in specs if not config.keys or name in config.keys]
    for name in chosen:
        if name in RESERVED_NAMES or "/" in name or name in ("", ".", ".."):
            raise ConfigError(
                f"the source's key {name!r} has a name that batches can't use; rename it in the source, "
                "or name only others under keys"
            )
    first = next((name for name in chosen if name in config.keys and config.keys[name].input), None)
    if first is None:
        first = next((name for name in config.keys if specs[name].has_time), None) or next(
            (name for name in chosen if specs[name].has_time), None
        )
    if first is None or not specs[first].has_time:
        what = f"key {first!r} has no time axis" if first else "no key has a time axis"
        raise ConfigError(
            f"{config.document.where(('keys',))}: {what}, so there is nothing to cut; choose an input key with one"
        )
    return [first, *(name for name in chosen if name != first)]


def _check_names(config: Config, timed: list[str], chosen: list[str]) -> None:
    """Per-key settings have to name stored keys with time; the input key's rate is 1."""
    settings: dict[tuple[str, ...], Mapping[str, object]] = {
        ("chunk", "size"): config.chunk.size or {},
        ("chunk", "step"): config.chunk.step or {},
        ("chunk", "min_size"): config.chunk.min_size,
        ("context",): config.context,
        ("batch", "max_frames"): config.batch.max_frames or {},
    }
    for path, per_key in settings.items():
        for name in per_key:
            if name and name not in timed:
                place = config.document.where((*path, name))
                why = "has no time axis" if name in chosen else f"is not a stored key{suggestion(name, timed)}"
                raise ConfigError(f"{place}: {'.'.join(path)}.{name}: {name!r} {why}")
    for name, key in config.keys.items():
        if key.rate != 1 and name == timed[0]:
            place = config.document.where(("keys", name, "rate"))
            raise ConfigError(
                f"{place}: keys.{name}.rate is {key.rate}: the input key's rate is 1 by definition; remove it"
            )


def _check_steps(rules: Rules, config: Config) -> None:
    """Chunks of all keys have to start at the same moments."""
    for rule in rules.keys:
        if rule.chunk and rules.input.chunk and rule.chunk.step_frames * rule.rate != rules.input.chunk.step_frames:
            raise ConfigError(
                f"{config.document.where(('chunk', 'step', rule.name))}: chunk.step is {rules.input.chunk.step_frames} "
                f"for {rules.input.name!r} and {rule.chunk.step_frames} for {rule.name!r} at rate {rule.rate}, "
                f"so their chunks would drift apart; make one the other times {rule.rate}"
            )


def _key_rule(name: str, input_name: str, config: Config, spec: KeySpec) -> KeyRule:
    key = config.keys.get(name)
    rate = key.rate if key else 1
    context = config.context.get(name) or (config.context.get("") if name == input_name else None)
    budget = config.batch.max_frames or {}
    return KeyRule(
        name=name,
        rate=rate,
        align=key.align if key else "ceil",
        chunk=_chunk_rule(name, rate, config),
        left_frames=context.left if context else 0,
        right_frames=context.right if context else 0,
        pad=context.pad if context else "zero",
        max_frames=budget.get(name, budget.get("")),
        frame_bytes=spec.nbytes,
    )


def _chunk_rule(name: str, rate: int, config: Config) -> ChunkRule | None:
    chunk = config.chunk
    if chunk.size is None:
        return None
    size = _own_frames("size", chunk.size, name, rate, config)
    step = _own_frames("step", chunk.step or chunk.size, name, rate, config)
    minimum = _own_frames("min_size", chunk.min_size, name, rate, config)
    if size is None or step is None:
        raise ConfigError(
            f"{config.document.where(('chunk',))}: chunk gives no size or step for key {name!r}; add it, or one number for all"
        )
    return ChunkRule(size_frames=size, step_frames=step, min_size_frames=minimum or 0)


def _own_frames(setting: str, per_key: Mapping[str, int], name: str, rate: int, config: Config) -> int | None:
    """A number of frames in the key's own frames: given outright for the key, or that of the input key by the rate."""
    if name in per_key:
        return per_key[name]
    if "" not in per_key:
        return None
    frames = per_key[""]
    if frames % rate:
        place = config.document.where(("chunk", setting))
        below = frames - frames % rate
        choices = f"{below} or {below + rate}" if below or setting == "min_size" else f"{rate}"
        raise ConfigError(
            f"{place}: chunk.{setting} is {frames}, which the rate {rate} of key {name!r} doesn't divide; "
            f"use {choices}, or give it per key"
        )
    return frames // rate
