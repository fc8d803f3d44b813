import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from seqprep import Loader
from seqprep.errors import ConfigError, DependencyError
from seqprep.tensorflow import dataset

from .conftest import MakeDataset, wait_for_threads

pytestmark = pytest.mark.usefixtures("bounded")

SHAPES = {
    "data": ((None, None, 5), "float32"),
    "data_size0": ((None,), "int32"),
    "data_start": ((None,), "int64"),
    "data_core": ((None, 2), "int32"),
    "data_length": ((None,), "int64"),
    "classes": ((None, None), "int32"),
    "classes_size0": ((None,), "int32"),
    "classes_start": ((None,), "int64"),
    "classes_core": ((None, 2), "int32"),
    "classes_length": ((None,), "int64"),
    "seq_idx": ((None,), "int64"),
    "seq_tag": ((None,), "string"),
}


def plain(batch: Any) -> dict[str, Any]:
    return {name: np.array(value).tolist() for name, value in batch.items()}


@pytest.mark.parametrize("output_format", ["hdf5", "tfrecord"])
def test_all_arrays_as_they_are(make_dataset: MakeDataset, output_format: str) -> None:
    with Loader(make_dataset(output_format)) as loader:
        made = dataset(loader)
        assert {name: (tuple(spec.shape), spec.dtype.name) for name, spec in made.element_spec.items()} == SHAPES
        expected = list(loader)
        for batch, arrays in zip(made, expected, strict=True):
            assert batch.keys() == SHAPES.keys()
            for name, array in arrays.items():
                if name == "seq_tag":
                    assert [tag.decode() for tag in batch[name].numpy()] == list(array)
                    assert "größe" in batch[name].numpy()[0].decode()
                else:
                    np.testing.assert_array_equal(batch[name.replace("/", "_")], array)


def test_epochs_differ_and_are_counted(make_dataset: MakeDataset) -> None:
    path = make_dataset()
    with Loader(path, shuffle=True) as alone:
        expected = [[list(batch["seq_idx"]) for batch in alone] for _ in range(3)]
    assert expected[0] != expected[1]
    with Loader(path, shuffle=True) as loader:
        made = dataset(loader, inputs="seq_idx").prefetch(2)
        assert made.cardinality() == len(loader) == len(expected[0])
        assert [[list(values.numpy()) for values in made] for _ in range(2)] == expected[:2]
        assert loader.epoch == 2
        abandoned = iter(made)
        next(abandoned)
        del abandoned
        assert [list(values.numpy()) for values in made] == expected[2]


def test_consumers_that_count_batches_advance_the_epoch(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset(), shuffle=True) as loader:
        made = dataset(loader, inputs="seq_idx")
        for epoch in range(3):
            assert loader.epoch == epoch
            iterator = iter(made)
            for _ in range(len(loader)):
                next(iterator)
            del iterator
        assert loader.epoch == 3


def test_one_name_is_a_tensor_and_several_are_a_dict(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset()) as loader:
        expected = plain(loader.batch(0))
        (values, labels) = next(iter(dataset(loader, inputs="data", targets="classes")))
        assert values.numpy().tolist() == expected["data"]
        assert labels.numpy().tolist() == expected["classes"]
        (values, labels) = next(iter(dataset(loader, inputs=["data", "data/size0"], targets=["classes"])))
        assert list(values) == ["data", "data_size0"]
        assert list(labels) == ["classes"]
        assert labels["classes"].numpy().tolist() == expected["classes"]
        assert list(next(iter(dataset(loader, inputs=["data/core"])))) == ["data_core"]
    assert not wait_for_threads()


def test_keys_left_out_are_not_there(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset(), keys=["classes"]) as loader:
        assert dataset(loader).element_spec.keys() == {name for name in SHAPES if not name.startswith("data")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": "dta"}, "inputs: the batches hold no 'dta'; did you mean 'data'"),
        ({"inputs": ["data", "data/size"]}, "inputs: the batches hold no 'data/size'; did you mean 'data/size0'"),
        ({"inputs": "data", "targets": "clases"}, "targets: the batches hold no 'clases'; did you mean 'classes'"),
        ({"targets": "classes"}, "targets is 'classes' but inputs isn't set"),
    ],
)
def test_refuses_unknown_names(make_dataset: MakeDataset, options: dict[str, Any], message: str) -> None:
    with Loader(make_dataset()) as loader, pytest.raises(ConfigError, match=message):
        dataset(loader, **options)


def test_says_which_extra_is_missing(make_dataset: MakeDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    with Loader(make_dataset()) as loader:
        monkeypatch.setitem(sys.modules, "tensorflow", None)
        with pytest.raises(DependencyError, match=r"pip install 'seqprep\[tensorflow\]'"):
            dataset(loader)


def test_goes_on_from_a_loaded_state(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset()) as loader:
        made = dataset(loader)
        batches = [plain(batch) for batch in made]
        loader.load_state_dict(loader.state_dict() | {"position": 4})
        with pytest.raises(tf.errors.OpError, match="loaded after its dataset was made"):
            next(iter(made))
        resumed = dataset(loader)
        assert resumed.cardinality() == tf.data.UNKNOWN_CARDINALITY
        assert [plain(batch) for batch in resumed] == batches[4:]
        assert [plain(batch) for batch in resumed] == batches
        assert dataset(loader).cardinality() == len(loader)


def test_state_of_a_pipeline_that_reads_ahead(make_dataset: MakeDataset) -> None:
    path = make_dataset()
    with Loader(path) as loader:
        made = dataset(loader).prefetch(4)
        batches, states = [], [loader.state_at(0)]
        for consumed, batch in enumerate(made, 1):
            batches.append(plain(batch))
            states.append(loader.state_at(consumed))
    assert states[-1] == loader.state_dict()
    for consumed in (0, 1, 7, len(batches)):
        with Loader(path) as loader:
            loader.load_state_dict(states[consumed])
            tail = [plain(batch) for batch in dataset(loader)]
            assert tail == (batches[consumed:] or batches)


def test_a_damaged_shard_is_named(make_dataset: MakeDataset) -> None:
    path = make_dataset()
    shard = sorted(path.glob("*.h5"))[4]
    shard.write_bytes(bytes(255 - byte for byte in shard.read_bytes()))
    with Loader(path) as loader, pytest.raises(tf.errors.OpError, match=shard.name):
        list(dataset(loader))


def test_keras_fits(make_dataset: MakeDataset) -> None:
    keras = tf.keras
    with Loader(make_dataset(), shuffle=True) as loader:
        values = keras.Input((None, 5), name="data")
        sizes = keras.Input((), dtype="int32", name="data_size0")
        outputs = keras.layers.Dense(7)(values)[:, 2:-2] + 0.0 * tf_free(keras, sizes)
        model = keras.Model([values, sizes], outputs)
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        made = dataset(loader, inputs=["data", "data/size0"], targets="classes").prefetch(2)
        history = model.fit(made, epochs=3, shuffle=False, verbose=0)
        assert len(history.history["loss"]) == 3
        assert loader.epoch == 3
        assert loader.metrics().batches >= 3 * len(loader)


def tf_free(keras: Any, sizes: Any) -> Any:
    return keras.ops.cast(sizes, "float32")[:, None, None]
