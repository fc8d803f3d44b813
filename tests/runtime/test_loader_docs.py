"""What docs/loader.md shows runs, and prints what it says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from seqprep import Loader
from tests.snippets import printed

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "loader.md").read_text(encoding="utf-8")


def test_snippets(tmp_path: Path) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.S))
    promised = [line.rpartition("  # ")[2] for line in code.splitlines() if line.strip().startswith("print(")]
    assert len(promised) == 8
    assert printed(code, tmp_path).splitlines() == promised


def test_every_option_is_named() -> None:
    table = TEXT.partition("## Options")[2].partition("## Where")[0]
    for option in set(inspect.signature(Loader).parameters) - {"path"}:
        assert f"`{option}" in table, option
