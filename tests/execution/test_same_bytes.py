"""The same configuration and source give the same bytes, whoever makes them, and when."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

import seqprep
from seqprep.config import load_config
from tests.shards.shards import KINDS

from .small import QUICK, content, make, small

SCRIPT = """
import json, sys
import seqprep
if __name__ == "__main__":
    seqprep.chunk(json.loads(sys.argv[1]), workers=int(sys.argv[2]))
"""
ROOT = Path(__file__).parents[2]


def run(config: dict[str, Any], workers: int = 1, **environment: str) -> None:
    command = [sys.executable, "-c", SCRIPT, json.dumps(config), str(workers)]
    subprocess.run(command, env=os.environ | environment, check=True, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_for_any_number_of_workers(tmp_path: Path, format: str, compression: str) -> None:
    changes = {"output__shard_size": 500, "output__compression": compression}
    whole = content(make(tmp_path / "one", format, compression, output__shard_size=500))
    assert len(whole) > 2 * 7
    for workers in (2, 7):
        run(small(tmp_path / str(workers), format, **changes), workers)
        assert content(tmp_path / str(workers)) == whole


@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_for_any_order_of_what_was_there(tmp_path: Path, format: str, compression: str) -> None:
    whole = content(make(tmp_path / "model", format, compression, output__shard_size=500))
    shards = sorted(name for name in whole if name.startswith("shard"))
    for kept in (shards[::2], shards[1::2], shards[: len(shards) // 2], [*shards[2:], "index.json"], []):
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        for name in content(out).keys() - set(kept):
            (out / name).unlink()
        for name in kept:
            (out / name).write_bytes(whole[name])
        if "index.json" not in kept:
            (out / f"{shards[0]}.partial").write_bytes(b"of a dead run")
        seqprep.chunk(small(out, format, output__compression=compression, output__shard_size=500), storage=QUICK,
                      overwrite="index.json" in kept)  # fmt: skip
        assert content(out) == whole


@pytest.mark.slow
@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_at_another_time_and_place_and_under_other_settings_of_the_process(
    tmp_path: Path, format: str, compression: str
) -> None:
    whole = content(make(tmp_path / "now", format, compression))
    time.sleep(1.1)  # times in files have whole seconds
    settings = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "7", "HDF5_PLUGIN_PATH": "/nowhere"}
    run(small(tmp_path / "deeper" / "later", format, output__compression=compression), **settings)
    assert content(tmp_path / "deeper" / "later") == whole


def test_a_fingerprint_is_what_it_was(tmp_path: Path) -> None:
    """Also in the next release: it decides what may go on and what is another dataset."""
    config = load_config(small(tmp_path))
    assert (
        seqprep.execution.run.run_fingerprint(config.decisive(), {"tags": "1"}, "")
        == (hashlib.sha256(json.dumps([config.fingerprint(), {"tags": "1"}], sort_keys=True).encode()).hexdigest()[:16])
    )
    compressed = load_config(small(tmp_path, output__compression="gzip"))
    prints = {seqprep.execution.run.run_fingerprint(compressed.decisive(), {}, codec) for codec in ("zlib 1", "zlib 2")}
    assert len(prints) == 2


@pytest.mark.slow
@pytest.mark.parametrize("release", ["h5py==3.11.0", "h5py"])
def test_with_the_oldest_and_the_newest_h5py(tmp_path: Path, release: str) -> None:
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=120)
    python = environment / "bin" / "python"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["zstd"]]
    packages = [release, *(package for package in needed if not package.startswith("h5py"))]
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", *packages], capture_output=True, text=True, timeout=600, check=False
    )
    if "from versions: none" in installed.stderr:  # what pip says of any package where it reaches no index
        pytest.skip(f"no package index can be reached for {release}")
    assert installed.returncode == 0, installed.stderr
    package = tmp_path / "site"
    package.mkdir()
    (package / "seqprep").symlink_to(ROOT / "pipeline")
    for format, compression in KINDS:
        whole = content(make(tmp_path / f"{format}-{compression}", format, compression))
        config = small(tmp_path / "other" / f"{format}-{compression}", format, output__compression=compression)
        subprocess.run(
            [python, "-c", SCRIPT, json.dumps(config), "1"],
            env=os.environ | {"PYTHONPATH": str(package)},
            check=True,
            timeout=120,
        )
        found = content(tmp_path / "other" / f"{format}-{compression}")
        assert found == whole, (release, format, compression)
