from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.errors import ConfigError, DependencyError, SourceError
from seqprep.sources import Source, open_source
from seqprep.types import FrameRange
from tests.examples import examples

from .format_contract import FormatContract
from .formats import Corpus, Settings, write_jsonl
from .source_contract import Truth, assert_same

WORDS = ("<s>", "</s>", "?", "the", "cat", "sat", "é", "日本")


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def open_lines(path: Path, *rows: Any, **options: Any) -> Source:
    if rows:
        write(path, *rows)
    return open_source({"type": "jsonl", "path": str(path), **options})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


def write_tokenizer(path: Path, **how: Any) -> Path:
    """Words between marks of beginning and end, with padding and truncation that must not happen."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    made.enable_padding()
    made.enable_truncation(5)
    made.save(str(path))
    return path


class TestLists(FormatContract):
    reader = "jsonl"

    def write(self, folder: Path, made: Corpus) -> Settings:
        return write_jsonl(folder, made, self.order)


class TestGzip(FormatContract):
    reader = "jsonl"

    def write(self, folder: Path, made: Corpus) -> Settings:
        return write_jsonl(folder, made, self.order, "all.jsonl.gz")


class TestText(FormatContract):
    reader = "jsonl"
    texts: ClassVar[tuple[str, ...]] = ("the cat sat", "", "é 日本 dog the the", "sat " * 300, "cat", "the")

    def write(self, folder: Path, made: Corpus) -> Settings:
        write_tokenizer(folder / "tokenizer.json")
        changed = "cat" if made["data"][0][0, 0] < 0 else "sat"
        rows = [{"id": tag, "text": text, "n": 1} for tag, text in zip(self.order, self.texts, strict=True)]
        rows[-1]["text"] += f" {changed}"
        write(folder / "all.jsonl", *rows)
        return {
            "type": "jsonl", "path": str(folder / "all.jsonl"), "id": "id", "text": "text",
            "tokenizer": str(folder / "tokenizer.json"), "special_tokens": False, "fields": ["n"],
        }  # fmt: skip

    @pytest.fixture
    def truth(self, settings: Settings) -> Truth:
        rows = [json.loads(line) for line in Path(settings["path"]).read_text(encoding="utf-8").splitlines()]
        ids = [[WORDS.index(word) if word in WORDS else 2 for word in row["text"].split()] for row in rows]
        return {"tokens": [np.array(one, np.int32) for one in ids], "n": [np.array(1)] * len(rows)}


values = st.recursive(st.integers(-(1 << 63), (1 << 63) - 1), lambda inner: st.lists(inner, max_size=3), max_leaves=8)


@settings(max_examples=examples(80), deadline=None)
@given(
    rows=st.lists(st.lists(st.floats(width=32, allow_nan=False) | st.integers(-(1 << 20), 1 << 20)), min_size=1),
    layout=st.sampled_from([(None, "\n"), (2, "\n\n"), (None, "\r\n")]),
)
def test_as_json_reads(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[float]], layout: tuple[int | None, str]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    ascii_only = layout[0] is None
    lines = [json.dumps({"x": row, "é": "\n\u2028"}, ensure_ascii=ascii_only) for row in rows]
    path.write_bytes(("\ufeff" + layout[1].join(lines)).encode())
    source = open_lines(path)
    whole = all(isinstance(value, int) for row in rows for value in row)
    assert source.keys["x"].dtype == ("int64" if whole else "float32")
    for place, row in enumerate(rows):
        assert_same(source.read("x", place), np.array(row, source.keys["x"].dtype))


def test_which_fields_become_keys(path: Path) -> None:
    source = open_lines(
        path,
        {"name": "x", "tokens": [1, 2], "frames": [[1, 2.5]], "later": [], "flag": True, "n": 3, "meta": {"a": 1}},
        {"name": "y", "tokens": [], "frames": [], "later": [[[1]], [[2]]], "flag": False, "n": 4, "other": [1]},
    )
    assert {name: (spec.dtype, spec.shape, spec.has_time) for name, spec in source.keys.items()} == {
        "tokens": ("int64", (), True),
        "frames": ("float32", (2,), True),
        "later": ("int64", (1, 1), True),
        "flag": ("bool", (), False),
        "n": ("int64", (), False),
    }
    assert list(source.tags) == ["a-000000", "a-000001"]
    source = open_lines(path, fields={"data": "tokens"}, id="n", dtypes={"data": "uint16"})
    assert list(source.tags) == ["3", "4"]
    assert_same(source.read("data", 0), np.array([1, 2], np.uint16))


def test_special_tokens_and_whole_texts(tmp_path: Path, path: Path) -> None:
    tokenizer = str(write_tokenizer(tmp_path / "t.json"))
    source = open_lines(path, {"text": "the cat sat the cat sat"}, {"text": "cat"}, text="text", tokenizer=tokenizer)
    assert source.lengths("tokens").tolist() == [8, 3]
    assert source.read("tokens", 0).tolist() == [0, 3, 4, 5, 3, 4, 5, 1]
    assert source.read("tokens", 1, FrameRange(1, 2)).tolist() == [4]
    plain = open_lines(path, text="text", tokenizer=tokenizer, special_tokens=False)
    assert plain.fingerprint() != source.fingerprint()


def test_a_changed_tokenizer_changes_the_fingerprint(tmp_path: Path, path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "t.json")
    before = open_lines(path, {"text": "the"}, text="text", tokenizer=str(tokenizer)).fingerprint()
    tokenizer.write_text(
        tokenizer.read_text(encoding="utf-8").replace('"cat":4', '"dog":4').replace('"cat": 4', '"dog": 4'),
        encoding="utf-8",
    )
    assert open_lines(path, text="text", tokenizer=str(tokenizer)).fingerprint() != before


def test_values_that_a_dtype_cannot_hold(path: Path) -> None:
    source = open_lines(path, {"x": [1, 300], "y": [1e300], "z": [0.5]}, dtypes={"x": "uint8", "z": "int32"})
    with pytest.raises(
        SourceError, match=r"a\.jsonl, line 1: sequence 'a-000000', key 'x': holds 300, which uint8 can't"
    ):
        source.read("x", 0)
    with pytest.raises(SourceError, match=r"key 'y': holds 1e\+300, which float32 can't"):
        source.read("y", 0)
    with pytest.raises(SourceError, match=r"key 'z': holds 0.5, which int32 can't"):
        source.read("z", 0)


def test_json_beyond_the_standard(path: Path) -> None:
    path.write_text('{"x": [NaN, Infinity, 1]}\n')
    assert np.array_equal(open_lines(path).read("x", 0), [np.nan, np.inf, 1], equal_nan=True)


@pytest.mark.parametrize(
    ("lines", "options", "error", "message"),
    [
        (['{"x": [1]}', "[1]"], {}, SourceError, r"line 2: not a JSON object"),
        (['{"x": [1]}', "", '{"x": [1'], {}, SourceError, r"line 3: not valid JSON: Expecting"),
        (["[" * 100000], {}, SourceError, r"line 1: not valid JSON"),
        (['{"x": [1' + "0" * 5000 + "]}"], {}, SourceError, r"line 1: not valid JSON: Exceeds the limit"),
        (['{"x": [1]}', '{"y": [1]}'], {}, SourceError, r"line 2: has no field 'x'; did you mean|line 2: has no field 'x'; known are: y"),
        (['{"x": [1]}', '{"x": 1}'], {}, SourceError, r"line 2: field 'x' is one number|line 2: field 'x' is a list|line 2: field 'x' is .*, where earlier"),
        (['{"x": [[1, 2]]}', '{"x": [[1]]}'], {}, SourceError, r"line 2: field 'x' has frames of shape \[1\], earlier lines \[2\]"),
        (['{"x": [[1, 2], [1]]}'], {}, SourceError, r"line 1: field 'x' holds lists of different sizes"),
        (['{"x": [1, null]}'], {}, SourceError, r"line 1: field 'x' holds \[1, null\], not numbers"),
        (['{"x": [1, "2"]}'], {}, SourceError, r"line 1: field 'x' holds \[1, \"2\"\], not numbers"),
        (['{"x": [[], []]}'], {}, SourceError, r"line 1: field 'x' holds \[\[\], \[\]\], not numbers"),
        (['{"x": [18446744073709551615]}'], {}, SourceError, r"not numbers of at most 64 bits"),
        (['{"x": [-1, 18446744073709551615]}'], {}, SourceError, r"not numbers of at most 64 bits"),
        (['{"x": [0.5, 9007199254740993]}'], {}, SourceError, r"not numbers of at most 64 bits"),
        (['{"s": "text"}'], {}, ConfigError, r"line 1: no field holds numbers; .*source.text with a source.tokenizer \(fields: s\)"),
        (['{"x": [1]}'], {"fields": ["z"]}, SourceError, r"line 1: has no field 'z'"),
        (['{"x": [1]}'], {"id": "i"}, SourceError, r"line 1: field 'i' is missing; check source.id"),
        (['{"x": [1], "i": 1.5}'], {"id": "i"}, SourceError, r"field 'i' holds 1.5, not text or a whole number"),
        (['{"x": [1], "i": "\\ud800"}'], {"id": "i"}, SourceError, r"field 'i' holds no proper text"),
        (['{"x": [1], "i": "é"}'] * 2, {"id": "i"}, SourceError, r"tag 'é' stands twice, in .*line 1 and .*line 2"),
        (['{"x": [1]}'], {"dtypes": {"y": "int8"}}, ConfigError, r"source.dtypes names 'y', which is no key"),
        (['{"x": [1]}'], {"text": "x"}, ConfigError, r"source.text and source.tokenizer go together; set source.tokenizer too"),
        (["\n"], {}, ConfigError, r"a\.jsonl: the source holds no sequence"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(
    path: Path, lines: list[str], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(error, match=message) as caught:
        open_lines(path, **options)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text(path: Path) -> None:
    path.write_bytes(b'{"x": [1], "y": "\xff\xfe"}\n')
    with pytest.raises(SourceError, match=r"a\.jsonl, line 1: not valid JSON: invalid start byte"):
        open_lines(path)


@pytest.mark.parametrize(
    ("content", "row", "message"),
    [
        (None, {"text": "x"}, r"t\.json: can't be opened: No such file"),
        ("{}", {"text": "x"}, r"t\.json: isn't a tokenizer\.json"),
        ("", {"text": 5}, r"line 1: field 'text' is int, not text; check source.text"),
        ("", {"txt": "x"}, r"line 1: field 'text' is missing"),
    ],
)
def test_texts_and_tokenizers_that_are_none(
    tmp_path: Path, path: Path, content: str | None, row: dict[str, Any], message: str
) -> None:
    if content == "":
        write_tokenizer(tmp_path / "t.json")
    elif content is not None:
        (tmp_path / "t.json").write_text(content)
    with pytest.raises(SourceError, match=message):
        open_lines(path, row, text="text", tokenizer=str(tmp_path / "t.json"))


def test_missing_package(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = write_tokenizer(tmp_path / "t.json")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        DependencyError, match=r"source.tokenizer needs tokenizers.*pip install 'seqprep\[tokenizers\]'"
    ):
        open_lines(path, {"text": "x"}, text="text", tokenizer=str(tokenizer))
    assert open_lines(path, {"x": [1]}).read("x", 0).tolist() == [1]


def test_files_that_change_after_opening(path: Path) -> None:
    source = open_lines(path, {"x": [1, 2, 3]}, {"x": [4, 5, 6]})
    write(path, {"x": [1, 2]}, {"x": [1, 4, 5, 6]})
    with pytest.raises(SourceError, match=r"a\.jsonl, line 1: sequence 'a-000000', key 'x'"):
        source.read("x", 0)
    path.write_bytes(b"")
    with pytest.raises(SourceError, match=r"line 2: sequence 'a-000001', key 'x': is cut off"):
        source.read("x", 1)
