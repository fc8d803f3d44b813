"""Real recordings, from WAV files to a trained model: both formats, both ways into TensorFlow."""

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqprep
from seqprep.types import Array

pytestmark = pytest.mark.train

HELD_OUT_TAKES = {"4", "5"}
FORMATS = ("hdf5", "tfrecord")
EPOCHS = 30
LEAST_RIGHT = 0.8


@pytest.fixture(scope="module")
def datasets(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each part and format, such as "train-hdf5", the folder of a dataset."""
    folder = tmp_path_factory.mktemp("digits")
    made = {}
    for part in ("train", "held-out"):
        manifest = folder / f"{part}.csv"
        write_manifest(manifest, shared_data / "fsdd", held_out=part == "held-out")
        for output_format in FORMATS:
            made[f"{part}-{output_format}"] = folder / part / output_format
            seqprep.chunk(
                {
                    "source": {
                        "type": "audio",
                        "manifest": str(manifest),
                        "labels": ["digit"],
                        "features": {"type": "log_mel", "bins": 40},
                    },
                    "chunk": {"size": 50, "step": 25},
                    "context": {"left": 5, "right": 5},
                    "batch": {"max_frames": 2000, "max_sequences": 40},
                    "order": {"by": "random", "seed": 1} if part == "train" else {"by": "source"},
                    "output": {
                        "path": str(made[f"{part}-{output_format}"]),
                        "format": output_format,
                        "shard_size": "1MB",
                    },
                }
            )
    return made


def write_manifest(path: Path, recordings: Path, held_out: bool) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "tag", "digit"])
        for recording in sorted(recordings.glob("*.wav")):
            digit, _, take = recording.stem.split("_")
            if (take in HELD_OUT_TAKES) == held_out:
                rows.writerow([recording, recording.stem, digit])


def test_formats_hold_the_same(datasets: dict[str, Path]) -> None:
    for part in ("train", "held-out"):
        rows = 0
        with (
            seqprep.Loader(datasets[f"{part}-hdf5"]) as one,
            seqprep.Loader(datasets[f"{part}-tfrecord"]) as other,
        ):
            for left, right in zip(one, other, strict=True):
                assert left.keys() == right.keys() >= {"data", "data/size0", "digit", "seq_idx", "seq_tag"}
                for name, values in left.items():
                    assert values.dtype == right[name].dtype
                    np.testing.assert_array_equal(values, right[name])
                digits = [int(tag.split("_")[0]) for tag in left["seq_tag"]]
                assert digits == list(left["digit"])
                assert left["data"].shape[2] == 40
                assert left["data"].size <= 2000 * 40
                rows += len(digits)
        assert rows > 120


@pytest.mark.parametrize("output_format", FORMATS)
def test_a_loop_over_a_stage_learns_digits(datasets: dict[str, Path], output_format: str) -> None:
    import tensorflow as tf

    model = make_model()
    optimizer = tf.keras.optimizers.Adam(2e-3)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function(reduce_retracing=True)
    def step(data: Any, size0: Any, digit: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(digit, model([data, size0], training=True))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    losses = []  # of each epoch
    with seqprep.Loader(datasets[f"train-{output_format}"], shuffle=True, seed=1) as loader:
        from seqprep.tensorflow import stage

        with stage(loader, depth=2) as staged:
            for _ in range(EPOCHS):
                steps = [float(step(batch["data"], batch["data/size0"], batch["digit"])) for batch in staged]
                losses += [np.mean(steps)]
            assert staged.metrics().batches == EPOCHS * len(staged)
        assert loader.epoch == EPOCHS
    assert losses[-1] < losses[0] / 4
    check(model, datasets[f"held-out-{output_format}"])


@pytest.mark.parametrize("output_format", FORMATS)
def test_fit_on_a_dataset_learns_digits(datasets: dict[str, Path], output_format: str) -> None:
    import tensorflow as tf

    from seqprep.tensorflow import dataset

    model = make_model()
    model.compile(tf.keras.optimizers.Adam(2e-3), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with seqprep.Loader(datasets[f"train-{output_format}"], shuffle=True, seed=1) as loader:
        batches = dataset(loader, inputs=["data", "data/size0"], targets="digit").prefetch(2)
        history = model.fit(batches, epochs=EPOCHS, shuffle=False, verbose=0)
        assert loader.epoch == EPOCHS
    assert history.history["loss"][-1] < history.history["loss"][0] / 4
    check(model, datasets[f"held-out-{output_format}"])


def make_model() -> Any:
    """Convolutions over time, then the mean over the valid frames."""
    import tensorflow as tf

    keras = tf.keras
    keras.utils.set_random_seed(1)
    data, size0 = keras.Input((None, 40), name="data"), keras.Input((), dtype="int32", name="data_size0")
    places = keras.ops.cumsum(keras.ops.ones_like(data[:, :, :1]), axis=1)
    valid = keras.ops.cast(places <= keras.ops.cast(size0, "float32")[:, None, None], "float32")
    values = (data - 12.0) / 4.0 * valid
    for _ in range(2):
        values = keras.layers.Conv1D(64, 5, padding="same", activation="relu")(values)
        values = keras.layers.Dropout(0.2)(values) * valid
    mean = keras.ops.sum(values, axis=1) / keras.ops.cast(size0, "float32")[:, None]
    peak = keras.ops.max(values, axis=1)
    return keras.Model([data, size0], keras.layers.Dense(10)(keras.layers.Concatenate()([mean, peak])))


def check(model: Any, held_out: Path) -> None:
    """Holds the model to recordings of takes that it hasn't seen; a recording's chunks vote."""
    with seqprep.Loader(held_out) as loader:
        right = right_share(loader, lambda batch: model([batch["data"], batch["data/size0"]], training=False))
    print(f"\n{held_out.parent.name} {held_out.name}: {right:.1%} of recordings right")
    assert right > LEAST_RIGHT


def right_share(batches: Iterable[dict[str, Any]], logits_of: Callable[[dict[str, Any]], Any]) -> float:
    votes: dict[int, Array] = {}
    digits: dict[int, int] = {}
    for batch in batches:
        logits = np.asarray(logits_of(batch), np.float64)
        log_shares = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        for sequence, digit, vote in zip(batch["seq_idx"].tolist(), batch["digit"].tolist(), log_shares, strict=True):
            votes[sequence] = votes.get(sequence, 0) + vote
            digits[sequence] = digit
    assert len(digits) == 120
    return float(np.mean([int(votes[sequence].argmax()) == digits[sequence] for sequence in digits]))
