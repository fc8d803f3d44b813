"""Every reader is held against the contract of sources."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from seqprep.sources.registry import BUILT_IN

from .source_contract import SourceContract
from .test_many_files import WRITERS

CONTRACTS = [
    found
    for path in sorted(Path(__file__).parent.glob("test_*.py"))
    if path != Path(__file__)
    for name, found in vars(importlib.import_module(f"{__package__}.{path.stem}")).items()
    if name.startswith("Test") and isinstance(found, type) and issubclass(found, SourceContract)
]


def inherited(found: type) -> set[str]:
    """What a class has beyond the contract."""
    return {name for base in found.__mro__ if base not in (SourceContract, object) for name in vars(base)}


def readers_with(fixture: str) -> set[str | None]:
    """Readers of which a class gives a fixture of its own."""
    return {found.reader for found in CONTRACTS if fixture in inherited(found)}


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_contract_for_each_reader(name: str) -> None:
    assert name in readers_with("source")
    if name != "synthetic":  # it makes its tags, and has no files
        assert name in readers_with("names") & readers_with("twice")
        assert name in readers_with("many") | {kind for kind, _ in WRITERS.values()}


def test_lengths_stand_apart_in_most_formats() -> None:
    having = {found.reader for found in CONTRACTS if getattr(found, "has_lengths", "large" in inherited(found))}
    assert having - {None} == {*BUILT_IN} - {"csv", "jsonl", "tfrecord", "synthetic"}


def test_no_test_of_the_contract_is_left_out() -> None:
    for found in CONTRACTS:
        for name in vars(SourceContract):
            assert not name.startswith("test_") or callable(getattr(found, name)), found
