"""The programs of docs/training.md run, resume where they were stopped, and read no batch twice or not at all."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .snippets import printed

ROOT = Path(__file__).resolve().parents[1]
HEADINGS = {
    "# Training": "dataset",
    "## Keras": "keras",
    "### Without Python in the loop": "native",
    "## TensorFlow, a loop of your own": "loop",
    "## PyTorch": "torch",
    "### Under a DataLoader": "workers",
    "## JAX": "jax",
    "### Several devices of one process": "devices",
    "## Several processes": "ranks",
}


def programs() -> dict[str, str]:
    """The code under each heading, by a short name."""
    found, heading = {}, ""
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    for title, code in re.findall(r"^(#+ [^\n]*)$|^```python\n(.*?)^```", text, re.M | re.S):
        if title:
            heading = title
        else:
            assert HEADINGS[heading] not in found
            found[HEADINGS[heading]] = code
    assert list(found) == list(HEADINGS.values())
    return found


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds every program as a file, and the dataset."""
    made = tmp_path_factory.mktemp("training")
    for name, code in programs().items():
        (made / f"example_{name}.py").write_text(code, encoding="utf-8")
    printed(programs()["dataset"], made)
    return made


@pytest.mark.parametrize(
    ("framework", "names"), [("tensorflow", ["keras", "loop"]), ("torch", ["torch"]), ("jax", ["jax"])]
)
@pytest.mark.slow
def test_programs_go_on_where_they_were_stopped(folder: Path, framework: str, names: list[str]) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} isn't installed")
    out = run(folder, str(ROOT / "tests" / "run_example.py"), framework, *(f"example_{name}.py" for name in names))
    for name in names:
        assert re.findall(rf"example_{name}: (\d+) checkpoints", out) == ["7", "2", "8"]
    assert out.endswith("the same models\n")


@pytest.mark.slow
def test_workers(folder: Path) -> None:
    pytest.importorskip("torch")
    assert run(folder, "example_workers.py") == "next comes epoch 2, 31 batches\n"


def test_without_python_in_the_loop(folder: Path) -> None:
    pytest.importorskip("tensorflow")
    assert printed(programs()["native"], folder) == "31 batches, less loss\n"


def test_several_devices(folder: Path) -> None:
    pytest.importorskip("jax")
    assert run(folder, "example_devices.py") == "the last batch: [2, 2, 2, 2] rows on 4 devices\n"


def test_several_ranks(folder: Path) -> None:
    assert printed(programs()["ranks"], folder) == "pad [8, 8, 8, 8]\ndrop [7, 7, 7, 7]\nnone [8, 8, 8, 7]\n"
