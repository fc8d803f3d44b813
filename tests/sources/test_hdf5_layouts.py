"""Every layout of HDF5 keeps the contract, whole or by ranges, plain, packed or in another byte order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest

from seqprep.errors import SourceError
from seqprep.execution import chunk
from seqprep.sources import Source
from seqprep.types import Array

from .hdf5_files import LENGTHS, OfLayout, arrays, opened, write_flat, write_many
from .source_contract import LARGE_BYTES, MANY_FILES, Truth

STRINGS = h5py.string_dtype()
GZIP: dict[str, Any] = {"compression": "gzip", "shuffle": True, "fletcher32": True}


class TestFlat(OfLayout):
    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        write_flat(path, tags, truth)

    def test_neighbours_of_one_file_are_read_at_once(self, source: Any, truth: Truth) -> None:
        whole = np.concatenate(truth["data"])
        inside, beyond = np.empty_like(whole[:38]), np.empty_like(whole[38:])
        assert source.read_together("data", 0, 3, inside)
        assert inside.tobytes() == whole[:38].tobytes()
        assert not source.read_together("data", 2, 5, beyond)  # the last two are in another file


def test_a_file_cut_meanwhile_names_the_sequence_though_neighbours_are_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "cut.h5"
    with h5py.File(path, "w") as file:
        file["inputs"] = np.concatenate(arrays([400, 60, 70, 80])["data"])
        file["seqLengths"], file["seqTags"] = np.array([[400], [60], [70], [80]], np.int32), list("abcd")
        end = file["inputs"].id.get_offset() + file["inputs"].nbytes
    config = {
        "source": {"type": "hdf5", "path": str(path)},
        "chunk": {"size": 10},
        "batch": {"max_sequences": 4},
        "output": {"path": str(tmp_path / "out"), "shard_size": "5KB"},
    }
    with pytest.raises(SourceError, match=r"cut\.h5: sequence 'c', key 'data' is cut off"):
        chunk(config, progress=lambda _: os.truncate(path, end - 81 * 20))  # inside the third sequence


class TestFlatCompressed(OfLayout):
    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        write_flat(path, tags, truth, chunks=True, **GZIP)

    @pytest.fixture
    def many(self, tmp_path: Path) -> Callable[[], Source]:
        one = {key: values[:1] for key, values in arrays().items()}
        folder = write_many(tmp_path / "many", lambda path, tag: write_flat(path, [tag], one, chunks=True))
        return lambda: opened(folder)

    @pytest.mark.slow
    def test_many_files_keep_few_open(self, many: Callable[[], Source]) -> None:
        super().test_many_files_keep_few_open(many)


class TestFlatBigEndian(OfLayout):
    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        swapped = {key: [array.astype(array.dtype.newbyteorder(">")) for array in own] for key, own in truth.items()}
        write_flat(path, tags, swapped)


class TestFlatBehindAUserBlock(OfLayout):
    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        write_flat(path, tags, truth)
        content = path.read_bytes()
        with h5py.File(path, "w", userblock_size=1024) as file, h5py.File.in_memory(content) as whole:
            for name in whole:
                whole.copy(name, file)


class TestTargetsAlone(OfLayout):
    """Files of targets for an input that lies elsewhere."""

    keys: ClassVar[tuple[str, ...]] = ("classes", "states")

    def values(self) -> dict[str, list[Array]]:
        return {"data": arrays()["data"], "classes": arrays()["classes"], "states": arrays(seed=1)["classes"]}

    def values_of(self, lengths: Sequence[int]) -> dict[str, list[Array]]:
        many = [40 * length for length in lengths]
        return {"data": [], "classes": arrays(many)["classes"], "states": arrays(many)["classes"]}

    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        with h5py.File(path, "w") as file:
            for key in self.keys:
                file[f"targets/data/{key}"] = np.concatenate(truth[key])
            file["seqLengths"] = np.array([[len(array) for array in truth[key]] for key in self.keys], np.int32).T
            file["seqTags"] = np.array([tag.encode() for tag in tags])

    @pytest.fixture
    def changed(self, folder: Path) -> Callable[[], Source]:
        values = self.values()
        values["states"][0] += 1
        return lambda: self.open(self.write(folder, values))


class TestStreams(OfLayout):
    keys: ClassVar[tuple[str, ...]] = ("data", "ali", "tokens")

    def values(self) -> dict[str, list[Array]]:
        draw = np.random.default_rng(2)
        ali = [
            np.repeat(draw.integers(0, 4, length), draw.integers(1, 4, length)).astype(np.int32) for length in LENGTHS
        ]
        return {"data": arrays()["data"], "ali": ali, "tokens": arrays()["classes"]}

    def values_of(self, lengths: Sequence[int]) -> dict[str, list[Array]]:
        few = [np.zeros(9, np.int32)] * len(lengths)
        return {"data": arrays(lengths, features=13)["data"], "ali": few, "tokens": few}

    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        parsers = {"data": "feature_sequence", "ali": "segment_alignment", "tokens": "sparse"}
        with h5py.File(path, "w") as file:
            file.create_dataset("seq_names", data=list(tags), dtype=STRINGS)
            for key, parser in parsers.items():
                stream = file.create_group(f"streams/{key}")
                stream.attrs["parser"] = parser
                if key == "tokens":
                    stream.create_dataset(
                        "feature_names", data=[f"token {number}" for number in range(9)], dtype=STRINGS
                    )
                for tag, array in zip(tags, truth[key], strict=True):
                    edges = np.flatnonzero(np.diff(array, prepend=-1, append=-1)) if key == "ali" else []
                    stored = (
                        np.stack([array[edges[:-1]], np.diff(edges)], 1).astype(np.int32) if key == "ali" else array
                    )
                    stream[f"data/{tag.replace('/', chr(92))}"] = stored

    def test_names_of_classes(self, source: Source) -> None:
        assert source.keys["tokens"].labels == tuple(f"token {number}" for number in range(9))
        assert source.keys["data"].labels is None


class TestLengths(OfLayout):
    """Datasets with an array of lengths each beside them."""

    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        with h5py.File(path, "w") as file:
            file.create_dataset("utt_ids", data=list(tags), dtype=STRINGS)
            for key, values in truth.items():
                file[key] = np.concatenate(values)
                file[f"{key}_lengths"] = np.array([len(array) for array in values], np.uint16)


class TestOffsets(OfLayout):
    """Edges of the sequences, by names that options have to say."""

    options: ClassVar[dict[str, Any]] = {
        "keys": {"data": "all/feats", "classes": "all/ali"},
        "offsets": {"data": "all/edges", "classes": "all/ali-edges"},
        "tags": "all/who",
    }

    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        with h5py.File(path, "w") as file:
            file["all/who"] = np.array([tag.encode() for tag in tags])
            for key, name, edges in (("data", "feats", "edges"), ("classes", "ali", "ali-edges")):
                file[f"all/{name}"] = np.concatenate(truth[key])
                file[f"all/{edges}"] = np.cumsum([0, *(len(array) for array in truth[key])])


class TestPadded(OfLayout):
    chunks: ClassVar[bool] = False

    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        with h5py.File(path, "w") as file:
            file.create_dataset("tags", data=list(tags), dtype=STRINGS)
            for key, values in truth.items():
                longest = max(len(array) for array in values) + (2 if key == "data" else 0)
                padded = np.full((len(values), longest, *values[0].shape[1:]), 77, values[0].dtype)
                for row, array in zip(padded, values, strict=True):
                    row[: len(array)] = array
                file.create_dataset(
                    key, data=padded, chunks=self.chunks or None, compression="gzip" if self.chunks else None
                )
                file[f"{key}_length"] = np.array([len(array) for array in values])


class TestPaddedCompressed(TestPadded):
    chunks = True


class TestRowsOfTheirOwnLengths(OfLayout):
    options: ClassVar[dict[str, Any]] = {"frame_shape": {"data": [5]}}
    chunked: ClassVar[bool] = False

    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        with h5py.File(path, "w") as file:
            file.create_dataset("tags", data=list(tags), dtype=STRINGS)
            for key, values in truth.items():
                dtype = h5py.vlen_dtype(values[0].dtype)
                rows = file.create_dataset(key, (len(tags),), dtype=dtype, maxshape=(None,) if self.chunked else None)
                for place, array in enumerate(values):
                    rows[place] = array.reshape(-1)

    def values_of(self, lengths: Sequence[int]) -> dict[str, list[Array]]:
        return arrays([3 * length for length in lengths])


class TestChunkedRowsOfTheirOwnLengths(TestRowsOfTheirOwnLengths):
    chunked = True


class TestADatasetPerSequence(OfLayout):
    """/utt1: there is one key."""

    keys: ClassVar[tuple[str, ...]] = ("data",)
    tags: ClassVar[tuple[str, ...]] = ("a b", "b", "über", "z", "日本")

    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        with h5py.File(path, "w") as file:
            for tag, array in zip(tags, truth["data"], strict=True):
                file[tag] = array


class TestNestedDatasets(TestADatasetPerSequence):
    """/speaker/utt1"""

    tags: ClassVar[tuple[str, ...]] = ("a b/1", "a b/2", "z/1", "über/ü", "日本")


class TestAGroupPerSequence(OfLayout):
    """/utt1/data, /utt1/classes, and a number per sequence."""

    keys: ClassVar[tuple[str, ...]] = ("data", "classes", "speaker")
    tags: ClassVar[tuple[str, ...]] = ("a b/1", "a b/2/x", "über/ü", "z/1", "日本")

    def values(self) -> dict[str, list[Array]]:
        return {**arrays(), "speaker": [np.array(number, np.int64) for number in range(len(LENGTHS))]}

    def values_of(self, lengths: Sequence[int]) -> dict[str, list[Array]]:
        return {**arrays(lengths, features=13), "speaker": [np.array(1)] * len(lengths)}

    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        with h5py.File(path, "w") as file:
            for key, values in truth.items():
                for tag, array in zip(tags, values, strict=True):
                    file[f"{tag}/{key}"] = array


class TestAGroupPerKey(OfLayout):
    """/feats/utt1, /labels/utt1"""

    keys: ClassVar[tuple[str, ...]] = ("feats", "labels")
    tags: ClassVar[tuple[str, ...]] = ("a b/1", "a b/2/x", "über/ü", "z/1", "日本")
    how: ClassVar[dict[str, Any]] = {}

    def values(self) -> dict[str, list[Array]]:
        return {"data": [], "feats": arrays()["data"], "labels": arrays()["classes"]}

    def values_of(self, lengths: Sequence[int]) -> dict[str, list[Array]]:
        return {"feats": arrays(lengths, features=13)["data"], "labels": arrays(lengths)["classes"]}

    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        with h5py.File(path, "w") as file:
            for key in ("feats", "labels"):
                for tag, array in zip(tags, truth[key], strict=True):
                    file.create_dataset(f"{key}/{tag}", data=array, **(self.how if array.size else {}))

    @pytest.fixture
    def changed(self, folder: Path) -> Callable[[], Source]:
        values = self.values()
        values["feats"][0] += 1
        return lambda: self.open(self.write(folder, values))


class TestCompressedGroups(TestAGroupPerKey):
    how: ClassVar[dict[str, Any]] = {"chunks": True, **GZIP}


class TestPatterns(TestAGroupPerKey):
    """The same by the paths' own pattern, with the keys in another order."""

    keys: ClassVar[tuple[str, ...]] = ("ali", "data")
    options: ClassVar[dict[str, Any]] = {"keys": {"ali": "/labels/{tag}", "data": "feats/{tag}"}}

    @pytest.fixture
    def truth(self) -> Truth:
        return {"ali": arrays()["classes"], "data": arrays()["data"]}


class TestAFilePerSequence(OfLayout):
    keys: ClassVar[tuple[str, ...]] = ("data", "classes")
    tags: ClassVar[tuple[str, ...]] = ("a b/1", "a b/2", "z/1", "über/ü", "日本")

    def make(self, path: Path, tags: Sequence[str], truth: Truth) -> None:
        for place, tag in enumerate(tags):
            file = path.parent / f"{tag}.h5"
            file.parent.mkdir(parents=True, exist_ok=True)
            with h5py.File(file, "w") as opened_file:
                for key, values in truth.items():
                    opened_file[key] = values[place]

    @pytest.fixture
    def twice(self, tmp_path: Path) -> Callable[[], Source]:
        for suffix in (".h5", ".hdf"):
            with h5py.File(tmp_path / f"double{suffix}", "w") as file:
                file["data"] = np.zeros((3, 2))
        return lambda: opened(tmp_path)

    @pytest.fixture
    def large(self, tmp_path: Path) -> Callable[[], Source]:
        self.make(tmp_path / "large" / "x.h5", "ab", self.values_of([LARGE_BYTES // 2 // 50] * 2))
        return lambda: opened(tmp_path / "large")

    @pytest.fixture
    def many(self, tmp_path: Path) -> Callable[[], Source]:
        (tmp_path / "many").mkdir()
        with h5py.File(tmp_path / "many" / "0000.h5", "w") as file:
            file["data"] = arrays()["data"][0]
        for number in range(1, MANY_FILES):
            os.link(tmp_path / "many" / "0000.h5", tmp_path / "many" / f"{number:04}.h5")
        return lambda: opened(tmp_path / "many")
