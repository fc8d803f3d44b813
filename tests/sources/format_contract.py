"""The contract of sources for formats of which tests/sources/formats.py writes the corpus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from seqprep.sources import Source, open_source
from seqprep.types import Array

from .formats import TAGS, Corpus, Settings, corpus
from .source_contract import LARGE_BYTES, SourceContract, Truth


class FormatContract(SourceContract):
    """Give `write`, and `order` and `keys` where they differ; and `twice` where tags are names of files."""

    order: ClassVar[Sequence[str]] = TAGS
    keys: ClassVar[Sequence[str]] = ("data", "classes", "speaker")
    has_lengths: ClassVar[bool] = False
    """Lengths stand apart from the data."""

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

    @pytest.fixture
    def names(self) -> list[str]:
        return list(self.order)

    def write_others(self, folder: Path, tags: Sequence[str], length: int) -> Callable[[], Source]:
        """Writes sequences of one length and other tags."""
        folder.mkdir()
        self.__dict__["order"] = tags
        settings = self.write(folder, corpus(0, tags, dict.fromkeys(tags, length)))
        return lambda: open_source(settings)

    @pytest.fixture
    def twice(self, tmp_path: Path) -> Callable[[], Source]:
        return self.write_others(tmp_path / "double", ("double", "b", "c", "d", "e", "double"), 3)

    @pytest.fixture
    def large(self, tmp_path: Path) -> Callable[[], Source]:
        if not self.has_lengths:
            pytest.skip("this format doesn't tell lengths apart from its data")
        return self.write_others(tmp_path / "large", ("a", "b"), LARGE_BYTES // 20)

    def test_lengths_of_unknown_keys(self, source: Source) -> None:
        for key in {"nothing", *self.keys} - {key for key, spec in source.keys.items() if spec.has_time}:
            with pytest.raises(KeyError):
                source.lengths(key)
