"""Outputs of rows, put back together: equal to those of whole sequences, whatever the order the rows come in."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seqprep
from seqprep import Loader, stitch
from seqprep.errors import ConfigError
from seqprep.runtime.stitching import Stitched

from .conftest import write_corpus

pytestmark = pytest.mark.usefixtures("bounded")


def chunked(folder: Path, **settings: Any) -> Path:
    if not (folder / "corpus.hdf").exists():
        write_corpus(folder / "corpus.hdf", 30)
    output = folder / f"shards{len(list(folder.iterdir()))}"
    seqprep.chunk(
        {
            "source": {"type": "hdf5", "path": str(folder / "corpus.hdf")},
            "chunk": {"size": 20, "step": 20},
            "context": 3,
            "batch": {"max_sequences": 8},
            "order": {"by": "random", "seed": 3},
            "output": {"path": str(output), "shard_size": 20_000},
        }
        | settings
    )
    return output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stitch")


def sequences(folder: Path, key: str = "inputs") -> Iterator[np.ndarray[Any, Any]]:
    with h5py.File(folder / "corpus.hdf") as file:
        lengths = file["seqLengths"][:, 0].tolist()
        values, place = file[key][...], 0
        for length in lengths:
            yield values[place : place + length]
            place += length


def convolve(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A valid convolution over 3 + 1 + 3 frames of each row; [B, T, F] to [B, T − 6, 2]."""
    kernel = np.linspace(-1, 1, 7 * values.shape[2] * 2).reshape(7, values.shape[2], 2)
    return sum(values[:, tap : values.shape[1] - 6 + tap] @ kernel[tap] for tap in range(7))  # type: ignore[return-value]


@pytest.mark.parametrize("pad", ["zero", "edge"])
@pytest.mark.parametrize("step", [20, 10, 7])
@pytest.mark.parametrize("overlap", ["first", "last", "mean"])
def test_a_valid_convolution_over_rows_is_that_over_whole_sequences(
    folder: Path, pad: str, step: int, overlap: Any
) -> None:
    path = chunked(folder, chunk={"size": 20, "step": step}, context={"left": 3, "right": 3, "pad": pad})
    with Loader(path, shuffle=True) as loader:
        outputs = ((batch, convolve(batch["data"].astype(np.float64))) for batch in loader)
        got = {one.seq_idx: one for one in stitch(outputs, context="removed", overlap=overlap)}
    whole = list(sequences(folder))
    assert sorted(got) == list(range(len(whole)))
    for number, values in enumerate(whole):
        padded = np.pad(values, ((3, 3), (0, 0)), mode="edge" if pad == "edge" else "constant")
        expected = convolve(padded[None].astype(np.float64))[0]
        assert got[number].seq_tag == f"Sprecher {number}/größe"
        np.testing.assert_allclose(got[number].outputs, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("overlap", ["first", "last", "mean"])
def test_outputs_with_their_context(folder: Path, overlap: Any) -> None:
    path = chunked(folder, chunk={"size": 20, "step": 8})
    with Loader(path, shuffle="shards") as loader:
        got = list(stitch(((batch, 2 * batch["data"]) for batch in loader), context="kept", overlap=overlap))
        labels = list(stitch(((batch, batch["classes"]) for batch in loader), context="kept", key="classes"))
    for kind, found in (("inputs", got), ("targets/data/classes", labels)):
        whole = list(sequences(folder, kind))
        assert len(found) == len(whole)
        for one in found:
            factor = 2 if kind == "inputs" else 1
            np.testing.assert_array_equal(one.outputs, factor * whole[one.seq_idx])
            assert one.outputs.dtype == whole[0].dtype


def test_rows_that_come_twice_count_once(folder: Path) -> None:
    path = chunked(folder, chunk={"size": 20, "step": 10}, batch={"max_sequences": 5})
    loaders = [Loader(path, rank=rank, world_size=7) for rank in range(7)]
    pairs = [(batch, batch["data"]) for loader in loaders for batch in loader]
    stored = len(Loader(path, rank=0, world_size=1))
    assert len(pairs) > stored
    for overlap in ("first", "last", "mean"):
        got = list(stitch(pairs, context="kept", overlap=overlap))
        assert len({one.seq_idx for one in got}) == len(got)
        for one in got:
            np.testing.assert_array_equal(one.outputs, list(sequences(folder))[one.seq_idx])
    for loader in loaders:
        loader.close()


# -- by hand --


def batch_of(*rows: tuple[int, int, int, int], left: int = 0, right: int = 0) -> dict[str, Any]:
    """Rows (sequence, start, core, length) without features; frames hold their place in the sequence."""
    sequence, start, core, length = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    frames = int((core + left + right).max())
    return {
        "x": start[:, None] - left + np.arange(frames) + 100.0 * sequence[:, None],
        "seq_idx": sequence,
        "seq_tag": [f"tag {number}" for number in sequence],
        "x/start": start,
        "x/core": np.stack([np.full(len(core), left), core], axis=1).astype(np.int32),
        "x/size0": (core + left + right).astype(np.int32),
        "x/length": length,
    }


def given_by(pairs: Any, **options: Any) -> list[tuple[int, list[float]]]:
    return [(one.seq_idx, one.outputs.tolist()) for one in stitch(pairs, **{"context": "kept"} | options)]


def frames_of(sequence: int, length: int) -> list[float]:
    return [100.0 * sequence + frame for frame in range(length)]


def test_sequences_are_given_as_soon_as_they_are_complete() -> None:
    batches = [batch_of((0, 0, 3, 6), (1, 0, 3, 3)), batch_of((0, 2, 4, 6)), batch_of((0, 4, 2, 6), (2, 0, 1, 1))]
    taken: list[int] = []

    def pairs() -> Iterator[tuple[Mapping[str, Any], Any]]:
        for number, batch in enumerate(batches):
            taken.append(number)
            yield batch, batch["x"]

    def when(**options: Any) -> list[tuple[int, int]]:
        taken.clear()
        return [(one.seq_idx, taken[-1]) for one in stitch(pairs(), context="kept", **options)]

    assert when(overlap="first") == [(1, 0), (0, 1), (2, 2)]
    assert when(overlap="last") == when(overlap="mean") == [(0, 2), (1, 2), (2, 2)]
    batches = [batch_of((0, 0, 3, 6)), batch_of((0, 2, 4, 6), (1, 0, 2, 2)), batch_of((2, 0, 1, 1))]
    for overlap in ("first", "last", "mean"):
        assert when(overlap=overlap, ordered=True) == [(0, 1), (1, 2), (2, 2)]


def test_what_overlaps() -> None:
    rows = [(batch_of((0, 0, 4, 6)), np.full((1, 4, 2), 1.0)), (batch_of((0, 2, 4, 6)), np.full((1, 4, 2), 4.0))]
    for overlap, expected in (
        ("first", [1, 1, 1, 1, 4, 4]),
        ("last", [1, 1, 4, 4, 4, 4]),
        ("mean", [1, 1, 2.5, 2.5, 4, 4]),
    ):
        got = next(stitch(rows, context="kept", overlap=overlap))  # type: ignore[arg-type]
        assert got.outputs[:, 0].tolist() == expected
    got = next(stitch(rows[::-1], context="kept", overlap="first"))
    assert got.outputs[:, 1].tolist() == [1, 1, 4, 4, 4, 4]


@given(st.sampled_from(["float16", "float32", "float64", "complex64"]), st.integers(1, 5))
def test_means_keep_the_dtype(dtype: str, rows: int) -> None:
    pairs = [(batch_of((0, number, 9 - number, 9)), np.full((1, 9 - number), number, dtype)) for number in range(rows)]
    got = next(stitch(pairs, context="kept", overlap="mean")).outputs
    assert got.dtype == dtype
    expected = [np.mean([number for number in range(rows) if frame >= number]) for frame in range(9)]
    np.testing.assert_allclose(got, np.array(expected), rtol=1e-3)


def test_gaps() -> None:
    pairs = [(batch_of((3, 0, 2, 7), (4, 0, 1, 1)), np.ones((2, 2))), (batch_of((3, 4, 2, 7)), np.ones((1, 2)))]
    for overlap in ("first", "last", "mean"):
        with pytest.raises(
            ConfigError, match=r"sequence 3 \('tag 3'\): 3 of its 7 frames, the first of them 2, have no"
        ):
            list(stitch(pairs, context="kept", overlap=overlap))  # type: ignore[arg-type]
        got = dict(given_by(pairs, overlap=overlap, fill=-9))
        assert got[3] == [1, 1, -9, -9, 1, 1, -9]


def test_sequences_without_frames_and_rows_without_sequence() -> None:
    batch = batch_of((0, 0, 0, 0), (1, 0, 2, 2), (-1, 0, 0, 0), (2, 0, 0, 0), (0, 0, 0, 0))
    for options in ({}, {"overlap": "mean"}, {"ordered": False}):
        got = given_by([(batch, batch["x"])], **options)
        assert sorted(got) == [(0, []), (1, frames_of(1, 2)), (2, [])]
    empty = next(one for one in stitch([(batch, np.zeros((5, 2, 3), np.float32))], context="kept") if one.seq_idx == 2)
    assert empty.outputs.shape == (0, 3)
    assert empty == Stitched(2, "tag 2", empty.outputs)


def test_packed_rows() -> None:
    batch = batch_of((0, 0, 3, 3), (1, 0, 2, 2), (2, 0, 4, 4))
    batch |= {"segment_row": np.array([0, 0, 1]), "segment_start": np.array([0, 4, 0])}
    del batch["x"]
    outputs = np.zeros((2, 6))
    outputs[0, :3], outputs[0, 4:6], outputs[1, :4] = frames_of(0, 3), frames_of(1, 2), frames_of(2, 4)
    assert given_by([(batch, outputs)]) == [(0, frames_of(0, 3)), (1, frames_of(1, 2)), (2, frames_of(2, 4))]
    with pytest.raises(ConfigError, match="rows are packed"):
        given_by([(batch, outputs)], context="removed")


def test_ordered_notices_that_it_isnt_true() -> None:
    pairs = [(batch := batch_of((0, 0, 2, 4)), batch["x"]), (batch := batch_of((1, 0, 2, 2)), batch["x"])]
    late = batch_of((0, 2, 2, 4))
    with pytest.raises(ConfigError, match=r"sequence 0 \('tag 0'\).*have no output"):
        given_by([*pairs, (late, late["x"])], ordered=True)
    with pytest.raises(
        ConfigError, match=r"ordered is set, but rows of sequence 0 \('tag 0'\) come behind those of others"
    ):
        given_by([*pairs, (late, late["x"])], ordered=True, fill=0)
    assert len(given_by([*pairs, pairs[0]], ordered=True, fill=0)) == 2  # a row that comes twice


def test_tensors_and_tags_of_frameworks() -> None:
    batch = batch_of((0, 0, 2, 2))
    batch["seq_tag"] = np.array(["größe".encode()], object)
    got = next(stitch([(batch, batch["x"].tolist())], context="kept"))
    assert got.seq_tag == "größe"


@pytest.mark.parametrize(
    ("outputs", "options", "message"),
    [
        ((2, 9), {"context": "kept"}, r"outputs have 9 frames where the rows of 'x' have 6; .*context to 'removed'"),
        ((2, 6), {"context": "removed"}, r"as many frames as the rows of 'x', 6; set it to 'kept'"),
        ((2, 3), {"context": "removed"}, r"outputs have 3 frames, but the core of row 0 ends at frame 4"),
        ((3, 6), {"context": "kept"}, r"outputs have 3 rows where the batch has 2"),
        ((1, 6), {"context": "kept"}, r"outputs have 1 rows where the batch has 2"),
        ((2,), {"context": "kept"}, r"outputs have the shape \[2\]"),
        ((2, 6), {"context": "kept", "key": "y"}, r"key is 'y': the batch has no such key"),
        ((2, 6), {"context": "none"}, r"context is 'none': it has to be kept or removed"),
        ((2, 6), {"context": "kept", "overlap": "sum"}, r"overlap is 'sum': it has to be first or last or mean"),
    ],
)
def test_outputs_that_dont_fit(outputs: tuple[int, ...], options: dict[str, Any], message: str) -> None:
    batch = batch_of((0, 0, 4, 4), (1, 0, 3, 3), left=1, right=1)
    with pytest.raises(ConfigError, match=message):
        given_by([(batch, np.zeros(outputs))], **options)


def test_outputs_that_cant_be_placed_or_averaged() -> None:
    clipped = batch_of((0, 0, 4, 8), (0, 4, 4, 8), left=1, right=1)
    clipped["x/core"][0, 0] = 0
    with pytest.raises(ConfigError, match="rows have 0 or 1 frames of it on the left"):
        given_by([(clipped, np.zeros((2, 5)))], context="removed")
    batch = batch_of((0, 0, 2, 2))
    with pytest.raises(ConfigError, match="overlap is 'mean', but the outputs are int64"):
        given_by([(batch, batch["x"].astype(int))], overlap="mean")
    with pytest.raises(ConfigError, match=r"outputs are float32, \[\] a frame, where those before were float64"):
        given_by([(batch, batch["x"]), (batch, batch["x"].astype(np.float32))])
    for missing in ("x/start", "x/length", "seq_idx"):
        with pytest.raises(ConfigError, match=f"the batch holds no '{missing}'"):
            given_by([({name: of for name, of in batch.items() if name != missing}, batch["x"])])
