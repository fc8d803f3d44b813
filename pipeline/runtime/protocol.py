"""What stages take batches from: a loader, data workers, or a user's own iterable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable


class BatchSource(Protocol):
    """Gives one epoch of batches per iteration; each batch maps names to arrays, or to what is to stay on the host.

    A stage calls `iter` in its user's thread, and `next` of the iterator in a thread of its own. Arrays are left alone
    once they are handed out: a tensor may use their memory for as long as it lives. The iterator may have a `close()`
    that may be called from any thread, more than once, and makes a `next` that waits elsewhere return or raise; without
    one, a stage that is closed leaves a waiting `next` to itself. (A generator's own `close` is called in the thread
    that runs the generator, after its last `next`.) What `next` raises reaches the stage's user as it is.

    Where the iterator has a `__length_hint__`, it is the number of batches still to come, exactly where that is 0; a mix
    asks it. An iterator may also have an `iteration`, an object whose `state_at` gives that iteration's positions also
    when the source has begun another.
    """

    def __iter__(self) -> Iterator[Mapping[str, Any]]: ...


@runtime_checkable
class ResumableSource(Protocol):
    """A source whose position can be saved, however far a stage has read ahead."""

    def state_dict(self) -> dict[str, Any]:
        """The position behind the last batch handed out."""

    def state_at(self, consumed: int) -> dict[str, Any]:
        """The position behind `consumed` batches of the current iteration, in O(1).

        Raises:
            ConfigError: it has fewer.
        """

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved position at the next `iter`."""


@runtime_checkable
class MeteredSource(Protocol):
    """A source that counts what it does."""

    def metrics(self) -> Any:
        """Counts since it was opened."""
