"""What docs/streaming.md shows runs, in its order."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_snippets(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "streaming.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) == text.count("```") // 2 == 5
    variables: dict[str, object] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(compile(block, "docs/streaming.md", "exec"), variables)
    lines = printed.getvalue().splitlines()
    assert re.fullmatch(r"\d+ batches, \d+ frames", lines[0])
    assert lines[1] == "True"
    assert [line.split()[1] for line in lines[2:6]] != ["0,"] * 4
    assert [line.split()[-1] for line in lines[-4:]] == ["dev", "test"] * 2
    assert lines[-4:-2] == [line.replace("epoch 1", "epoch 0") for line in lines[-2:]]  # the same frames in each epoch
