"""`seqprep sources`, and `seqprep inspect` and `seqprep chunk` of inputs that are no datasets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from seqprep.cli.main import main
from seqprep.sources.catalogue import describe_readers
from seqprep.sources.registry import BUILT_IN


class Shell:
    """Runs the command line in this process, in a folder of its own; `real` does so in a process."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capture = folder, capture

    def __call__(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, error = self._capture.readouterr()
        assert (ended.value.code or 0) == code, error
        return out, error

    def real(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "seqprep", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capsys)


def test_every_reader_is_listed_with_its_options(shell: Shell) -> None:
    text = shell.real("sources")
    listed = json.loads(shell("sources", "--json")[0])
    assert [reader["type"] for reader in listed] == sorted(BUILT_IN)
    for reader in listed:
        assert reader["summary"]
        assert reader["problem"] is None
        assert f"\n{reader['type']}" in f"\n{text}"
        for option in reader["options"]:
            assert f"\n  {option['name']}: " in text
    by_type = {reader["type"]: reader for reader in listed}
    assert (by_type["parquet"]["extra"], by_type["jsonl"]["extra"], by_type["npz"]["extra"]) == (
        "parquet",
        "tokenizers",
        None,
    )
    policy = next(option for option in by_type["csv"]["options"] if option["name"] == "on_nan")
    assert (policy["default"], policy["type"], policy["required"]) == (
        "error",
        "error or keep or zero or forward",
        False,
    )
    assert "empty, NA, NaN" in policy["meaning"]
    assert "features.frame_shift_ms: 10" in text


def test_all_options_have_a_meaning() -> None:
    for reader in describe_readers():
        assert [option.name for option in reader.options if not option.meaning] == [], reader.type


def test_one_reader(shell: Shell) -> None:
    text, _ = shell("sources", "npz")
    assert text.startswith("npz\n  Numpy arrays.")
    assert "tfrecord" not in text
    assert "no reader goes by 'nzp'; did you mean 'npz'?" in shell("sources", "nzp", code=2)[1]


def test_a_missing_extra_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqprep.sources.catalogue.find_spec", lambda name: None)
    assert {reader.type for reader in describe_readers() if not reader.installed} == {"audio", "jsonl", "parquet"}


def write_inputs(folder: Path) -> None:
    draw = np.random.default_rng(0)
    with (folder / "tokens.jsonl").open("w") as file:
        for place in range(30):
            row = {"id": f"doc {place}", "tokens": draw.integers(0, 9, 100 + place).tolist(), "score": place}
            file.write(json.dumps(row) + "\n")
    rows = [f"T{series},{step},{step / 7}" for series in range(3) for step in range(20)]
    (folder / "series.csv").write_text("\n".join(["unique_id,step,y", *rows]) + "\n")
    (folder / "arrays").mkdir()
    for place in range(5):
        frames = 200 + 10 * place
        arrays = {
            "labels": np.arange(-(-frames // 3)),
            "data": draw.standard_normal((frames, 4)),
            "other": np.arange(7 + place),
        }
        np.savez(folder / "arrays" / f"{place}.npz", **arrays)


@pytest.mark.parametrize(
    ("path", "kind", "settings"),
    [
        ("tokens.jsonl", "jsonl", {"type": "jsonl", "path": "tokens.jsonl", "id": "id"}),
        ("series.csv", "csv", {"type": "csv", "path": "series.csv", "id": "unique_id"}),
        ("arrays", "npz", {"type": "npz", "path": "arrays"}),
    ],
)
def test_what_is_proposed_can_be_run(shell: Shell, path: str, kind: str, settings: dict[str, Any]) -> None:
    write_inputs(shell.folder)
    described = json.loads(shell("inspect", path, "--json")[0])
    assert described["source"] == settings
    assert yaml.safe_load(described["configuration"])["source"] == settings
    text = shell.real("inspect", path)
    assert f"{path}: {kind}, {described['sequences']} sequences, " in text
    assert text.endswith(described["configuration"])
    (shell.folder / "config.yaml").write_text(text[text.index("# Proposed for") :])
    summary = json.loads(shell("chunk", "config.yaml", "--json", "--workers", "1")[0])
    assert summary["sequences"] == described["sequences"]
    assert summary["rows"] >= summary["sequences"]


def test_what_is_said_of_an_input(shell: Shell) -> None:
    write_inputs(shell.folder)
    described = json.loads(shell("inspect", "arrays", "--json")[0])
    data = described["keys"]["data"]
    assert (data["dtype"], data["shape"], data["has_time"]) == ("float64", [4], True)
    assert data["lengths"] == {"least": 200, "median": 220, "mean": 220, "greatest": 240, "total": 1100, "empty": 0}
    assert described["keys"]["labels"]["first"] == [0, 1, 2, 3]
    assert described["first_tags"] == ["0", "1", "2"]
    proposed = yaml.safe_load(described["configuration"])
    assert proposed["keys"] == {"data": {"input": True}, "labels": {"rate": 3, "align": "ceil"}}
    assert proposed["chunk"]["size"] % 3 == 0
    assert "don't follow those of data: [other]" in described["configuration"]
    series = json.loads(shell("inspect", "series.csv", "--json")[0])
    assert series["first_tags"] == ["T0", "T1", "T2"]
    assert yaml.safe_load(series["configuration"])["chunk"] is None


def test_what_was_decided_is_said(shell: Shell) -> None:
    write_inputs(shell.folder)
    out, error = shell("chunk", "series.csv", "out", "--max-sequences", "4")
    assert "series.csv: has no column 'path', so it is taken as csv" in error
    assert "1 sequences as 1 rows" in out
    assert "taken as npz" in shell("inspect", ".")[1]


def test_inputs_that_are_none(shell: Shell) -> None:
    assert "nothing: no such file or folder" in shell("inspect", "nothing", code=1)[1]
    write_inputs(shell.folder)
    assert "--batch is for datasets" in shell("inspect", "arrays", "--batch", "1", code=2)[1]
    (shell.folder / "words.jsonl").write_text('{"text": "some words"}\n')
    assert "source.text with a source.tokenizer (fields: text)" in shell("inspect", "words.jsonl", code=2)[1]
    np.savez(shell.folder / "one.npz", a=np.array(3))
    assert "no key has frames, so there is nothing to cut" in shell("inspect", "one.npz")[0]
