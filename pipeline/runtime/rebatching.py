"""Makes new batches of the rows of several stored ones, as `row_order` says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqprep.errors import CorruptError
from seqprep.runtime.ahead import Counters, Pool, ReadAhead, Work
from seqprep.runtime.pool import Buffer, aligned
from seqprep.runtime.positions import Iteration
from seqprep.runtime.row_order import RebatchOptions, Stretch
from seqprep.types import Array, Int64, Tags


@dataclass
class _Rows:
    """Rows in the order of the stream, in the batches that they were read with."""

    batches: Sequence[Mapping[str, Any]]
    source: Int64
    """int64 [rows]: which of the batches each is in …"""
    row: Int64
    """int64 [rows]: … and where."""
    fields: Mapping[str, Array]
    """What has one entry per row and no time, in the order of the stream."""
    tags: Tags

    def __len__(self) -> int:
        return len(self.source)

    def part(self, begin: int, end: int) -> _Rows:
        """The rows from `begin` up to `end`."""
        fields = {name: values[begin:end] for name, values in self.fields.items()}
        return _Rows(self.batches, self.source[begin:end], self.row[begin:end], fields, self.tags.stretch(begin, end))

    def at(self, places: Int64) -> _Rows:
        """The rows at these places, in their order."""
        fields = {name: values[places] for name, values in self.fields.items()}
        return _Rows(self.batches, self.source[places], self.row[places], fields, self.tags.take(places))

    @classmethod
    def of(cls, batches: Sequence[Mapping[str, Any]]) -> _Rows:
        """All rows of some batches, without those that only fill a batch up."""
        counts = [len(batch["seq_idx"]) for batch in batches]
        names = [name for name in batches[0] if name != "seq_tag" and f"{name}/size0" not in batches[0]]
        fields = {name: np.concatenate([batch[name] for batch in batches]) for name in names}
        row = np.concatenate([np.arange(count) for count in counts])
        rows = cls(batches, np.repeat(np.arange(len(batches)), counts), row, fields, _joined(batches))
        real = np.flatnonzero(fields["seq_idx"] >= 0)
        return rows if len(real) == len(rows) else rows.at(real)


def _joined(batches: Sequence[Mapping[str, Any]]) -> Tags:
    """The tags of all batches."""
    tags = [batch["seq_tag"] for batch in batches]
    sizes = np.concatenate([of.sizes for of in tags])
    return Tags(np.concatenate([of.data for of in tags]), np.cumsum(sizes, dtype=np.int64))


class Progress:
    """What the loader sees of an iteration; doesn't know the iterator, so that this can be collected."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.delivered = 0  # new batches handed out

    @property
    def ready(self) -> int:
        """Stored batches read and waiting."""
        return self._work.ready

    def start(self) -> None:
        """Starts the threads."""
        self._work.start()

    def count(self) -> None:
        """Does nothing: what is handed out is counted at once."""

    def close(self) -> None:
        """Ends the threads, and waits for them."""
        self._work.close()


class Rebatched(Iterator[dict[str, Any]]):
    """Delivers new batches of a rank's mixed rows; names and order of names are those of the stored batches.

    Args:
        source: the stretch's stored batches, in order.
        stretch: what is handed out.
        mixed: gives the order of a window's rows, by the window's number and rows.
        options: how rows are mixed.
        pads: what rows of each key hold beyond their valid frames.
        pool: memory for the new batches.
        counters: what is counted goes there.
        exhausted: told when the last one has been handed out and one more was asked for.
    """

    iteration: Iteration
    """What its positions are called; set by who made it."""

    def __init__(
        self,
        source: ReadAhead,
        stretch: Stretch,
        *,
        mixed: Callable[[int, int], Int64],
        options: RebatchOptions,
        pads: Mapping[str, float],
        pool: Pool,
        counters: Counters,
        exhausted: Callable[[], None],
    ) -> None:
        self._source, self._mixed, self._options, self._pads = source, mixed, options, pads
        self._pool, self._counters, self._exhausted = pool, counters, exhausted
        self._sizes, self._window, self._skip = stretch.sizes, stretch.window, stretch.skip
        self._rows: _Rows | None = None  # those that come next
        self._last: _Rows | None = None  # all rows of the last window read
        self._again = stretch.again  # batches so far that took rows of the last window again
        self._ended = False
        self.progress = Progress(source.work)

    def __next__(self) -> dict[str, Any]:
        """Gives the next batch.

        Raises:
            ClosedError: the loader was closed or iterated anew meanwhile, or the iterator was made in another process.
            SeqprepError: reading failed; names shard, batch and bytes.
        """
        if self._ended:
            raise StopIteration
        self._source.work.check()
        if self.progress.delivered == len(self._sizes):
            self._ended, self._rows, self._last = True, None, None
            self._source.close()
            self._exhausted()
            raise StopIteration
        try:
            batch = self._make(self._take(self._sizes[self.progress.delivered]))
        except BaseException:
            self._source.work.stop()  # rows may be lost between the windows
            raise
        self.progress.delivered += 1
        self._count(batch)
        return batch

    def __length_hint__(self) -> int:
        """Batches that are still to come."""
        return len(self._sizes) - self.progress.delivered

    def close(self) -> None:
        """Ends the threads, and waits for them; the iterator gives nothing more."""
        self._source.close()

    def _take(self, size: int) -> _Rows:
        """Takes so many rows off the stream; for none, rows of the last window again."""
        while self._rows is None or len(self._rows) < size:
            self._rows = self._read_window()
        if size:
            taken, self._rows = self._rows.part(0, size), self._rows.part(size, len(self._rows))
            return taken
        last = self._last if self._last is not None else self._rows
        size = min(self._options.rows, len(last))
        self._again += 1
        return last.at(((self._again - 1) * size + np.arange(size)) % len(last))

    def _read_window(self) -> _Rows:
        """Reads and mixes a window, behind the rows that are left of the one before."""
        left = self._rows
        held = (
            [] if left is None or not len(left) else [self._make(left)]
        )  # a copy, so that its window's memory is free
        self._rows = self._last = left = None
        work = self._source.work
        batches: list[Mapping[str, Any]] = []
        for _ in range(min(self._options.window, len(work.batches) - work.delivered)):
            batches.append(next(self._source))
            work.handed_out.clear()  # not to the consumer
        if not batches:
            raise CorruptError("the batches hold fewer rows than their sidecars say; make the dataset again")
        rows = _Rows.of(batches)
        self._last = rows.at(self._mixed(self._window, len(rows)))
        self._window += 1
        rest = self._last.part(self._skip, len(self._last))
        self._skip = 0
        return _behind(_Rows.of(held), rest) if held else rest

    def _make(self, rows: _Rows) -> dict[str, Any]:
        """Copies rows into a batch of their own, padded to the longest of them."""
        first = rows.batches[0]
        shapes = {name: _shape(name, rows) for name in first if name != "seq_tag"}
        dtypes = {name: first[name].dtype for name in shapes}
        sizes = [int(np.prod(shapes[name], dtype=np.int64)) * dtypes[name].itemsize for name in shapes]
        lease = (self._pool.take_now() or self._unpooled()).lease(int(aligned(np.array(sizes)).sum()))
        batch, place = {}, 0
        for name, size in zip(shapes, sizes, strict=True):
            out = batch[name] = np.ndarray(shapes[name], dtypes[name], lease, place)
            place += aligned(size)
            if name in rows.fields:
                out[...] = rows.fields[name]
            else:
                _copy(name, rows, self._pads[name], out)
        return {name: rows.tags if name == "seq_tag" else batch[name] for name in first}

    def _unpooled(self) -> Buffer:
        self._counters.unpooled_buffers += 1
        return Buffer()

    def _count(self, batch: Mapping[str, Any]) -> None:
        counters = self._counters
        counters.batches += 1
        counters.rows += len(batch["seq_idx"])
        sizes = next((batch[f"{name}/size0"] for name in self._pads if f"{name}/size0" in batch), np.zeros(0))
        counters.frames += int(sizes.sum())
        counters.bytes += sum(batch[name].nbytes for name in self._pads)


def _behind(front: _Rows, back: _Rows) -> _Rows:
    """Rows behind other rows."""
    tags = Tags(
        np.concatenate([front.tags.data, back.tags.data]),
        np.append(front.tags.ends, back.tags.ends + len(front.tags.data)),
    )
    return _Rows(
        [*front.batches, *back.batches],
        np.append(front.source, back.source + len(front.batches)),
        np.append(front.row, back.row),
        {name: np.concatenate([values, back.fields[name]]) for name, values in front.fields.items()},
        tags,
    )


def _ragged(name: str, rows: _Rows, axes: int) -> dict[int, Array]:
    """The axes of a key's array that differ from row to row (1: time), each with the rows' sizes along it."""
    fields = {axis: rows.fields.get(f"{name}/size{axis - 1}") for axis in range(1, axes)}
    return {axis: sizes for axis, sizes in fields.items() if sizes is not None}


def _shape(name: str, rows: _Rows) -> tuple[int, ...]:
    if name in rows.fields:
        return rows.fields[name].shape
    shape = [len(rows), *rows.batches[0][name].shape[1:]]
    for axis, sizes in _ragged(name, rows, len(shape)).items():
        shape[axis] = int(sizes.max(initial=0))
    return tuple(shape)


def _copy(name: str, rows: _Rows, pad: float, out: Array) -> None:
    """Copies the valid part of each row, and fills up the rest."""
    arrays = [batch[name] for batch in rows.batches]
    ragged = _ragged(name, rows, out.ndim)
    sizes = [ragged.get(axis, np.full(len(rows), out.shape[axis])).tolist() for axis in range(1, max(ragged) + 1)]
    with np.errstate(over="ignore"):
        filler = np.asarray(pad).astype(out.dtype)
    for target, source, row, *size in zip(out, rows.source.tolist(), rows.row.tolist(), *sizes, strict=True):
        valid = tuple(map(slice, size))
        target[size[0] if len(size) == 1 else 0 :] = filler
        target[valid] = arrays[source][row][valid]
