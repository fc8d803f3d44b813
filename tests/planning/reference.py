"""The rules once more, in plain and slow Python over lists, to hold the vectorised code against.

Nothing here calls the planning functions; only their types of plain numbers (`Rules`, `KeyRule`, `ChunkRule`) are
shared. At the end: random rules and lengths, for the property tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from seqprep.planning import ChunkRule, KeyRule, Rules


class Core(NamedTuple):
    """A chunk in one key, without context."""

    start: int
    stop: int


class Row(NamedTuple):
    """A chunk of a sequence: its number in it, and its core per key."""

    sequence: int
    number: int
    cores: dict[str, Core]


def expected_length(frames: int, rate: int, align: str) -> int | None:
    """Frames of a key whose input has so many; None if there is no right answer."""
    if align == "exact" and frames % rate:
        return None
    found = 0
    while (found + 1) * rate <= frames:
        found += 1
    return found + 1 if align == "ceil" and found * rate < frames else found


def rows_of(sequence: int, lengths: Mapping[str, int], rules: Rules) -> list[Row]:
    """All rows of one sequence, walking from start to start."""
    main = rules.keys[0]
    if main.chunk is None:
        return [Row(sequence, 0, {key.name: Core(0, lengths[key.name]) for key in rules.keys})]
    rows: list[Row] = []
    starts = {key.name: 0 for key in rules.keys}
    while starts[main.name] < lengths[main.name]:
        ends = any(lengths[key.name] - starts[key.name] <= key.chunk.min_size_frames for key in rules.keys)
        if ends and rows:
            break
        cores = {}
        for key in rules.keys:
            start = starts[key.name]
            cores[key.name] = Core(start, min(start + key.chunk.size_frames, lengths[key.name]))
            starts[key.name] = start + key.chunk.step_frames
        rows.append(Row(sequence, len(rows), cores))
    return rows


def all_rows(lengths: Mapping[str, Sequence[int]], rules: Rules) -> list[list[Row]]:
    """Rows of every sequence, in the source's order."""
    count = len(lengths[rules.keys[0].name])
    return [rows_of(i, {name: int(frames[i]) for name, frames in lengths.items()}, rules) for i in range(count)]


def frames_of(core: Core, key: KeyRule) -> int:
    """Frames of a row, context included; none around nothing."""
    return core.stop - core.start + key.left_frames + key.right_frames if core.stop > core.start else 0


def bytes_of(row: Row, rules: Rules) -> int:
    """Stored bytes of a row, without padding to its batch."""
    return rules.row_bytes + sum(frames_of(row.cores[key.name], key) * key.frame_bytes for key in rules.keys)


def content(values: np.ndarray, core: Core, key: KeyRule) -> np.ndarray:
    """What a row holds, cut out of the sequence padded as a whole; [frames, …]."""
    if core.stop == core.start:
        return values[:0]
    return padded(values, key)[core.start : core.stop + key.left_frames + key.right_frames]


def padded(values: np.ndarray, key: KeyRule) -> np.ndarray:
    """A whole sequence with its padding on both sides."""
    left, right = np.zeros_like(values[:1]), np.zeros_like(values[:1])
    if key.pad == "edge":
        left, right = values[:1], values[-1:]
    return np.concatenate([*[left] * key.left_frames, values, *[right] * key.right_frames])


def batches(rows: Sequence[Sequence[int]], limits: Sequence[int | None], most_rows: int | None) -> list[int]:
    """Puts rows into batches one by one; gives the rows in each.

    Args:
        rows: for each row, its frames per key.
        limits: per key.
        most_rows: of a batch.
    """
    done: list[int] = []
    batch: list[Sequence[int]] = []
    for row in rows:
        grown = [*batch, row]
        too_long = any(
            limit is not None and limit < len(grown) * max(frames)
            for limit, frames in zip(limits, zip(*grown, strict=True), strict=True)
        )
        if batch and (too_long or (most_rows is not None and len(grown) > most_rows)):
            done.append(len(batch))
            grown = [row]
        batch = grown
    return [*done, len(batch)] if batch else done


class OpenBatch:
    """A batch that is being filled; `longest` per key."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.longest: list[int] = []

    def grown(self, frames: Sequence[int]) -> list[int]:
        return [max(pair) for pair in zip(self.longest, frames, strict=True)] if self.rows else list(frames)

    def takes(self, frames: Sequence[int], limits: Sequence[int | None], most_rows: int | None) -> bool:
        count = len(self.rows) + 1
        if most_rows is not None and count > most_rows:
            return False
        pairs = zip(limits, self.grown(frames), strict=True)
        return not any(limit is not None and limit < count * longest for limit, longest in pairs)


def class_batches(
    rows: Sequence[Sequence[int]],
    classes: Sequence[int],
    limits: Sequence[int | None],
    most_rows: int | None,
    *,
    drop_last: bool = False,
    pad_rows: bool = False,
) -> tuple[list[list[int | None]], list[int]]:
    """Puts rows into batches of their class one by one, as they come; gives the batches, and the rows left out.

    Args:
        rows: for each row, its frames per key.
        classes: of each row.
        limits: per key.
        most_rows: of a batch.
        drop_last: leave out the last batches that aren't full.
        pad_rows: fill them with None.
    """
    done: list[list[int | None]] = []
    dropped: list[int] = []
    open_batches: dict[int, OpenBatch] = {}
    for number, (frames, of) in enumerate(zip(rows, classes, strict=True)):
        batch = open_batches.setdefault(of, OpenBatch())
        if batch.rows and not batch.takes(frames, limits, most_rows):
            done.append(list(batch.rows))
            batch = open_batches[of] = OpenBatch()
        batch.longest = batch.grown(frames)
        batch.rows.append(number)
    for of in sorted(open_batches):
        batch = open_batches[of]
        empty = [0] * len(limits)
        bounded = most_rows is not None or any(
            limit is not None and longest for limit, longest in zip(limits, batch.longest, strict=True)
        )
        full = not bounded or not batch.takes(empty, limits, most_rows)
        if drop_last and not full:
            dropped += batch.rows
            continue
        filled: list[int | None] = list(batch.rows)
        while pad_rows and bounded and batch.takes(empty, limits, most_rows):
            batch.rows.append(-1)
            filled.append(None)
        done.append(filled)
    return done, dropped


def least_masses(lengths: Sequence[int], classes: int) -> list[int]:
    """Padded masses (rows · longest) of at most so many length classes, the largest first: of all choices the one whose
    largest is smallest, of these the one whose second is, …."""
    heights = sorted(set(lengths))
    found = []
    for cuts in itertools.product([False, True], repeat=len(heights) - 1):
        if sum(cuts) >= classes:
            continue
        groups: list[list[int]] = [[heights[0]]]
        for height, cut in zip(heights[1:], cuts, strict=True):
            groups.append([height]) if cut else groups[-1].append(height)
        found.append(sorted((sum(length in group for length in lengths) * group[-1] for group in groups), reverse=True))
    return min(found)


def packed(sizes: Sequence[int], row_frames: int, open_rows: int = 64) -> list[list[int]]:
    """Lays segments into rows: the fullest open row that has room, else a new one in place of the fullest.

    Of equally full rows the one whose place was taken up at the lowest number wins.
    """
    rows: list[list[int]] = []
    places: list[int | None] = [None] * open_rows  # rows that are open

    def free(place: int) -> int:
        row = places[place]
        return -1 if row is None else row_frames - sum(sizes[number] for number in rows[row])

    for number, size in enumerate(sizes):
        roomy = [place for place in range(open_rows) if places[place] is not None and free(place) >= size]
        if roomy:
            rows[places[min(roomy, key=free)]].append(number)
            continue
        if size < row_frames:
            places[min(range(open_rows), key=free)] = len(rows)
        rows.append([number])
    return rows


def laplace(drawn: Sequence[int], lengths: Sequence[int], groups: int) -> list[int]:
    """Cuts a drawn order into groups, each sorted, up and down in turn."""
    order: list[int] = []
    for group in range(groups):
        part = drawn[group * len(drawn) // groups : (group + 1) * len(drawn) // groups]
        sign = -1 if group % 2 else 1
        order += sorted(part, key=lambda place: sign * lengths[place])
    return order


def shards(rows: Sequence[Sequence[Row]], order: Sequence[int], rules: Rules) -> list[list[Row]]:
    """Lays rows of ordered sequences into shards; rows of a shard are in the order of their sequences."""
    done: list[list[Row]] = []
    shard: list[Row] = []

    def close() -> None:
        nonlocal shard
        if shard:
            done.append(shard)
        shard = []

    def size(some: Sequence[Row]) -> int:
        return sum(bytes_of(row, rules) for row in some)

    for place in order:
        sequence = list(rows[place])
        if size(shard + sequence) > rules.shard_bytes and sequence:
            close()
        if size(sequence) <= rules.shard_bytes:
            shard += sequence
            continue
        for row in sequence:
            if size([*shard, row]) > rules.shard_bytes:
                close()
            shard.append(row)
    close()
    return done


@dataclass(frozen=True)
class Case:
    """Rules, and lengths that go with them."""

    rules: Rules
    lengths: dict[str, np.ndarray]


@st.composite
def key_rules(draw: Any, name: str, rate: int, chunk: tuple[int, int, int] | None, contexts: bool) -> KeyRule:
    """One key; sizes are given in frames of the input key, and divide by the rate."""
    around = st.one_of(st.just(0), st.integers(0, 9)) if contexts else st.just(0)
    return KeyRule(
        name=name,
        rate=rate,
        align=draw(st.sampled_from(["ceil", "floor", "exact"])) if rate > 1 else "ceil",
        chunk=None
        if chunk is None
        else ChunkRule(size_frames=chunk[0] // rate, step_frames=chunk[1] // rate, min_size_frames=chunk[2] // rate),
        left_frames=draw(around),
        right_frames=draw(around),
        pad=draw(st.sampled_from(["zero", "edge"])),
        max_frames=draw(st.none() | st.integers(1, 120)),
        frame_bytes=draw(st.integers(1, 12)),
    )


@st.composite
def cases(
    draw: Any,
    *,
    whole: bool | None = None,
    tiling: bool = False,
    contexts: bool = True,
    most_frames: int = 60,
    order: str | None = None,
) -> Case:
    """Random rules with one to three keys, and lengths of a few sequences that go with them.

    Args:
        whole: whole sequences or not; None draws it.
        tiling: step = size and min_size = 0.
        contexts: whether there may be context.
        most_frames: of a sequence.
        order: "source" or "random"; None draws it.
    """
    rates = [1, *draw(st.lists(st.sampled_from([1, 2, 3, 4]), max_size=2))]
    grid = lcm(*rates)
    if draw(st.booleans()) if whole is None else whole:
        chunk = None
    else:
        size = grid * draw(st.integers(1, 12))
        chunk = (size, size, 0) if tiling else (size, grid * draw(st.integers(1, 12)), grid * draw(st.integers(0, 3)))
    names = ["data", "classes", "align"]
    keys = tuple(draw(key_rules(names[i], rate, chunk, contexts)) for i, rate in enumerate(rates))
    exact = lcm(*(key.rate for key in keys if key.align == "exact"))
    inputs = [exact * n for n in draw(st.lists(st.integers(0, most_frames // exact), min_size=1, max_size=9))]
    lengths = {key.name: np.array([expected_length(n, key.rate, key.align) for n in inputs], np.int64) for key in keys}
    rules = Rules(
        keys=keys,
        row_bytes=draw(st.sampled_from([0, 0, 8])),
        max_sequences=draw(st.none() | st.integers(1, 12)),
        order=order or draw(st.sampled_from(["source", "random"])),
        seed=draw(st.integers(0, 2**64 - 1)),
        shard_bytes=draw(st.integers(1, 2000)),
    )
    return Case(rules, lengths)


def has_rows(case: Case) -> bool:
    """Whether there is anything to plan."""
    return any(all_rows(case.lengths, case.rules))
