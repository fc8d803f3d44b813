"""The documents on data workers: their snippets run and print what they say, their tables name tests that there are."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from seqprep import DataWorkers
from tests.snippets import printed

ROOT = Path(__file__).resolve().parents[2]
CAFFE2 = {
    "net", "input_blob_names", "fetch_fun", "batch_size", "num_worker_threads", "input_source_name",
    "max_buffered_batches", "init_fun", "external_loggers", "dont_rebatch", "batch_columns", "timeout",
    "start", "stop", "stop_coordinator", "register_shutdown_handler", "reset_data_input", "get_worker_ids",
    "get_new_worker_id", "get_queue", "add", "is_active", "shutdown_fun", "inputs_per_sec", "queue_size",
    "time_elapsed", "fetcher_time", "enqueue_time", "LOG_INT_SECS",
    "GlobalCoordinator", "global_coordinator", "WorkerCoordinator", "DataInputCoordinator", "init",
    "BatchFeeder", "put", "State", "cleanup", "Metrics", "put_metric", "log_metrics", "reset_metrics",
    "DataWorker", "run_worker", "run", "finish", "handle_exception", "enqueuer",
}  # fmt: skip


def section(name: str) -> str:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    return text if name == "data_workers.md" else re.split(r"(?m)^## ", text.partition("## From Caffe2's")[2])[0]


def rows() -> list[list[str]]:
    """The cells of the tables on Caffe2, without their heads."""
    lines = [line for line in section("migrating.md").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "there" and not row[0].startswith("---")]


def promised(code: str) -> list[str]:
    """What is printed: the comment behind each `print`, or on the line after it."""
    lines = [*code.splitlines(), ""]
    prints = [number for number, line in enumerate(lines) if line.strip().startswith("print(")]
    return [lines[n].partition("  # ")[2] or lines[n + 1].strip().removeprefix("# ") for n in prints]


@pytest.mark.parametrize("name", ["data_workers.md", "migrating.md"])
def test_snippets_print_what_they_say(name: str, tmp_path: Path) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", section(name), re.S))
    assert printed(code, tmp_path).splitlines() == promised(code)
    assert promised(code)


def test_every_ability_of_caffe2s_is_in_the_tables() -> None:
    words = {word for row in rows() for word in re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", row[0])))}
    assert words >= CAFFE2


def test_the_tables_name_tests_and_arguments_that_there_are() -> None:
    tests = {
        node.name
        for path in (ROOT / "tests" / "runtime").glob("test_data_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    options = set(inspect.signature(DataWorkers).parameters)
    for there, here, shown_by in rows():
        named = re.findall(r"`(\w+)`", shown_by)
        assert named, there
        assert set(named) <= tests, there
        for option in re.findall(r"`(\w+)=", here):
            assert option in options, there
        for method in re.findall(r"(?:workers|DataWorkers)\.(\w+)", here):
            assert hasattr(DataWorkers, method), there
