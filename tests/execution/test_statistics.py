"""Statistics of a source against numpy over all its frames, and values normalised by them."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import seqprep
from seqprep import Loader, stats
from seqprep.errors import ConfigError, MismatchError, SourceError
from seqprep.execution import statistics

LENGTHS = [30, 1, 17, 0, 8, 25]


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """A configuration, and the frames of its source."""
    random = np.random.default_rng(1)
    frames = (random.standard_normal((sum(LENGTHS), 3)) * [1, 5, 0] + [100, -3, 7]).astype(np.float32)
    with h5py.File(tmp_path / "corpus.hdf", "w") as file:
        file["inputs"] = frames
        file["targets/data/classes"] = random.integers(0, 9, sum(LENGTHS)).astype(np.int32)
        file["seqLengths"] = np.stack([LENGTHS, LENGTHS], 1).astype(np.int32)
        file["seqTags"] = [f"aufnahme-{number}".encode() for number in range(len(LENGTHS))]
    config = {
        "source": {"type": "hdf5", "path": str(tmp_path / "corpus.hdf")},
        "keys": {"data": {}, "classes": {}},
        "chunk": {"size": 10, "step": 10},
        "context": 2,
        "batch": {"max_sequences": 4},
        "output": {"path": str(tmp_path / "shards")},
    }
    return config, frames


@pytest.mark.parametrize("threads", [1, 4])
def test_equal_numpy_over_all_frames(
    corpus: tuple[dict[str, Any], Any], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "_BLOCK_FRAMES", 7)
    monkeypatch.setattr(statistics, "_SEQUENCES_TOGETHER", 2)
    config, frames = corpus
    seen = []
    found = stats(config, threads=threads, progress=lambda done, total: seen.append((done, total)))
    wide = frames.astype(np.float64)
    assert found["data"].frames == len(frames)
    np.testing.assert_allclose(found["data"].mean, wide.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found["data"].std, wide.std(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found["data"].least, wide.min(0))
    np.testing.assert_array_equal(found["data"].greatest, wide.max(0))
    assert found["classes"].mean.shape == ()
    assert seen[-1] == (6, 6)


def test_threads_change_no_digit(corpus: tuple[dict[str, Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_SEQUENCES_TOGETHER", 1)
    one, many = (stats(corpus[0], threads=threads)["data"] for threads in (1, 5))
    assert one.mean.tolist() == many.mean.tolist()
    assert one.std.tolist() == many.std.tolist()


def cores(path: str, key: str = "data") -> dict[int, np.ndarray[Any, Any]]:
    """The frames of each sequence, put together from the cores of its rows."""
    found: dict[int, list[tuple[int, np.ndarray[Any, Any]]]] = {}
    with Loader(path) as loader:
        for batch in loader:
            for row, sequence in enumerate(batch["seq_idx"].tolist()):
                begin, size = batch[f"{key}/core"][row].tolist()
                start = int(batch[f"{key}/start"][row])
                found.setdefault(sequence, []).append((start, batch[key][row, begin : begin + size].copy()))
    return {
        sequence: np.concatenate([part for _, part in sorted(parts, key=lambda p: p[0])])
        for sequence, parts in found.items()
    }


def of_sequence(frames: np.ndarray[Any, Any], sequence: int) -> np.ndarray[Any, Any]:
    begin = sum(LENGTHS[:sequence])
    return frames[begin : begin + LENGTHS[sequence]].astype(np.float64)


def test_normalised_by_a_file(corpus: tuple[dict[str, Any], Any], tmp_path: Path) -> None:
    config, frames = corpus
    stats(config, output=tmp_path / "stats.json")
    config["keys"]["data"] = {"normalize": str(tmp_path / "stats.json")}
    seqprep.chunk(config)
    wide = frames.astype(np.float64)
    std = np.where(wide.std(0) > 1e-9, wide.std(0), 1)
    for sequence, values in cores(config["output"]["path"]).items():
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, (of_sequence(frames, sequence) - wide.mean(0)) / std, atol=2e-5)


@pytest.mark.parametrize(("dtype", "bound"), [(None, 2e-5), ("float16", 2**-10), ("float64", 2e-5)])
@pytest.mark.parametrize("variance", [True, False])
def test_normalised_by_sequence(
    corpus: tuple[dict[str, Any], Any], dtype: str | None, bound: float, variance: bool
) -> None:
    config, frames = corpus
    config["keys"]["data"] = {"normalize": {"by": "sequence", "variance": variance}, "dtype": dtype}
    config["output"]["shard_size"] = 600  # so that sequences are split over shards
    seqprep.chunk(config)
    for sequence, values in cores(config["output"]["path"]).items():
        own = of_sequence(frames, sequence)
        std = np.where(own.std(0) > 1e-9, own.std(0), 1) if variance else 1
        expected = (own - own.mean(0)) / std
        assert values.dtype == (dtype or "float32")
        np.testing.assert_allclose(values, expected, rtol=bound, atol=bound)


def test_context_outside_a_sequence_is_padded_after_normalising(corpus: tuple[dict[str, Any], Any]) -> None:
    config, _ = corpus
    config["keys"]["data"] = {"normalize": "sequence"}
    seqprep.chunk(config)
    with Loader(config["output"]["path"]) as loader:
        batch = next(iter(loader))
    assert not batch["data"][0, :2].any()  # zeros, though the mean isn't 0


def test_another_files_values_make_another_dataset(corpus: tuple[dict[str, Any], Any], tmp_path: Path) -> None:
    config, _ = corpus
    path = tmp_path / "stats.json"
    stats(config, output=path)
    config["keys"]["data"] = {"normalize": str(path)}
    seqprep.chunk(config)
    other = tmp_path / "copy.json"
    other.write_bytes(path.read_bytes())
    assert seqprep.chunk(config | {"keys": {"data": {"normalize": str(other)}, "classes": {}}}).already_complete
    content = json.loads(path.read_text())
    content["keys"]["data"]["mean"][0] += 1
    other.write_text(json.dumps(content))
    with pytest.raises(MismatchError, match=r"source.statistics +there: \w+ +now: \w+"):
        seqprep.chunk(config | {"keys": {"data": {"normalize": str(other)}, "classes": {}}})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            None,
            r"keys.data.normalize: .*stats.json can't be read: No such file or directory; make it with seqprep stats",
        ),
        ("[]", r"stats.json is no file of statistics"),
        ('{"version": 9, "keys": {}}', r"stats.json is of a newer version \(9\)"),
        ('{"version": 1, "keys": {}}', r"stats.json knows no key 'data'"),
        ("short", r"measured on frames of shape \[2\], and those of the source have \[3\]"),
        ("nan", r"holds values that are no means and deviations"),
    ],
)
def test_wrong_files(corpus: tuple[dict[str, Any], Any], tmp_path: Path, content: str | None, message: str) -> None:
    config, _ = corpus
    path = tmp_path / "stats.json"
    parts = ("mean", "std", "least", "greatest")
    if content in ("short", "nan"):
        values = [0.0, 1.0] if content == "short" else [float("nan")] * 3
        content = json.dumps({"version": 1, "keys": {"data": {"frames": 1} | dict.fromkeys(parts, values)}})
    if content is not None:
        path.write_text(content)
    config["keys"]["data"] = {"normalize": str(path)}
    with pytest.raises(ConfigError, match=message):
        seqprep.chunk(config)


def test_what_cannot_be_normalised(corpus: tuple[dict[str, Any], Any]) -> None:
    config, _ = corpus
    config["keys"]["data"] = {"normalize": "sequence", "dtype": "int16"}
    with pytest.raises(ConfigError, match=r"keys.data.dtype is 'int16', but the source holds float32"):
        seqprep.chunk(config)


def test_values_that_are_no_numbers(corpus: tuple[dict[str, Any], Any], tmp_path: Path) -> None:
    config, _ = corpus
    with h5py.File(tmp_path / "corpus.hdf", "r+") as file:
        file["inputs"][35, 1] = np.nan
    with pytest.raises(SourceError, match=r"sequence 'aufnahme-2', key 'data': frames 0 to 17 hold values that are no"):
        stats(config)
