from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqprep.errors import ConfigError, SourceError
from seqprep.sources import Source, open_source
from seqprep.sources.protobuf import WireError, varints
from seqprep.types import FrameRange
from tests.examples import examples

from .format_contract import FormatContract
from .formats import (
    Corpus,
    Settings,
    example,
    feature,
    features,
    field,
    masked,
    record,
    sequence_example,
    varint,
    write_tfrecord,
)
from .source_contract import assert_same


def open_records(path: Path, *records: bytes, **options: Any) -> Source:
    """Opens records, written first if there are any."""
    if records:
        path.write_bytes(b"".join(map(record, records)))
    return open_source({"type": "tfrecord", "path": str(path), **options})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.tfrecord"


class TestSequenceExamples(FormatContract):
    reader = "tfrecord"
    keys = ("data", "classes", "speaker")

    def write(self, folder: Path, made: Corpus) -> Settings:
        return write_tfrecord(folder, made, self.order)


class TestGzip(FormatContract):
    reader = "tfrecord"
    keys = ("data", "classes", "speaker")

    def write(self, folder: Path, made: Corpus) -> Settings:
        return write_tfrecord(folder, made, self.order, "all.tfrecord.gz")


class TestExamples(FormatContract):
    """Flat lists, raw bytes, and serialized tensors; keys in the order of the configuration."""

    reader = "tfrecord"

    def write(self, folder: Path, made: Corpus) -> Settings:
        records = []
        for place, tag in enumerate(self.order):
            data = made["data"][place]
            tensor = (
                b"\x08\x09"
                + field(2, field(2, b"\x08" + varint(len(data))))
                + field(4, made["classes"][place].tobytes())
            )
            records.append(
                example({"id": [tag.encode()], "x": [data.tobytes()], "y": [tensor], "speaker": made["speaker"][place]})
            )
        (folder / "all.tfrecord").write_bytes(b"".join(map(record, records)))
        return {
            "type": "tfrecord", "path": str(folder), "tag": "id",
            "features": {
                "data": {"feature": "x", "encoding": "raw", "dtype": "float32", "shape": [3]},
                "classes": {"feature": "y", "encoding": "tensor"},
                "speaker": {},
            },
        }  # fmt: skip


def test_what_is_inferred_of_examples(path: Path) -> None:
    records = [example({"x": np.arange(n, dtype=np.float32), "n": np.array([n]), "s": [b"text"]}) for n in (3, 0, 2)]
    source = open_records(path, *records)
    assert {name: (spec.dtype, spec.shape, spec.has_time) for name, spec in source.keys.items()} == {
        "n": ("int64", (), False),
        "x": ("float32", (), True),
    }
    assert list(source.tags) == ["a-000000", "a-000001", "a-000002"]
    assert source.lengths("x").tolist() == [3, 0, 2]
    source = open_records(path, features={"id": {"feature": "n", "time": True}}, tag="n")
    assert list(source.tags) == ["3", "0", "2"]
    assert source.read("id", 0).tolist() == [3]


def test_flat_lists_are_cut_into_frames(path: Path) -> None:
    records = [example({"x": np.arange(12 * n, dtype=np.float32)}) for n in (2, 0, 1)]
    source = open_records(path, *records, features={"x": {"shape": [4, 3]}})
    assert source.keys["x"].shape == (4, 3)
    assert_same(source.read("x", 0, FrameRange(1, 2)), np.arange(12, 24, dtype=np.float32).reshape(1, 4, 3))
    source = open_records(path, *records[:1], features={"x": {"shape": [2, 12], "time": False}})
    assert source.keys["x"].shape == (2, 12)
    assert not source.keys["x"].has_time


def test_values_of_context_have_no_time(path: Path) -> None:
    frames = np.zeros((3, 2), np.float32)
    source = open_records(path, sequence_example({"v": np.arange(4.0), "n": np.array(7)}, {"data": frames}))
    assert {name: (spec.shape, spec.has_time) for name, spec in source.keys.items()} == {
        "data": ((2,), True),
        "n": ((), False),
        "v": ((4,), False),
    }
    assert source.read("v", 0).tolist() == [0, 1, 2, 3]


def test_frames_of_bytes(path: Path) -> None:
    frames = np.arange(12, dtype="<i2").reshape(3, 4)
    packed = b"".join(field(1, feature([frame.tobytes()])) for frame in frames)
    source = open_records(
        path, field(2, features({"x": packed})), features={"x": {"encoding": "raw", "dtype": "int16"}}
    )
    assert_same(source.read("x", 0), frames)


def test_numbers_of_many_sizes(path: Path) -> None:
    """Frames of whole numbers have as many bytes as they need, negative ones ten."""
    draw = np.random.default_rng(0)
    values = (2.0 ** draw.uniform(0, 62, 3000)).astype(np.int64) * draw.choice([-1, 1], 3000)
    pairs = values.reshape(-1, 2)
    source = open_records(path, sequence_example({}, {"one": values, "two": pairs}))
    assert_same(source.read("one", 0), values)
    assert_same(source.read("two", 0), pairs)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_varints(values: list[int]) -> None:
    encoded = np.frombuffer(b"".join(map(varint, values)), np.uint8)
    assert_same(varints(encoded), np.array(values, np.int64))


@pytest.mark.parametrize("encoded", [b"\x80", b"\x01\xff", b"\x80" * 10 + b"\x01"])
def test_varints_that_do_not_end(encoded: bytes) -> None:
    with pytest.raises(WireError, match=r"doesn't end|more than ten bytes"):
        varints(np.frombuffer(encoded, np.uint8))


numbers = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=6)
floats = st.lists(st.floats(width=32, allow_nan=False), max_size=6)


@st.composite
def encoded_list(draw: st.DrawFn, values: list[Any], kind: int) -> bytes:
    """A list in one of the many ways that protobuf allows: packed, one by one, in pieces, among unknown fields."""
    parts, rest = [], list(values)
    while rest:
        size = draw(st.integers(1, len(rest)))
        piece, rest = rest[:size], rest[size:]
        if draw(st.booleans()):
            raw = struct.pack(f"<{size}f", *piece) if kind == 2 else b"".join(map(varint, piece))
            parts.append(field(1, raw))
        else:
            parts += [b"\x0d" + struct.pack("<f", one) if kind == 2 else b"\x08" + varint(one) for one in piece]
        if draw(st.booleans()):
            parts.append(field(15, b"unknown"))
    return field(kind, b"".join(parts))


@st.composite
def sequences(draw: st.DrawFn, width: int) -> bytes:
    """A SequenceExample with frames of one width, each encoded in its own way."""
    frames = draw(st.integers(0, 5))
    exactly = {"min_size": width, "max_size": width}
    whole = [draw(encoded_list(draw(st.lists(st.integers(-9, 1 << 40), **exactly)), 3)) for _ in range(frames)]
    real = [
        draw(encoded_list(draw(st.lists(st.floats(width=32, allow_nan=False), **exactly)), 2)) for _ in range(frames)
    ]
    lists = {name: b"".join(field(1, one) for one in all_) for name, all_ in (("whole", whole), ("real", real))}
    context = {"n": draw(encoded_list([draw(st.integers(0, 99))], 3)), "id": feature([draw(st.text()).encode()])}
    parts = [
        field(1, features({"n": context["n"]})),
        field(1, features({"id": context["id"]})),
        field(2, features(lists)),
    ]
    return b"".join(draw(st.permutations(parts)))


@pytest.fixture(scope="module")
def tf() -> Any:
    import tensorflow

    return tensorflow


@settings(max_examples=examples(25), deadline=None)
@given(records=st.integers(1, 3).flatmap(lambda width: st.lists(sequences(width), min_size=1, max_size=4)))
def test_as_tensorflow_reads_sequence_examples(
    tf: Any, tmp_path_factory: pytest.TempPathFactory, records: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for content in records:
            writer.write(content)
    names = {"whole": {"feature": "whole"}, "real": {}, "n": {}}
    source = open_source({"type": "tfrecord", "path": str(path), "features": names})
    for sequence, content in enumerate(records):
        parsed = tf.train.SequenceExample.FromString(content)
        for name, kind in (("whole", "int64_list"), ("real", "float_list")):
            frames = [list(getattr(one, kind).value) for one in parsed.feature_lists.feature_list[name].feature]
            spec = source.keys[name]
            expected = np.array(frames, spec.dtype).reshape(len(frames), *spec.shape)
            assert_same(source.read(name, sequence), expected)
        assert source.read("n", sequence) == parsed.context.feature["n"].int64_list.value[0]


@settings(max_examples=examples(25), deadline=None)
@given(lists=st.lists(st.tuples(numbers, floats), min_size=1, max_size=4), data=st.data())
def test_as_tensorflow_reads_examples(
    tf: Any, tmp_path_factory: pytest.TempPathFactory, lists: list[tuple[list[int], list[float]]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    options = tf.io.TFRecordOptions(compression_type=data.draw(st.sampled_from(["", "GZIP"])))
    records = [
        field(1, features({"whole": data.draw(encoded_list(whole, 3)), "real": data.draw(encoded_list(real, 2))}))
        for whole, real in lists
    ]
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for content in records:
            writer.write(content)
    both = {"whole": {"time": True}, "real": {"time": True}}
    source = open_source({"type": "tfrecord", "path": str(path), "features": both})
    for sequence, content in enumerate(records):
        parsed = tf.train.Example.FromString(content).features.feature
        assert source.read("whole", sequence).tolist() == list(parsed["whole"].int64_list.value)
        assert source.read("real", sequence).tolist() == list(parsed["real"].float_list.value)


@pytest.mark.parametrize("packed", [True, False])
def test_as_tensorflows_own_parser_reads(tf: Any, path: Path, packed: bool) -> None:
    draw = np.random.default_rng(0)
    truth = [(draw.integers(-(1 << 40), 1 << 40, size), draw.standard_normal(size)) for size in (0, 1, 5, 300)]
    records = []
    for whole, real in truth:
        if packed:
            records.append(example({"whole": whole, "real": real}))
        else:
            ones = b"".join(b"\x08" + varint(value) for value in whole.tolist())
            halves = b"".join(b"\x0d" + struct.pack("<f", value) for value in real.tolist())
            records.append(field(1, features({"whole": field(3, ones), "real": field(2, halves)})))
    source = open_records(path, *records)
    spec = {"whole": tf.io.RaggedFeature(tf.int64), "real": tf.io.RaggedFeature(tf.float32)}
    for sequence, content in enumerate(tf.data.TFRecordDataset(str(path))):
        parsed = tf.io.parse_single_example(content, spec)
        for name in spec:
            assert_same(source.read(name, sequence), parsed[name].numpy())


def test_as_tensorflow_writes(tf: Any, path: Path) -> None:
    draw, make = np.random.default_rng(0), tf.train
    truth = []
    with tf.io.TFRecordWriter(str(path)) as writer:
        for place in range(20):
            data = draw.standard_normal((int(draw.integers(0, 50)), 40)).astype(np.float32)
            grid = draw.integers(0, 255, (int(draw.integers(0, 5)), 2, 3)).astype(np.uint16)
            truth.append((data, grid))
            floats = [make.Feature(float_list=make.FloatList(value=frame)) for frame in data]
            tensor = tf.io.serialize_tensor(grid).numpy()
            written = make.SequenceExample(
                context=make.Features(
                    feature={
                        "id": make.Feature(bytes_list=make.BytesList(value=[f"é {place}".encode()])),
                        "grid": make.Feature(bytes_list=make.BytesList(value=[tensor])),
                    }
                ),
                feature_lists=make.FeatureLists(feature_list={"data": make.FeatureList(feature=floats)}),
            )
            writer.write(written.SerializeToString())
    source = open_records(path, tag="id", features={"data": {}, "grid": {"encoding": "tensor", "time": True}})
    assert list(source.tags) == [f"é {place}" for place in range(20)]
    for place, (data, grid) in enumerate(truth):
        assert_same(source.read("data", place), data)
        assert_same(source.read("grid", place), grid)


@pytest.mark.parametrize("place", [0, 4, 9, 14, 40, -2])
def test_a_flipped_bit_is_found(path: Path, place: int) -> None:
    open_records(path, example({"x": np.arange(9.0)}), example({"x": np.arange(5.0)}))
    content = bytearray(path.read_bytes())
    content[place] ^= 2
    path.write_bytes(content)
    number = 1 if place < 0 else 0
    with pytest.raises(SourceError, match=rf"a\.tfrecord: record {number} at byte \d+: is damaged: .* checksum"):
        open_records(path)


def test_damage_after_opening_is_found(path: Path) -> None:
    source = open_records(path, example({"x": np.arange(900.0)}), example({"x": np.arange(5.0)}))
    content = bytearray(path.read_bytes())
    content[100] ^= 2
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.tfrecord: record 0 at byte 0: sequence 'a-000000', key 'x': is damaged"):
        source.read("x", 0, FrameRange(800, 801))
    path.write_bytes(content[:50])
    with pytest.raises(SourceError, match=r"record 0 at byte 0: sequence 'a-000000', key 'x': is cut off"):
        source.read("x", 0)
    path.write_bytes(b"")
    with pytest.raises(SourceError, match=r"key 'x': the file changed since it was opened"):
        source.read("x", 0)


@pytest.mark.parametrize("size", [1, 11, 12, 30])
def test_a_file_cut_off(path: Path, size: int) -> None:
    whole = record(example({"x": np.arange(9.0)}))
    path.write_bytes(whole + whole[:size])
    with pytest.raises(SourceError, match=rf"a\.tfrecord: record 1 at byte {len(whole)}: is cut off; copy"):
        open_records(path)


def test_a_size_that_the_file_cannot_hold(path: Path) -> None:
    size = struct.pack("<Q", 1 << 60)
    for content in (size + masked(size), gzip.compress(size + masked(size))):
        path.write_bytes(content)
        with pytest.raises(SourceError, match=r"record 0 at byte 0: is cut off"):
            open_records(path)


def test_no_tfrecord_at_all(path: Path) -> None:
    path.write_text("hello, this is some text and no record")
    with pytest.raises(SourceError, match=r"record 0 at byte 0: is damaged: .*is this a TFRecord file\?"):
        open_records(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff" * 12, r"a number at byte \d+ doesn't end"),
        (b"\x0b", r"wire type 3 at byte 0 is none"),
        (b"\x0a\x7f", r"field 1 at byte 0 ends at byte 129, beyond its message"),
        (field(1, features({"x": field(2, field(1, b"12345"))})), r"packed floats at byte \d+ have 5 bytes"),
        (field(1, features({"x": field(3, b"\x0d1234")})), r"wire type 5, which its list can't hold"),
        (field(1, features({"x": field(3, field(1, b"\x80"))})), r"feature 'x' has 0 values|doesn't end"),
    ],
)
def test_bytes_that_are_no_example(path: Path, content: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        open_records(path, content, features={"x": {"time": False}}).read("x", 0)
    assert "record 0 at byte 0" in str(caught.value)


@pytest.mark.parametrize(
    ("records", "options", "error", "message"),
    [
        ([{"s": [b"x"]}], {}, ConfigError, r"no feature holds numbers \(features: s \(bytes\)\); .* source.features"),
        ([{"x": np.arange(3.0)}], {"features": ["y"]}, ConfigError, r"no feature 'y'"),
        ([{"x": np.arange(3.0)}], {"features": {"x": {"shape": [2]}}}, SourceError, r"record 0 .*has 3 values, which don't make whole frames of \[2\]"),
        ([{"x": np.arange(3.0)}], {"features": {"x": {"encoding": "raw"}}}, SourceError, r"holds numbers, which encoding raw can't read"),
        ([{"s": [b"xyz"]}], {"features": {"s": {}}}, SourceError, r"holds bytes, which encoding values can't read; set another in source.features"),
        ([{"s": [b"xyz"]}], {"features": {"s": {"encoding": "raw", "dtype": "int16"}}}, SourceError, r"has 3 bytes, which don't make whole int16"),
        ([{"s": [b"x", b"y"]}], {"features": {"s": {"encoding": "raw"}}}, SourceError, r"holds 2 byte strings; one is expected"),
        ([{"s": [b"\x08\x01"]}], {"features": {"s": {"encoding": "tensor"}}}, SourceError, r"a tensor of float32 \[\] has 0 bytes of content"),
        ([{"s": [b"\x08\x07"]}], {"features": {"s": {"encoding": "tensor"}}}, SourceError, r"a tensor has the type 7"),
        ([{"x": np.arange(3.0)}, {"y": np.arange(3.0)}], {"features": {"x": {}}}, SourceError, r"record 1 at byte \d+: has no feature 'x'"),
        ([{"x": np.arange(3.0)}, {"x": np.arange(3)}], {}, SourceError, r"record 1 .*feature 'x' is int64 \[frames\], where earlier records have float32 \[frames\]"),
        ([{"x": np.arange(1.0)}], {"features": {"x": {"dtype": "int8"}}}, ConfigError, r"'x' has a dtype, which only encoding: raw needs"),
        ([{"x": np.arange(3.0)}], {"tag": "id"}, SourceError, r"record 0 .*has no feature 'id' to be its tag"),
        ([{"x": np.arange(3.0)}], {"tag": "x", "features": ["x"]}, SourceError, r"feature 'x' isn't one byte string or whole number"),
        ([{"x": np.arange(3.0), "i": [b"t"]}] * 2, {"tag": "i"}, SourceError, r"tag 't' stands twice, in .*record 0 at byte 0 and .*record 1 at byte \d+"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(
    path: Path, records: list[dict[str, Any]], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        open_records(path, *map(example, records), **options)


def test_frames_that_differ(path: Path) -> None:
    lists = field(1, feature(np.arange(2.0))) + field(1, feature(np.arange(3.0)))
    with pytest.raises(SourceError, match=r"frames of a feature list differ: one has 2 values, another 3"):
        open_records(path, field(2, features({"x": lists})))
    lists = field(1, feature(np.arange(2.0))) + field(1, feature(np.arange(2)))
    with pytest.raises(SourceError, match=r"hold values of different kinds"):
        open_records(path, field(2, features({"x": lists})))
    with pytest.raises(ConfigError, match=r"'x' is a feature list, with an entry for each frame; remove time: false"):
        open_records(path, sequence_example({}, {"x": np.arange(3.0)}), features={"x": {"time": False}})


def test_several_files(tmp_path: Path) -> None:
    for name, values in (("b.tfrecord", [3]), ("a.tfrecord", [1, 2]), ("c/d.tfrecords", [4])):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        open_records(tmp_path / name, *(example({"x": np.full(5, value)}) for value in values))
    source = open_records(tmp_path)
    assert list(source.tags) == ["a-000000", "a-000001", "b-000000", "c/d-000000"]
    assert [int(source.read("x", place)[0]) for place in range(4)] == [1, 2, 3, 4]
