from __future__ import annotations

import ast
import os
import pickle
import signal
import threading
from pathlib import Path

import pytest

from seqprep.lazy import cached_property

ROOT = Path(__file__).resolve().parents[1]


class Slow:
    """Works its value out when it is let go."""

    def __init__(self, value: int) -> None:
        self.asked, self.let_go = threading.Event(), threading.Event()
        self.calls, self._value = 0, value

    @cached_property
    def value(self) -> int:
        """What it is."""
        self.calls += 1
        self.asked.set()
        assert self.let_go.wait(10)
        return self._value


class Plain:
    @cached_property
    def squares(self) -> list[int]:
        return [1, 4, 9]


def quick(value: int) -> Slow:
    found = Slow(value)
    found.let_go.set()
    return found


def test_a_value_is_worked_out_once_for_each_instance() -> None:
    one, two = quick(1), quick(2)
    assert [one.value, one.value, two.value, one.value] == [1, 1, 2, 1]
    assert (one.calls, two.calls) == (1, 1)
    assert Slow.value.__doc__ == "What it is."
    plain = Plain()
    assert plain.squares is plain.squares
    assert pickle.loads(pickle.dumps(plain)).squares == [1, 4, 9]


def test_nobody_waits_for_what_is_worked_out_elsewhere() -> None:
    slow = Slow(1)
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert slow.asked.wait(10)
    assert quick(2).value == 2
    slow.let_go.set()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_while_a_thread_works_a_value_out_gets_its_own() -> None:
    slow = Slow(1)
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert slow.asked.wait(10)
    child = os.fork()
    if not child:
        signal.alarm(10)  # a child that waits for the thread, which it hasn't, waits for ever
        try:
            slow.let_go.set()
            os._exit(0 if (quick(2).value, slow.value) == (2, 1) else 1)
        finally:
            os._exit(2)
    slow.let_go.set()
    thread.join(10)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    "path", [*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "cli").rglob("*.py")], ids=lambda path: path.name
)
def test_functools_one_is_used_nowhere(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "functools":
            assert "cached_property" not in [alias.name for alias in node.names]
        assert not (isinstance(node, ast.Attribute) and node.attr == "cached_property")
