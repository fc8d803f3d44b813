"""The package is whole, light to import, and its parts import in one direction."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import seqprep

ROOT = Path(__file__).resolve().parents[1]
LAYERS = {
    "errors": 0, "lazy": 0, "hashing": 1, "checksum": 1, "types": 1, "files": 1, "config": 2, "sources": 3, "planning": 3, "shards": 3,
    "execution": 4, "runtime": 4, "tensorflow": 4, "torch": 4, "jax": 4, "streaming": 5, "report": 6, "cli": 7,
}  # fmt: skip
HEAVY = {
    "tensorflow": {"runtime"},
    "h5py": {
        "sources/hdf5", "shards/hdf5_file.py", "shards/hdf5_layout.py", "shards/flat_hdf5.py",
    },
    "ml_dtypes": {"types.py"},
    "soundfile": {"sources/audio/soundfiles.py"},
    "soxr": {"sources/audio/resample.py"},
    "kaldi_native_fbank": {"sources/audio/features.py"},
    "pyarrow": {"sources/arrow_values.py"},
    "tokenizers": {"sources/tokenizing.py"},
    "torch": set(), "jax": set(), "dask": set(), "matplotlib": set(),
}  # fmt: skip


def modules() -> list[tuple[str, Path]]:
    """Every module with its path below the package."""
    found = [(path.relative_to(ROOT / "pipeline").as_posix(), path) for path in (ROOT / "pipeline").rglob("*.py")]
    return found + [(f"cli/{path.relative_to(ROOT / 'cli').as_posix()}", path) for path in (ROOT / "cli").rglob("*.py")]


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_every_subpackage_is_listed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {"seqprep" + path.parent.as_posix().replace(".", "").replace("/", ".").join(["." if path.parent != Path() else "", ""])
               for path in (Path(name) for name, _ in modules()) if path.name == "__init__.py"}  # fmt: skip
    assert listed == folders


@pytest.mark.parametrize(("name", "path"), modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_imports_go_one_way(name: str, path: Path) -> None:
    own = name.split("/")[0].removesuffix(".py")
    if own in ("__init__", "__main__"):
        return
    for imported in imports(parsed(path)):
        assert imported.split(".")[0] not in ("pipeline", "cli"), imported
        parts = imported.split(".")
        if parts[0] == "seqprep" and len(parts) > 1 and parts[1] in LAYERS:
            other = parts[1]
            assert other == own or LAYERS[other] < LAYERS[own] or {own, other} <= {"types", "hashing", "files"} or (
                other == "runtime" and own in ("tensorflow", "torch", "jax")
            ), f"{name} imports {imported}"  # fmt: skip


@pytest.mark.parametrize(("name", "path"), modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_heavy_packages_are_imported_where_they_belong_and_late(name: str, path: Path) -> None:
    tree = parsed(path)
    for heavy, places in HEAVY.items():
        used = any(found.split(".")[0] == heavy for found in imports(tree))
        assert not used or any(name == place or name.startswith(f"{place}/") for place in places), (
            f"{name} imports {heavy}"
        )
        top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not any(found.split(".")[0] == heavy for node in top for found in imports(node)), (
            f"{name}: {heavy} at the top"
        )


def test_public_names_are_there() -> None:
    for name in seqprep.__all__:
        assert getattr(seqprep, name) is not None
    assert set(dir(seqprep)) == set(seqprep.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = seqprep.nonsense


@pytest.mark.parametrize(
    "code", ["import seqprep", "from seqprep.cli.main import group; group(['--help'], standalone_mode=False)"]
)
def test_importing_is_light(code: str) -> None:
    probe = f"{code}\nimport sys; print(sorted({{'numpy', 'tensorflow', 'torch', 'jax', 'h5py', 'soundfile', 'pydantic', 'yaml'}} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True).stdout
    assert out.splitlines()[-1] == "[]"
