"""`seqprep.mix`: draws batches from several datasets by weight."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqprep.config import shown
from seqprep.errors import ClosedError, ConfigError
from seqprep.runtime.mixed_order import Draws, MixIteration, Origin, State, encode
from seqprep.runtime.options import whole_number
from seqprep.runtime.positions import parse_state
from seqprep.runtime.protocol import BatchSource, MeteredSource, ResumableSource

NAME = "dataset_name"
"""What a mixed batch holds its source's name under."""


class MixedBatch(Mapping[str, Any]):
    """A source's batch, and under `dataset_name` the source's name."""

    __slots__ = ("_batch", "_name")

    def __init__(self, batch: Mapping[str, Any], name: str) -> None:
        self._batch = batch
        self._name = f"{name}/{batch[NAME]}" if NAME in batch else name

    def __getitem__(self, name: str) -> Any:
        return self._name if name == NAME else self._batch[name]

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self._batch if name != NAME)
        yield NAME

    def __len__(self) -> int:
        return len(self._batch) + (NAME not in self._batch)

    def __repr__(self) -> str:
        return f"MixedBatch({self._name!r}, {self._batch!r})"

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


@dataclass
class MixMetrics:
    """What a mix has done since it was made."""

    batches: Mapping[str, int]
    """Handed to the consumer, by source."""
    sources: Mapping[str, Any]
    """The sources' own metrics; None for one that keeps none."""


class MixIterator(Iterator[MixedBatch]):
    """One epoch of mixed batches; made by `iter` of a `Mix`."""

    def __init__(
        self,
        sources: Sequence[BatchSource],
        names: Sequence[str],
        iteration: MixIteration,
        finish: Callable[[MixIteration], None],
    ) -> None:
        self._sources, self._names, self.iteration, self._finish = sources, names, iteration, finish
        self._iterators: list[Iterator[Mapping[str, Any]]] = []
        self._ended = self._stopped = False
        for number, source in enumerate(sources):
            self._iterators.append(iter(source))
            self._begin(number, iteration.origin.starts[number])

    def _begin(self, number: int, start: State) -> None:
        """Notes that an epoch of a source begins, or what is left of it."""
        if operator.length_hint(self._iterators[number], 1) == 0:  # nothing is
            start = self._renew(number)
        iterator, part = self._iterators[number], self.iteration.parts[number]
        if part.begins and part.begins[-1] is not None and not hasattr(iterator, "iteration"):
            part.begins[-1] = _forgotten(self._names[number])
        part.begins.append(_positions_of(self._sources[number], iterator))
        part.starts.append(start)

    def _renew(self, number: int) -> State:
        """Lets a source begin its next epoch; gives where that is."""
        source = self._sources[number]
        next(self._iterators[number], None)  # it may not have told its end yet
        start = source.state_dict() if isinstance(source, ResumableSource) else None
        self._iterators[number] = iter(source)
        if operator.length_hint(self._iterators[number], 1) == 0:
            raise ConfigError(self._no_batch(number))
        return start

    def _no_batch(self, number: int) -> str:
        return f"source {self._names[number]!r} has no batch (for this rank); leave it out of the mix"

    def __next__(self) -> MixedBatch:
        """Gives the next batch.

        Raises:
            ClosedError: the mix was closed or iterated anew, or an error ended this iteration.
            ConfigError: a source has no batch.
            SeqprepError: a source failed.
        """
        if self._ended:
            raise StopIteration
        if self._stopped:
            raise ClosedError("this iteration of the mix was ended, by close() or an error; call iter() again")
        try:
            batch = None
            if not self.iteration.complete:
                number = self.iteration.next_source()
                batch = self._take(number)
            if batch is not None:
                self.iteration.note(number)
                self._look_for_end(number)
                return MixedBatch(batch, self._names[number])
        except BaseException:
            self.close()  # the sources may have given what wasn't counted
            raise
        self._ended = True
        self._finish(self.iteration)
        self.close()
        raise StopIteration

    def _take(self, number: int) -> Mapping[str, Any] | None:
        """The next batch of a source, which may begin anew; None if that ends the epoch."""
        iteration = self.iteration
        part, count = iteration.parts[number], iteration.counts[number]
        begun = part.ends[-1] if part.ends else 0  # what its earlier epochs gave
        if not part.ends or len(part.ends) < len(part.begins):
            batch = next(self._iterators[number], None)
            if batch is not None:
                return batch
            if count > begun:  # a source that couldn't tell before
                part.ends.append(count)
                if iteration.complete:
                    return None
            else:  # nothing was left of this one
                del part.begins[-1], part.starts[-1]
        self._begin(number, self._renew(number))
        batch = next(self._iterators[number], None)
        if batch is None:
            raise ConfigError(self._no_batch(number))
        return batch

    def _look_for_end(self, number: int) -> None:
        """Notes that a source has given the last batch of an epoch, if it can tell."""
        part, count = self.iteration.parts[number], self.iteration.counts[number]
        if hasattr(self._iterators[number], "__length_hint__"):
            if operator.length_hint(self._iterators[number]) == 0:
                part.ends.append(count)
        elif (state_at := part.begins[-1]) is not None:
            try:
                state_at(count + 1 - (part.ends[-1] if part.ends else 0))
            except ConfigError:
                part.ends.append(count)

    def __length_hint__(self) -> int:
        """0 behind the epoch's last batch, else at least 1."""
        return int(not self.iteration.complete)

    def close(self) -> None:
        """Ends the sources' iterations; this one gives nothing more."""
        self._stopped = True
        for iterator in self._iterators:
            if hasattr(iterator, "close"):
                iterator.close()


def _positions_of(source: BatchSource, iterator: Any) -> Callable[[int], dict[str, Any]] | None:
    """What gives the positions in an iteration of a source."""
    if hasattr(iterator, "iteration"):
        state_at: Callable[[int], dict[str, Any]] = iterator.iteration.state_at
        return state_at
    return source.state_at if isinstance(source, ResumableSource) else None


def _forgotten(name: str) -> Callable[[int], dict[str, Any]]:
    def refuse(_: int) -> dict[str, Any]:
        raise ConfigError(f"source {name!r} has begun another epoch since, and keeps no position of the one before")

    return refuse


class Mix:
    """Batches of several sources, drawn by weight; made by `mix`.

    Iterating gives one epoch. A batch is its source's, with the source's name under `dataset_name`.
    """

    def __init__(
        self, sources: Sequence[tuple[BatchSource, float]], seed: int, repeat: bool, names: Sequence[str]
    ) -> None:
        self._sources = [source for source, _ in sources]
        self._names, self._repeat = list(names), repeat
        self._draws = Draws(weights=[float(weight) for _, weight in sources], seed=seed)
        self._identity = {"seed": seed, "repeat": repeat, "weights": list(self._draws.weights)}
        self._origin: Origin | None = None  # of the next iteration; None: wherever the sources are
        self._iteration: MixIteration | None = None
        self._handed_out = [0 for _ in sources]
        self._closed = False

    @property
    def names(self) -> Sequence[str]:
        """The sources' names, in their order."""
        return tuple(self._names)

    @property
    def epoch(self) -> int:
        """Number of the epoch that is being read or comes next."""
        return self._origin.epoch if self._origin else 0

    def __iter__(self) -> MixIterator:
        """Starts at the loaded position, else at the epoch's start; an iteration under way is ended.

        Raises:
            ClosedError: the mix or a source is closed.
        """
        if self._closed:
            raise ClosedError("the mix is closed; make another")
        self._count()
        self._origin = origin = self._next_origin()
        for source, state in zip(self._sources, origin.states, strict=True):
            if state is not None and isinstance(source, ResumableSource):
                source.load_state_dict(state)
        self._iteration = MixIteration(origin, self._draws, self._repeat, self._identity)
        return MixIterator(self._sources, self._names, self._iteration, self._finish_epoch)

    def _next_origin(self) -> Origin:
        if self._origin is not None:
            return self._origin
        states = [source.state_dict() if isinstance(source, ResumableSource) else None for source in self._sources]
        return Origin(epoch=0, draws=0, states=states, starts=states, through=[False for _ in states])

    def _finish_epoch(self, iteration: MixIteration) -> None:
        if self._iteration is iteration:  # else another has begun
            self._origin = iteration.at(iteration.delivered)

    def _count(self) -> None:
        """Moves what the iteration handed out to the mix's own count."""
        if self._iteration is not None:
            self._handed_out = [a + b for a, b in zip(self._handed_out, self._iteration.counts, strict=True)]
        self._iteration = None

    def state_dict(self) -> dict[str, Any]:
        """The position behind the last batch handed out; small and plain.

        Returns:
            `epoch`, `position` (draws in it), the sources' own states, and what all that belongs to: `seed`, `repeat`,
            `weights`.

        Raises:
            ConfigError: a source keeps no state.
        """
        self._check_resumable()
        if self._iteration is None:
            return encode(self._next_origin(), self._identity)
        return self._iteration.state_at(self._iteration.delivered)

    def state_at(self, consumed: int) -> dict[str, Any]:
        """The position behind `consumed` batches of the current iteration, whatever was drawn ahead of them; in O(1).

        Raises:
            ConfigError: the iteration has given fewer, or a source keeps no state.
        """
        self._check_resumable()
        if self._iteration is None:
            if consumed:
                raise ConfigError(f"consumed is {consumed}: no iteration has begun")
            return encode(self._next_origin(), self._identity)
        return self._iteration.state_at(consumed)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved position at the next `iter`.

        Raises:
            MismatchError: the state belongs to another mix, or a source's to another dataset or order.
            ConfigError: it is no state of a mix, or a source keeps none.
        """
        resumable = self._check_resumable()
        what = f"mix of {', '.join(self._names)}"
        epoch, draws = parse_state(state, self._identity, what)
        try:
            entries = [(entry["state"], entry["start"], bool(entry["through"])) for entry in state["sources"]]
        except (KeyError, TypeError) as error:
            raise ConfigError(f"{what}: not a state of this: 'sources' is missing or damaged") from error
        for source, (position, _, _) in zip(resumable, entries, strict=True):
            source.load_state_dict(position)
        states, starts, through = (list(column) for column in zip(*entries, strict=True))
        self._count()
        self._origin = Origin(epoch=epoch, draws=draws, states=states, starts=starts, through=through)

    def _check_resumable(self) -> list[ResumableSource]:
        for name, source in zip(self._names, self._sources, strict=True):
            if not isinstance(source, ResumableSource):
                raise ConfigError(f"source {name!r} keeps no state (state_dict, state_at, load_state_dict)")
        return self._sources  # type: ignore[return-value]

    def __getstate__(self) -> dict[str, Any]:
        sources = list(zip(self._sources, self._draws.weights, strict=True))
        options = {"seed": self._draws.seed, "repeat": self._repeat, "names": self._names}
        resumable = all(isinstance(source, ResumableSource) for source in self._sources)
        return {"sources": sources, "options": options, "state": self.state_dict() if resumable else None}

    def __setstate__(self, saved: Mapping[str, Any]) -> None:
        self.__init__(saved["sources"], **saved["options"])  # type: ignore[misc]
        if saved["state"] is not None:
            self.load_state_dict(saved["state"])

    def metrics(self) -> MixMetrics:
        """What was handed out of each source since the mix was made, and the sources' own metrics."""
        drawn = self._iteration.counts if self._iteration else [0 for _ in self._sources]
        counts = [a + b for a, b in zip(self._handed_out, drawn, strict=True)]
        metrics = [source.metrics() if isinstance(source, MeteredSource) else None for source in self._sources]
        return MixMetrics(dict(zip(self._names, counts, strict=True)), dict(zip(self._names, metrics, strict=True)))

    def close(self) -> None:
        """Closes the sources; batches handed out stay valid."""
        self._closed = True
        for source in self._sources:
            if hasattr(source, "close"):
                source.close()

    def __enter__(self) -> Mix:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def mix(
    sources: Sequence[tuple[BatchSource, float]],
    *,
    seed: int = 0,
    repeat: bool = False,
    names: Sequence[str] | None = None,
) -> Mix:
    """Mixes several sources of batches: each batch is one of theirs, drawn by weight.

    Args:
        sources: loaders (or whatever else gives batches; see `seqprep.runtime.protocol`), each with its weight: in
            proportion to it, on average, batches are drawn. The mix closes them when it is closed.
        seed: of the draws.
        repeat: False ends the epoch with the last batch of the source that is read through first, and in the next one the
            others go on where they are. True begins a source that is read through anew, with its next epoch, until all
            have been; the next epoch begins each at the start of one of its own.
        names: of the sources; the names of their folders unless given.

    Raises:
        ConfigError: a weight isn't positive, a source stands there twice, or names don't differ.
    """
    if not sources:
        raise ConfigError("sources is empty: there is nothing to mix")
    seed = whole_number("seed", seed)
    for number, (_, weight) in enumerate(sources):
        if not _is_positive(weight):
            raise ConfigError(f"the weight of source {number} is {shown(weight)}: it has to be a positive number")
    if len({id(source) for source, _ in sources}) < len(sources):
        raise ConfigError("a source stands in the mix twice: add up its weights, or open it twice with different seeds")
    found = _folder_names([source for source, _ in sources]) if names is None else list(names)
    if len(found) != len(sources) or len(set(found)) < len(found):
        raise ConfigError(
            f"names are {', '.join(map(repr, found))}: give each of {len(sources)} sources one of its own"
        )
    return Mix(sources, seed, bool(repeat), found)


def _is_positive(weight: Any) -> bool:
    try:
        return math.isfinite(weight) and weight > 0
    except TypeError:
        return False


def _folder_names(sources: Sequence[Any]) -> list[str]:
    """Names by folder, or by whole path or number where those don't differ."""
    paths = [getattr(source, "path", None) for source in sources]
    for names in ([path and path.name for path in paths], [path and str(path) for path in paths]):
        if all(names) and len(set(names)) == len(names):
            return [str(name) for name in names]
    return [
        f"{number}: {path or getattr(source, 'dataset_name', None) or type(source).__name__}"
        for number, (path, source) in enumerate(zip(paths, sources, strict=True))
    ]
