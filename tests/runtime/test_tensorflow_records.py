"""TFRecord shards read by tf.data alone hold what the loader gives."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import seqprep
from seqprep import Loader
from seqprep.errors import ConfigError, DatasetError
from seqprep.tensorflow import dataset
from tests.execution.small import QUICK

from .conftest import write_corpus

pytestmark = pytest.mark.usefixtures("bounded")


def chunked(tmp_path: Path, **sections: Any) -> Path:
    write_corpus(tmp_path / "corpus.hdf")
    output = {"path": str(tmp_path / "out"), "format": "tfrecord", "shard_size": 5000} | sections.pop("output", {})
    config: dict[str, Any] = {
        "source": {"type": "hdf5", "path": str(tmp_path / "corpus.hdf")},
        "chunk": {"size": 20, "step": 10},
        "context": 2,
        "batch": {"max_sequences": 8},
        "output": output,
    }
    return seqprep.chunk(config | sections, storage=QUICK).path


def assert_same(made: Any, batches: Any) -> None:
    for own, batch in zip(made, batches, strict=True):
        assert set(own) == {
            name.replace("/", "_") for name in batch if "segment_ids" not in name and "positions" not in name
        }
        for name, value in own.items():
            if name == "seq_tag":
                assert [tag.decode() for tag in value.numpy()] == list(batch["seq_tag"])
            else:
                expected = next(batch[other] for other in batch if other.replace("/", "_") == name)
                assert value.dtype.as_numpy_dtype == expected.dtype
                np.testing.assert_array_equal(value.numpy(), expected)


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gzip": {"output": {"compression": "gzip"}},
    "bfloat16": {"keys": {"data": {"dtype": "bfloat16"}, "classes": {"dtype": "int64"}}},
    "packed": {"batch": {"max_sequences": 3, "pack": True, "row_frames": 70}},
    "two passes": {"epochs": 2, "order": {"by": "random"}},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_batches_are_the_loaders(tmp_path: Path, setting: str) -> None:
    path = chunked(tmp_path, **SETTINGS[setting])
    with Loader(path) as loader:
        for number in range(2 if setting == "two passes" else 1):
            made = dataset(path, pass_number=number)
            assert made.cardinality() == len(loader)
            batches = list(loader)
            for _ in range(2):
                assert_same(made, batches)


def test_shuffled_batches_are_all_there_in_an_order_of_their_own(tmp_path: Path) -> None:
    path = chunked(tmp_path)
    with Loader(path) as loader:
        expected = [(*batch["seq_idx"].tolist(), *batch["data/start"].tolist()) for batch in loader]
    made = dataset(path, inputs=["seq_idx", "data/start"], shuffle=True, seed=4)
    epochs = [
        [(*batch["seq_idx"].numpy().tolist(), *batch["data_start"].numpy().tolist()) for batch in made]
        for _ in range(2)
    ]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(expected)
    assert epochs[0] != epochs[1]
    assert epochs[0] != expected


@pytest.mark.parametrize("setting", ["plain", "two passes"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_share_the_batches(tmp_path: Path, shuffle: bool, setting: str) -> None:
    """Though each rank shuffles by a seed of its own."""
    path = chunked(tmp_path, **SETTINGS[setting])
    number = int(setting == "two passes")
    with Loader(path) as loader:
        loader.load_state_dict(loader.state_dict() | {"epoch": number})
        expected = sorted(batch["data"].tobytes() for batch in loader)
    for world_size in (3,) if shuffle else (1, 3, len(expected) + 2):
        for even in ("none", "drop", "pad"):
            options = {"world_size": world_size, "even": even, "shuffle": shuffle, "pass_number": number}
            if len(expected) < world_size and even != "pad":
                with pytest.raises(ConfigError, match=rf"no batch for rank .* even '{even}'; .*set even to 'pad'"):
                    dataset(path, inputs="data", rank=world_size - 1, **options)
                continue
            parts = [dataset(path, inputs="data", rank=rank, **options) for rank in range(world_size)]
            found = [[values.numpy().tobytes() for values in part] for part in parts]
            assert [part.cardinality() for part in parts] == list(map(len, found))
            counts = Counter(itertools.chain(*found))
            if even == "none":
                assert sorted(counts.elements()) == expected
                assert max(map(len, found)) - min(map(len, found)) <= 1
                continue
            full, rest = divmod(len(expected), world_size)
            assert {len(part) for part in found} == {full + (even == "pad" and rest > 0)}
            if even == "pad":
                assert sorted(counts) == expected
                assert counts.total() - len(expected) < world_size
            else:
                assert set(counts) <= set(expected)
                assert max(counts.values()) == 1


@pytest.mark.parametrize("native", [False, True])
def test_keras_fits_either(tmp_path: Path, native: bool) -> None:
    path = chunked(tmp_path)
    with Loader(path) as loader:
        made = dataset(path if native else loader, inputs="data", targets="data/size0")
        model = tf.keras.Sequential([tf.keras.layers.GlobalAveragePooling1D(), tf.keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        seen = model.fit(made, epochs=2, verbose=0, shuffle=False)
        assert len(seen.history["loss"]) == 2
        assert np.isfinite(seen.history["loss"]).all()


REPLICAS = """
import sys
import tensorflow as tf
from seqprep import Loader
from seqprep.tensorflow import dataset

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
with Loader(sys.argv[1]) as loader:
    expected = [batch["seq_idx"].tolist() for batch in loader]
    for source in (sys.argv[1], loader):
        made = strategy.distribute_datasets_from_function(lambda context: dataset(source, inputs="seq_idx"))
        found = []
        for batch in made:
            values = strategy.experimental_local_results(batch)
            assert len(values) == 2
            found += [value.numpy().tolist() for value in values if len(value)]
        assert found == expected, (found, expected)
        print(len(found), "batches")
"""


def test_replicas_get_batches_of_their_own(tmp_path: Path) -> None:
    """Natively, and of a loader."""
    path = chunked(tmp_path)
    done = subprocess.run([sys.executable, "-c", REPLICAS, str(path)], capture_output=True, text=True, timeout=120,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    native, loader = map(int, done.stdout.split()[::2])
    assert native == loader > 5


def test_what_is_refused(tmp_path: Path) -> None:
    path = chunked(tmp_path)
    with pytest.raises(ConfigError, match="inputs: the batches hold no 'dat'; did you mean 'data'"):
        dataset(path, inputs="dat")
    with pytest.raises(ConfigError, match=r"has no batch for rank 99 of 100 with even 'none'; use fewer ranks"):
        dataset(path, rank=99, world_size=100, even="none")
    with pytest.raises(ConfigError, match=r"rank is 3: with world_size 3 it has to lie in \[0, 3\)"):
        dataset(path, rank=3, world_size=3)
    with pytest.raises(ConfigError, match="even is 'some': it has to be pad, drop or none"):
        dataset(path, even="some")
    with pytest.raises(ConfigError, match="parallel is 0"):
        dataset(path, parallel=0)
    with pytest.raises(DatasetError, match="none"):
        dataset(tmp_path / "none")
    seqprep.convert(path, tmp_path / "hdf5", format="hdf5")
    with pytest.raises(ConfigError, match=r"its shards are hdf5, which tf.data can't read: give a seqprep.Loader"):
        dataset(tmp_path / "hdf5")
    with Loader(path) as loader, pytest.raises(ConfigError, match="shuffle: for the folder of a dataset alone"):
        dataset(loader, shuffle=True)


def test_a_flipped_byte_is_an_error_of_tensorflows(tmp_path: Path) -> None:
    path = chunked(tmp_path)
    shard = sorted(path.glob("*.tfrecord"))[0]
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(tf.errors.DataLossError, match="corrupted record"):
        list(dataset(path))
