from __future__ import annotations

import io
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from seqprep.errors import ConfigError, SourceError
from seqprep.sources import Source, open_source
from seqprep.types import Array, FrameRange
from tests.examples import examples

from .format_contract import FormatContract
from .formats import TAGS, Corpus, Settings, corpus, path_order, write_npz_files, write_npz_pair
from .source_contract import assert_same

STORED = path_order(".npz")


def open_npz(path: Path, **options: Any) -> Source:
    return open_source({"type": "npz", "path": str(path), **options})


def two_of_one_name(folder: Path) -> Callable[[], Source]:
    """Two files of which the names differ in their endings alone."""
    folder.mkdir()
    np.save(folder / "double.npy", np.zeros((3, 2)))
    np.savez(folder / "double.npz", data=np.zeros((3, 2)))
    return lambda: open_source({"type": "npz", "path": str(folder)})


class TestFiles(FormatContract):
    reader = "npz"
    has_lengths = True
    order = STORED

    def write(self, folder: Path, made: Corpus) -> Settings:
        return write_npz_files(folder, made, self.order)

    @pytest.fixture
    def twice(self, tmp_path: Path) -> Callable[[], Source]:
        return two_of_one_name(tmp_path / "double")


class TestCompressedFiles(FormatContract):
    reader = "npz"
    has_lengths = True
    order = STORED

    def write(self, folder: Path, made: Corpus) -> Settings:
        return write_npz_files(folder, made, self.order, np.savez_compressed)

    @pytest.fixture
    def twice(self, tmp_path: Path) -> Callable[[], Source]:
        return two_of_one_name(tmp_path / "double")


class TestNpyFiles(FormatContract):
    reader = "npz"
    has_lengths = True
    order = path_order(".npy")
    keys = ("features",)

    def write(self, folder: Path, made: Corpus) -> Settings:
        for tag, array in zip(self.order, made["data"], strict=True):
            (folder / tag).parent.mkdir(parents=True, exist_ok=True)
            np.save(folder / f"{tag}.npy", array)
        return {"type": "npz", "path": str(folder), "key": "features"}

    @pytest.fixture
    def twice(self, tmp_path: Path) -> Callable[[], Source]:
        return two_of_one_name(tmp_path / "double")

    @pytest.fixture
    def truth(self) -> dict[str, list[Array]]:
        return {"features": corpus(0, self.order)["data"]}


class TestBackToBack(FormatContract):
    reader = "npz"
    has_lengths = True

    def write(self, folder: Path, made: Corpus) -> Settings:
        return write_npz_pair(folder, made, self.order)


class TestBackToBackCompressed(FormatContract):
    """Long enough for points to be remembered: the data have 1.3 MB."""

    reader = "npz"
    keys = ("data",)
    lengths: ClassVar[dict[str, int]] = dict(zip(TAGS, (60_000, 0, 20_000, 1, 30_000, 7), strict=True))

    def write(self, folder: Path, made: Corpus) -> Settings:
        lengths = {tag: self.lengths.get(tag, 3) for tag in self.order}
        made = corpus(int(made["data"][0][0, 0] != corpus(0)["data"][0][0, 0]), self.order, lengths)
        offsets = np.cumsum([0, *map(len, made["data"])])
        np.savez_compressed(folder / "all.npz", d=np.concatenate(made["data"]), o=offsets, t=np.array(self.order))
        return {"type": "npz", "path": str(folder / "all.npz"), "offsets": "o", "tags": "t", "arrays": {"data": "d"}}

    @pytest.fixture
    def truth(self) -> dict[str, list[Array]]:
        return {"data": corpus(0, self.order, self.lengths)["data"]}


def assert_source_is(source: Source, key: str, array: Array, numpys: Array) -> None:
    """Whole and by ranges, as numpy reads it."""
    assert_same(source.read(key, 0), np.ascontiguousarray(numpys).astype(array.dtype.newbyteorder("=")))
    for start, stop in ((0, 1), (1, len(array)), (len(array) // 3, len(array) // 2)):
        if stop >= start and stop <= len(array):
            found = source.read(key, 0, FrameRange(start, stop))
            assert_same(found, np.ascontiguousarray(numpys[start:stop]).astype(array.dtype.newbyteorder("=")))


dtypes = st.one_of(
    arrays.integer_dtypes(endianness="?"),
    arrays.unsigned_integer_dtypes(endianness="?"),
    arrays.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    arrays.boolean_dtypes(),
)


@settings(max_examples=examples(60), deadline=None)
@given(
    array=arrays.arrays(dtypes, arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=7)),
    fortran=st.booleans(),
    save=st.sampled_from(["npy", "npz", "compressed"]),
)
def test_as_numpy_reads(tmp_path_factory: pytest.TempPathFactory, array: Array, fortran: bool, save: str) -> None:
    folder = tmp_path_factory.mktemp("array")
    array = np.asfortranarray(array) if fortran else array
    path = folder / ("a.npy" if save == "npy" else "a.npz")
    {"npy": np.save, "npz": np.savez, "compressed": np.savez_compressed}[save](
        path, **({"arr": array} if save == "npy" else {"data": array})
    )
    loaded = np.load(path, allow_pickle=False)
    source = open_npz(path)
    assert source.keys["data"].shape == array.shape[1:]
    assert source.lengths("data").tolist() == [len(array)]
    assert_source_is(source, "data", array, loaded if save == "npy" else loaded["data"])


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions_of_the_format(tmp_path: Path, version: tuple[int, int]) -> None:
    array = np.arange(12.0).reshape(6, 2)
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, array, version=version)
    assert_same(open_npz(tmp_path).read("data", 0), array)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<i4', 'fortran_order': False, 'shape': (3L,), }",  # of Python 2
        '{"shape":(3,),"fortran_order":False,"descr":"<i4"}',
        "{'descr': 'i4', 'fortran_order': False, 'shape': (3,)}",
    ],
)
def test_headers_of_other_programs(tmp_path: Path, header: str) -> None:
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack("<3i", 5, 6, 7)
    (tmp_path / "a.npy").write_bytes(content)
    assert open_npz(tmp_path).read("data", 0).tolist() == [5, 6, 7]


def test_values_without_time(tmp_path: Path) -> None:
    for place in range(3):
        np.savez(
            tmp_path / f"{place}.npz", data=np.zeros((place, 2)), mean=np.full((2, 3), place), rate=np.array(place)
        )
    source = open_npz(tmp_path, without_time=["mean"])
    assert {name: (spec.shape, spec.has_time) for name, spec in source.keys.items()} == {
        "data": ((2,), True),
        "mean": ((2, 3), False),
        "rate": ((), False),
    }
    assert_same(source.read("mean", 2), np.full((2, 3), 2))
    assert_same(source.read("rate", 1), np.array(1))


def test_arrays_are_chosen_and_renamed(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.arange(4), z=np.array(["text"]))
    assert list(open_npz(tmp_path, arrays=["y", "x"]).keys) == ["y", "x"]
    source = open_npz(tmp_path, arrays={"data": "y"})
    assert source.read("data", 0).tolist() == [0, 1, 2, 3]


def test_lengths_and_tags_in_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "data.npy", np.arange(20).reshape(10, 2))
    np.save(tmp_path / "n.npy", np.array([3, 0, 7], np.uint8))
    np.save(tmp_path / "tags.npy", np.array([b"x", b"y z", "ü".encode()]))
    monkeypatch.chdir(tmp_path)
    source = open_npz(tmp_path / "data.npy", lengths="n.npy", tags="tags.npy")
    assert list(source.tags) == ["x", "y z", "ü"]
    assert source.read("data", 2).tolist() == np.arange(6, 20).reshape(7, 2).tolist()
    np.save(tmp_path / "o.npy", [0, 4, 10])
    source = open_npz(tmp_path / "data.npy", offsets="o.npy")
    assert list(source.tags) == ["data-000000", "data-000001"]
    assert source.lengths("data").tolist() == [4, 6]


def test_lengths_of_each_key_and_several_files(tmp_path: Path) -> None:
    for name, lengths in (("a", [6, 3]), ("b", [9])):
        halves = [length // 3 for length in lengths]
        np.savez(
            tmp_path / f"{name}.npz", data=np.arange(sum(lengths)), labels=np.arange(sum(halves)), n=lengths, m=halves
        )
    source = open_npz(tmp_path, lengths={"data": "n", "labels": "m"})
    assert list(source.tags) == ["a-000000", "a-000001", "b-000000"]
    assert source.lengths("labels").tolist() == [2, 1, 3]
    assert [source.read("labels", place).tolist() for place in range(3)] == [[0, 1], [2], [0, 1, 2]]


def sparse(path: Path, frames: int) -> None:
    """An array of zeros that takes no room on disk."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (frames, 4)})
    with path.open("wb") as file:
        file.write(header.getvalue())
        file.truncate(len(header.getvalue()) + frames * 16)


def test_opening_and_a_range_cost_no_more_than_they_need(tmp_path: Path) -> None:
    sparse(tmp_path / "a.npy", 10**9)
    tracemalloc.start()
    try:
        source = open_npz(tmp_path)
        assert source.lengths("data").tolist() == [10**9]
        assert_same(source.read("data", 0, FrameRange(10**9 - 5, 10**9)), np.zeros((5, 4), np.float32))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_column_by_column_array_is_read_by_ranges(tmp_path: Path) -> None:
    array = np.asfortranarray(np.random.default_rng(0).standard_normal((5000, 4, 3)))
    np.save(tmp_path / "a.npy", array)
    source = open_npz(tmp_path)
    tracemalloc.start()
    try:
        assert_same(source.read("data", 0, FrameRange(4000, 4002)), np.ascontiguousarray(array[4000:4002]))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_million_sequences_take_arrays_not_objects(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", data=np.zeros(3_000_000, np.int8), n=np.full(1_000_000, 3))
    source = open_npz(tmp_path / "a.npz", lengths="n")
    assert len(source.tags) == 1_000_000
    assert source.tags[999_999] == "a-999999"
    assert len(pickle.dumps(source)) < 60_000_000


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_flipped_bit_is_found(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "a.npz", data=np.random.default_rng(0).integers(0, 9, 1000))
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        start = archive.infolist()[0].header_offset + 400
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[start] ^= 4
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(
        SourceError, match=r"a\.npz: (sequence 'a', key 'data'|array 'data'): is damaged: .*copy or save"
    ):
        open_npz(tmp_path).read("data", 0, FrameRange(900, 901))


def test_objects_are_refused(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "exploded",))

    np.save(tmp_path / "a.npy", np.array([Bomb(), None], object), allow_pickle=True)
    with pytest.raises(
        SourceError, match=r"a\.npy holds Python objects, which only running code from the file could read"
    ):
        open_npz(tmp_path / "a.npy")
    np.savez(tmp_path / "b.npz", data=np.arange(3), n=[1, 2], names=np.array(["a", "b"], object))
    with pytest.raises(SourceError, match=r"'names': holds Python objects.* dtype=str"):
        open_npz(tmp_path / "b.npz", lengths="n", tags="names")
    assert not (tmp_path / "exploded").exists()


def npy(header: str, values: bytes = b"", size: int | None = None, version: int = 1) -> bytes:
    sized = struct.pack("<H" if version == 1 else "<I", len(header) if size is None else size)
    return b"\x93NUMPY" + bytes([version, 0]) + sized + header.encode() + values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"is no \.npy file"),
        (npy("{}", version=9), r"version 9 of the \.npy format"),
        (npy("{}", size=2**31 - 1, version=2), r"claims a header of 2147483647 bytes"),
        (npy("{}", size=255), r"cut off inside its header"),
        (npy("{}"), r"header can't be understood: '\{\}'"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os'),)}"), r"can't be understood"),
        (npy("{'descr': 'f4,(2)', 'fortran_order': False, 'shape': (2,)}"), r"can't be understood"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9" + "9" * 5000 + ",)}"), r"can't be understood"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}"), r"cut off: its header tells of 73 bytes, and there are 65"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", b"12345"), r"followed by something else"),
        (npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", bytes(8)), r"holds complex64, not numbers of at most 64"),
        (npy("{'descr': '|S4', 'fortran_order': False, 'shape': (1,)}", bytes(4)), r"holds \|S4, not numbers"),
        (npy("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': ()}", bytes(4)), r"records of several fields"),
    ],
)  # fmt: skip
def test_damaged_headers(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(SourceError, match=message) as caught:
        open_npz(tmp_path)
    assert "a.npy" in str(caught.value)


def test_archives_that_numpy_does_not_write(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.arange(3))
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("data.npy", array.getvalue())
    with pytest.raises(SourceError, match=r"member 'data.npy': has compression method 14"):
        open_npz(tmp_path)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("data.npy", array.getvalue())
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("data.npy", array.getvalue())
    with pytest.raises(SourceError, match=r"array 'data': stands twice"):
        open_npz(tmp_path)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(SourceError, match=r"'readme.txt': is no \.npy file"):
        open_npz(tmp_path)
    (tmp_path / "a.npz").write_bytes(b"PK and nothing else")
    with pytest.raises(SourceError, match=r"a\.npz: can't be read as \.npz"):
        open_npz(tmp_path)


def test_files_that_differ(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", data=np.zeros((3, 2)), y=np.zeros(3))
    np.savez(tmp_path / "b.npz", data=np.zeros((3, 4)), y=np.zeros(3))
    with pytest.raises(
        SourceError, match=r"b\.npz: key 'data' is float64 \[frames, 4\], but in .*a\.npz it is float64 \[frames, 2\]"
    ):
        open_npz(tmp_path)
    np.savez(tmp_path / "b.npz", data=np.zeros((3, 2)))
    with pytest.raises(SourceError, match=r"b\.npz: key 'y' is missing"):
        open_npz(tmp_path)


def test_files_that_change_after_opening(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(1000))
    np.savez(tmp_path / "b.npz", data=np.zeros(1000))
    sources = [open_npz(tmp_path / name) for name in ("a.npy", "b.npz")]
    for name in ("a.npy", "b.npz"):
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:4000])
    with pytest.raises(SourceError, match=r"a\.npy: sequence 'a', key 'data': is cut off: \d+ bytes are missing"):
        sources[0].read("data", 0)
    with pytest.raises(SourceError, match=r"b\.npz: sequence 'b', key 'data': is damaged"):
        sources[1].read("data", 0)
    (tmp_path / "a.npy").unlink()
    sources[0].close()
    with pytest.raises(SourceError, match=r"a\.npy: sequence 'a', key 'data': can't be opened: No such file"):
        sources[0].read("data", 0)


@pytest.mark.parametrize(
    ("arrays", "options", "error", "message"),
    [
        ({"n": [1, 3]}, {"lengths": "n"}, SourceError, r"array 'data': has 3 rows, but source.lengths tells of 4 frames in all"),
        ({"n": [4, -1]}, {"lengths": "n"}, SourceError, r"array 'n': gives sequence 1 a length of -1"),
        ({"n": [1.5]}, {"lengths": "n"}, SourceError, r"array 'n': is float64 \[1\]; source.lengths has to be"),
        ({"n": [[3]]}, {"lengths": "n"}, SourceError, r"is int64 \[1, 1\]"),
        ({"n": [3]}, {"lengths": "m"}, SourceError, r"has no array 'm'; .*check source.lengths"),
        ({"n": [3]}, {"lengths": {"x": "n"}}, ConfigError, r"source.lengths names no array for key 'data'"),
        ({"o": [1, 3]}, {"offsets": "o"}, SourceError, r"'o': doesn't begin with 0"),
        ({"o": [0, 2]}, {"offsets": "o"}, SourceError, r"tells of 2 frames in all"),
        ({"o": [0, 3, 2]}, {"offsets": "o"}, SourceError, r"gives sequence 1 a length of -1"),
        ({"n": [3], "t": ["a", "b"]}, {"lengths": "n", "tags": "t"}, SourceError, r"'t': has the shape \[2\] for 1 sequences"),
        ({"n": [3], "t": [1.5]}, {"lengths": "n", "tags": "t"}, SourceError, r"'t': holds float64, not strings"),
        ({"n": [2, 1], "t": ["é", "é"]}, {"lengths": "n", "tags": "t"}, SourceError, r"tag 'é' stands twice, in .*a\.npz and .*a\.npz; .*source.tags"),
        ({"t": ["a"]}, {}, SourceError, r"array 't' holds <U1, not numbers; if it names the sequences, name it in source.tags"),
        ({"n": [2, 1], "s": 5}, {"lengths": "n"}, SourceError, r"'s': is a single number; name the arrays"),
        ({}, {"lengths": "n", "offsets": "o"}, ConfigError, r"source.lengths and source.offsets are both set"),
        ({}, {"tags": "t"}, ConfigError, r"source.tags is set without source.lengths"),
        ({}, {"without_time": ["dat"]}, ConfigError, r"source.without_time names 'dat'.*did you mean 'data'"),
        ({}, {"arrays": ["dta"]}, SourceError, r"has no array 'dta'; did you mean 'data'"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(
    tmp_path: Path, arrays: dict[str, Any], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    np.savez(tmp_path / "a.npz", data=np.arange(3), **arrays)
    with pytest.raises(error, match=message):
        open_npz(tmp_path / "a.npz", **options)


def test_two_files_of_one_tag(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    np.savez(tmp_path / "a.npz", data=np.zeros(3))
    with pytest.raises(SourceError, match=r"tag 'a' stands twice, in .*a\.npy and .*a\.npz"):
        open_npz(tmp_path)
