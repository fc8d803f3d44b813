"""A configuration worked out against a source's keys: plain numbers, checked, for the planning functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import lcm
from typing import Any, Literal

import numpy as np

from seqprep.config import Config, KeyConfig, OrderName, suggestion
from seqprep.config.values import MOST_ROW_FRAMES
from seqprep.errors import ConfigError
from seqprep.planning.key_rules import KeyResolver, KeyRule, check_holds
from seqprep.planning.layout_rules import BatchRule, OrderRule, batch_rule, check_packing, order_name
from seqprep.types import KeySpec, numpy_dtype

RESERVED_NAMES = frozenset(
    {"seq_idx", "seq_tag", "segment_row", "segment_start", "batches", "rows", "segments", "seqprep"}
)
"""Names that batches and shard files use themselves."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """All decisions that don't depend on the sequences."""

    keys: tuple[KeyRule, ...]
    """Keys with a time axis, the input key first."""
    tail: Literal["keep", "drop", "shift"] = "keep"
    stop_when_covered: bool = False
    jitter: bool = False
    row_bytes: int = 0
    """Stored bytes of a row's keys without time."""
    max_sequences: int | None = None
    batch: BatchRule = field(default_factory=BatchRule)
    order: OrderName = "source"
    order_rule: OrderRule = field(default_factory=OrderRule)
    seed: int = 0
    epochs: int = 1
    shard_bytes: int = 256_000_000

    @property
    def input(self) -> KeyRule:
        """The key in whose frames chunks are counted."""
        return self.keys[0]

    @property
    def grid_frames(self) -> int:
        """L: the least number of input frames that is whole in every key; the least common multiple of their rates."""
        return lcm(*(rule.rate for rule in self.keys if rule.rate is not None))


def output_spec(name: str, spec: KeySpec, config: Config) -> KeySpec:
    """What a key looks like in the shards.

    Raises:
        ConfigError: `keys.<name>.dtype` is no dtype, or one that would change the values' kind.
        DependencyError: it is bfloat16, and ml_dtypes isn't installed.
    """
    wanted = config.keys[name].dtype if name in config.keys else None
    spec = _normalized(name, spec, config)
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


def _normalized(name: str, spec: KeySpec, config: Config) -> KeySpec:
    """What a key's values are once they are normalised."""
    if name not in config.keys or config.keys[name].normalize is None:
        return spec
    if not spec.has_time or spec.ragged or np.dtype(spec.dtype).kind not in "iuf" or spec.labels is not None:
        what = (
            "classes" if spec.labels is not None else f"{spec.dtype} values {'' if spec.has_time else 'without time'}"
        )
        raise ConfigError(
            f"{config.document.where(('keys', name, 'normalize'))}: keys.{name}.normalize is set, but the key holds "
            f"{what}; remove it"
        )
    return replace(spec, dtype="float64" if spec.dtype == "float64" else "float32")


def _can_stand_for(dtype: np.dtype[Any], held: np.dtype[Any]) -> bool:
    """Whether values go from one to the other with a float's rounding at most; what integers can't hold is an error."""
    both = {_kind(dtype), _kind(held)}
    return both <= {"i", "u"} or both == {"f"} or np.can_cast(held, dtype)


def _kind(dtype: np.dtype[Any]) -> str:
    """numpy's letter of the dtype's kind; bfloat16, which numpy takes for raw bytes, is a float."""
    return "f" if dtype.name == "bfloat16" else dtype.kind


def resolve(
    config: Config, specs: Mapping[str, KeySpec], frame_rates: Mapping[str, Fraction] | None = None
) -> tuple[Rules, dict[str, KeySpec]]:
    """Works a configuration out against the keys of a source.

    Args:
        config: the configuration.
        specs: the source's keys.
        frame_rates: frames per second, of those keys whose source knows; for settings in seconds.

    Returns:
        The rules, and the keys as they will be stored: those that `keys` names, or all; the input key first.

    Raises:
        ConfigError: a setting names a key that the source lacks, a number doesn't divide by a key's rate, …
    """
    chosen = _chosen_keys(config, specs)
    stored = {name: output_spec(name, specs[name], config) for name in chosen}
    for name in chosen:
        _check_spec(name, stored[name], config)
    timed = [name for name in chosen if specs[name].has_time]
    _check_names(config, timed, chosen)
    resolver = KeyResolver(config, timed[0], frame_rates or {})
    rules = Rules(
        keys=tuple(resolver.rule(name, stored[name]) for name in timed),
        tail=config.chunk.tail,
        stop_when_covered=config.chunk.stop_when_covered,
        jitter=config.chunk.jitter,
        row_bytes=sum(spec.nbytes for spec in stored.values() if not spec.has_time),
        max_sequences=config.batch.max_sequences,
        batch=batch_rule(config, {name: config.keys.get(name, KeyConfig()).rate for name in timed}),
        order=order_name(config),
        order_rule=OrderRule.of(config),
        seed=config.order.seed,
        epochs=config.epochs,
        shard_bytes=config.output.shard_size,
    )
    _check_grid(rules, config)
    _check_steps(rules, config)
    for rule in rules.keys:
        check_packing(rules.batch.row_frames or 0, rule.rate, rule.name, rule.max_frames, config)
    return rules, stored


def _check_spec(name: str, stored: KeySpec, config: Config) -> None:
    """Refuses settings that don't go with a key as it is."""
    key = config.keys.get(name, KeyConfig())
    place = config.document.where(("keys", name, "pad_value"))
    check_holds(key.pad_value, stored.dtype, f"{place}: keys.{name}.pad_value")
    if stored.has_time:
        return
    if stored.ragged:
        raise ConfigError(
            f"{config.document.where(('keys', name))}: the source's key {name!r} has an axis of varying size but no time "
            "axis; read it as a key with time, whose rate is null, or name only others under keys"
        )
    for setting, known in KeyConfig.model_fields.items():
        if setting not in ("dtype", "pad_value") and getattr(key, setting) != known.default:
            value = getattr(key, setting)
            raise ConfigError(
                f"{config.document.where(('keys', name, setting))}: keys.{name}.{setting} is "
                f"{'null' if value is None else value}, but {name!r} has no time axis, so that has no effect; remove it"
            )


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
    marked = next((name for name, key in config.keys.items() if key.input), None)
    timed = [name for name in [*config.keys, *chosen] if specs[name].has_time]
    shared = [name for name in timed if name not in config.keys or config.keys[name].rate is not None]
    first = marked or next(iter(shared or timed), None)
    if first is None or not specs[first].has_time:
        place = config.document.where(("keys", marked, "input") if marked else ("keys",))
        what = f"key {first!r} has no time axis" if first else "no key has a time axis"
        raise ConfigError(f"{place}: {what}, so there is nothing to cut; choose an input key with one")
    return [first, *(name for name in chosen if name != first)]


def _check_names(config: Config, timed: list[str], chosen: list[str]) -> None:
    """Per-key settings have to name stored keys with time."""
    settings: dict[tuple[str, ...], Mapping[str, object]] = {
        ("chunk", "size"): config.chunk.size or {},
        ("chunk", "step"): config.chunk.step or {},
        ("chunk", "min_size"): config.chunk.min_size,
        ("context",): config.context,
        ("batch", "max_frames"): config.batch.max_frames or {},
        ("batch", "pad_to"): config.batch.pad_to if isinstance(config.batch.pad_to, Mapping) else {},
    }
    for path, per_key in settings.items():
        for name in per_key:
            if name and name not in timed:
                place = config.document.where((*path, name))
                why = "has no time axis" if name in chosen else f"is not a stored key{suggestion(name, timed)}"
                raise ConfigError(f"{place}: {'.'.join(path)}.{name}: {name!r} {why}")


def _check_grid(rules: Rules, config: Config) -> None:
    """What has to be whole in every key has to be so within a row."""
    if rules.grid_frames > MOST_ROW_FRAMES:
        rates = ", ".join(f"{rule.name!r} ({rule.rate})" for rule in rules.keys if rule.rate not in (None, 1))
        raise ConfigError(
            f"{config.document.where(('keys',))}: keys.*.rate: the rates of {rates} are whole together only every "
            f"{rules.grid_frames} frames, which is more than a row may have; correct them, or store fewer keys together"
        )


def _check_steps(rules: Rules, config: Config) -> None:
    """Chunks of all keys have to start at the same moments, which leave room for a jitter."""
    if rules.input.chunk is None:
        return
    step = rules.input.chunk.step_frames
    for rule in rules.keys[1:]:
        if rule.chunk and rule.rate and rule.chunk.step_frames * rule.rate != step:
            own = rule.chunk.step_frames
            remedy = f"{rules.input.name!r} {own * rule.rate}" if rule.rate > 1 else "both the same"
            raise ConfigError(
                f"{config.document.where(('chunk', 'step', rule.name))}: chunk.step is {step} for {rules.input.name!r} and "
                f"{own} for {rule.name!r} at rate {rule.rate}, so their chunks would drift apart; give {remedy}"
            )
    if rules.jitter and step == rules.grid_frames:
        raise ConfigError(
            f"{config.document.where(('chunk', 'jitter'))}: chunk.jitter is true, but offsets are multiples of "
            f"{rules.grid_frames} below the step, which is {step}, so there is no other than 0; make chunk.step larger"
        )
