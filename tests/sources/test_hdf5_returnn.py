"""Files written by the toolkit RETURNN, read as it reads them itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import seqprep
from seqprep.sources import Source, axis_sizes
from seqprep.types import Array

from .hdf5_files import LENGTHS, TAGS, arrays, opened, write_flat
from .source_contract import assert_same, ranges

pytestmark = [pytest.mark.returnn, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def hdf() -> Any:
    return pytest.importorskip("returnn.datasets.hdf")


def write(
    hdf: Any,
    path: Path,
    inputs: Sequence[Array],
    dim: int | None,
    others: Mapping[str, Sequence[Array]] | None = None,
) -> Path:
    """Writes sequences one by one; `dim` is null for tokens."""
    writer = hdf.SimpleHDFWriter(filename=str(path), dim=dim or 50, ndim=inputs[0].ndim)
    for place, (tag, array) in enumerate(zip(TAGS, inputs, strict=True)):
        sizes = array.shape if dim is None or array.ndim > 2 else array.shape[:1]
        sizes = sizes[: array.ndim - (dim is not None)]
        extra = {key: values[place][None] for key, values in (others or {}).items()}
        writer.insert_batch(array[None], {axis: [size] for axis, size in enumerate(sizes)}, [tag], extra)
    writer.close()
    return path


def as_the_toolkit(hdf: Any, path: Path, keys: Sequence[str]) -> dict[str, list[Array]]:
    """What the toolkit's own reader gives, in the file's order."""
    dataset = hdf.HDFDataset(files=[str(path)])
    dataset.initialize()
    dataset.init_seq_order(epoch=1)
    values: dict[str, list[Array]] = {key: [] for key in keys}
    for place in range(dataset.num_seqs):
        dataset.load_seqs(place, place + 1)
        for key in keys:
            values[key].append(dataset.get_data(place, key))
    return values


def check(source: Source, truth: Mapping[str, Sequence[Array]], tags: Sequence[str] = TAGS) -> None:
    assert list(source.keys) == list(truth)
    assert list(source.tags) == list(tags)
    for key, values in truth.items():
        for place, expected in enumerate(values):
            assert_same(source.read(key, place), np.ascontiguousarray(expected))
    for key, sequence, frames, expected in ranges(truth, 200):
        assert_same(source.read(key, sequence, frames), np.ascontiguousarray(expected))


def test_features_with_labels_of_other_rates(hdf: Any, tmp_path: Path) -> None:
    values = arrays()
    others = {"phon": values["classes"], "align": [np.arange(length, dtype=np.int32) for length in LENGTHS]}
    path = write(hdf, tmp_path / "a.hdf", values["data"], 5, others)
    truth = as_the_toolkit(hdf, path, ["data", "align", "phon"])
    assert [len(array) for array in truth["phon"]] == [-(-length // 3) for length in LENGTHS]
    check(opened(path), truth)


def test_tokens(hdf: Any, tmp_path: Path) -> None:
    path = write(hdf, tmp_path / "a.hdf", arrays()["classes"], None)
    check(opened(path), as_the_toolkit(hdf, path, ["data"]))


def test_a_copy_that_the_toolkit_made(hdf: Any, tmp_path: Path) -> None:
    """HDFDatasetWriter stores contiguous datasets, tags of a fixed size, and names of classes."""
    names = [f"word {number}" for number in range(9)]
    tags = [f"corpus/rec 0/{number}" * (number + 1) for number in range(len(TAGS))]  # it writes ASCII alone
    write_flat(path := tmp_path / "a.hdf", tags, arrays())
    with h5py.File(path, "a") as file:
        file.attrs["inputPattSize"] = 5
        file.create_group("targets/size").attrs["classes"] = [len(names), 1]
        file.create_dataset("targets/labels/classes", data=names, dtype=h5py.string_dtype())
    dataset = hdf.HDFDataset(files=[str(path)])
    dataset.initialize()
    copy = hdf.HDFDatasetWriter(str(tmp_path / "b.hdf"))
    copy.dump_from_dataset(dataset, use_progress_bar=False)
    copy.close()
    with h5py.File(tmp_path / "b.hdf") as file:
        assert file["inputs"].chunks is None
        assert file["seqTags"].dtype.kind == "S"
    source = opened(tmp_path / "b.hdf")
    check(source, as_the_toolkit(hdf, tmp_path / "b.hdf", ["data", "classes"]), tags)
    assert source.keys["classes"].labels == tuple(names)


def test_inputs_of_several_varying_axes(hdf: Any, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    images = [draw.standard_normal((3 + place, 4 + 2 * place, 2)).astype(np.float32) for place in range(len(TAGS))]
    values = arrays()["classes"]
    path = write(hdf, tmp_path / "a.hdf", images, 2, {"classes": values})
    flattened = as_the_toolkit(hdf, path, ["data", "sizes"])
    assert [sizes.tolist() for sizes in flattened["sizes"]] == [list(image.shape[:2]) for image in images]
    source = opened(path)
    assert list(source.keys) == ["data", "classes"]
    assert source.keys["data"].shape == (None, 2)
    assert source.lengths("data").tolist() == [3, 4, 5, 6, 7]
    assert axis_sizes(source, "data").tolist() == [[4], [6], [8], [10], [12]]
    for place, image in enumerate(images):
        assert_same(source.read("data", place), image)
        assert_same(flattened["data"][place], image.reshape(-1, 2))
    for _, sequence, frames, expected in ranges({"data": images}, 100):
        out = np.full_like(expected, 7)
        assert_same(source.read("data", sequence, frames, out), expected)
    assert list(opened(path, keys=["classes", "sizes"]).keys) == ["classes", "sizes"]
    copy = tmp_path / "b.hdf"  # the same unpacked: read by its place in the file
    write_flat(copy, TAGS, {**flattened, "classes": values})
    for place, image in enumerate(images):
        assert_same(opened(copy).read("data", place), image)


def test_images_through_chunks(hdf: Any, tmp_path: Path) -> None:
    """Padded to a rectangle, with each row's own size beside."""
    draw = np.random.default_rng(0)
    images = [draw.integers(1, 9, (5 + place, 3 + place % 3)).astype(np.int32) for place in range(len(TAGS))]
    path = write(hdf, tmp_path / "a.hdf", images, None)
    seqprep.chunk(
        {
            "source": {"type": "hdf5", "path": str(path)},
            "chunk": {"size": 4, "step": 2},
            "batch": {"max_sequences": 3},
            "output": {"path": str(tmp_path / "out")},
        }
    )
    rows = 0
    with seqprep.Loader(tmp_path / "out") as loader:
        for batch in loader:
            for row, sequence in enumerate(batch["seq_idx"].tolist()):
                start, size, width = (int(batch[f"data/{name}"][row]) for name in ("start", "size0", "size1"))
                assert width == images[sequence].shape[1]
                assert np.array_equal(batch["data"][row, :size, :width], images[sequence][start : start + size])
                assert not batch["data"][row, :, width:].any()
                rows += 1
    assert rows > 2 * len(TAGS)


def test_a_target_that_is_called_sizes(hdf: Any, tmp_path: Path) -> None:
    values = arrays()
    sizes = [np.arange(length, dtype=np.int32) for length in LENGTHS]
    path = write(hdf, tmp_path / "a.hdf", values["data"], 5, {"sizes": sizes})
    check(opened(path), as_the_toolkit(hdf, path, ["data", "sizes"]))


def test_streams(hdf: Any, tmp_path: Path) -> None:
    values, draw = arrays(), np.random.default_rng(1)
    segments = [np.stack([draw.integers(0, 5, 4), draw.integers(1, 9, 4)], axis=1).astype(np.int32) for _ in TAGS]
    with h5py.File(tmp_path / "a.hdf", "w") as file:
        file.create_dataset("seq_names", data=list(TAGS), dtype=h5py.string_dtype())
        for name, parser, own in (("features", "feature_sequence", values["data"]),
                                  ("ali", "segment_alignment", segments), ("words", "sparse", values["classes"])):  # fmt: skip
            stream = file.create_group(f"streams/{name}")
            stream.attrs["parser"] = parser
            stream.create_dataset("feature_names", data=[str(number) for number in range(9)], dtype=h5py.string_dtype())
            for tag, array in zip(TAGS, own, strict=True):
                stream[f"data/{tag.replace('/', chr(92))}"] = array
    own_file = h5py.File(tmp_path / "a.hdf")
    truth: dict[str, list[Array]] = {}
    for name in ("features", "ali", "words"):
        stream = own_file[f"streams/{name}"]
        parser = hdf.NextGenHDFDataset.parsers[stream.attrs["parser"]]([tag.replace("/", "\\") for tag in TAGS], stream)
        truth[name] = [parser.get_data(tag.replace("/", "\\")) for tag in TAGS]
    truth["ali"] = [array.reshape(-1, 2)[:, 0] for array in truth["ali"]]  # beside each class, whether a segment ends
    own_file.close()
    check(opened(tmp_path / "a.hdf"), truth)


def test_small_files_of_the_toolkit(shared_data: Path, hdf: Any) -> None:
    for name, keys in (("simple_dense_classes", ["data", "classes"]), ("simple_dense_subsampled", ["data", "phon"]),
                       ("simple_sparse", ["data"])):  # fmt: skip
        path = shared_data / "returnn" / f"{name}.hdf"
        source, truth = opened(path), as_the_toolkit(hdf, path, keys)
        assert list(source.keys) == keys
        assert all("/" in tag and " " in tag and "ü" in tag for tag in source.tags)
        for key in keys:
            for place, expected in enumerate(truth[key]):
                assert_same(source.read(key, place), np.ascontiguousarray(expected))
