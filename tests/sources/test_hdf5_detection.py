"""What a file's layout is taken for, what options change about it, and what is said of files that fit nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from seqprep.errors import ConfigError, SourceError
from seqprep.types import Array

from .hdf5_files import opened

STRINGS = h5py.string_dtype()
FRAMES = np.arange(18, dtype=np.float32).reshape(9, 2)
WORDS = h5py.vlen_dtype(np.int32)


def write(path: Path, **datasets: Any) -> Path:
    """Writes datasets; a double underscore in a name is a slash."""
    with h5py.File(path, "w") as file:
        for name, value in datasets.items():
            if isinstance(value, list) and value and isinstance(value[0], str):
                file.create_dataset(name.replace("__", "/"), data=value, dtype=STRINGS)
            else:
                file[name.replace("__", "/")] = value
    return path


def ragged(path: Path, name: str, rows: list[Array], dtype: Any = WORDS, **how: Any) -> Path:
    with h5py.File(path, "a") as file:
        dataset = file.create_dataset(name, (len(rows),), dtype=dtype, **how)
        for place, row in enumerate(rows):
            dataset[place] = row
    return path


@pytest.mark.parametrize(
    ("lengths", "edges"),
    [
        ({"lengths": [4, 0, 5]}, [0, 4, 4, 9]),
        ({"feats_lens": [[4], [0], [5]]}, [0, 4, 4, 9]),
        ({"num_frames": np.array([4, 0, 5], np.uint8)}, [0, 4, 4, 9]),
        ({"n_frames": [4.0, 0.0, 5.0]}, [0, 4, 4, 9]),
        ({"offsets": [0, 4, 4, 9]}, [0, 4, 4, 9]),
        ({"indptr": [0, 4, 4, 9]}, [0, 4, 4, 9]),
        ({"offsets": [0, 4, 4]}, [0, 4, 4, 9]),
        ({"offsets": [4, 4, 9]}, [0, 4, 4, 9]),
        ({"offsets": [0, 4, 4, 9], "lengths": [4, 0, 5]}, [0, 4, 4, 9]),
    ],
    ids=str,
)
def test_where_sequences_lie(tmp_path: Path, lengths: dict[str, Any], edges: list[int]) -> None:
    source = opened(write(tmp_path / "a.h5", feats=FRAMES, tags=["x", "y", "z"], **lengths))
    assert list(source.keys) == ["feats"]
    assert list(source.tags) == ["x", "y", "z"]
    for place in range(3):
        assert np.array_equal(source.read("feats", place), FRAMES[edges[place] : edges[place + 1]])


def test_sequences_may_overlap_and_leave_gaps(tmp_path: Path) -> None:
    source = opened(write(tmp_path / "a.h5", feats=FRAMES, starts=[5, 0, 1], lengths=[4, 3, 2]), layout="flat")
    assert np.array_equal(source.read("feats", 0), FRAMES[5:9])
    assert np.array_equal(source.read("feats", 2), FRAMES[1:3])


def test_tags_are_made_of_the_files_name(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    write(tmp_path / "train" / "a.h5", feats=FRAMES, lengths=[4, 5])
    write(tmp_path / "b.h5", feats=FRAMES, lengths=[9])
    assert list(opened(tmp_path).tags) == ["b-000000", "train/a-000000", "train/a-000001"]


def test_numbers_as_tags(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", feats=FRAMES, lengths=[4, 5], number=np.array([17, -3]))
    assert list(opened(path, tags="number").tags) == ["17", "-3"]


def test_a_row_per_sequence_has_no_time(tmp_path: Path) -> None:
    padded = np.arange(24.0).reshape(2, 6, 2)
    vector = np.arange(6, dtype=np.float32).reshape(2, 3)
    source = opened(write(tmp_path / "a.h5", data=padded, speaker=[7, 8], vector=vector, lengths=[6, 4]))
    assert {key: spec.has_time for key, spec in source.keys.items()} == {
        "data": True,
        "speaker": False,
        "vector": False,
    }
    assert source.keys["vector"].shape == (3,)
    assert source.read("speaker", 1) == 8
    assert np.array_equal(source.read("vector", 1), vector[1])
    with pytest.raises(KeyError):
        source.lengths("speaker")


def test_values_without_time_beside_lengths_alone(tmp_path: Path) -> None:
    """Where no tags say how many sequences there are, all lengths do."""
    path = write(tmp_path / "a.h5", X=np.zeros((2, 6, 2)), y=[7, 8], X_lengths=[6, 4])
    source = opened(path)
    assert list(source.tags) == ["a-000000", "a-000001"]
    assert [source.read("y", place) for place in range(2)] == [7, 8]
    assert opened(path, lengths={"X": "X_lengths"}).keys == source.keys
    write(tmp_path / "b.h5", x=FRAMES, z=FRAMES, y=[7, 8], x_lengths=[4, 5], z_lengths=[9])
    with pytest.raises(SourceError, match=r"dataset 'y' int64 \[2\] holds neither one row nor the frames"):
        opened(tmp_path / "b.h5")


def test_files_without_sequences_beside_others(tmp_path: Path) -> None:
    write(tmp_path / "a.h5", data=np.zeros((0, 2), np.float32), lengths=np.zeros(0, np.int64))
    write(tmp_path / "b.h5", data=FRAMES, lengths=[4, 5])
    assert list(opened(tmp_path).tags) == ["b-000000", "b-000001"]


def test_text_of_each_sequence_is_left_out(tmp_path: Path) -> None:
    named = {f"{tag}__{key}": value for tag in "ab" for key, value in (("feats", FRAMES), ("text", ["words"]))}
    assert list(opened(write(tmp_path / "a.h5", **named)).keys) == ["feats"]
    assert list(opened(write(tmp_path / "b.h5", data=FRAMES, label=["words"])).keys) == ["data"]
    with pytest.raises(SourceError, match=r"dataset 'a/text' holds object, not numbers"):
        opened(tmp_path / "a.h5", keys=["feats", "text"])


def test_long_vectors_without_time(tmp_path: Path) -> None:
    """As wide as the padded rows are long, they can't be told from sequences of numbers."""
    path = write(tmp_path / "a.h5", data=np.zeros((2, 6, 2)), vector=np.ones((2, 512)), lengths=[5, 4])
    with pytest.raises(SourceError, match=r"a\.h5: dataset 'vector' \[2, 512\] may hold .* source.without_time"):
        opened(path)
    source = opened(path, without_time=["vector"])
    assert source.read("vector", 0).shape == (512,)
    padded = opened(path, layout="padded")
    assert padded.read("vector", 1).shape == (4,)


def test_padded_without_lengths(tmp_path: Path) -> None:
    source = opened(write(tmp_path / "a.h5", data=np.arange(12).reshape(2, 3, 2)), layout="padded")
    assert source.lengths("data").tolist() == [3, 3]
    assert source.read("data", 1).tolist() == [[6, 7], [8, 9], [10, 11]]


def test_a_single_value_per_sequence_in_the_flat_layout(tmp_path: Path) -> None:
    """As SimpleHDFWriter stores values without a time axis: one frame each."""
    path = write(
        tmp_path / "a.h5", inputs=FRAMES, targets__data__speaker=np.array([[3], [4]]), seqTags=["a", "b"],
        seqLengths=[[4, 1], [5, 1]],
    )  # fmt: skip
    assert opened(path).keys["speaker"].has_time
    source = opened(path, without_time=["speaker"])
    assert source.keys["speaker"].shape == (1,)
    assert source.read("speaker", 1).tolist() == [4]
    with pytest.raises(SourceError, match=r"key 'data' has several frames in a sequence; .* source.without_time"):
        opened(path, without_time=["data"])


def test_vectors_without_time_per_sequence(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", a__data=FRAMES, a__vector=np.arange(3), b__data=FRAMES, b__vector=np.arange(3) + 1)
    source = opened(path, without_time=["vector"])
    assert source.keys["vector"].shape == (3,)
    assert source.read("vector", 1).tolist() == [1, 2, 3]


def test_keys_are_taken_by_name_or_by_dataset(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", feats=FRAMES, labels=np.arange(9), mean=np.zeros(2), offsets=[0, 4, 9])
    with pytest.raises(SourceError, match=r"the numbers of sequences differ|dataset 'mean' float64 \[2\]|lead outside"):
        opened(path)
    assert list(opened(path, keys=["labels", "feats"]).keys) == ["labels", "feats"]
    source = opened(path, keys={"x": "/feats", "y": "labels"})
    assert list(source.keys) == ["x", "y"]
    assert source.read("y", 1).tolist() == [4, 5, 6, 7, 8]


def test_flat_layout_by_name_or_by_dataset(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.h5", inputs=FRAMES, targets__data__b=np.arange(9), targets__data__c=np.arange(2.0),
        seqTags=["x", "y"], seqLengths=[[4, 4, 1], [5, 5, 1]],
    )  # fmt: skip
    assert list(opened(path).keys) == ["data", "b", "c"]
    source = opened(path, keys={"labels": "targets/data/b", "frames": "data"})
    assert list(source.keys) == ["labels", "frames"]
    assert source.read("labels", 1).tolist() == [4, 5, 6, 7, 8]
    with pytest.raises(
        SourceError, match=r"a\.h5: there is no key 'dta', which source.keys names; did you mean 'data'"
    ):
        opened(path, keys=["dta"])


def test_ragged_rows_are_counted_without_reading_or_by_it(tmp_path: Path) -> None:
    rows = [np.arange(5), np.arange(0), np.arange(7)]
    packed = {"compression": "gzip", "shuffle": True}
    for name, how in (
        ("plain", {}),
        ("chunks", {"maxshape": (None,)}),
        ("gzip", {"compression": "gzip"}),
        ("both", packed),
    ):
        source = opened(ragged(tmp_path / f"{name}.h5", "tokens", rows, **how))
        assert source.lengths("tokens").tolist() == [5, 0, 7]
        assert source.read("tokens", 2).tolist() == list(range(7))
    swapped = opened(ragged(tmp_path / "swapped.h5", "tokens", rows, h5py.vlen_dtype(np.dtype(">i8"))))
    assert swapped.keys["tokens"].dtype == "int64"
    assert swapped.read("tokens", 2).tolist() == list(range(7))
    with pytest.raises(SourceError, match=r"its references are packed by a filter that isn't undone here; store it"):
        opened(ragged(tmp_path / "lzf.h5", "tokens", rows, compression="lzf"))
    with pytest.raises(SourceError, match=r"row 0 holds 5 values, no multiple of the 2 of a frame; .*frame_shape"):
        opened(tmp_path / "plain.h5", frame_shape={"tokens": [2]})


def test_external_links_are_followed_to_their_own_bytes(tmp_path: Path) -> None:
    """The offset of a dataset behind such a link is one of the other file."""
    write(tmp_path / "other.bin", x=np.zeros(1000), feats=FRAMES, a__data=FRAMES, b__data=FRAMES + 1)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["inputs"] = h5py.ExternalLink("other.bin", "feats")
        file["seqLengths"], file["seqTags"] = [[4], [5]], np.array([b"x", b"y"])
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"], file["y"] = h5py.ExternalLink("other.bin", "a/data"), h5py.SoftLink("/z")
        file["z"] = FRAMES + 2
    assert np.array_equal(opened(tmp_path / "a.h5").read("data", 1), FRAMES[4:])
    source = opened(tmp_path / "b.h5")
    assert list(source.tags) == ["x", "y", "z"]
    assert [source.read("data", place)[0, 0] for place in range(3)] == [0, 2, 2]
    source.close()
    with h5py.File(tmp_path / "b.h5", "a") as file:
        file["group"] = h5py.ExternalLink("other.bin", "a")
    with pytest.raises(SourceError, match=r"b\.h5: 'group' leads to a group of another file; name that"):
        opened(tmp_path / "b.h5")


def test_external_and_virtual_storage(tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(FRAMES.tobytes())
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("outside", FRAMES.shape, FRAMES.dtype, external=[(str(tmp_path / "raw"), 0, FRAMES.nbytes)])
        file["plain"] = FRAMES + 1
        layout = h5py.VirtualLayout(FRAMES.shape, FRAMES.dtype)
        layout[...] = h5py.VirtualSource(file["plain"])
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("never", FRAMES.shape, FRAMES.dtype, fillvalue=5)
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        small = h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(FRAMES.shape), compact)
        small.write(h5py.h5s.ALL, h5py.h5s.ALL, FRAMES + 3)
    source = opened(tmp_path / "a.h5")
    read = {tag: source.read("data", place) for place, tag in enumerate(source.tags)}
    assert np.array_equal(read["outside"], FRAMES)
    assert np.array_equal(read["virtual"], FRAMES + 1)
    assert np.array_equal(read["compact"], FRAMES + 3)
    assert (read["never"] == 5).all()


def test_booleans_and_small_floats(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", data=FRAMES.astype(np.float16), voiced=FRAMES[:, 0] > 4, lengths=[4, 5])
    source = opened(path)
    assert {key: spec.dtype for key, spec in source.keys.items()} == {"data": "float16", "voiced": "bool"}
    assert source.read("voiced", 0).tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("datasets", "options", "message"),
    [
        ({}, {}, r"a\.h5: holds no dataset"),
        (
            {"inputs": FRAMES, "seqTags": ["a"]},
            {},
            r"has no dataset 'seqLengths', so it is not in RETURNN's flat layout",
        ),
        ({"inputs": FRAMES, "seqTags": ["a"], "seqLengths": [[4], [5]]}, {}, r"tells of 2 sequences but seqTags of 1"),
        ({"inputs": FRAMES, "seqTags": ["a"], "seqLengths": [[7]]}, {}, r"adds up to 7 frames .* has 9"),
        ({"inputs": FRAMES, "seqTags": ["a", "b"], "seqLengths": [[10], [-1]]}, {}, r"adds up to 9 frames .* has 9"),
        (
            {"inputs": FRAMES, "seqTags": FRAMES, "seqLengths": [[9]]},
            {},
            r"'/seqTags' holds float32 \[9, 2\], not one tag",
        ),
        (
            {"inputs": FRAMES, "seqTags__x": [1], "seqLengths": [[9]]},
            {},
            r"can't be read as HDF5: 'seqTags' is no dataset but a group",
        ),
        (
            {"targets__data": FRAMES, "seqTags": ["a"], "seqLengths": [[9]]},
            {},
            r"can't be read as HDF5: 'targets/data' is no group but a dataset",
        ),
        ({"data": FRAMES, "lengths": [4, 4]}, {}, r"dataset 'data' float32 \[9, 2\] holds neither"),
        ({"data": FRAMES, "lengths": [4, 4]}, {"layout": "flat"}, r"lengths add up to 8 frames but there are 9"),
        ({"data": FRAMES, "lengths": [10, -1]}, {}, r"lengths or offsets lead outside of its 9 frames"),
        ({"data": FRAMES, "offsets": [0, 5, 3, 9]}, {}, r"lead outside of its 9 frames"),
        ({"data": FRAMES, "offsets": [1, 3]}, {}, r"neither begin at 0 nor end at its 9 frames"),
        ({"data": FRAMES, "offsets": [0, 9], "tags": ["a", "b"]}, {}, r"may be where they begin or where they end"),
        ({"data": FRAMES, "offsets": [0, 3], "lengths": [1, 2, 3]}, {}, r"there are 2 offsets and 3 lengths"),
        ({"data": FRAMES, "lengths": [4, 5], "tags": ["a"]}, {}, r"numbers of sequences differ: data 2, the tags 1"),
        (
            {"data": FRAMES, "lengths": [0.5, 1.5]},
            {},
            r"'lengths' holds float64 \[2\], not a whole number per sequence",
        ),
        (
            {"data": np.zeros((2, 3)), "lengths": [4, 4]},
            {"layout": "padded"},
            r"2 rows of 3 frames but 2 lengths of up to 4",
        ),
        (
            {"data": FRAMES, "lengths": [9]},
            {"lengths": "lens"},
            r"there is no dataset 'lens', which source.lengths names",
        ),
        ({"data": FRAMES, "lengths": [9]}, {"tags": "who"}, r"there is no dataset 'who', which source.tags names"),
        (
            {"data": FRAMES, "lengths": [9]},
            {"without_time": ["dta"]},
            r"'dta', which source.without_time names, isn't there",
        ),
        (
            {"data": FRAMES, "lengths": [9]},
            {"frame_shape": {"data": [2]}},
            r"source.frame_shape names, has no rows that",
        ),
        ({"data": FRAMES}, {"layout": "flat"}, r"nothing says where its sequences lie; set source.lengths"),
        ({"a__data": FRAMES, "b__data": FRAMES[:, :1]}, {}, r"sequence 'b': 'b/data' is float32 \[9, 1\], but .* 'a'"),
        ({"a__data": FRAMES, "a__labels": [1], "b__data": FRAMES}, {}, r"sequence 'b' has no dataset 'b/labels'"),
        (
            {"a__x": [1, 2], "b__x": 3},
            {},
            r"sequence 'b': 'b/x' is int64 \[\], but that of sequence 'a' is int64 with frames",
        ),
        ({"a__x": 3, "b__x": [1, 2]}, {}, r"sequence 'b': 'b/x' is int64 \[2\], but .* 'a' is int64 with one value of"),
        ({"data": np.zeros(9, np.complex64), "lengths": [9]}, {}, r"there are: data \(complex64\), lengths \(int64\);"),
        ({"a": FRAMES, "b": [1]}, {}, r"make them alike; or if each dataset holds all sequences, set source.layout"),
        ({"a__x": ["t"], "b__x": ["u"]}, {}, r"dataset 'a/x' holds object, not numbers"),
        (
            {"a__x": np.zeros((3, 0)), "b__x": np.zeros((3, 0))},
            {},
            r"'a/x' has shape \[3, 0\]: its frames hold no value",
        ),
        ({"a": FRAMES}, {"keys": {"data": "{tag}/feats"}}, r"holds no dataset '{tag}/feats', with a sequence's tag"),
        ({"streams__data__data__a": FRAMES}, {"layout": "streams"}, r"has no 'seq_names'"),
        ({"streams__x__data__a": FRAMES, "seq_names": ["b"]}, {}, r"sequence 'b' has no dataset 'streams/x/data/b'"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_files_that_fit_nothing(
    tmp_path: Path, datasets: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        opened(write(tmp_path / "a.h5", **datasets), **options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "a.h5"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "flta"}, r"source.layout is 'flta'"),
        ({"keys": []}, r"source.keys is empty"),
        (
            {"keys": {"data": "{tag}/x"}, "layout": "flat"},
            r"'{tag}/x', a dataset per sequence, but source.layout is flat",
        ),
        (
            {"keys": {"data": "{tag}/x", "y": "labels"}},
            r"names 'labels' among datasets per sequence; put {tag} into it",
        ),
        ({"keys": {"data": "x"}, "layout": "per_sequence"}, r"names 'x' among datasets per sequence"),
        ({"lengths": "x", "layout": "returnn"}, r"source.lengths is set, but in this layout the file says it itself"),
        ({"tags": "x", "keys": {"data": "{tag}"}}, r"source.tags is set, but in this layout"),
        ({"frame_shape": {"x": [0]}}, r"source.frame_shape.x.0 is 0"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        opened(Path("none.h5"), **options)


def test_files_of_different_keys(tmp_path: Path) -> None:
    write(tmp_path / "a.h5", data=FRAMES, lengths=[9])
    write(tmp_path / "b.h5", data=FRAMES.astype(np.float64), lengths=[9])
    with pytest.raises(SourceError, match=r"b\.h5: key 'data' is float64 \[2\], but in .*a\.h5 it is float32 \[2\]"):
        opened(tmp_path)
