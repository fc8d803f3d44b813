"""A stream gives what the shards of the same configuration hold, bit for bit, and refuses what they refuse."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seqprep
from seqprep import Loader, stream
from seqprep.errors import SeqprepError
from tests.execution.small import QUICK
from tests.runtime.resumable import Plain, plain

from .corpora import random_configuration, random_options, write_corpus

EPOCHS = 2
TRIES = 40  # to draw settings that go together


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.hdf"
    write_corpus(path)
    return path


def drawn(number: int, corpus: Path, folder: Path) -> Iterator[tuple[random.Random, dict[str, Any]]]:
    """Configurations; the settings of some don't go together."""
    for attempt in range(TRIES):
        draw = random.Random(f"{number} {attempt}")
        yield draw, random_configuration(draw, corpus, folder / str(attempt))


def read(source: Any) -> list[Plain]:
    return [plain(batch) for batch in source]


def check(number: int, corpus: Path, folder: Path) -> None:
    for draw, config in drawn(number, corpus, folder):
        part = draw.choice(list(config["split"])) if "split" in config else None
        made = outcome(seqprep.chunk, config, storage=QUICK)
        if isinstance(made, str):
            assert outcome(stream, config, part=part) == made
            continue
        options = random_options(draw, list(config["keys"]))
        path = config["output"]["path"].replace("{split}", part or "")
        stored, lively = (
            outcome(Loader, path, **options),
            outcome(stream, config, part=part, **{"threads": 0} | options),
        )
        if isinstance(stored, str):
            assert "rows of this dataset are packed" in stored
            assert lively == stored.replace(path, live_name(config, part))
            continue
        with stored as loader, lively as live:
            assert live.keys == loader.keys
            for epoch in range(EPOCHS):
                assert (live.epoch, len(live)) == (epoch, len(loader))
                assert live.state_dict() == loader.state_dict()
                assert read(live) == read(loader), (config, options)
            counted = [loader.metrics(), live.metrics()]
            for name in ("batches", "rows", "frames", "bytes"):
                assert len({getattr(metrics, name) for metrics in counted}) == 1
        return
    pytest.fail("no settings went together")


def outcome(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a call gives; or, if it's refused, why."""
    try:
        return function(*args, **options)
    except SeqprepError as error:
        return f"{type(error).__name__}: {error}"


def live_name(config: dict[str, Any], part: str | None) -> str:
    """What a stream is called in messages."""
    return part or Path(config["output"]["path"]).name


@pytest.mark.parametrize("number", range(16))
def test_random_configurations(number: int, corpus: Path, tmp_path: Path) -> None:
    check(number, corpus, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(16, 120))
def test_more_random_configurations(number: int, corpus: Path, tmp_path: Path) -> None:
    check(number, corpus, tmp_path)
