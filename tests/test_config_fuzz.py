"""Whatever is written in whatever setting: it is taken, or refused with its name; and what is taken can be planned."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from seqprep.config import Config, Options, load_config
from seqprep.errors import ConfigError
from seqprep.planning import SelectRule, SplitRule, align_lengths, count_chunks, plan_parts, resolve, select
from seqprep.types import KeySpec, Tags

SPECS = {
    "data": KeySpec(dtype="float32", shape=(4,)),
    "classes": KeySpec(dtype="int32"),
    "speaker": KeySpec(dtype="float32", shape=(8,), has_time=False),
}
LENGTHS = {"data": np.arange(12) * 5, "classes": np.arange(12) * 5}
TAGS = Tags.of(f"größe {number}" for number in range(12))
BASE: dict[str, Any] = {
    "source": {"type": "hdf5", "path": "corpus.hdf"},
    "keys": {"data": {}, "classes": {}},
    "chunk": {"size": 12, "step": 6},
    "context": {"left": 2, "right": 2},
    "batch": {"max_frames": 500, "max_sequences": 9},
    "order": {"by": "random", "seed": 1},
    "output": {"path": "out"},
}
FORMS = [
    "chunk.size.data", "chunk.step.data", "chunk.min_size.data", "context.data.left", "context.data.pad",
    "context.pad.constant", "batch.max_frames.data", "batch.pad_to.data", "split.train", "split.by",
]  # fmt: skip
HUGE = [2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63), -(2**63) - 1]
NUMBERS: list[Any] = [*HUGE, 0, 1, -1, 7, 1.5, -0.0, 1e308, float("nan"), float("inf"), -float("inf"), True, False]
OTHERS: list[Any] = [
    None, "", "x", "größe", "語\0", "\ud800", [], {}, [1], ["größe"], [None], [[1]], {"a": 1}, {"": 1}, {1: 2}, {None: 1},
    {"größe": {}}, b"x", (1, 2), {1, 2}, np.int64(5), np.float64(0.5), np.float32(2.5), Fraction(1, 2),
]  # fmt: skip
TEXTS = [
    "1s", "0s", "-1s", "999999999999999h", "9999999999999999h", "0.000000000000001us", "9" * 40 + "s", "²", "٣", "٣s", "٣/٤",
    "inf", "nan", "1e400", "-5", "9" * 5000, "9" * 5000 + "/1", "1/1", "1/99999999999999999999", "9" * 5000 + "/" + "9" * 5001,
    "auto:9223372036854775807", "auto:99999999999999999999", "auto:²", "boundaries:9223372036854775807",
    "boundaries:1,99999999999999999999", "laplace:9223372036854775808", "laplace:.9223372036854775808",
    "laplace:" + "9" * 5000, "laplace:999999999999999", "laplace:٣", "9" * 40 + "GB", "1e9GB", "0.1B", "٣MB",
    "(", "(a", "a{99999999999}", "(?P<a>x)\\2", "*", "\\",
]  # fmt: skip


def names_of(model: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all settings, sections among them; a section of one's own names is taken for `data`."""
    for name, field in model.model_fields.items():
        path = (*above, name)
        yield path
        inner = field.annotation
        for candidate in (inner, *getattr(inner, "__args__", ())):
            if isinstance(candidate, type) and issubclass(candidate, Options):
                is_named = getattr(inner, "__origin__", None) is dict
                if is_named:
                    yield (*path, "data")
                yield from names_of(candidate, (*path, "data") if is_named else path)


SETTINGS = sorted({*map(".".join, names_of(Config)), *FORMS} - {"split.parts"})


def test_all_settings_are_tried() -> None:
    known = {
        "chunk.tail",
        "keys.data.normalize.by",
        "batch.bucket.boundaries",
        "order.scope",
        "select.tags_file",
        "epochs",
    }
    assert set(SETTINGS) > known
    assert len(SETTINGS) > 50


def written(setting: str, value: Any) -> dict[str, Any] | None:
    """A configuration with one setting changed; None where what is above it is no section."""
    settings = copy.deepcopy(BASE)
    path = setting.split(".")
    if path[0] == "split":
        settings["output"]["path"] = "out/{split}"
    if setting == "split.by":
        settings["split"] = {"train": 0.9}
    if setting == "batch.row_frames":
        settings["batch"]["pack"] = True
    if path[:2] == ["context", "data"]:
        settings["context"] = {}
    section: Any = settings
    for part in path[:-1]:
        if not isinstance(section.get(part), dict):
            section[part] = {}
        section = section[part]
    section[path[-1]] = value
    return settings


def planned(settings: dict[str, Any]) -> None:
    """Goes as far as one can without a source: to the rows and batches of a few shards."""
    config = load_config(settings)
    rules, _ = resolve(config, SPECS, {"data": Fraction(100)})
    lengths = align_lengths(LENGTHS, rules, TAGS).lengths
    selected = select(lengths["data"], count_chunks(lengths, rules), TAGS, SelectRule.of(config, None))
    for part in plan_parts(lengths, TAGS, selected, rules, SplitRule.of(config)).values():
        for number in range(min(len(part), 3)):
            shard = part.shard(number)
            for key, rows in shard.keys.items():
                assert (rows.frames >= 0).all()
                assert (rows.start >= 0).all()
                assert (shard.batch_frames(key) >= 0).all()
    assert (
        load_config({**settings, **config.model_dump(exclude={"split", "source"})}).fingerprint()
        == config.fingerprint()
    )


@pytest.mark.parametrize("setting", SETTINGS)
def test_any_value_is_taken_or_refused_with_the_settings_name(setting: str) -> None:
    for value in (*NUMBERS, *OTHERS, *TEXTS):
        settings = written(setting, value)
        try:
            planned(settings)
        except ConfigError as error:
            message = str(error)
            about_all = "gives a row" in message or "select leaves none" in message
            above = setting.rpartition(".")[0]
            assert setting in message or ("." in above and above in message) or about_all, (value, message)
            assert "Exceeds the limit" not in message
            assert not re.search(r"Config\b|Options\b|pydantic|Traceback", message), message
