"""Lists of audio files: their tags and labels, and what is said of lists that are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from seqprep.errors import SourceError
from seqprep.sources import Source
from seqprep.sources.manifest import label_key

from .audio_files import listed, noise, write
from .source_contract import SourceContract, Truth, assert_same


class TestManifestWithLabels(SourceContract):
    reader = "audio"
    rows = (
        {"path": "a/one.wav", "tag": "first é", "speaker": "bo", "digit": 3, "weight": 0.5},
        {"path": "a/two.wav", "tag": "second", "speaker": "al", "digit": -1, "weight": 2},
        {"path": "three.flac", "tag": "a/b c", "speaker": "bo", "digit": 2**40, "weight": 1e-3},
    )
    options: ClassVar[dict[str, Any]] = {
        "labels": {"who": "speaker", "digit": "digit", "weight": "weight"},
        "sample_type": "int32",
    }

    @pytest.fixture
    def manifest(self, tmp_path: Path) -> Path:
        for place, row in enumerate(self.rows):
            write(tmp_path / str(row["path"]), noise(500 + place, seed=place))
        manifest = tmp_path / "train.jsonl"
        manifest.write_text("\n".join(json.dumps(row) for row in self.rows), encoding="utf-8")
        return manifest

    @pytest.fixture
    def source(self, manifest: Path) -> Source:
        return listed(manifest, **self.options)

    @pytest.fixture
    def truth(self) -> Truth:
        data = [noise(500 + place, seed=place).astype(np.int32) << 16 for place in range(3)]
        who = [np.array(number, np.int64) for number in (1, 0, 1)]
        digit = [np.array(row["digit"], np.int64) for row in self.rows]
        return {
            "data": data,
            "who": who,
            "digit": digit,
            "weight": [np.array(row["weight"], np.float32) for row in self.rows],
        }

    @pytest.fixture
    def reopen(self, manifest: Path) -> Callable[[], Source]:
        return lambda: listed(manifest, **self.options)

    @pytest.fixture
    def changed(self, manifest: Path) -> Callable[[], Source]:
        def change() -> Source:
            manifest.write_text(manifest.read_text(encoding="utf-8").replace("0.5", "0.25"), encoding="utf-8")
            return listed(manifest, **self.options)

        return change

    def test_names(self, source: Source) -> None:
        assert list(source.tags) == ["first é", "second", "a/b c"]
        assert source.keys["who"].labels == ("al", "bo")
        assert not source.keys["who"].has_time

    def test_csv_means_the_same(self, source: Source, manifest: Path) -> None:
        lines = [
            "path,tag,speaker,digit,weight",
            *(",".join(str(value) for value in row.values()) for row in self.rows),
        ]
        table = manifest.with_suffix(".csv")
        table.write_text("\ufeff" + "\r\n".join(lines) + "\r\n\r\n", encoding="utf-8")
        assert listed(table, **self.options).fingerprint() == source.fingerprint()
        tabs = manifest.with_suffix(".tsv")
        tabs.write_text("\n".join(lines).replace(",", "\t"), encoding="utf-8")
        assert listed(tabs, **self.options).fingerprint() == source.fingerprint()


@pytest.mark.parametrize(
    ("values", "dtype", "expected", "labels"),
    [
        (["3", "-1", "+7", "007"], "int64", [3, -1, 7, 7], None),
        (["3", "0.5", "1e3"], "float32", [3, 0.5, 1000], None),
        (["b", "a", "3", "b"], "int64", [2, 1, 0, 2], ("3", "a", "b")),
        (["é", "Z", "a"], "int64", [2, 0, 1], ("Z", "a", "é")),
        (["true", "false"], "int64", [1, 0], ("false", "true")),
    ],
)
def test_labels(values: list[str], dtype: str, expected: list[float], labels: tuple[str, ...] | None) -> None:
    spec, numbers = label_key(values)
    assert (spec.dtype, spec.shape, spec.has_time, spec.labels) == (dtype, (), False, labels)
    assert_same(numbers, np.array(expected, dtype))


def test_tags_of_a_manifest_are_its_paths_as_written(tmp_path: Path) -> None:
    write(tmp_path / "sound/a.b.wav", noise(10))
    other = write(tmp_path / "other.wav", noise(10))
    manifest = tmp_path / "lists/all.csv"
    manifest.parent.mkdir()
    manifest.write_text(f"tag,path\n,../sound/a.b.wav\nnamed,{other}\n")
    assert list(listed(manifest).tags) == ["../sound/a.b", "named"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("m.csv", "", r"m\.csv: the manifest lists no file"),
        ("m.csv", "path,tag\n", r"m\.csv: the manifest lists no file"),
        ("m.csv", "paht,tag\na.wav,x\n", r"m\.csv: the header has no column 'path'; did you mean 'paht'"),
        ("m.csv", "path,path\na.wav,a.wav\n", r"m\.csv: the header names a column twice: path, path"),
        ("m.csv", "path,speakr\na.wav,x\n", r"m\.csv, line 2: there is no column 'speaker'; did you mean 'speakr'"),
        ("m.csv", "path,speaker\na.wav,\n", r"m\.csv, line 2: column 'speaker' is empty"),
        ("m.csv", "path,speaker\n,x\n", r"m\.csv, line 2: column 'path' is empty"),
        ("m.csv", "path,speaker\na.wav\n", r"m\.csv, line 2: the row hasn't the 2 cells"),
        ("m.csv", "path,speaker\na.wav,x,y\n", r"m\.csv, line 2: the row hasn't the 2 cells"),
        ("m.csv", 'path,speaker\n"a.wav,x\n', r"m\.csv, line 2: not valid CSV: unexpected end of data"),
        ("m.csv", "path,speaker\na.wav,x\nb.wav,y\n", r"m\.csv, line 3: .*b\.wav: can't be opened: No such file"),
        (
            "m.csv",
            "path,speaker\na.wav,99999999999999999999\n",
            r"m\.csv: column 'speaker': a label doesn't fit 64-bit",
        ),
        (
            "m.csv",
            "path,speaker\na.wav,x\n./a.wav,x\na.wav,x\n",
            r"line 2: .*a\.wav and .*line 4: .*a\.wav have the same tag 'a'",
        ),
        ("m.jsonl", "", r"m\.jsonl: the manifest lists no file"),
        (
            "m.jsonl",
            '{"path": "a.wav", "speaker": 1}\n\n{"path": \n',
            r"m\.jsonl, line 3: not valid JSON: Expecting value",
        ),
        ("m.jsonl", "[1, 2]\n", r"m\.jsonl, line 1: not a JSON object"),
        ("m.jsonl", '{"path": "a.wav"}\n', r"m\.jsonl, line 1: there is no column 'speaker'"),
        ("m.jsonl", '{"path": null, "speaker": 1}\n', r"m\.jsonl, line 1: column 'path' is empty"),
        (
            "m.jsonl",
            '{"path": "a.wav", "tag": "\\ud800", "speaker": 1}\n',
            r"m\.jsonl, line 1: not valid JSON: .*surrogates",
        ),
        ("m.jsonl", b"\xff\xfe\n", r"m\.jsonl: can't be read as a manifest: .*can't decode byte 0xff"),
        ("m.csv", b"path,speaker\n\xff,x\n", r"m\.csv: can't be read as a manifest: .*can't decode byte 0xff"),
    ],
)
def test_bad_manifests(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    write(tmp_path / "a.wav", noise(100))
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(SourceError, match=message) as caught:
        listed(tmp_path / name, labels=["speaker"])
    assert "\n" not in str(caught.value)


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none\.csv: can't be read as a manifest: No such file or directory"):
        listed(tmp_path / "none.csv")
