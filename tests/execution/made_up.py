"""Sequences in memory with random settings for them, and the rows that `seqprep.chunk` and the loader make of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import seqprep
from seqprep.errors import ConfigError
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags

from .small import QUICK

PAD_VALUES = {"data": -7.5, "classes": -3, "more": -4, "text": 250}


class MadeUp:
    """A source that holds its sequences.

    Args:
        values: for each key, an array for each sequence.
    """

    def __init__(self, values: Mapping[str, list[Array]]) -> None:
        self.values = values
        self.keys = {name: KeySpec(dtype=some[0].dtype.name, shape=some[0].shape[1:]) for name, some in values.items()}
        self.tags = Tags.of(f"größe {number}" for number in range(len(values["data"])))

    def lengths(self, key: str) -> Int64:
        return np.array([len(values) for values in self.values[key]], np.int64)

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        found = self.values[key][sequence][slice(*frames)] if frames else self.values[key][sequence]
        if out is None:
            return found
        out[...] = found
        return out

    def fingerprint(self) -> Mapping[str, str]:
        return {"all": "the same"}

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class KeySetting:
    """What the settings say of one key, in its own frames."""

    rate: int | None
    align: str
    size: int | None
    step: int | None
    min_size: int
    context: Mapping[str, Any]
    max_frames: int | None


@dataclass(frozen=True)
class Case:
    """Sequences, and settings that go with them."""

    values: Mapping[str, list[Array]]
    keys: Mapping[str, KeySetting]
    settings: Mapping[str, Any]

    def lengths(self, sequence: int) -> dict[str, int]:
        return {name: len(some[sequence]) for name, some in self.values.items()}

    def changed(self, **sections: Any) -> Case:
        """With some settings replaced; mappings are laid over those that are there."""
        settings = dict(self.settings)
        for name, value in sections.items():
            both = isinstance(value, Mapping) and isinstance(settings.get(name), Mapping)
            settings[name] = {**settings[name], **value} if both else value
        return Case(self.values, self.keys, settings)


@dataclass(frozen=True)
class Row:
    """What a loader gives of one row (or segment) in one key."""

    start: int
    begin: int
    """Where the core begins in the row."""
    core: int
    length: int
    values: Array
    """Its valid frames."""


@dataclass(frozen=True)
class Made:
    """A dataset as the loader gives it."""

    summary: seqprep.Summary
    batches: list[Mapping[str, Any]]
    shards: list[int]
    """Batches of each shard."""

    def rows(self) -> Iterator[tuple[int, dict[str, Row]]]:
        """Every row that holds something, batch by batch: its sequence, and what it is in each key."""
        for batch in self.batches:
            keys = [name.removesuffix("/size0") for name in batch if name.endswith("/size0")]
            unpacked = {key: seqprep.unpack(batch, key) for key in keys}
            for place, sequence in enumerate(batch["seq_idx"].tolist()):
                fields = {
                    key: Row(
                        int(batch[f"{key}/start"][place]),
                        *batch[f"{key}/core"][place].tolist(),
                        int(batch[f"{key}/length"][place]),
                        unpacked[key][place],
                    )
                    for key in keys
                }
                if sequence >= 0:
                    assert batch["seq_tag"][place] == f"größe {sequence}"
                    yield sequence, fields
                else:
                    assert all(not len(row.values) and not row.core for row in fields.values())

    def contents(self) -> list[tuple[int, dict[str, tuple[int, bytes]]]]:
        """Rows, in a form that sorts: sequence, and start and bytes of each key."""
        return sorted(
            ((sequence, {key: (row.start, row.values.tobytes()) for key, row in rows.items()})
             for sequence, rows in self.rows()),
            key=repr,
        )  # fmt: skip


@contextmanager
def made(case: Case) -> Iterator[Made]:
    """Writes a case's dataset and loads it; its arrays are views that live as long as this."""
    source = MadeUp(case.values)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqprep.execution.run.open_source", lambda *_: source)
        settings = {**case.settings, "output": {**case.settings["output"], "path": str(Path(folder) / "out")}}
        summary = seqprep.chunk(settings, storage=QUICK)
        with seqprep.Loader(summary.path, rank=0, world_size=1, threads=1) as loader:
            batches = [loader.batch(number) for number in range(summary.batches)]
            index = seqprep.shards.Dataset(summary.path).index
            yield Made(summary, batches, [shard.batches for shard in index.shards])


def made_if_any(case: Case) -> Made | None:
    """As `made`, with arrays of its own; None where the settings leave no row or no batch, which is an error."""
    try:
        with made(case) as found:
            return Made(found.summary, [dict(batch) for batch in found.batches], found.shards)
    except ConfigError as error:
        if not any(told in str(error) for told in ("gives a row", "leaves no batch", "so this part is empty")):
            raise
        return None


def wavelike(position: int, length: int) -> int:
    """The place that stands at a position outside a sequence which is mirrored at its first and last frame."""
    there_and_back = [*range(length), *range(length - 2, 0, -1)]
    return there_and_back[position % len(there_and_back)]


def _values(draw: Any, lengths: list[int], dtype: str, shape: tuple[int, ...], whole_numbers: bool) -> list[Array]:
    random = np.random.default_rng(draw(st.integers(0, 99)))
    if whole_numbers:
        return [random.integers(-50, 50, (n, *shape)).astype(dtype) for n in lengths]
    bits = [random.integers(0, 256, (n, *shape, np.dtype(dtype).itemsize), np.uint8) for n in lengths]  # NaNs, too
    return [some.view(dtype).reshape(n, *shape) for n, some in zip(lengths, bits, strict=True)]


FILLING = ("zero", "edge", "reflect", {"constant": 5})


def _context(draw: Any, pads: tuple[Any, ...], at_the_ends: bool, step: int) -> dict[str, Any]:
    around = st.sampled_from([0, 1, 2, 3, 7, 50, step, 2 * step])
    context = {"left": draw(around), "right": draw(around), "pad": draw(st.sampled_from(pads))}
    if at_the_ends and context["pad"] not in ("clip", "drop"):
        context |= {name: draw(around) for name in ("left_initial", "right_final") if draw(st.booleans())}
    return context


@st.composite
def cases(
    draw: Any,
    *,
    whole: bool | None = None,
    tiling: bool = False,
    covering: bool = False,
    jitter: bool | None = None,
    align: tuple[str, ...] = ("ceil", "floor", "exact"),
    pads: tuple[Any, ...] = (*FILLING, "clip", "drop"),
    at_the_ends: bool = True,
    whole_numbers: bool = False,
    layouts: bool = True,
) -> Case:
    """Random sequences of one to three keys, with settings for them.

    Args:
        whole: whole sequences, or chunks; None draws it.
        tiling: step = size, min_size 0, tail keep.
        covering: step ≤ size, min_size 0, tail keep.
        jitter: None draws it.
        align: of keys with a rate.
        pads: ways to pad context.
        at_the_ends: whether there may be other context at a sequence's ends.
        whole_numbers: small ones, in place of any bits.
        layouts: whether there may be length classes, packed rows, and rows to fill or to leave out.
    """
    whole = draw(st.booleans()) if whole is None else whole
    rates: dict[str, int | None] = {"data": 1}
    for name in ("classes", "more"):
        if draw(st.booleans()):
            rates[name] = draw(st.sampled_from([1, 2, 3, 4]))
    if whole and draw(st.booleans()):
        rates["text"] = None
    aligns = {name: draw(st.sampled_from(align)) if rate and rate > 1 else "ceil" for name, rate in rates.items()}
    grid = lcm(*(rate for rate in rates.values() if rate))
    exact = lcm(*(rate for name, rate in rates.items() if rate and aligns[name] == "exact"))
    step = grid * draw(st.integers(1, 5))
    size = step if tiling else step + grid * draw(st.integers(0, 4)) if covering else grid * draw(st.integers(1, 6))
    least = 0 if tiling or covering else grid * draw(st.integers(0, 2))
    near = [0, 1, max(least - 1, 0), least, least + 1, size - 1, size, size + 1, 3 * step, 4 * step]
    inputs = draw(st.lists(st.sampled_from(near) | st.integers(0, 40), min_size=1, max_size=6))
    inputs = [frames - frames % exact for frames in inputs]
    own = {name: [{"ceil": -(-n // rate), "floor": n // rate, "exact": n // rate}[aligns[name]] for n in inputs]
           for name, rate in rates.items() if rate}  # fmt: skip
    if "text" in rates:
        own["text"] = [draw(st.integers(0, 30)) for _ in inputs]
    kinds = {"data": ("float32", (2,)), "classes": ("int32", ()), "more": ("int16", (3,)), "text": ("uint8", ())}
    values = {name: _values(draw, frames, *kinds[name], whole_numbers) for name, frames in own.items()}
    pads = tuple(pad for pad in pads if not whole or pad not in ("clip", "drop"))
    contexts = {
        name: _context(draw, pads, at_the_ends and not whole, step // (rate or 1)) for name, rate in rates.items()
    }
    chunk = None
    if not whole:
        can_move = step > grid if jitter is None else jitter and step > grid
        chunk = {"size": size, "step": step, "min_size": least, "stop_when_covered": draw(st.booleans()),
                 "tail": "keep" if tiling or covering else draw(st.sampled_from(["keep", "drop", "shift"])),
                 "jitter": can_move and draw(st.booleans())}  # fmt: skip
    batch, budgets = _batch(draw, list(rates), grid, layouts)
    order = {"by": draw(st.sampled_from(["source", "random", "sorted"])), "seed": draw(st.integers(0, 99))}
    if order["by"] == "random":
        order["scope"] = draw(st.sampled_from(["sequence", "global"]))
    settings = {
        "source": {"type": "made up"},
        "keys": {name: {"rate": rates[name], "align": aligns[name], "pad_value": PAD_VALUES[name]} for name in rates},
        "chunk": chunk,
        "context": contexts,
        "batch": batch,
        "order": order,
        "output": {
            "format": draw(st.sampled_from(["tfrecord", "tfrecord", "hdf5"])),
            "shard_size": draw(st.sampled_from([10**6, 2000, 600, 1])),
        },
    }
    keys = {
        name: KeySetting(
            rate, aligns[name], *((None, None, 0) if whole or not rate else (size // rate, step // rate, least // rate)),
            contexts[name], budgets[name],
        )
        for name, rate in rates.items()
    }  # fmt: skip
    return Case(values, keys, settings)


def _batch(draw: Any, keys: list[str], grid: int, layouts: bool) -> tuple[dict[str, Any], dict[str, int | None]]:
    """Budgets, and how rows are laid out; the budget of each key comes apart, too."""
    limits = st.none() | st.integers(60, 400)
    budgets = {key: draw(limits) for key in keys}
    set_ones = {key: limit for key, limit in budgets.items() if limit is not None}
    batch: dict[str, Any] = {"max_frames": set_ones} if set_ones else {}
    if not set_ones or draw(st.booleans()):
        batch["max_sequences"] = draw(st.integers(1, 6))
    if not layouts:
        return batch, budgets
    how = draw(st.sampled_from(["", "", "sorted", "boundaries", "auto", "packed"]))
    if how == "packed":
        batch |= {"pack": True, "row_frames": grid * draw(st.integers(1, 60 // grid))}
    elif how:
        batch["bucket"] = {"sorted": "sorted", "boundaries": {"boundaries": [5, 20]}, "auto": {"auto": 2}}[how]
    pad_to = ["longest", 4 * grid, *(["bucket"] if how in ("boundaries", "auto") else [])]
    batch["pad_to"] = draw(st.sampled_from(pad_to))
    at_the_end = draw(st.sampled_from([None, "drop_last", "pad_rows"]))
    return batch | ({at_the_end: True} if at_the_end else {}), budgets
