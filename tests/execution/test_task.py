"""Rows that no batch can hold are refused before anything is written, and the message names what makes them long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from seqprep.errors import ConfigError
from seqprep.execution.task import shard_table, tags_of_rows
from seqprep.planning import ChunkRule, KeyRule, Rules, make_plan
from seqprep.types import KeySpec, Tags

MOST = (1 << 31) - 1


def table_of(rule: KeyRule, length: int) -> object:
    task = make_plan({"data": np.array([length])}, Rules(keys=(rule,))).task(0)
    return shard_table(task.plan(), task, {"data": KeySpec(dtype="uint8")}, tags_of_rows(task.plan(), Tags.of(["a"])))


def test_the_longest_rows_fit() -> None:
    assert table_of(KeyRule(name="data"), MOST) is not None
    assert table_of(KeyRule(name="data", left_frames=7), MOST - 7) is not None


def test_longer_chunks_are_refused() -> None:
    message = (
        rf"^a row of key 'data' has {MOST + 1} frames, more than a row can have \({MOST}\); set a smaller chunk\.size$"
    )
    with pytest.raises(ConfigError, match=message):
        table_of(KeyRule(name="data"), MOST + 1)


def test_longer_context_is_refused() -> None:
    rule = KeyRule(name="data", chunk=ChunkRule(size_frames=10, step_frames=10), left_frames=MOST - 5)
    with pytest.raises(
        ConfigError, match=r"has \d+ frames, more than a row can have \(\d+\); set a smaller context\.left or right$"
    ):
        table_of(rule, 10)
    assert table_of(replace(rule, left_frames=MOST - 10), 10) is not None
