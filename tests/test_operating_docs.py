"""The commands of docs/operating.md do what it says, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_commands_in_their_order(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", text, re.S) for line in block.splitlines()]
    assert len(commands) == 26
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    said: dict[str, list[str]] = {}
    for command in commands:
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True,
                              timeout=120, check=False)  # fmt: skip
        exit_code = re.search(r"# exit (\d+)$", command)
        assert done.returncode == (int(exit_code[1]) if exit_code else 0), (command, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        said.setdefault(re.sub(r" +# exit.*", "", command), []).append(done.stdout + done.stderr)
    assert "chunk.size" in said["seqprep chunk synthetic shards/other --chunk-size 0"][0]
    verified = said["seqprep verify shards/train"]
    assert "shard-00000-of-" in verified[2]
    assert "batch" in verified[2]
    assert all("shard-0" not in once for once in (verified[0], verified[1], verified[3]))
    repaired = said["seqprep repair shards/train"]
    assert "shard-00000-of-" in repaired[0]
    assert "index" in repaired[1]
    assert "shard-0" not in repaired[2]
    assert not list((tmp_path / "shards").rglob("*.partial"))
    assert len(list((tmp_path / "sequences").glob("*.npz"))) == 70
