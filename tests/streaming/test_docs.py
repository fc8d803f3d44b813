"""What docs/streaming.md shows runs, in its order; what docs/migrating.md says of RETURNN's pipeline is shown by tests."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import subprocess
import sys
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


ABILITIES = {
    "DatasetReader", "seq_tag", "seq_idx", "epoch_end", "TFChunkingQueueRunner", "TFDataQueues", "TFBatchingQueue",
    "CpuToDefaultDevStage", "FeedDictDataProvider", "QueueDataProvider", "chunk_size", "chunk_step", "context_window",
    "batch_size", "max_seqs", "capacity", "batch_slice", "single_threaded", "have_more_data", "have_reached_end",
    "get_complete_frac", "get_dataset_name", "get_feed_dict", "start_threads", "stop_threads", "init_dataset",
    "seq_counter", "batch_counter", "last_seq_idx",
}  # fmt: skip


def returnn_section() -> str:
    text = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
    return re.split(r"(?m)^## ", text.partition("## From RETURNN's")[2])[0]


def test_the_tables_name_every_ability_of_returnns_and_tests_that_there_are() -> None:
    lines = [line for line in returnn_section().splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows = [row for row in rows if row[0] != "there" and not row[0].startswith("---")]
    words = {word for row in rows for word in re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", row[0])))}
    assert words >= ABILITIES
    tests = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    for there, _, shown_by in rows:
        named = re.findall(r"`(\w+)`", shown_by)
        assert named, there
        assert set(named) <= tests, there


def test_the_snippet_beside_returnns_prints_what_it_says(tmp_path: Path) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", returnn_section(), re.S))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    promised = [line.partition("  # ")[2] for line in code.splitlines() if line.strip().startswith("print(")]
    assert len(promised) == 2
    assert done.stdout.splitlines() == promised
