"""JSON lines: an object is a sequence; lists of numbers go along time, and text becomes token ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from seqprep import config
from seqprep.errors import SourceError
from seqprep.sources.byteranges import ByteRanges
from seqprep.sources.fingerprint import fingerprint_of, short_hash
from seqprep.sources.json_rows import SUFFIXES, JsonIndex, array_of, index_rows, parse
from seqprep.sources.paths import find_files
from seqprep.sources.reading import Place, check_unique, file_of, store, target_of
from seqprep.sources.tokenizing import TextTokenizer
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags

TOKENS = "tokens"
"""The key that is made of text."""

Dtype = Literal["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16", "float32", "float64"]


class JsonlSource:
    """A line holds a JSON object, which is a sequence: a field that is a list of numbers is a key with time, [T] or, of
    lists in a list, [T, F]; a field that is a number is a key without time. With `text` and `tokenizer`, text becomes
    the key `tokens`, int32.

    Opening reads all lines once, for only that tells lengths; with a tokenizer it tokenizes them all, and reading
    tokenizes again. Whole numbers are int64 and others float32 unless `dtypes` says otherwise.

    Args:
        options: what to read.

    Raises:
        ConfigError: there is no such field, or none of numbers.
        DependencyError: there is a tokenizer, and the extra `tokenizers` isn't installed.
        SourceError: a file is missing or damaged, or a line isn't like the others.
    """

    class Options(config.Options):
        """The section `source` with `type: jsonl`."""

        path: str | list[str]
        """A file, a folder (.jsonl and .ndjson in it and below, also with .gz), a glob, or a list of these."""
        fields: list[str] | dict[str, str] | None = None
        """Fields that become keys: [field, …] or {key: field}; unless given, all of the first line that hold numbers,
        or none beside `text`."""
        text: str | None = None
        """The field of text to tokenize."""
        tokenizer: str | None = None
        """A tokenizer.json of the package tokenizers; its padding and truncation are turned off."""
        special_tokens: bool = True
        """Whether the tokenizer adds its marks of beginning and end."""
        id: str | None = None
        """The field that names a sequence, text or a whole number; numbered unless given."""
        dtypes: dict[str, Dtype] = Field(default={})
        """For each key, its dtype, where it isn't int64 or float32."""

        @model_validator(mode="after")
        def _check(self) -> JsonlSource.Options:
            if (self.text is None) != (self.tokenizer is None):
                missing = "tokenizer" if self.tokenizer is None else "text"
                raise ValueError(f"source.text and source.tokenizer go together; set source.{missing} too")
            if self.text is not None and TOKENS in (self.field_of or {}):
                raise ValueError(
                    f"source.fields names a key {TOKENS!r}, which source.text makes; rename it: {{key: field}}"
                )
            return self

        @property
        def field_of(self) -> dict[str, str] | None:
            """For each key, its field; None for all of numbers."""
            if self.fields is None:
                return None if self.text is None else {}
            return {name: name for name in self.fields} if isinstance(self.fields, list) else self.fields

    def __init__(self, options: Options) -> None:
        self._options = options
        self._files = ByteRanges()
        self._paths = find_files(options.path, (*SUFFIXES, ".gz"))
        self._tokenizer = (
            None if options.tokenizer is None else TextTokenizer(options.tokenizer, options.special_tokens)
        )
        self._index: JsonIndex = index_rows(
            self._paths, options.field_of, options.id, dict(options.dtypes), self._files, self._text()
        )
        check_unique(self.tags, self._place, "choose another source.id, or leave it out to number them")

    def _text(self) -> tuple[str, str, TextTokenizer] | None:
        if self._options.text is None or self._tokenizer is None:
            return None
        return TOKENS, self._options.text, self._tokenizer

    def _place(self, sequence: int) -> str:
        return f"{self._paths[file_of(self._index.first, sequence)]}, line {self._index.line[sequence]}"

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """`tokens` if there is text, then the fields in the order of the first line or of `fields`."""
        return self._index.keys

    @property
    def tags(self) -> Tags:
        """Tags of all lines, file by file."""
        return self._index.tags

    def lengths(self, key: str) -> Int64:
        """Frames of every sequence in one key; int64 [sequences]."""
        return self._index.lengths[key]

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        """Reads frames of one sequence, and its whole line for that; see `Source.read`."""
        spec = self._index.keys[key]
        length = int(self._index.lengths[key][sequence]) if spec.has_time else 1
        (start, stop), out = target_of(spec, length, frames, out)
        if stop == start:
            return out
        place = Place(lambda: f"{self._place(sequence)}: sequence {self.tags[sequence]!r}, key {key!r}")
        values = self._values(key, self._row(sequence, place), place)
        if values.shape != ((length, *spec.shape) if spec.has_time else spec.shape):
            raise SourceError(f"{place}: the file changed since it was opened; start again")
        store(values[start:stop] if spec.has_time else values, out, place)
        return out

    def _row(self, sequence: int, place: object) -> dict[str, Any]:
        content = bytearray(int(self._index.size[sequence]))
        path = str(self._paths[file_of(self._index.first, sequence)])
        if self._files.read(path, content, int(self._index.start[sequence]), place) < len(content):
            raise SourceError(f"{place}: is cut off; the file changed since it was opened, start again")
        return parse(bytes(content), place)

    def _values(self, key: str, row: dict[str, Any], place: object) -> Array:
        if self._tokenizer is not None and key == TOKENS:
            return self._tokenizer.encode(row, str(self._options.text), place)
        return array_of(row, self._index.field_of[key], place)

    def fingerprint(self) -> Mapping[str, str]:
        """As `Source.fingerprint`, with `options` (which field is what, and the tokenizer)."""
        parts = fingerprint_of(self.keys, self.tags, self._index.lengths, self._paths)
        made = [json.dumps(list(self._index.field_of.items())).encode(), str(self._options.text).encode()]
        if self._tokenizer is not None:
            made.append(self._tokenizer.fingerprint().encode())
        parts["options"] = short_hash(made)
        return parts

    def close(self) -> None:
        """Gives back open files."""
        self._files.close()
