"""Calls a user's fetch function, and checks what it gives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from seqprep.config import shown, suggestion
from seqprep.errors import ConfigError, WorkerError
from seqprep.runtime.data_metrics import WorkerCounters
from seqprep.runtime.data_rows import Chunk
from seqprep.types import Array

Fetch = Callable[[int, int], Sequence[Array] | Mapping[str, Array] | None]
"""`fetch(worker_id, batch_size)`: one array per input, or None at the end of the worker's epoch."""

Columns = int | Sequence[int] | Mapping[str, int]


_REMEMBERED_LOOKS = 1000
_LEAST_PAUSE_SECONDS = 0.001
_LONGEST_PAUSE_SECONDS = 0.1


class Inputs:
    """The inputs of a source: names, batch columns, and what their arrays have to look like.

    Names that aren't given are those of the first mapping that is fetched; dtypes and shapes are always those of the
    first rows.

    Args:
        names: of the inputs, in the order in which `fetch` gives them.
        columns: the axis along which rows lie: of all inputs, or of each in their order, or by name (others 0).
        rebatch: False passes chunks on whole, so that rows needn't agree.

    Raises:
        ConfigError: names repeat, or columns don't belong to them.
    """

    def __init__(self, names: Sequence[str] | None, columns: Columns, rebatch: bool) -> None:
        self.names: tuple[str, ...] = ()
        self.columns: tuple[int, ...] = ()
        self.rebatch = rebatch
        self._given_columns = columns
        self._likeness: tuple[Any, ...] | None = None  # dtype and shape of each input's rows
        self._accepted: dict[Any, int] = {}  # types, dtypes and shapes that were found to be right, and their rows
        self._lock = threading.Lock()  # for what the first rows settle
        if not isinstance(columns, int | Sequence | Mapping) or isinstance(columns, str | bytes):
            raise ConfigError(
                f"batch_columns is {shown(columns)}: give the number of an axis, a list of them, or {{name: axis}}"
            )
        for column in _values(columns):
            if isinstance(column, bool) or not isinstance(column, int) or column < 0:
                raise ConfigError(f"batch_columns has {shown(column)}: the number of an axis is 0 or more")
        if names is not None:
            self._settle_names(names)
        elif not isinstance(columns, Mapping | int):
            raise ConfigError("batch_columns is a list, so inputs has to name the inputs it belongs to")

    def _settle_names(self, names: Sequence[str]) -> None:
        are_named = isinstance(names, Iterable) and not isinstance(names, str)
        if not are_named or not (names := list(names)) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"inputs is {shown(names)}: give a list of at least one name")
        if len(set(names)) < len(names):
            raise ConfigError(f"inputs is {', '.join(names)}: a name is there twice")
        given = self._given_columns
        if isinstance(given, Mapping):
            for name in given:
                if name not in names:
                    raise ConfigError(f"batch_columns: there is no input {name!r}{suggestion(name, names)}")
            self.columns = tuple(given.get(name, 0) for name in names)
        elif isinstance(given, int):
            self.columns = (given,) * len(names)
        elif len(given) == len(names):
            self.columns = tuple(given)
        else:
            raise ConfigError(f"batch_columns has {len(given)} columns for the {len(names)} inputs {', '.join(names)}")
        self.names = tuple(names)

    def check(self, given: Any, who: str) -> Chunk | None:
        """Checks what a fetch function gave.

        Args:
            given: what it returned.
            who: the source and worker, for messages.

        Returns:
            A chunk, of 0 units if there is nothing at the moment; None at the end of the epoch.

        Raises:
            WorkerError: it is no chunk; names the input.
        """
        if given is None:
            return None
        arrays = self._in_order(given, who)
        if not self.rebatch:
            self._check_arrays(arrays, who)
            return self._whole(arrays)
        try:
            looks = tuple([(type(array), array.dtype, array.shape) for array in arrays])
            rows = self._accepted.get(looks)
        except (AttributeError, TypeError):  # that is no array, which is said now
            rows = looks = None
        if rows is None:
            self._check_arrays(arrays, who)
            rows = self._rows(arrays, who)
            if rows:
                self._check_likeness(arrays, who)
                if len(self._accepted) < _REMEMBERED_LOOKS:
                    self._accepted[looks] = rows
        return Chunk(arrays, rows, rows)

    def _check_arrays(self, arrays: tuple[Any, ...], who: str) -> None:
        for name, array in zip(self.names, arrays, strict=False):
            if not isinstance(array, np.ndarray):
                kind = type(array)
                raise WorkerError(
                    f"{who}: fetch gave a {kind.__module__}.{kind.__name__} for input {name!r}; give numpy arrays"
                )

    def _whole(self, arrays: tuple[Array, ...]) -> Chunk:
        """A chunk that isn't cut; arrays may have any shapes."""
        if not any(array.size for array in arrays):
            return Chunk((), 0, 0)
        column, shape = self.columns[0], arrays[0].shape
        return Chunk(arrays, shape[column] if column < len(shape) else 1, 1)

    def _in_order(self, given: Any, who: str) -> tuple[Any, ...]:
        """The arrays in the order of the inputs; none if nothing was given."""
        if type(given) is list and given and len(given) == len(self.names):  # the common cases, quickly
            return tuple(given)
        if type(given) is dict or isinstance(given, Mapping):
            if not given:
                return ()
            if not self.names:
                with self._lock:
                    if not self.names:
                        self._settle_names(list(given))
            if len(given) == len(self.names):
                try:
                    return tuple([given[name] for name in self.names])
                except KeyError:
                    pass
            raise WorkerError(f"{who}: fetch gave {', '.join(map(str, given))} for the inputs {', '.join(self.names)}")
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            raise WorkerError(
                f"{who}: fetch gave a {type(given).__name__}; give a list of arrays, one per input, or a mapping"
            )
        if not given:
            return ()
        if not self.names:
            raise WorkerError(
                f"{who}: fetch gave a {type(given).__name__}, but no names; set inputs, or give a mapping"
            )
        if len(given) != len(self.names):
            raise WorkerError(
                f"{who}: fetch gave {len(given)} arrays for the {len(self.names)} inputs {', '.join(self.names)}"
            )
        return tuple(given)

    def _rows(self, arrays: tuple[Array, ...], who: str) -> int:
        rows = -1
        for name, column, array in zip(self.names, self.columns, arrays, strict=False):
            if array.ndim <= column:
                raise WorkerError(f"{who}: input {name!r} has shape {array.shape}, so no batch column {column}")
            if rows < 0:
                rows = array.shape[column]
            elif rows != array.shape[column]:
                raise WorkerError(
                    f"{who}: input {name!r} has {array.shape[column]} rows (shape {array.shape}, batch column {column}), "
                    f"but input {self.names[0]!r} has {rows}; give as many of each, or set rebatch=False"
                )
        return max(rows, 0)

    def _check_likeness(self, arrays: tuple[Array, ...], who: str) -> None:
        found = tuple([_likeness(array, column) for array, column in zip(arrays, self.columns, strict=True)])
        if self._likeness is None:
            with self._lock:
                if self._likeness is None:
                    self._likeness = found
        if found == self._likeness:
            return
        for name, before, now in zip(self.names, self._likeness, found, strict=True):
            if before != now:
                raise WorkerError(
                    f"{who}: input {name!r} has changed and can't be rebatched; give it alike, or set rebatch=False:\n"
                    f"  first  {_show(before)}\n  now    {_show(now)}"
                )


def _values(columns: Columns) -> list[int]:
    if isinstance(columns, int):
        return [columns]
    return list(columns.values() if isinstance(columns, Mapping) else columns)


def _likeness(array: Array, column: int) -> tuple[Any, tuple[int, ...]]:
    """What has to be the same in all chunks: dtype, but for the width of texts, and shape, but for the rows."""
    dtype, shape = array.dtype, array.shape
    return dtype.kind if dtype.kind in "US" else dtype, (*shape[:column], -1, *shape[column + 1 :])


def _show(likeness: tuple[Any, tuple[int, ...]]) -> str:
    kind, shape = likeness
    dtype = {"U": "str", "S": "bytes"}.get(kind, kind) if isinstance(kind, str) else kind
    return f"{dtype} [{', '.join('rows' if size < 0 else str(size) for size in shape)}]"


class Fetcher:
    """A user's functions as one worker calls them.

    Args:
        worker_id: what the functions are told.
        fetch: the function.
        worker_init: called with the worker's id before the first fetch.
        inputs: what fetch has to give.
        batch_size: tells how many rows are wanted; a hint only.
        source: for messages.
        counters: what is counted goes there.
    """

    def __init__(
        self,
        worker_id: int,
        fetch: Fetch,
        worker_init: Callable[[int], object] | None,
        inputs: Inputs,
        batch_size: Callable[[], int],
        source: str,
        counters: WorkerCounters,
    ) -> None:
        self.id = worker_id
        self.who = f"source {source!r}, worker {worker_id}"
        self.counters = counters
        self.pause_seconds = 0.0
        """How long to wait before the next call; 0 unless the last ones gave nothing."""
        self.is_inside = False
        """A call is under way."""
        self._fetch, self._init, self._inputs, self._batch_size = fetch, worker_init, inputs, batch_size

    def __call__(self) -> Chunk | None:
        """Fetches once; the first call initialises the worker before.

        Returns:
            A chunk, of 0 units if there is nothing at the moment; None at the end of the worker's epoch.

        Raises:
            WorkerError: a function raised, or fetch gave something else than arrays.
        """
        if self._init is not None:
            self._call("worker_init", self._init, self.id)
            self._init = None
        counters = self.counters
        self.is_inside = True
        started = time.perf_counter()
        given = self._call("fetch", self._fetch, self.id, self._batch_size())
        counters.fetch_seconds += time.perf_counter() - started
        self.is_inside = False
        chunk = self._inputs.check(given, self.who)
        if chunk is not None:
            if chunk.units:
                counters.rows += chunk.rows
                counters.fetches += 1
                self.pause_seconds = 0.0
            else:
                counters.empty_fetches += 1
                self.pause_seconds = min(max(2 * self.pause_seconds, _LEAST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        return chunk

    def _call(self, name: str, function: Callable[..., Any], *arguments: int) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            raise WorkerError(f"{self.who}: {name} raised {type(error).__name__}: {error}") from error
