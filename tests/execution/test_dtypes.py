"""Values stored in fewer bits: within the bounds that docs/format.md states."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import seqprep
from seqprep import Loader
from seqprep.config import load_config
from seqprep.errors import ConfigError, DependencyError, SourceError
from seqprep.planning.rules import output_spec
from seqprep.types import KeySpec, numpy_dtype

from .small import make, small

# relative error of normal values, absolute error of smaller ones, largest value
BOUNDS = {"float16": (2.0**-11, 2.0**-25, 65504.0), "bfloat16": (2.0**-8, 2.0**-134, 3.3895e38), "float32": (2.0**-24, 2.0**-150, 3.4028e38)}  # fmt: skip
NORMAL = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126}


def stored(tmp_path: Path, values: np.ndarray, dtype: str, format: str = "hdf5") -> np.ndarray:
    with h5py.File(tmp_path / "corpus.hdf", "w") as file:
        file["inputs"] = values
        file["seqLengths"] = np.array([[len(values)]], np.int32)
        file["seqTags"] = np.array([b"a"])
    out = tmp_path / f"{dtype}-{format}"
    source = {"type": "hdf5", "path": str(tmp_path / "corpus.hdf")}
    make(out, format, source=source, keys={"data": {"dtype": dtype}}, chunk=None, context=0, batch={"max_sequences": 1})
    with Loader(out) as loader:
        (batch,) = loader
        assert batch["data"].dtype == numpy_dtype(dtype)
        return np.array(batch["data"][0])


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("held", ["float32", "float64"])
@pytest.mark.parametrize("format", ["hdf5", "tfrecord"])
def test_errors_stay_within_the_bounds(tmp_path: Path, dtype: str, held: str, format: str) -> None:
    relative, absolute, largest = BOUNDS[dtype]
    random = np.random.default_rng(0)
    exponents = random.uniform(-160, np.log2(largest) - 0.01, 4000)
    values = (random.choice([-1.0, 1.0], 4000) * 2.0**exponents).astype(held)
    values = np.concatenate([values, np.array([0.0, -0.0, np.nan, np.inf, -np.inf, largest, -largest], held)])
    found = stored(tmp_path, values, dtype, format).astype(np.float64)
    exact = values.astype(np.float64)
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(found[~finite], exact[~finite])
    error, size = np.abs(found[finite] - exact[finite]), np.abs(exact[finite])
    normal = size >= NORMAL[dtype]
    assert (error[normal] <= relative * (1 + 2.0**-15) * size[normal]).all()  # float64 is rounded twice on its way
    assert (error[~normal] <= absolute * (1 + 2.0**-15)).all()


@pytest.mark.parametrize(
    ("dtype", "value"), [("float16", 65520.0), ("bfloat16", 3.4e38), ("bfloat16", 1e39), ("float32", 1e39)]
)
def test_what_is_too_large_is_refused_and_not_made_infinite(tmp_path: Path, dtype: str, value: float) -> None:
    with pytest.raises(SourceError, match=f"sequence 'a', key 'data': holds values too large for {dtype}"):
        stored(tmp_path, np.array([1.0, value]), dtype)


def test_bfloat16_is_a_float_among_the_kinds(tmp_path: Path) -> None:
    config = load_config(small(tmp_path, keys={"data": {"dtype": "bfloat16", "pad_value": 0.5}}))
    for held in ("float16", "float32", "float64", "bfloat16", "int8", "uint8"):
        assert output_spec("data", KeySpec(dtype=held, shape=(3,)), config) == KeySpec(dtype="bfloat16", shape=(3,))
    for held in ("int16", "int64", "uint16"):  # it has 8 bits of precision
        with pytest.raises(ConfigError, match="which it can't stand for"):
            output_spec("data", KeySpec(dtype=held), config)
    integers = load_config(small(tmp_path, keys={"data": {"dtype": "int32"}}))
    with pytest.raises(ConfigError, match="the source holds bfloat16"):
        output_spec("data", KeySpec(dtype="bfloat16"), integers)


def test_rows_are_padded_in_bfloat16(tmp_path: Path) -> None:
    folder = make(tmp_path / "out", keys={"data": {"dtype": "bfloat16", "pad_value": -1.5}, "classes": {}})
    with Loader(folder) as loader:
        padded = 0
        for batch in loader:
            for row, size in enumerate(batch["data/size0"].tolist()):
                rest = batch["data"][row, size:].astype(np.float32)
                assert (rest == -1.5).all()
                padded += rest.size
        assert padded


def test_workers_know_bfloat16(tmp_path: Path) -> None:
    whole = make(tmp_path / "one", keys={"data": {"dtype": "bfloat16"}})
    seqprep.chunk(small(tmp_path / "two", keys={"data": {"dtype": "bfloat16"}}), workers=2)
    for name in (path.name for path in whole.iterdir()):
        assert (tmp_path / "two" / name).read_bytes() == (whole / name).read_bytes()


def test_nothing_else_needs_ml_dtypes(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["ml_dtypes"] = None
import seqprep
from seqprep.errors import DependencyError
config = {small(tmp_path / "out")!r}
seqprep.chunk(config)
with seqprep.Loader(config["output"]["path"]) as loader:
    print(len(list(loader)))
try:
    seqprep.chunk(config | {{"keys": {{"data": {{"dtype": "bfloat16"}}}}}})
except DependencyError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout
    assert "pip install 'seqprep[bfloat16]'" in out
    assert issubclass(DependencyError, ImportError)
