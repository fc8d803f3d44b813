"""`seqprep plan`, through real processes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.test_commands import run

SMALL = ["synthetic", "out/{split}", "--set", "source.sequences=50", "--chunk-size", "300", "--max-frames", "200",
         "--set", "split={a: 0.6, b: 0.4}", "--set", "select.max_frames=900"]  # fmt: skip


def test_it_tells_what_chunk_then_writes(tmp_path: Path) -> None:
    planned = json.loads(run(tmp_path, "plan", *SMALL, "--json").stdout)
    assert not list(tmp_path.iterdir())
    written = json.loads(run(tmp_path, "chunk", *SMALL, "--workers", "1", "--json").stdout)
    assert list(planned["parts"]) == list(written["parts"]) == ["a", "b"]
    for name, part in written["parts"].items():
        told = planned["parts"][name]
        for number in ("path", "sequences", "rows", "batches", "frames", "bytes", "report"):
            assert told[number] == part[number], number
        assert {key: of["padding_frames"] for key, of in told["keys"].items()} == part["padding"]
        index = json.loads((tmp_path / part["path"] / "index.json").read_text())
        assert [{**shard, "sidecar_crc32c": None} for shard in index["shards"]] == [
            {**shard, "sidecar_crc32c": None} for shard in told["shards"]
        ]


def test_its_tables(tmp_path: Path) -> None:
    done = run(tmp_path, "plan", *SMALL, "--compression", "gzip")
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        "dataset",
        "sequences",
        "chunks",
        "rows",
        "batches",
        "shapes",
        "shards",
        "bytes",
        "before",
        "compression",
    ]
    whole = [line.split() for line in lines[1:4]]
    assert [line[0] for line in whole] == ["out/a", "out/b", "together"]
    assert int(whole[0][1]) + int(whole[1][1]) == int(whole[2][1])
    assert "left out by select.max_frames: " in done.stdout
    assert done.stdout.count("frames of a sequence") == 2
    assert done.stdout.count("#" * 40) == 4  # the fullest bin of each histogram
    assert "\x1b" not in done.stdout
    assert "warning: out/a: key 'data': " in done.stderr
    assert "longer than batch.max_frames 200" in done.stderr
