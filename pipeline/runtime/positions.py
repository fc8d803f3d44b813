"""Positions in a global order as plain values that can be saved, and compared with what they are loaded into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from seqprep.config import shown
from seqprep.errors import ConfigError, MismatchError


class Steps(Protocol):
    """An order of batches in each epoch, dealt to ranks: position = step · world_size + rank."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    def steps(self, epoch: int, begin: int) -> int:
        """Batches that this rank still gets in an epoch, from a global position on."""

    def ended(self, epoch: int, begin: int) -> bool:
        """Says whether no rank gets a batch of an epoch from a global position on."""


@dataclass(frozen=True)
class Iteration:
    """One pass over the rest of an epoch: where it began, and what its positions are called."""

    order: Steps
    identity: Mapping[str, Any]
    """What a position belongs to: plain values."""
    epoch: int
    begin: int
    """Global position."""

    def state_at(self, consumed: int) -> dict[str, Any]:
        """The position behind `consumed` batches; all of an epoch's batches give the start of the next.

        Raises:
            ConfigError: there are fewer.
        """
        steps = self.order.steps(self.epoch, self.begin)
        if not 0 <= consumed <= steps:
            raise ConfigError(f"consumed is {consumed}: this iteration has {steps} batches, so it lies in [0, {steps}]")
        position = self.begin + consumed * self.order.world_size
        if consumed and self.order.ended(self.epoch, position):
            return {"epoch": self.epoch + 1, "position": 0, **self.identity}
        return {"epoch": self.epoch, "position": position, **self.identity}


def parse_state(state: Mapping[str, Any], identity: Mapping[str, Any], what: str) -> tuple[int, int]:
    """Reads a saved position, if it belongs here.

    Args:
        state: what `Iteration.state_at` gave, perhaps elsewhere.
        identity: what positions belong to here.
        what: is read here; for messages.

    Returns:
        Epoch and position.

    Raises:
        MismatchError: it belongs to another dataset or order; shows both sides.
        ConfigError: it is no such state.
    """
    if not isinstance(state, Mapping):
        raise ConfigError(f"{what}: not a state of this: {shown(state)}; give what state_dict() returned")
    numbers = []
    for name in ("epoch", "position", *identity):
        if name not in state:
            raise ConfigError(f"{what}: not a state of this: {name!r} is missing; give what state_dict() returned")
        if name in ("epoch", "position"):
            value = state[name]
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ConfigError(
                    f"{what}: not a state of this: {name} is {shown(value)}, where a number from 0 on belongs"
                )
            numbers.append(value)
    saved, own = _flat({name: state[name] for name in identity}), _flat(identity)
    differing = [name for name in {**saved, **own} if saved.get(name) != own.get(name)]
    if differing:
        raise MismatchError(_mismatch(what, saved, own, differing))
    return numbers[0], numbers[1]


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Brings {name: {inner: value}} to {"name.inner": value}, so that each value is compared on its own."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": of for inner, of in value.items()}
        else:
            flat[name] = list(value) if isinstance(value, tuple) else value
    return flat


def _told(value: Any) -> str:
    return str(value) if isinstance(value, str) and len(value) <= 100 else shown(value)


def _mismatch(what: str, saved: Mapping[str, Any], own: Mapping[str, Any], differing: list[str]) -> str:
    width = max(map(len, differing))
    lines = [f"  {name:{width}}  saved: {_told(saved.get(name))}  now: {_told(own.get(name))}" for name in differing]
    kind, remedy = "order", "open the loader as it was when the state was saved, or start afresh"
    if "fingerprint" in differing:
        kind = "dataset"
    elif all(name.endswith(".world_size") for name in differing):
        remedy = (
            "with same_shape or rebatch the order depends on the number of ranks; go on with as many, or start afresh"
        )
    return "\n".join([f"{what}: the saved state is of another {kind}:", *lines, f"  {remedy}"])
