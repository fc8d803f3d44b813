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

from seqprep.hashing import key_of, mix_int
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


def expected_length(frames: int, rate: int | None, align: str) -> int | None:
    """Frames of a key whose input has so many; None if there is no right answer."""
    if align == "exact" and frames % rate:
        return None
    found = 0
    while (found + 1) * rate <= frames:
        found += 1
    return found + 1 if align == "ceil" and found * rate < frames else found


def jitter_offset(place: int, rules: Rules, epoch: int) -> int:
    """By how much a sequence's grid moves, in plain integers."""
    grid = lcm(*(key.rate for key in rules.keys if key.rate))
    draw = mix_int(mix_int(place) ^ key_of(rules.seed, epoch, 20))
    return grid * (draw % (rules.keys[0].chunk.step_frames // grid))


def rows_of(sequence: int, lengths: Mapping[str, int], rules: Rules, epoch: int = 0) -> list[Row]:
    """All rows of one sequence."""
    if rules.keys[0].chunk is None:
        return [Row(sequence, 0, {key.name: Core(0, lengths[key.name]) for key in rules.keys})]
    offset = jitter_offset(sequence, rules, epoch) if rules.jitter else 0
    cores = chunks_of(lengths, rules, offset) or chunks_of(lengths, rules, 0)
    return [Row(sequence, number, cores) for number, cores in enumerate(cores)]


def chunks_of(lengths: Mapping[str, int], rules: Rules, offset: int) -> list[dict[str, Core]]:
    """The chunks of one sequence whose grid is moved by `offset`: walked from start to start, then filtered."""
    walked = walk(lengths, rules, offset)
    if rules.stop_when_covered:
        walked = [chunk for i, chunk in enumerate(walked) if not (i and lies_inside(chunk, walked[i - 1]))]
    if rules.tail == "drop":
        walked = [chunk for chunk in walked if is_full(chunk, rules)]
    elif rules.tail == "shift" and walked:
        walked = shift(walked, lengths, rules)
    return [chunk for chunk in walked if all(has_real_context(chunk[key.name], lengths, key) for key in rules.keys)]


def walk(lengths: Mapping[str, int], rules: Rules, offset: int) -> list[dict[str, Core]]:
    main = rules.keys[0]
    start = offset
    if offset and all((offset - main.chunk.step_frames) // key.rate + key.chunk.size_frames > 0 for key in rules.keys):
        start = offset - main.chunk.step_frames
    found: list[dict[str, Core]] = []
    while max(start, 0) < lengths[main.name]:
        own = {key.name: start // key.rate for key in rules.keys}
        is_first = not found and start <= 0
        if not is_first and any(lengths[k.name] - own[k.name] <= k.chunk.min_size_frames for k in rules.keys):
            break
        found.append(
            {
                key.name: Core(max(own[key.name], 0), min(own[key.name] + key.chunk.size_frames, lengths[key.name]))
                for key in rules.keys
            }
        )
        start += main.chunk.step_frames
    return found


def lies_inside(chunk: Mapping[str, Core], other: Mapping[str, Core]) -> bool:
    return all(other[name].start <= core.start and core.stop <= other[name].stop for name, core in chunk.items())


def is_full(chunk: Mapping[str, Core], rules: Rules) -> bool:
    return all(chunk[key.name].stop - chunk[key.name].start == key.chunk.size_frames for key in rules.keys)


def shift(walked: Sequence[dict[str, Core]], lengths: Mapping[str, int], rules: Rules) -> list[dict[str, Core]]:
    """Short chunks moved inwards: the first one to 0, the last ones together as far to the end as they are full."""

    def at(start: int) -> dict[str, Core]:
        return {
            key.name: Core(start // key.rate, min(start // key.rate + key.chunk.size_frames, lengths[key.name]))
            for key in rules.keys
        }

    if not is_full(at(0), rules):
        return [at(0)]
    main = rules.keys[0].name
    full = [chunk for chunk in walked if is_full(chunk, rules)]
    if not is_full(walked[0], rules) and walked[0][main].start == 0:
        full.insert(0, at(0))
    if len(full) < len(walked):
        grid = lcm(*(key.rate for key in rules.keys))
        latest = 0
        while is_full(at(latest + grid), rules):
            latest += grid
        if latest not in [chunk[main].start for chunk in full]:
            full.append(at(latest))
    return full


def has_real_context(core: Core, lengths: Mapping[str, int], key: KeyRule) -> bool:
    inside = core.start >= key.left_frames and core.stop + key.right_frames <= lengths[key.name]
    return inside or key.pad != "drop"


def all_rows(lengths: Mapping[str, Sequence[int]], rules: Rules, epoch: int = 0) -> list[list[Row]]:
    """Rows of every sequence, in the source's order."""
    count = len(lengths[rules.keys[0].name])
    return [rows_of(i, {name: int(frames[i]) for name, frames in lengths.items()}, rules, epoch) for i in range(count)]


def context_of(core: Core, length: int, key: KeyRule) -> tuple[int, int]:
    """Frames in front of a core and behind it; none around nothing."""
    if core.stop == core.start:
        return 0, 0
    if key.pad == "clip":
        return min(key.left_frames, core.start), min(key.right_frames, length - core.stop)
    left, right = key.left_frames, key.right_frames
    if core.start == 0 and key.left_initial_frames is not None:
        left = key.left_initial_frames
    if core.stop == length and key.right_final_frames is not None:
        right = key.right_final_frames
    return left, right


def frames_of(core: Core, length: int, key: KeyRule) -> int:
    """Frames of a row, context included."""
    return core.stop - core.start + sum(context_of(core, length, key))


def bytes_of(row: Row, lengths: Mapping[str, Sequence[int]], rules: Rules) -> int:
    """Stored bytes of a row, without padding to its batch."""
    frames = [
        frames_of(row.cores[key.name], int(lengths[key.name][row.sequence]), key) * key.frame_bytes
        for key in rules.keys
    ]
    return rules.row_bytes + sum(frames)


def content(values: np.ndarray, core: Core, key: KeyRule) -> np.ndarray:
    """What a row holds, cut out of the sequence padded as a whole; [frames, …]."""
    if core.stop == core.start:
        return values[:0]
    left, right = context_of(core, len(values), key)
    return padded(values, key, left, right)[core.start : core.stop + left + right]


def padded(values: np.ndarray, key: KeyRule, left: int, right: int) -> np.ndarray:
    """A whole sequence with its padding on both sides, as numpy pads it."""
    if key.pad in ("clip", "drop"):  # whatever is cut out is inside
        return np.concatenate([np.full((left, *values.shape[1:]), np.nan), values])
    around = [(left, right), *[(0, 0)] * (values.ndim - 1)]
    if key.pad == "edge":
        return np.pad(values, around, mode="edge")
    if key.pad != "reflect":
        return np.pad(values, around, constant_values=key.pad_constant if key.pad == "constant" else 0)
    most = max(len(values) - 1, 1)
    while left or right:  # never by more at once than there is to mirror
        now = min(left, most), min(right, most)
        values = np.pad(values, [now, *around[1:]], mode="reflect")
        left, right = left - now[0], right - now[1]
    return values


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


def shards(
    rows: Sequence[Sequence[Row]], order: Sequence[int], lengths: Mapping[str, Sequence[int]], rules: Rules
) -> list[list[Row]]:
    """Lays rows of ordered sequences into shards; rows of a shard are in the order of their sequences."""
    done: list[list[Row]] = []
    shard: list[Row] = []

    def close() -> None:
        nonlocal shard
        if shard:
            done.append(shard)
        shard = []

    def size(some: Sequence[Row]) -> int:
        return sum(bytes_of(row, lengths, rules) for row in some)

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
    epoch: int = 0


@st.composite
def key_rules(
    draw: Any, name: str, rate: int | None, chunk: ChunkRule | None, contexts: bool, pads: Sequence[str]
) -> KeyRule:
    """One key with random context and budget."""
    around = st.one_of(st.just(0), st.integers(0, 9)) if contexts else st.just(0)
    pad = draw(st.sampled_from(pads))
    ends = st.none() | around if pad not in ("clip", "drop") and chunk is not None else st.none()
    return KeyRule(
        name=name,
        rate=rate,
        align=draw(st.sampled_from(["ceil", "floor", "exact"])) if rate and rate > 1 else "ceil",
        chunk=chunk,
        left_frames=draw(around),
        right_frames=draw(around),
        left_initial_frames=draw(ends),
        right_final_frames=draw(ends),
        pad=pad,
        pad_constant=3.0 if pad == "constant" else 0.0,
        max_frames=draw(st.none() | st.integers(1, 120)),
        frame_bytes=draw(st.integers(1, 12)),
    )


FILLING = ("zero", "edge", "reflect", "constant")
"""Ways to pad that give every row its full context."""


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
        tiling: step = size, min_size = 0, and no chunk is left out.
        contexts: whether there may be context.
        most_frames: of a sequence.
        order: "source" or "random"; None draws it.
    """
    whole = draw(st.booleans()) if whole is None else whole
    others = draw(st.lists(st.sampled_from([1, 2, 3, 4, None] if whole else [1, 2, 3, 4]), max_size=2))
    rates = [1, *others]
    grid = lcm(*(rate for rate in rates if rate))
    step = grid * draw(st.integers(1, 12))
    size, least = (step, 0) if tiling else (grid * draw(st.integers(1, 12)), grid * draw(st.integers(0, 3)))
    outright = not tiling and draw(st.integers(0, 3)) == 0
    pads = FILLING if whole or tiling else (*FILLING, "clip", "drop")
    keys = []
    for name, rate in zip(["data", "classes", "align"], rates, strict=False):
        chunk = None
        if not whole:
            own = draw(st.integers(1, 12)) if outright else size // rate
            chunk = ChunkRule(size_frames=own, step_frames=step // rate, min_size_frames=least // rate)
        keys.append(draw(key_rules(name, rate, chunk, contexts, pads)))
    exact = lcm(*(key.rate for key in keys if key.rate and key.align == "exact"))
    inputs = [exact * n for n in draw(st.lists(st.integers(0, most_frames // exact), min_size=1, max_size=9))]
    own_times = st.lists(st.integers(0, most_frames), min_size=len(inputs), max_size=len(inputs))
    lengths = {
        key.name: np.array(
            [expected_length(n, key.rate, key.align) for n in inputs] if key.rate else draw(own_times), np.int64
        )
        for key in keys
    }
    rules = Rules(
        keys=tuple(keys),
        tail="keep" if whole or tiling else draw(st.sampled_from(["keep", "drop", "shift"])),
        stop_when_covered=not whole and draw(st.booleans()),
        jitter=not whole and draw(st.booleans()),
        row_bytes=draw(st.sampled_from([0, 0, 8])),
        max_sequences=draw(st.none() | st.integers(1, 12)),
        order=order or draw(st.sampled_from(["source", "random"])),
        seed=draw(st.integers(0, 2**64 - 1)),
        shard_bytes=draw(st.integers(1, 2000)),
    )
    return Case(rules, lengths, draw(st.integers(0, 3)))


def has_rows(case: Case) -> bool:
    """Whether there is anything to plan, in this pass and in the first few: a jitter can leave nothing with real context."""
    epochs = {case.epoch, *range(4)} if case.rules.jitter else {case.epoch}
    return all(any(all_rows(case.lengths, case.rules, epoch)) for epoch in epochs)
