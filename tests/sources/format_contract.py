"""The contract of sources for formats of which tests/sources/formats.py writes the corpus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from seqprep.sources import Source, open_source
from seqprep.types import Array

from .formats import TAGS, Corpus, Settings, corpus
from .source_contract import SourceContract, Truth


class FormatContract(SourceContract):
    """Give `write`, and `order` and `keys` where they differ."""

    order: ClassVar[Sequence[str]] = TAGS
    keys: ClassVar[Sequence[str]] = ("data", "classes", "speaker")

    def write(self, folder: Path, made: Corpus) -> Settings:
        raise NotImplementedError

    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        (tmp_path / "corpus").mkdir()
        return self.write(tmp_path / "corpus", corpus(0, self.order))

    @pytest.fixture
    def source(self, settings: Settings) -> Source:
        return open_source(settings)

    @pytest.fixture
    def truth(self) -> Truth:
        made = corpus(0, self.order)
        return {key: self.expected(key, made[key]) for key in self.keys}

    def expected(self, key: str, arrays: list[Array]) -> list[Array]:
        return arrays

    @pytest.fixture
    def reopen(self, settings: Settings) -> Callable[[], Source]:
        return lambda: open_source(settings)

    @pytest.fixture
    def changed(self, settings: Settings, tmp_path: Path) -> Callable[[], Source]:
        return lambda: open_source(self.write(tmp_path / "corpus", corpus(1, self.order)))

    def test_tags_are_kept_whole(self, source: Source) -> None:
        assert list(source.tags) == list(self.order)

    def test_lengths_of_unknown_keys(self, source: Source) -> None:
        for key in {"nothing", *self.keys} - {key for key, spec in source.keys.items() if spec.has_time}:
            with pytest.raises(KeyError):
                source.lengths(key)
