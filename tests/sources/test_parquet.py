from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.errors import ConfigError, DependencyError, SourceError
from seqprep.sources import Source, arrow_files, open_source, parquet
from seqprep.types import Array, FrameRange
from tests.examples import examples

from .format_contract import FormatContract
from .formats import Corpus, Settings, arrow_table, corpus, write_arrow, write_parquet
from .source_contract import assert_same


def open_table(path: Path, **options: Any) -> Source:
    return open_source({"type": "parquet", "path": str(path), **options})


def one_column(folder: Path, values: Any, type_: Any, name: str = "x", **how: Any) -> Path:
    pq.write_table(pa.table({name: pa.array(values, type_)}), folder / "a.parquet", **how)
    return folder / "a.parquet"


class TestParquet(FormatContract):
    reader = "parquet"

    def write(self, folder: Path, made: Corpus) -> Settings:
        return write_parquet(folder, made, self.order)


class TestSmallCache(FormatContract):
    """Row groups come and go, one in the cache at a time."""

    reader = "parquet"

    def write(self, folder: Path, made: Corpus) -> Settings:
        return write_parquet(folder, made, self.order, row_group_size=1, compression="zstd") | {"cache_size": 1}


class TestArrowFile(FormatContract):
    reader = "parquet"
    has_lengths = True

    def write(self, folder: Path, made: Corpus) -> Settings:
        return write_arrow(folder, made, self.order)


class TestArrowStream(FormatContract):
    reader = "parquet"
    has_lengths = True

    def write(self, folder: Path, made: Corpus) -> Settings:
        return write_arrow(folder, made, self.order, "stream")


class TestCompressedArrow(FormatContract):
    reader = "parquet"
    has_lengths = True

    def write(self, folder: Path, made: Corpus) -> Settings:
        return write_arrow(folder, made, self.order, "stream", compression="lz4")


class TestFeather(FormatContract):
    reader = "parquet"
    has_lengths = True

    def write(self, folder: Path, made: Corpus) -> Settings:
        pyarrow.feather.write_feather(arrow_table(made, self.order), str(folder / "all.feather"), chunksize=2)
        return {"type": "parquet", "path": str(folder), "tag": "name"}


TYPES = [
    pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.bool_(),
]  # fmt: skip


@st.composite
def columns(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """A type of lists in lists, and rows of it whose inner lists are of one size."""
    type_ = draw(st.sampled_from(TYPES))
    value = st.integers(0, 1) if type_ == pa.bool_() else st.integers(0, 100)
    shape = draw(st.lists(st.integers(1, 3), max_size=2))
    for size in reversed(shape):
        type_ = (
            pa.list_(type_, size) if draw(st.booleans()) else draw(st.sampled_from([pa.list_, pa.large_list]))(type_)
        )
        value = st.lists(value, min_size=size, max_size=size)
    rows = draw(st.lists(st.lists(value, max_size=5), min_size=1, max_size=12))
    return pa.list_(type_), rows


@settings(max_examples=examples(60), deadline=None)
@given(column=columns(), group=st.integers(1, 5), kind=st.sampled_from(["parquet", "arrow", "stream", "compressed"]))
def test_as_pyarrow_reads(
    tmp_path_factory: pytest.TempPathFactory, column: tuple[Any, list[Any]], group: int, kind: str
) -> None:
    type_, rows = column
    if pa.types.is_boolean(leaf_of(type_)):
        rows = booleans(rows)
    path = tmp_path_factory.mktemp("table") / "a.parquet"
    table = pa.table({"x": pa.array(rows, type_)})
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=group)
    else:
        opener = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        options = pa.ipc.IpcWriteOptions(compression="zstd" if kind == "compressed" else None)
        with pa.OSFile(str(path), "wb") as file, opener(file, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=group)
    source = open_table(path)
    spec = source.keys["x"]
    assert source.lengths("x").tolist() == [len(row) for row in rows]
    for place, row in enumerate(rows):
        expected = np.array(row, spec.dtype).reshape(len(row), *spec.shape)
        assert_same(source.read("x", place), expected)
        assert_same(source.read("x", place, FrameRange(len(row) // 2, len(row))), expected[len(row) // 2 :])


def leaf_of(type_: Any) -> Any:
    while pa.types.is_nested(type_):
        type_ = type_.value_type
    return type_


def booleans(value: Any) -> Any:
    return [booleans(inner) for inner in value] if isinstance(value, list) else bool(value)


def test_which_columns_become_keys(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": ["a", "b"],
            "when": pa.array([1, 2], pa.timestamp("s")),
            "tokens": pa.array([[1, 2], []], pa.list_(pa.int32())),
            "words": pa.array([["a"], []], pa.list_(pa.string())),
            "vector": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)),
            "grid": pa.array([[[1], [2]], [[3], [4]]], pa.list_(pa.list_(pa.int8(), 1), 2)),
            "flag": [True, False],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    source = open_table(tmp_path)
    assert {name: (spec.dtype, spec.shape, spec.has_time) for name, spec in source.keys.items()} == {
        "tokens": ("int32", (), True),
        "vector": ("float32", (2,), False),
        "grid": ("int8", (2, 1), False),
        "flag": ("bool", (), False),
    }
    assert_same(source.read("vector", 1), np.array([3, 4], np.float32))
    assert_same(source.read("flag", 0), np.array(True))
    source = open_table(tmp_path, columns={"data": "vector", "t": "tokens"}, with_time=["vector"])
    assert list(source.keys) == ["data", "t"]
    assert source.keys["data"].has_time
    assert source.lengths("data").tolist() == [2, 2]
    assert_same(source.read("data", 1, FrameRange(1, 2)), np.array([4], np.float32))


@pytest.mark.parametrize(
    "names",
    [
        pa.array(["é", "b c"]).dictionary_encode(),
        pa.array(["é", "b c"], pa.large_string()),
        pa.array(["é".encode(), b"b c"]),
        pa.array(["é".encode() + b"x", b"b c"], pa.binary(3)),
    ],
)
def test_tags_of_any_kind_of_text(tmp_path: Path, names: Any) -> None:
    pq.write_table(pa.table({"n": names, "x": [[1], [2]]}), tmp_path / "a.parquet")
    assert list(open_table(tmp_path, tag="n").tags) in (["é", "b c"], ["éx", "b c"])


def test_tags_of_numbers_and_of_places(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [7, -1], "x": [[1], [2]]}), tmp_path / "a.parquet")
    assert list(open_table(tmp_path, tag="n").tags) == ["7", "-1"]
    assert list(open_table(tmp_path).tags) == ["a-000000", "a-000001"]


def test_extension_types_are_what_they_store(tmp_path: Path) -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype=np.float32).reshape(2, 3, 2))
    write = pa.ipc.new_file(str(tmp_path / "a.arrow"), pa.schema({"x": tensors.type}))
    with write as writer:
        writer.write_table(pa.table({"x": tensors}))
    source = open_table(tmp_path)
    assert source.keys["x"].shape == (6,)
    assert source.read("x", 1).tolist() == [6, 7, 8, 9, 10, 11]


def test_arrow_is_read_by_its_place_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = write_arrow(tmp_path, corpus(), ["a", "b", "c", "d", "e", "f"])
    source = open_source(settings)
    monkeypatch.setattr(parquet, "read_column", None)  # pyarrow isn't asked again
    assert_same(source.read("data", 2, FrameRange(10, 20)), corpus()["data"][2][10:20])
    assert_same(source.read("speaker", 5), corpus()["speaker"][5])


def test_columns_whose_types_tell_their_lengths_are_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"x": pa.array([[1.0, 2.0]] * 9, pa.list_(pa.float64(), 2)), "y": range(9)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    asked: list[str] = []
    whole = arrow_files._parquet_chunks
    monkeypatch.setattr(arrow_files, "_parquet_chunks", lambda path, names: asked.extend(names) or whole(path, names))
    source = open_table(tmp_path, with_time=["x"])
    assert asked == []
    assert source.lengths("x").tolist() == [2] * 9
    assert source.read("y", 8) == 8
    assert_same(source.read("x", 5), np.array([1.0, 2.0]))


def test_row_groups_are_kept_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = one_column(tmp_path, [[place] * 1000 for place in range(40)], pa.list_(pa.int64()), row_group_size=4)
    decoded: list[int] = []
    whole = parquet.read_column
    monkeypatch.setattr(parquet, "read_column", lambda *place: decoded.append(place[2]) or whole(*place))
    source = open_table(path, cache_size="100kB")  # three groups of 32 kB
    for place in [0, 1, 5, 9, 2, 39, 0, 5]:
        assert source.read("x", place, FrameRange(3, 5)).tolist() == [place] * 2
    assert decoded == [0, 1, 2, 9, 1]
    source.close()
    source.read("x", 0)
    assert decoded[-1] == 0
    assert len(pickle.dumps(source)) < 10_000


def test_page_checksums_are_checked(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 1 << 60, 5000)
    one_column(
        tmp_path, [values], pa.list_(pa.int64()), write_page_checksum=True, compression="none", use_dictionary=False
    )
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    place = content.index(values[2500].tobytes())
    content[place] ^= 1
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.parquet: can't be read: .*CRC"):
        open_table(tmp_path)


def test_inner_lists_of_different_sizes(tmp_path: Path) -> None:
    path = one_column(tmp_path, [[[1, 2]], [], [[1, 2], [3]]], pa.list_(pa.list_(pa.int8())))
    with pytest.raises(
        SourceError, match=r"row group 0, column 'x': row 2 has a frame of 1 values, where earlier ones have 2"
    ):
        open_table(path)
    path = one_column(tmp_path, [[[1, 2]], [[3]]], pa.list_(pa.list_(pa.int8())), row_group_size=1)
    with pytest.raises(
        SourceError, match=r"row group 1, column 'x': row 0 has a frame of 1 values, where earlier ones have 2"
    ):
        open_table(path)


@pytest.mark.parametrize(
    ("values", "type_", "row"),
    [
        ([[1], None], pa.list_(pa.int8()), 1),
        ([[1], [2, None]], pa.list_(pa.int8()), 1),
        ([[[1.0]], [], [[2.0], None]], pa.list_(pa.list_(pa.float32())), 2),
        ([[[1.0]], [], [[2.0], [None]]], pa.list_(pa.list_(pa.float32())), 2),
    ],
)
def test_nulls_are_refused(tmp_path: Path, values: Any, type_: Any, row: int) -> None:
    path = one_column(tmp_path, values, type_)
    with pytest.raises(SourceError, match=rf"a\.parquet: row group 0, column 'x': row {row} holds a null; fill it in"):
        open_table(path)


def test_nulls_of_values_without_time_are_refused_when_read(tmp_path: Path) -> None:
    source = open_table(one_column(tmp_path, [1, None], pa.int8()))
    with pytest.raises(SourceError, match=r"column 'x' \(for sequence 'a-000000'\): row 1 holds a null"):
        source.read("x", 0)


def test_files_in_order_and_with_equal_columns(tmp_path: Path) -> None:
    for name, value in (("b", 2), ("a", 1)):
        pq.write_table(pa.table({"x": [[value]]}), tmp_path / f"{name}.parquet")
    assert [source.read("x", place).tolist() for source in [open_table(tmp_path)] for place in range(2)] == [[1], [2]]
    pq.write_table(pa.table({"x": [[1.5]]}), tmp_path / "c.parquet")
    with pytest.raises(
        SourceError,
        match=r"c\.parquet: key 'x' is float64 \[frames\], but in .*a\.parquet",
    ):
        open_table(tmp_path)
    pq.write_table(pa.table({"x": [[[1]]]}), tmp_path / "c.parquet")
    with pytest.raises(
        SourceError, match=r"c\.parquet: key 'x' is int64 \[frames, 0\], but in .*it is int64 \[frames\]"
    ):
        open_table(tmp_path)
    pq.write_table(pa.table({"y": [[1]]}), tmp_path / "c.parquet")
    with pytest.raises(SourceError, match=r"c\.parquet: key 'x' is missing"):
        open_table(tmp_path)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"columns": ["tokenz"]}, ConfigError, r"has no column 'tokenz'; did you mean 'tokens'"),
        ({"columns": ["name"]}, ConfigError, r"column 'name' holds string, not numbers"),
        ({"tag": "nam"}, ConfigError, r"has no column 'nam'; did you mean 'name'"),
        (
            {"tag": "tokens", "columns": ["tokens"]},
            SourceError,
            r"column 'tokens': holds list<.*>, and tags are strings",
        ),
        ({"tag": "name"}, SourceError, r"tag 'x' stands twice, in .*row group 0, row 0 and .*row group 0, row 1"),
        ({"with_time": ["x"]}, ConfigError, r"has no column 'x'"),
        ({"cache_size": "much"}, ConfigError, r"source.cache_size is 'much': give a size"),
    ],
)
def test_what_does_not_go_together(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    pq.write_table(pa.table({"name": ["x", "x"], "tokens": [[1], [2]]}), tmp_path / "a.parquet")
    with pytest.raises(error, match=message):
        open_table(tmp_path, **options)


def test_no_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["x", "x"]}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match=r"no column holds numbers or lists of them; there are: name \(string\)"):
        open_table(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"ARROW1\0\0", b"something else that is long enough", b"\xff" * 100])
def test_no_table_at_all(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.parquet: can't be read: .*; is the file whole\?"):
        open_table(tmp_path)


def test_feather_of_the_first_version(tmp_path: Path) -> None:
    (tmp_path / "a.feather").write_bytes(b"FEA1 and so on")
    with pytest.raises(SourceError, match=r"a\.feather: is a Feather file of version 1"):
        open_table(tmp_path)


@pytest.mark.parametrize("kind", ["parquet", "file"])
def test_files_that_change_after_opening(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.parquet"

    def write(lengths: list[int]) -> None:
        table = pa.table({"x": pa.array([list(range(length)) for length in lengths], pa.list_(pa.int32()))})
        if kind == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table)

    write([1000, 3000])
    source = open_table(path)
    if kind == "parquet":
        write([3000, 1000])
        with pytest.raises(SourceError, match=r"column 'x' \(for sequence 'a-000001'\): the file changed since"):
            source.read("x", 1)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(SourceError, match=r"a\.parquet: row group 0.*(sequence 'a-000001'.* is cut off|can't be read)"):
        source.read("x", 1)


def test_rows_of_a_large_group_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_files, "_READ_BYTES", 1000)
    rows = [np.arange(place % 50) for place in range(400)]
    source = open_table(one_column(tmp_path, rows, pa.list_(pa.int64())))
    assert source.lengths("x").tolist() == [len(row) for row in rows]
    for place in (0, 399, 120, 7):
        assert_same(source.read("x", place), rows[place])


def test_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = one_column(tmp_path, [[1]], pa.list_(pa.int8()))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DependencyError, match=r"pyarrow.*pip install 'seqprep\[parquet\]'"):
        open_table(path)


def test_all_sequences_empty(tmp_path: Path) -> None:
    source = open_table(one_column(tmp_path, [[], []], pa.list_(pa.list_(pa.float32()))))
    empty: Array = source.read("x", 1)
    assert len(empty) == 0
    assert source.lengths("x").tolist() == [0, 0]


def test_files_whose_inner_lists_are_declared_differently(tmp_path: Path) -> None:
    for name, type_ in (
        ("a", pa.list_(pa.float32())),
        ("b", pa.list_(pa.float32(), 2)),
        ("c", pa.large_list(pa.float32())),
    ):
        pq.write_table(pa.table({"x": pa.array([[[1, 2]], []], pa.list_(type_))}), tmp_path / f"{name}.parquet")
    source = open_table(tmp_path)
    for place in (0, 2, 4):
        assert_same(source.read("x", place), np.array([[1, 2]], np.float32))
    pq.write_table(pa.table({"x": pa.array([[[1, 2, 3]]], pa.list_(pa.list_(pa.float32())))}), tmp_path / "d.parquet")
    with pytest.raises(
        SourceError, match=r"d\.parquet: row group 0, column 'x': row 0 has a frame of 3 values, where .* 2"
    ):
        open_table(tmp_path)
