"""Text as token ids, through the package tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.errors import DependencyError, SourceError
from seqprep.sources.fingerprint import short_hash
from seqprep.types import Array

DTYPE = "int32"


class TextTokenizer:
    """A tokenizer from its file; a pickled copy loads it anew. Safe to use from several threads.

    Args:
        path: a tokenizer.json.
        special_tokens: whether it adds its marks of beginning and end.

    Raises:
        DependencyError: the extra `tokenizers` isn't installed.
        SourceError: the file can't be read.
    """

    def __init__(self, path: str, special_tokens: bool) -> None:
        self._path, self._special_tokens = path, special_tokens
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise DependencyError(
                f"source.tokenizer needs tokenizers ({error}); pip install 'seqprep[tokenizers]'"
            ) from error
        try:
            self._content = Path(path).read_bytes()
            self._tokenizer: Any = Tokenizer.from_str(self._content.decode())
        except OSError as error:
            raise SourceError(f"{path}: can't be opened: {error.strerror}; check source.tokenizer") from error
        except Exception as error:  # the package raises no other kind
            raise SourceError(f"{path}: isn't a tokenizer.json: {error}; check source.tokenizer") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def __reduce__(self) -> tuple[type[TextTokenizer], tuple[str, bool]]:
        return TextTokenizer, (self._path, self._special_tokens)

    def encode(self, row: dict[str, Any], field: str, place: object) -> Array:
        """Token ids of one row's text; int32 [tokens].

        Raises:
            SourceError: the row has no such text, or the tokenizer refuses it.
        """
        return self.encode_all([(row, place)], field)[0]

    def encode_all(self, rows: Sequence[tuple[dict[str, Any], object]], field: str) -> list[Array]:
        """Token ids of many rows, each with its place for messages."""
        texts = []
        for row, place in rows:
            text = row.get(field)
            if not isinstance(text, str):
                what = f"is {type(text).__name__}, not text" if field in row else "is missing"
                raise SourceError(f"{place}: field {field!r} {what}; check source.text")
            texts.append(text)
        try:
            if len(texts) == 1:
                encoded = [self._tokenizer.encode(texts[0], add_special_tokens=self._special_tokens)]
            else:
                encoded = self._tokenizer.encode_batch(texts, add_special_tokens=self._special_tokens)
        except Exception as error:  # the package raises no other kind
            raise SourceError(f"{rows[0][1]}: can't be tokenized: {error}") from error
        return [np.array(tokens.ids, DTYPE) for tokens in encoded]

    def fingerprint(self) -> str:
        """A hash of the tokenizer's file and of how it is used."""
        return short_hash([self._content, str(self._special_tokens).encode()])
