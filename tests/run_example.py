"""Runs a training program of the documentation in three ways, and holds that all end with the same model.

`python run_example.py tensorflow|torch|jax PROGRAM…`, in a folder with its dataset. Each program is run until its
seventh checkpoint fails, which loses the batches since the sixth; then again, to its end; and once without a stop.
"""

import importlib
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np

FAILING = 7


class StoppedError(Exception):
    pass


def run(program: Path, folder: Path, framework: str, failing: int = 0) -> dict[str, Any]:
    """Runs it in a folder, and gives its variables; raises when it saves for the `failing`-th time."""
    owner: Any = importlib.import_module("tensorflow").train.CheckpointManager if framework == "tensorflow" else os
    name = "save" if framework == "tensorflow" else "replace"
    original, calls = getattr(owner, name), 0

    def save(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise StoppedError
        return original(*args, **options)

    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    setattr(owner, name, save)
    try:
        return runpy.run_path(str(program), run_name="__main__")
    finally:
        setattr(owner, name, original)
        print(f"{program.stem}: {calls} checkpoints")


def weights(variables: dict[str, Any], framework: str) -> list[Any]:
    if framework == "jax":
        return [np.asarray(value) for value in importlib.import_module("jax").tree.leaves(variables["params"])]
    if framework == "torch":
        return [value.detach().cpu().numpy() for value in variables["model"].parameters()]
    return [value.numpy() for value in variables["model"].trainable_variables]


def main() -> None:
    framework, *programs = sys.argv[1:]
    home = Path.cwd()
    for name in programs:
        program = home / name
        stopped, whole = home / f"{program.stem}-stopped", home / f"{program.stem}-whole"
        for folder in (stopped, whole):
            folder.mkdir()
            (folder / "shards").symlink_to(home / "shards")
        try:
            run(program, stopped, framework, FAILING)
            raise AssertionError(f"{name} has saved fewer than {FAILING} checkpoints")
        except StoppedError:
            pass
        resumed, expected = (weights(run(program, folder, framework), framework) for folder in (stopped, whole))
        for one, other in zip(resumed, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        os.chdir(home)
    print("the same models")


if __name__ == "__main__":
    main()
