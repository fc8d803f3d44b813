"""Kaldi's archives held against another package, and what is said of those that are wrong."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqprep
from seqprep.errors import ConfigError, SourceError
from seqprep.sources.kaldi.lists import parse_segment, parse_target, resolve
from seqprep.types import Array

from .kaldi_files import binary, opened, text, write_ark, write_table
from .source_contract import assert_same, ranges

MATRIX = np.arange(40, dtype=np.float32).reshape(10, 4)


def read_all(kaldi: Any, kind: str, table: Path) -> dict[str, Array]:
    """What another package reads."""
    kind_of = "scp" if table.suffix == ".scp" else "ark"
    with getattr(kaldi, f"Sequential{kind}Reader")(f"{kind_of}:{table}") as reader:
        return {tag: np.array(value) for tag, value in reader}


@pytest.fixture
def kaldi() -> Any:
    return pytest.importorskip("kaldi_native_io")


@pytest.fixture
def beside(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shared archives; the other package finds them from their own folder alone."""
    monkeypatch.chdir(shared_data / "kaldi")
    return shared_data / "kaldi"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("feats.scp", "FloatMatrix"),
        ("feats.ark", "FloatMatrix"),
        ("feats.txt.ark", "FloatMatrix"),
        ("feats_cm.scp", "FloatMatrix"),
        ("ali.scp", "Int32Vector"),
        ("ali.ark", "Int32Vector"),
    ],
)
def test_values_are_those_of_another_package(beside: Path, kaldi: Any, name: str, kind: str) -> None:
    truth = read_all(kaldi, kind, beside / name)
    source = opened(beside / name)
    assert list(source.tags) == list(truth)
    for place, expected in enumerate(truth.values()):
        assert_same(source.read("data", place), expected.astype(source.keys["data"].dtype))
    for _, sequence, frames, expected in ranges({"data": list(truth.values())}, 200):
        assert_same(source.read("data", sequence, frames), expected.astype(source.keys["data"].dtype))


@pytest.mark.parametrize("kind", ["FloatMatrix", "DoubleMatrix", "FloatVector", "DoubleVector", "Int32Vector"])
@pytest.mark.parametrize("form", ["ark", "ark,t"])
def test_archives_that_another_package_wrote(tmp_path: Path, kaldi: Any, kind: str, form: str) -> None:
    draw, dtype = np.random.default_rng(0), np.float64 if "Double" in kind else np.float32
    values = {f"u{number}": draw.standard_normal((number + 1, 3)).astype(dtype) * 100 for number in range(9)}
    if "Vector" in kind:
        values = {tag: array[:, 0].copy() for tag, array in values.items()}
    if "Int" in kind:
        values = {tag: array.astype(np.int32) for tag, array in values.items()}
    with getattr(kaldi, f"{kind}Writer")(f"{form}:{tmp_path}/a.ark") as writer:
        for tag, array in values.items():
            writer.write(tag, array.tolist() if "Int" in kind else array)
    source = opened(tmp_path / "a.ark")
    truth = read_all(kaldi, kind, tmp_path / "a.ark")
    assert list(source.tags) == list(values)
    for place, expected in enumerate(truth.values()):
        read = source.read("data", place)
        if form == "ark":
            assert_same(read, expected.astype(read.dtype))
        else:
            np.testing.assert_allclose(read, expected, rtol=1e-6)


def test_compressed_features_are_near_the_features(shared_data: Path) -> None:
    plain = opened(shared_data / "kaldi" / "feats.scp")
    packed = opened(shared_data / "kaldi" / "feats_cm.scp")
    assert packed.lengths("data").tolist() == plain.lengths("data").tolist()
    for place in range(len(plain.tags)):
        one, other = plain.read("data", place), packed.read("data", place)
        spread = one.max(axis=0) - one.min(axis=0)
        assert np.abs(one - other).max() < spread.max() / 64 + 1e-3  # a level of the coarsest quarter of a byte


@pytest.mark.parametrize("form", ["hdf5", "tfrecord"])
def test_chunks_hold_the_labels_of_their_frames(beside: Path, kaldi: Any, tmp_path: Path, form: str) -> None:
    """Labels at a third of the rate, rounded up: checked frame by frame against what another package reads."""
    keys = {"data": str(beside / "feats.scp"), "classes": str(beside / "ali.scp")}
    with kaldi.SequentialFloatMatrixReader("scp:feats.scp") as reader:
        features = {tag: np.array(array) for tag, array in reader}
    with kaldi.SequentialInt32VectorReader("scp:ali.scp") as reader:
        labels = {tag: np.array(array) for tag, array in reader}
    seqprep.chunk(
        {
            "source": {"type": "kaldi", "keys": keys},
            "keys": {"data": {}, "classes": {"rate": 3, "align": "ceil"}},
            "chunk": {"size": 12, "step": 6},
            "context": 2,
            "batch": {"max_sequences": 7},
            "order": {"by": "random"},
            "output": {"path": str(tmp_path / "out"), "format": form, "shard_size": "100kB"},
        }
    )
    seen: set[tuple[str, int]] = set()
    with seqprep.Loader(tmp_path / "out") as loader:
        for batch in loader:
            for row, tag in enumerate(batch["seq_tag"]):
                assert tag == list(features)[batch["seq_idx"][row]]
                start, (at, core) = int(batch["data/start"][row]), batch["data/core"][row].tolist()
                assert int(batch["classes/start"][row]) * 3 == start
                for frame in range(core):
                    assert np.array_equal(batch["data"][row, at + frame], features[tag][start + frame])
                    assert batch["classes"][row, frame // 3] == labels[tag][(start + frame) // 3]
                    seen.add((tag, start + frame))
                assert batch["classes/size0"][row] == -(-core // 3)
    assert len(seen) == sum(map(len, features.values()))


def test_paths_are_found_beside_the_list_or_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("data", "exp"):
        (tmp_path / name).mkdir()
    place = write_ark(tmp_path / "exp" / "a.ark", {"x": binary(MATRIX)})["x"]
    scp = write_table(tmp_path / "data" / "feats.scp", {"x": f"exp/{place}"})
    monkeypatch.chdir(tmp_path)
    assert_same(opened(scp).read("data", 0), MATRIX)
    monkeypatch.chdir(tmp_path / "data")
    with pytest.raises(
        SourceError, match=r"data/exp/a\.ark, sequence 'x': can't be read: No such file or directory; check"
    ):
        opened(scp)
    (tmp_path / "data" / "exp").mkdir()
    write_ark(tmp_path / "data" / "exp" / "a.ark", {"x": binary(MATRIX + 1)})
    monkeypatch.chdir(tmp_path)
    assert_same(opened(scp).read("data", 0), MATRIX + 1)
    assert resolve("/a/b", Path("c")) == "/a/b"


def test_commands_run_only_where_they_are_allowed(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.mat.gz", "wb") as file:
        file.write(binary(MATRIX))
    mark = tmp_path / "mark"
    scp = write_table(tmp_path / "a.scp", {"x": f"touch {mark}; gunzip -c {tmp_path}/a.mat.gz |"})
    with pytest.raises(
        SourceError, match=r"a\.scp, line 1: 'touch .*' is a shell command, .* source.allow_pipes: true"
    ):
        opened(scp)
    assert not mark.exists()
    assert_same(opened(scp, allow_pipes=True).read("data", 0), MATRIX)
    write_table(scp, {"x": "echo oh no >&2; exit 3 |"})
    with pytest.raises(SourceError, match=r"sequence 'x': the command 'echo .*' failed with status 3: oh no"):
        opened(scp, allow_pipes=True)


def test_values_without_time(tmp_path: Path) -> None:
    vectors = {f"u{number}": np.arange(6, dtype=np.float32) + number for number in range(3)}
    write_ark(tmp_path / "x.ark", {tag: binary(vector) for tag, vector in vectors.items()})
    write_ark(tmp_path / "a.ark", {tag: binary(MATRIX) for tag in vectors})
    source = opened({"data": tmp_path / "a.ark", "speaker": tmp_path / "x.ark"}, without_time=["speaker"])
    assert (source.keys["speaker"].shape, source.keys["speaker"].has_time) == ((6,), False)
    assert_same(source.read("speaker", 2), vectors["u2"])
    with pytest.raises(KeyError):
        source.lengths("speaker")
    write_ark(tmp_path / "x.ark", {"u0": binary(np.zeros(6)), "u1": binary(np.zeros(5)), "u2": binary(np.zeros(6))})
    with pytest.raises(SourceError, match=r"sequence 'u1': it has 5 rows, the first has 6; values without time"):
        opened({"data": tmp_path / "a.ark", "speaker": tmp_path / "x.ark"}, without_time=["speaker"])


def test_labels_of_tables(tmp_path: Path) -> None:
    write_ark(tmp_path / "feats.ark", {tag: binary(MATRIX) for tag in "abc"})
    write_table(tmp_path / "utt2spk", {"b": "zoë", "a": "ann", "c": "zoë", "d": "else"})
    write_table(tmp_path / "utt2dur", {"a": 1.5, "b": 2, "c": 3})
    source = opened(tmp_path / "feats.ark", labels={"speaker": "utt2spk", "seconds": str(tmp_path / "utt2dur")})
    assert source.keys["speaker"].labels == ("ann", "zoë")
    assert [int(source.read("speaker", place)) for place in range(3)] == [0, 1, 1]
    assert float(source.read("seconds", 0)) == 1.5
    assert list(opened(tmp_path / "feats.ark", labels=["utt2spk"]).keys) == ["data", "utt2spk"]
    assert source.fingerprint() != opened(tmp_path / "feats.ark").fingerprint()


def test_sequences_that_lack_a_key(tmp_path: Path) -> None:
    write_ark(tmp_path / "feats.ark", {tag: binary(MATRIX) for tag in "abcd"})
    write_ark(tmp_path / "ali.ark", {tag: binary(np.arange(10, dtype=np.int32)) for tag in "dcbx"})
    write_table(tmp_path / "utt2spk", {tag: tag for tag in "abd"})
    keys = {"data": tmp_path / "feats.ark", "classes": tmp_path / "ali.ark"}
    with pytest.raises(SourceError, match=r"sequence 'a' has no 'classes' \(1 such of 4\); .*on_missing: drop"):
        opened(keys)
    with pytest.raises(SourceError, match=r"sequence 'c' has no 'who' \(1 such of 4\)"):
        opened(keys["data"], labels={"who": "utt2spk"})
    assert list(opened(keys, on_missing="drop").tags) == ["b", "c", "d"]
    assert list(opened(keys, on_missing="drop", labels={"who": "utt2spk"}).tags) == ["b", "d"]
    write_ark(tmp_path / "ali.ark", {"y": binary(np.arange(10, dtype=np.int32))})
    with pytest.raises(
        SourceError, match=r"no sequence has all of the keys data, classes; do their files belong together"
    ):
        opened(keys, on_missing="drop")


def test_counts_that_are_wrong_show_when_a_sequence_is_read(tmp_path: Path) -> None:
    write_table(tmp_path / "feats.scp", write_ark(tmp_path / "a.ark", {tag: binary(MATRIX) for tag in "ab"}))
    counts = write_table(tmp_path / "utt2num_frames", {"a": 10, "b": 8})
    source = opened(tmp_path)
    assert source.lengths("data").tolist() == [10, 8]
    with pytest.raises(
        SourceError, match=r"sequence 'b', key 'data': it has 10 rows where 8 were told of; is utt2num_frames"
    ):
        source.read("data", 1)
    write_table(counts, {"a": 10})
    assert opened(tmp_path).lengths("data").tolist() == [10, 10]
    write_table(counts, {"a": 10, "b": "ten"})
    with pytest.raises(SourceError, match=r"utt2num_frames, line 2: 'ten' is no count of frames"):
        opened(tmp_path)


def test_segments_of_features_that_are_cut_already(tmp_path: Path) -> None:
    """The usual data folder: features per utterance, and segments that tell where those were cut."""
    write_table(tmp_path / "feats.scp", write_ark(tmp_path / "a.ark", {"u1": binary(MATRIX), "u2": binary(MATRIX[:3])}))
    write_table(tmp_path / "segments", {"u1": "rec 0.5 0.6", "u2": "rec 1 1.03"})
    assert opened(tmp_path).lengths("data").tolist() == [10, 3]
    source = opened(tmp_path, segments=str(tmp_path / "segments"))
    assert source.lengths("data").tolist() == [10, 3]


@pytest.mark.parametrize(
    ("segment", "message"),
    [
        ("rec 0.2", r"line 1: 'rec 0.2' isn't a recording, a start and an end in seconds"),
        ("rec 0.2 0.1", r"line 1: 'rec 0.2 0.1' ends before it starts"),
        ("rec 0.2 x", r"line 1: 'x' isn't a time in seconds"),
        ("rec 1e999 2", r"line 1: '1e999' isn't a time in seconds"),
        ("rec 0 0.7", r"line 1: 'u' ends at frame 70, but its recording has 10 in key 'data'; check source.frame_rate"),
        ("rec 0.2 -1", r"line 1: 'u' ends at frame None, but its recording has 10"),
        ("other 0 0.1", r"sequence 'u' has no 'data'"),
    ],
)
def test_impossible_segments(tmp_path: Path, segment: str, message: str) -> None:
    write_ark(tmp_path / "a.ark", {"rec": binary(MATRIX)})
    segments = write_table(tmp_path / "segments", {"u": segment})
    with pytest.raises(SourceError, match=message):
        opened(tmp_path / "a.ark", segments=str(segments))


def test_segments_with_a_channel() -> None:
    assert parse_segment("rec 0.5 1.25 1", "").channel == 1
    assert parse_segment("rec 0.5 -1", "").end is None


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("a.ark:5[0:9,0:1,0:1]", r"\[0:9,0:1,0:1\] isn't a range of rows and columns"),
        ("a.ark:5[9:0]", r"'9:0' isn't a range of rows or columns, such as 0:9"),
        ("a.ark:5[x]", r"'x' isn't a range"),
        ("| gzip -c > x", r"'\| gzip -c > x' can't be read from; name a file"),
        ("-", r"'-' can't be read from"),
    ],
)
def test_impossible_targets(target: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        parse_target(target, "a.scp, line 1")


def test_targets() -> None:
    assert parse_target("a b/c.ark:17", "")[:3] == ("a b/c.ark", False, 17)
    assert parse_target("c.mat", "")[:3] == ("c.mat", False, 0)
    assert parse_target("c:d/e:1[2:3,:]", "") == ("c:d/e", False, 1, (2, 3), (0, None))
    assert parse_target("gunzip -c x |", "")[:2] == ("gunzip -c x", True)


HEADER = b"\0BFM \4\x0a\0\0\0\4\4\0\0\0"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (binary(MATRIX)[:-1], r"sequence 'x'.*: the file ends inside it"),
        (HEADER[:8], r"sequence 'x'.*: the file ends inside its header"),
        (b"\0BFM \4\xff\xff\xff\xff\4\4\0\0\0", r"sequence 'x'.*: it claims to have -1 rows"),
        (b"\0BFM \4\xff\xff\xff\x7f\4\xff\xff\xff\x7f", r"sequence 'x'.*: the file ends inside it"),
        (b"\0B\4\xff\xff\xff\x7f", r"sequence 'x'.*: the file ends inside it"),
        (b"\0BFM \5\x0a\0\0\0\4\4\0\0\0", r"sequence 'x'.*: its sizes aren't 4-byte integers"),
        (b"\0BSM \4\x0a\0\0\0", r"sequence 'x'.*: it is of the type 'SM'; matrices, vectors and lists"),
        (b"\0BCM9 \4\x0a\0\0\0" + bytes(99), r"sequence 'x'.*: it is of the type 'CM9'"),
        (b"\x1f\x8b\x08" + bytes(40), r"it is packed by gzip; unpack it"),
        (b"RIFF" + bytes(40), r"it is audio, which source.type audio reads"),
        (b" [ 1 2\n 3 ]\n", r"sequence 'x'.*: its rows differ in length"),
        (b" [ 1 2 oh ]\n", r"sequence 'x'.*: it holds what is no number: .*oh"),
        (b" [ 1 2 3", r"sequence 'x'.*: the file ends inside it"),
        (b"sil a b\n", r"sequence 'x'.*: 'sil a b' are no integers; names belong into source.labels"),
        (b"1 99999999999\n", r"sequence 'x'.*: it holds an integer of more than 32 bits"),
        (b"", r"(holds|lists) no object|the file ends"),
    ],
)
def test_damaged_objects(tmp_path: Path, content: bytes, message: str) -> None:
    place = write_ark(tmp_path / "a.ark", {"x": content})["x"]
    for path in (tmp_path / "a.ark", write_table(tmp_path / "a.scp", {"x": place})):
        with pytest.raises(SourceError, match=message) as caught:
            opened(path)
        assert "\n" not in str(caught.value)


def test_lists_of_integers_that_go_wrong_inside(tmp_path: Path) -> None:
    content = bytearray(binary(np.arange(9, dtype=np.int32)))
    content[7 + 5 * 4] = 8
    write_ark(tmp_path / "a.ark", {"x": bytes(content)})
    source = opened(tmp_path / "a.ark")
    with pytest.raises(SourceError, match=r"sequence 'x', key 'data': it isn't a list of 4-byte integers throughout"):
        source.read("data", 0)


def test_objects_that_differ(tmp_path: Path) -> None:
    for other, shown in ((MATRIX[:, :3].copy(), "a float32 matrix of 3 columns"), (MATRIX.astype(float), "a float64 matrix"),
                         (MATRIX[0], "a float32 vector"), (np.arange(3, dtype=np.int32), "a int32 vector")):  # fmt: skip
        write_ark(tmp_path / "a.ark", {"x": binary(MATRIX), "y": binary(other)})
        with pytest.raises(
            SourceError, match=rf"sequence 'y': it is {shown}.*, but 'x' is a float32 matrix of 4 columns"
        ):
            opened(tmp_path / "a.ark")


def test_archives_that_change_after_they_were_opened(tmp_path: Path) -> None:
    for encode in (binary, text):
        write_ark(tmp_path / "a.ark", {"x": encode(MATRIX)})
        source = opened(tmp_path / "a.ark")
        content = (tmp_path / "a.ark").read_bytes()
        (tmp_path / "a.ark").write_bytes(content[:-20])
        with pytest.raises(SourceError, match=r"a\.ark, sequence 'x', key 'data': the file ends inside it"):
            source.read("data", 0)
        source.close()
        (tmp_path / "a.ark").unlink()
        with pytest.raises(SourceError, match=r"a\.ark, sequence 'x', key 'data': can't be read: No such file"):
            source.read("data", 0)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("x a.ark:2\ny\n", r"a\.scp, line 2: 'y' stands alone; a tag and its value are needed"),
        ("x a.ark:2\n\nx a.ark:2\n", r"a\.scp, line 3: tag 'x' stands on line 1 already; rename one"),
        ("", r"a\.scp: lists no object"),
        ("x a.ark:2[0:99]\n", r"sequence 'x': \[0:99\] is outside of its 10 rows"),
        ("x a.ark:2[10:11]\n", r"sequence 'x': \[10:11\] is outside of its 10 rows"),
        ("x a.ark:2[,0:9]\n", r"sequence 'x': \[0:9\] is outside of its 4 columns"),
        ("x a.ark:9999\n", r"sequence 'x': the file ends before it"),
    ],
)
def test_bad_lists(tmp_path: Path, lines: str, message: str) -> None:
    write_ark(tmp_path / "a.ark", {"x": binary(MATRIX)})
    (tmp_path / "a.scp").write_text(lines)
    with pytest.raises(SourceError, match=message):
        opened(tmp_path / "a.scp")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"source.path and source.keys: neither of them is set"),
        ({"path": "a", "keys": {"data": "b"}}, r"source.path and source.keys: both of them is set"),
        ({"keys": {}}, r"source.keys is empty"),
        ({"path": "a", "labels": {"data": "utt2spk"}}, r"source.labels names a key 'data', which is one of the data"),
        ({"path": "a", "without_time": ["x"]}, r"source.without_time names 'x', which is no key; keys are \['data'\]"),
        ({"path": "a", "frame_rate": 0.0}, r"source.frame_rate is 0"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        seqprep.sources.open_source({"type": "kaldi", **options})  # type: ignore[attr-defined]


def test_a_data_folder_is_guessed(tmp_path: Path, shared_data: Path) -> None:
    from seqprep.sources.guess import guess_source

    shutil.copytree(shared_data / "kaldi", tmp_path / "kaldi")
    assert guess_source(str(tmp_path / "kaldi" / "feats.scp")).settings["type"] == "kaldi"
    assert guess_source(str(tmp_path / "kaldi" / "ali.ark")).settings["type"] == "kaldi"
    assert guess_source(str(tmp_path / "kaldi")).settings == {"type": "kaldi", "path": str(tmp_path / "kaldi")}
