from __future__ import annotations

import csv
import gzip
import io
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.errors import ConfigError, SourceError
from seqprep.sources import Source, open_source
from seqprep.types import FrameRange
from tests.examples import examples

from .format_contract import FormatContract
from .formats import Corpus, Settings, path_order, write_csv_files
from .source_contract import assert_same


def open_csv(path: Path, text: str | bytes | None = None, **options: Any) -> Source:
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_source({"type": "csv", "path": str(path), **options})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.csv"


class TestFiles(FormatContract):
    reader = "csv"
    order = path_order(".csv")
    keys = ("data", "classes")

    def write(self, folder: Path, made: Corpus) -> Settings:
        return write_csv_files(folder, made, self.order)

    @pytest.fixture
    def twice(self, tmp_path: Path) -> Callable[[], Source]:
        open_again = self.write_others(tmp_path / "double", ("double", "b"), 3)
        shutil.copy(tmp_path / "double/double.csv", tmp_path / "double/double.tsv")
        return open_again


class TestLong(FormatContract):
    """One file, the rows of all sequences among each other; a sequence without rows has none to be named by."""

    reader = "csv"
    order = ("plain", "a/b", "é ü", "日本/x", "last.one")
    keys = ("data", "classes")

    def write(self, folder: Path, made: Corpus) -> Settings:
        places = [(place, row) for place, array in enumerate(made["data"]) for row in range(len(array))]
        shuffled = sorted(places, key=lambda place: (place[1] // 20, place[0], place[1]))
        with gzip.open(folder / "all.csv.gz", "wt", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=";")
            for place, row in shuffled:
                cells = [
                    made["classes"][place][row],
                    self.order[place],
                    "a note;\nof two lines",
                    *made["data"][place][row].tolist(),
                ]
                writer.writerow([str(cell).replace(".", ",") if isinstance(cell, float) else cell for cell in cells])
        return {
            "type": "csv", "path": str(folder), "id": 1, "header": False, "decimal": ",", "separator": ";",
            "columns": {"data": [3, 4, 5], "classes": 0}, "dtypes": {"classes": "int64"},
        }  # fmt: skip

    @pytest.fixture
    def twice(self, tmp_path: Path) -> Callable[[], Source]:
        """In two files: in one, rows of one id are one sequence."""
        open_again = self.write_others(tmp_path / "double", ("double", "b"), 3)
        shutil.copy(tmp_path / "double/all.csv.gz", tmp_path / "double/more.csv.gz")
        return open_again


cells = st.one_of(
    st.floats(allow_nan=False).map(repr),
    st.integers(-(10**6), 10**6).map(str),
    st.sampled_from(["1e5", "-.5", "+3", "inf", " 7 "]),
)


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.lists(st.tuples(cells, st.text(max_size=5), cells), min_size=1, max_size=30),
    dialect=st.sampled_from(["excel", "excel-tab", "unix"]),
    bom=st.booleans(),
)
def test_as_the_csv_module_reads(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]], dialect: str, bom: bool
) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.csv"
    text = io.StringIO(newline="")
    csv.writer(text, dialect).writerows([("a", "note", "b"), *rows])
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + text.getvalue().encode())
    source = open_csv(path, columns={"data": ["b", "a"]}, dtypes={"data": "float64"})
    with path.open(newline="", encoding="utf-8-sig") as file:
        read = list(csv.reader(file, dialect))[1:]
    expected = np.array([[float(row[2]), float(row[0])] for row in read])
    assert_same(source.read("data", 0), expected)
    half = FrameRange(len(rows) // 3, len(rows) - len(rows) // 3)
    assert_same(source.read("data", 0, half), expected[half.start : half.stop])


@pytest.mark.parametrize("separator", [" ", ",", "\t"])
def test_as_numpy_reads(tmp_path: Path, separator: str) -> None:
    values = np.random.default_rng(0).standard_normal((1000, 5)).astype(np.float32)
    np.savetxt(tmp_path / "a.txt", values, delimiter=separator)
    source = open_csv(tmp_path)
    loaded = np.loadtxt(tmp_path / "a.txt", np.float32, delimiter=separator, ndmin=2)
    assert_same(source.read("data", 0), loaded)
    assert_same(source.read("data", 0, FrameRange(500, 777)), loaded[500:777])


def test_what_is_told_from_a_file(path: Path) -> None:
    source = open_csv(path, "time;x;y\n2020-01-01;1;2\n2020-01-02;3;4\n")
    assert source.keys["data"].shape == (2,)
    assert source.read("data", 0).tolist() == [[1, 2], [3, 4]]
    assert open_csv(path, "1\t2\n3\t4\n").read("data", 0).tolist() == [[1, 2], [3, 4]]
    assert open_csv(path, "1,5;2\n3;4,5\n", decimal=",").read("data", 0).tolist() == [[1.5, 2], [3, 4.5]]
    assert open_csv(path, "7\n8\n").read("data", 0).tolist() == [[7], [8]]
    assert open_csv(path, "1 2\n3  4\n").read("data", 0).tolist() == [[1, 2], [3, 4]]
    assert open_csv(path, "1,2\n3,4\n", header=True).read("data", 0).tolist() == [[3, 4]]


def test_columns_by_name_and_by_place(path: Path) -> None:
    text = "x,y,z\n1,2,3\n4,5,6\n"
    source = open_csv(path, text, columns={"a": "z", "b": ["y"], "c": [0, "z"]})
    assert {name: spec.shape for name, spec in source.keys.items()} == {"a": (), "b": (1,), "c": (2,)}
    assert source.read("a", 0).tolist() == [3, 6]
    assert source.read("c", 0).tolist() == [[1, 3], [4, 6]]
    assert open_csv(path, text, columns=["z", "x"]).read("data", 0).tolist() == [[3, 1], [6, 4]]


def test_columns_are_found_by_name_in_each_file(tmp_path: Path) -> None:
    open_csv(tmp_path / "a.csv", "x,y\n1,2\n")
    open_csv(tmp_path / "b.csv", "y;note;x\n2;hello;1\n")
    (tmp_path / "c.csv").write_text("x,y\n")
    source = open_csv(tmp_path)
    assert [source.read("data", place).tolist() for place in range(3)] == [[[1, 2]], [[1, 2]], []]
    (tmp_path / "d.csv").write_text("x,z\n1,2\n")
    with pytest.raises(ConfigError, match=r"d\.csv: has no column 'y'"):
        open_csv(tmp_path)


MISSING = "x,y\n1,\nNA,2\n3,nan\n"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("keep", [[1, math.nan], [math.nan, 2], [3, math.nan]]), ("zero", [[1, 0], [0, 2], [3, 0]])],
)
def test_missing_values(path: Path, policy: str, expected: list[list[float]]) -> None:
    source = open_csv(path, MISSING, on_nan=policy)
    assert np.array_equal(source.read("data", 0), np.array(expected), equal_nan=True)


def test_missing_values_take_the_last_before(path: Path) -> None:
    rows = "".join(f"{place if place % 5 == 0 else ''},{place}\n" for place in range(1000))
    source = open_csv(path, f"x,y\n{rows}", on_nan="forward", columns={"x": "x"})
    expected = np.arange(1000, dtype=np.float32) // 5 * 5
    assert_same(source.read("x", 0), expected)
    assert_same(source.read("x", 0, FrameRange(503, 509)), expected[503:509])
    assert_same(source.read("x", 0, FrameRange(256, 257)), expected[256:257])
    source = open_csv(path, MISSING, on_nan="forward")
    with pytest.raises(SourceError, match=r"sequence 'a', key 'data': column 'y' of frame 0 is missing"):
        source.read("data", 0)


def test_missing_values_are_errors_unless_told(path: Path) -> None:
    source = open_csv(path, MISSING)
    assert source.lengths("data").tolist() == [3]
    with pytest.raises(
        SourceError, match=r"a\.csv: sequence 'a', key 'data': column 'x' of frame 1 is missing; set source.on_nan"
    ):
        source.read("data", 0, FrameRange(1, 2))


def test_whole_numbers_keep_all_their_bits(path: Path) -> None:
    text = f"x,y\n{2**62 + 1},1\n-5,2\n"
    source = open_csv(path, text, columns={"x": "x"}, dtypes={"x": "int64"})
    assert source.read("x", 0).tolist() == [2**62 + 1, -5]
    source = open_csv(path, text + ",3\n", columns={"x": "x"}, dtypes={"x": "int64"}, on_nan="zero")
    with pytest.raises(SourceError, match=r"column 'x' of frame 0 holds '4611686018427387905', not a number"):
        source.read("x", 0)
    source = open_csv(path, "x,y\n5,1\n,3\n7.0,2\n", columns={"x": "x"}, dtypes={"x": "int8"}, on_nan="zero")
    assert_same(source.read("x", 0), np.array([5, 0, 7], np.int8))
    source = open_csv(path, "x\n300\n", columns={"x": "x"}, dtypes={"x": "int8"})
    with pytest.raises(SourceError, match=r"holds 300, which int8 can't"):
        source.read("x", 0)


def test_rows_of_one_id_may_stand_anywhere(path: Path) -> None:
    text = (
        "id,v\n"
        + "".join(f"{place % 3},{place}\n" for place in range(2000))
        + "".join(f"9,{place}\n" for place in range(700))
    )
    source = open_csv(path, text, id="id")
    assert list(source.tags) == ["0", "1", "2", "9"]
    for place in range(3):
        assert source.read("data", place, FrameRange(300, 303))[:, 0].tolist() == [
            place + 3 * row for row in (300, 301, 302)
        ]
    assert_same(source.read("data", 3, FrameRange(250, 600)), np.arange(250, 600, dtype=np.float32)[:, None])


def test_blank_lines_are_no_rows(path: Path) -> None:
    source = open_csv(path, "\nx,y\n\n1,2\n\r\n\n3,4\n\n")
    assert source.read("data", 0).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("x,y\n1,2\n", {"columns": ["z"]}, ConfigError, r"a\.csv: has no column 'z'"),
        ("1,2\n", {"columns": ["x"]}, ConfigError, r"has no header to name the column 'x'; give its place from 0"),
        ("1,2\n", {"columns": [2]}, ConfigError, r"has no column 2; its columns are 0 to 1"),
        ("t;x\n1;2,5\n", {}, ConfigError, r"line 2: column 'x' holds '2,5'; set source.decimal: ','"),
        ("x,x\n1,2\n", {}, SourceError, r"the header names the column 'x' twice"),
        ("x,y\na,b\n", {}, ConfigError, r"line 2: no column holds numbers; check source.separator"),
        ("x,y\n1,2\n", {"id": "i"}, ConfigError, r"has no column 'i'"),
        ("i,y\na,2\n\"", {"id": "i"}, SourceError, r"line 3: not valid CSV"),
        ("y,i\n1,a\n2\n", {"id": "i"}, SourceError, r"line 3: the row has 1 cells, and no id"),
        ("x,y\n1,2\n", {"separator": ",,"}, ConfigError, r"source.separator is ',,': it has to be one character"),
        ("x,y\n1,2\n", {"separator": ",", "decimal": ","}, ConfigError, r"are both ','; they have to differ"),
        ("x,y\n1,2\n", {"dtypes": {"y": "int8"}}, ConfigError, r"source.dtypes names 'y', which is no key"),
        ("x,y\n1,\xff\n".encode("latin-1"), {}, SourceError, r"line 2: isn't UTF-8: .*iconv"),
        ("x,y\r1,2\r", {}, SourceError, r"line 1: not valid CSV"),
        ('x,y\n1,"' + "2" * 200_000 + '"\n', {}, SourceError, r"line 2: not valid CSV: field larger"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(
    path: Path, text: str | bytes, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        open_csv(path, text, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "x,y\n1,2\n3,four\n",
            {},
            r"a\.csv: sequence 'a', key 'data': column 'y' of frame 1 holds 'four', not a number",
        ),
        ("x,y\n1,2\n3\n", {}, r"column 'y' of frame 1 is missing; fix it"),
        ("x,y\n1,2\n1_0,2\n", {}, r"column 'x' of frame 1 holds '1_0', not a number"),
        ("x,y\n1,2\n3,0x10\n", {}, r"column 'y' of frame 1 holds '0x10', not a number"),
        ("1,5;2\n1.500;3\n", {"decimal": ","}, r"column 0 of frame 1 holds '1.500', not a number"),
        ("x,y\n1,2\n3,1e300\n", {}, r"holds 1e\+300, which float32 can't; set another dtype"),
    ],
)
def test_cells_that_are_no_numbers(path: Path, text: str, options: dict[str, Any], message: str) -> None:
    source = open_csv(path, text, **options)
    with pytest.raises(SourceError, match=message):
        source.read("data", 0)


def test_files_that_change_after_opening(path: Path) -> None:
    source = open_csv(path, "x,y\n1,2\n3,4\n")
    path.write_text("x,y\n1,2,3,4\n")
    with pytest.raises(SourceError, match=r"sequence 'a', key 'data': the file changed since it was opened"):
        source.read("data", 0)
    path.write_text("x")
    with pytest.raises(SourceError, match=r"sequence 'a', key 'data': is cut off"):
        source.read("data", 0)


def test_an_empty_file_is_an_empty_sequence(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.csv").write_text("1,2\n")
    source = open_csv(tmp_path)
    assert source.lengths("data").tolist() == [0, 1]
    assert source.read("data", 0).shape == (0, 2)


def test_two_ids_in_two_files(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("id,x\nT1,2\n")
    with pytest.raises(SourceError, match=r"tag 'T1' stands twice, in .*a\.csv and .*b\.csv; .*source.id"):
        open_csv(tmp_path, id="id")
