"""Memory is left alone while anything made of it lives, whatever gives the batches and whatever is made of their arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqprep
from seqprep import Loader
from tests.execution.small import QUICK, small

pytestmark = pytest.mark.usefixtures("bounded")


def config_of(folder: Path, format: str = "hdf5", compression: str = "none") -> dict[str, Any]:
    config = small(folder / f"{format}-{compression}", format, output__compression=compression)
    config["source"] |= {"sequences": 40, "features": 8}
    return config


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the same batches in every format."""
    made = tmp_path_factory.mktemp("kept")
    for setting in (("hdf5", "none"), ("tfrecord", "none"), ("hdf5", "gzip")):
        seqprep.chunk(config_of(made, *setting), storage=QUICK)
    return made


def mixed(folder: Path) -> Any:
    loaders = [Loader(folder / name, prefetch=1) for name in ("hdf5-none", "tfrecord-none")]
    return seqprep.mix([(loader, 1.0) for loader in loaders], seed=1, repeat=True)


SOURCES: dict[str, Callable[[Path], Any]] = {
    "hdf5": lambda folder: Loader(folder / "hdf5-none", prefetch=1),
    "tfrecord, without threads": lambda folder: Loader(folder / "tfrecord-none", prefetch=1, threads=0),
    "compressed": lambda folder: Loader(folder / "hdf5-gzip", prefetch=1, threads=2),
    "rows mixed": lambda folder: Loader(folder / "hdf5-none", prefetch=1, rebatch={"rows": 4, "window": 2}),
    "a mix": mixed,
    "a stream": lambda folder: seqprep.stream(config_of(folder), prefetch=1),
}


def tensorflow_of(array: Any) -> Any:
    tensorflow = pytest.importorskip("tensorflow")
    return tensorflow.experimental.dlpack.from_dlpack(array.__dlpack__())


MAKERS: dict[str, Callable[[Any], Any]] = {
    "array": lambda array: array,
    "part": lambda array: array[1:, ::2],
    "tensorflow": tensorflow_of,
    "torch": lambda array: pytest.importorskip("torch").from_numpy(array),
    "jax": lambda array: pytest.importorskip("jax").numpy.from_dlpack(array),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("source", SOURCES)
def test_what_is_made_of_one_array_keeps_it(folder: Path, source: str, maker: str) -> None:
    """Nothing else of the batch is kept, and the source goes round behind it, with few buffers."""
    make = MAKERS[maker]
    kept: list[Any] = []
    copies: list[Any] = []

    def keep(batches: Iterator[Any]) -> None:
        for batch in batches:
            kept.append(make(batch["data"]))
            copies.append(np.array(batch["data"][1:, ::2] if maker == "part" else batch["data"]))
            del batch

    with contextlib.closing(SOURCES[source](folder)) as opened:
        keep(iter(opened))
        for _ in range(3):
            for batch in opened:
                del batch
        assert len(kept) >= 10
        for own, then in zip(kept, copies, strict=True):
            np.testing.assert_array_equal(np.asarray(own), then)
