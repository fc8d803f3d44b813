"""Flags of batches, order, passes and parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqprep.shards import Dataset
from tests.cli.test_commands import run, said

SMALL = ["chunk", "synthetic", "--set", "source.sequences=50", "--max-frames", "3000", "--workers", "1"]


def test_flags_do_what_the_settings_do(tmp_path: Path) -> None:
    flags = [
        "--bucket",
        "auto:3",
        "--pad-to",
        "bucket",
        "--order",
        "laplace:4",
        "--seed",
        "2",
        "--epochs",
        "2",
        "--partition",
        "1/2",
    ]
    more = ["--set", "batch.pad_rows=true", "--set", "split={a: 0.6, b: 0.4}", "--set", "select.max_frames=900"]
    arguments = [*SMALL[:2], "out/{split}", *SMALL[2:], *flags, *more]
    summary = json.loads(run(tmp_path, *arguments, "--json").stdout)
    assert list(summary["parts"]) == ["a", "b"]
    assert summary["epochs"] == 2
    assert summary["rows"] == 2 * summary["sequences"]
    for name, part in summary["parts"].items():
        index = Dataset(tmp_path / "out" / name).index
        assert part["padding"] == index.padding
        assert part["report"] == index.report
        assert index.configuration["batch"]["bucket"]["auto"] == 3
        assert index.configuration["order"] == {"by": "laplace:4", "seed": 2, "scope": "sequence"}
        assert index.configuration["partition"] == "1/2"
        assert index.configuration["part"] == name
    said = run(tmp_path, *arguments).stdout
    assert "out/a: already complete" in said
    assert "left out by select.max_frames: " in said


def test_a_warning_is_one_line_on_stderr(tmp_path: Path) -> None:
    done = run(tmp_path, *SMALL[:2], "out", *SMALL[2:], "--max-frames", "300", "--set", "keys.data={}")
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("seqprep: warning: out: key 'data': ")
    assert "rows are longer than batch.max_frames 300 (the longest has " in warning
    assert "warning" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--partition", "3/2"], "--partition: partition is '3/2': it has to be k/n with k from 1 to n, such as 1/4"),
        (["--order", "laplace:0"], "--order: order.by is 'laplace:0': laplace needs the number of its groups, at least 1"),
        (["--bucket", "auto"], "--bucket: batch.bucket is 'auto': it has to be none, sorted, {auto: 8} or {boundaries: [100, 200]}"),
        (["--pad-to", "7.5"], "--pad-to: batch.pad_to is '7.5': it has to be longest, bucket, or a number of frames"),
        (["--epochs", "0"], "--epochs: epochs is 0: it has to be greater than or equal to 1"),
        (["--set", "select.include=nobody"], "select leaves none of the 50 sequences: 50 by select.include ('nobody') were left out; loosen that"),
        (["--partition", "51/60"], "partition is 51/60, but there are only 50 sequences, so this part is empty; use fewer parts"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    error = said(tmp_path, *SMALL[:2], "out", *SMALL[2:], *arguments, code=2).stderr
    assert error.startswith(f"seqprep: error: {message}")
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()
