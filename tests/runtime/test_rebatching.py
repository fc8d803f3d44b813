"""New batches of mixed rows: nothing lost, nothing twice, padded afresh, the same at every resumption."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seqprep
from seqprep import Loader
from seqprep.errors import ClosedError, ConfigError
from seqprep.runtime import rebatching, tables
from seqprep.runtime.order import GlobalOrder
from seqprep.runtime.row_order import RebatchOptions, RowOrder
from seqprep.shards import INDEX_NAME, Dataset, read_sidecar
from seqprep.shards.index import _content_crc
from seqprep.types import Tags

from .conftest import write_corpus
from .resumable import assert_resumable

pytestmark = pytest.mark.usefixtures("bounded")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 19 batches, 110 rows; padded with −1 and 9."""
    folder = tmp_path_factory.mktemp("rebatch")
    write_corpus(folder / "corpus.hdf", 30)
    seqprep.chunk(
        {
            "source": {"type": "hdf5", "path": str(folder / "corpus.hdf")},
            "keys": {"data": {"pad_value": -1}, "classes": {"pad_value": 9}},
            "chunk": {"size": 20, "step": 10},
            "context": 2,
            "batch": {"max_frames": 240, "max_sequences": 8},
            "order": {"by": "random", "seed": 3},
            "output": {"path": str(folder / "shards"), "shard_size": 5000},
        }
    )
    return folder / "shards"


Row = tuple[int, int]


def rows_of(batch: Any) -> list[Row]:
    return list(zip(batch["seq_idx"].tolist(), batch["data/start"].tolist(), strict=True))


def contents(batch: Any) -> dict[Row, tuple[Any, ...]]:
    """What each row of a batch is, without padding."""
    found = {}
    for place, row in enumerate(rows_of(batch)):
        found[row] = (
            batch["seq_tag"][place],
            *(batch[key][place, : batch[f"{key}/size0"][place]].tobytes() for key in ("data", "classes")),
            *(batch[name][place].tolist() for name in batch if "/" in name),
        )
    return found


# -- what is in the batches --


@pytest.mark.parametrize(
    "options",
    [{"rows": 7, "window": 4}, {"rows": 1, "window": 1}, {"rows": 200, "window": 3}, {"rows": 30, "window": 1}],
)
def test_every_row_once_as_it_was(path: Path, options: dict[str, int]) -> None:
    with Loader(path) as stored, Loader(path, rebatch=options, seed=4) as loader:
        expected: dict[Row, Any] = {}
        for batch in stored:
            expected |= contents(batch)
        got: dict[Row, Any] = {}
        sizes = []
        names = list(stored.batch(0))
        for batch in loader:
            assert list(batch) == names
            assert not got.keys() & contents(batch).keys()
            got |= contents(batch)
            sizes.append(len(batch["seq_idx"]))
            for key, pad in (("data", -1), ("classes", 9)):
                size = batch[f"{key}/size0"]
                assert batch[key].shape[:2] == (sizes[-1], size.max())
                assert (batch[key][np.arange(batch[key].shape[1]) >= size[:, None]] == pad).all()
            for name in batch:
                if name != "seq_tag":
                    assert batch[name].ctypes.data % 64 == 0
                    assert batch[name].dtype == stored.batch(0)[name].dtype
        assert got == expected
        full, rest = divmod(len(expected), options["rows"])
        assert sizes == [options["rows"]] * full + [rest] * (rest > 0)
        assert len(loader) == len(sizes)
        metrics = loader.metrics()
        assert (metrics.batches, metrics.rows) == (len(sizes), len(expected))
        assert metrics.frames == stored.metrics().frames


def test_rows_stay_in_their_window_and_change_company(path: Path) -> None:
    options = {"rows": 8, "window": 4}
    with Loader(path) as stored:
        batches = [rows_of(batch) for batch in stored]
    home = {row: number // 4 for number, batch in enumerate(batches) for row in batch}
    with Loader(path, rebatch=options) as loader:
        epochs = [[rows_of(batch) for batch in loader] for _ in range(2)]
    assert epochs[0] != epochs[1]
    stream = [home[row] for batch in epochs[0] for row in batch]
    assert stream == sorted(stream)
    mixed = [len({number for number, batch in enumerate(batches) if set(batch) & set(new)}) for new in epochs[0]]
    assert np.mean(mixed) > 2
    with Loader(path, rebatch=options, seed=1) as loader:
        assert [rows_of(batch) for batch in loader] != epochs[0]


def test_the_order_of_rows_is_the_same_for_good() -> None:
    order = RowOrder(make(3, rank=0), np.array([3, 4, 2]).__getitem__, RebatchOptions(rows=4, window=2))
    assert order.mixed(0, 0, 7).tolist() == GOLDEN[0]
    assert order.mixed(1, 2, 7).tolist() == GOLDEN[1]


GOLDEN = [[1, 3, 0, 6, 2, 5, 4], [3, 0, 2, 4, 5, 6, 1]]


def make(batches: int, **options: Any) -> GlobalOrder:
    defaults = {"shuffle": False, "seed": 0, "rank": 0, "world_size": 1, "even": "pad"}
    return GlobalOrder(passes=[np.array([0, batches])], **defaults | options)


# -- from numbers alone --


@given(
    st.lists(st.integers(1, 9), min_size=0, max_size=30), st.integers(1, 12), st.integers(1, 6), st.integers(1, 5),
    st.sampled_from(["pad", "drop", "none"]), st.sampled_from([False, "global"]), st.integers(0, 2),
)  # fmt: skip
def test_what_ranks_get(
    rows: list[int], size: int, window: int, world_size: int, even: Any, shuffle: Any, epoch: int
) -> None:
    options = RebatchOptions(rows=size, window=window)
    plans = [
        RowOrder(
            make(len(rows), rank=rank, world_size=world_size, even=even, shuffle=shuffle),
            np.array(rows, np.int64).__getitem__,
            options,
        )
        for rank in range(world_size)
    ]
    steps = [plan.steps(epoch, 0) for plan in plans]
    if even != "none":
        assert len(set(steps)) == 1
    for plan, count in zip(plans, steps, strict=True):
        own = int(np.array(rows, np.int64)[plan.order.of_epoch(epoch, 0)].sum())
        whole = plan.stretch(epoch, 0)
        assert len(whole.sizes) == count
        assert (whole.window, whole.skip, whole.again) == (0, 0, 0)
        if even == "drop":
            assert sum(whole.sizes) == min(own, count * size)
        else:
            assert sum(whole.sizes) == own
        assert all(of == size for of in whole.sizes[: own // size])
        assert plan.ended(epoch, count * world_size) == (count == max(steps))
        for taken in range(count + 1):
            part = plan.stretch(epoch, taken * world_size)
            assert part.sizes == whole.sizes[taken:]
            before = np.append(0, np.cumsum(np.array(rows, np.int64)[plan.order.of_epoch(epoch, 0)]))
            assert before[min(part.window * window, len(before) - 1)] + part.skip == min(taken * size, own)
            assert part.again == sum(of == 0 for of in whole.sizes[:taken])
            assert len(part.batches) <= len(whole.batches) - part.window * window


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("even", ["pad", "drop", "none"])
def test_ranks_together(path: Path, even: Any, world_size: int) -> None:
    got, steps = Counter[Row](), []
    for rank in range(world_size):
        options = {"rebatch": {"rows": 3, "window": 2}, "even": even, "rank": rank, "world_size": world_size}
        with Loader(path, shuffle="shards", **options) as loader:
            expected = len(loader)  # of this epoch; where ranks share rows, another has more or fewer
            assert not loader.same_length
            batches = [rows_of(batch) for batch in loader]
            assert len(batches) == expected
            steps.append(len(batches))
            assert loader.epoch == 1
            assert min(map(len, batches)) >= 1
            for batch in batches:
                got.update(batch)
    if even != "none":
        assert len(set(steps)) == 1
    with Loader(path) as stored:
        rows = {row for batch in stored for row in rows_of(batch)}
    if even == "drop":
        assert max(got.values()) == 1
    else:
        assert set(got) == rows
        if even == "none":
            assert max(got.values()) == 1


# -- resuming --


@pytest.mark.parametrize(
    "setup",
    [
        {"rebatch": {"rows": 7, "window": 4}},
        {"rebatch": {"rows": 30, "window": 1}, "shuffle": "window:2"},
        {"rebatch": {"rows": 2, "window": 3}, "shuffle": True, "rank": 1, "world_size": 3},
        {"rebatch": {"rows": 2, "window": 3}, "shuffle": True, "rank": 2, "world_size": 3, "even": "drop"},
        {"rebatch": {"rows": 2, "window": 3}, "shuffle": "shards", "rank": 3, "world_size": 4, "even": "none"},
    ],
)
def test_resuming(path: Path, setup: dict[str, Any]) -> None:
    batches = assert_resumable(lambda: Loader(path, **setup), epochs=3)
    with Loader(path, **setup) as loader:
        states = []
        for _ in loader:
            states.append(loader.state_dict())
            assert states == [loader.state_at(consumed + 1) for consumed in range(len(states))]
        assert len(states) < len(batches)


def test_ranks_of_fewer_rows_resume_within_their_repeats() -> None:
    rows = np.array([1, 9, 1, 9, 1, 9], np.int64)  # rank 0 has 3, rank 1 has 27
    options = RebatchOptions(rows=2, window=2)
    plan = RowOrder(make(6, world_size=2, rank=0), rows.__getitem__, options)
    assert plan.stretch(0, 0).sizes == (2, 1, *[0] * 12)
    assert plan.stretch(0, 2 * 5).again == 3
    assert plan.stretch(0, 2 * 5).batches.tolist() == [4]


# -- rows that only fill a batch up --


def test_fillers_are_left_out(path: Path, tmp_path: Path) -> None:
    filled = tmp_path / "filled"
    filled.mkdir()
    for file in path.iterdir():
        (filled / file.name).write_bytes(file.read_bytes())
    index = json.loads((filled / INDEX_NAME).read_text())
    for shard in index["shards"]:  # the last row of each shard's first batch becomes a filler
        sidecar = read_sidecar(filled / shard["name"])
        table = sidecar.table
        numbers = table.fields["seq_idx"].copy()
        numbers[table.bounds[1] - 1] = -1 if table.bounds[1] > 1 else numbers[table.bounds[1] - 1]
        table.fields["seq_idx"] = numbers  # type: ignore[index]
        encoded = sidecar.encode()
        (filled / shard["name"]).with_suffix(".idx").write_bytes(encoded)
        shard["sidecar_crc32c"] = int.from_bytes(encoded[-4:], "little")
    index["configuration"]["batch"]["pad_rows"] = True
    del index["crc32c"]
    (filled / INDEX_NAME).write_text(json.dumps(index | {"crc32c": _content_crc(index)}))
    with Loader(filled) as stored, Loader(filled, rebatch={"rows": 6, "window": 5}) as loader:
        real = [row for batch in stored for row in rows_of(batch) if row[0] >= 0]
        assert sum(len(batch["seq_idx"]) for batch in stored) > len(real)
        batches = [rows_of(batch) for batch in loader]
        assert sorted(row for batch in batches for row in batch) == sorted(real)
        assert [len(batch) for batch in batches[:-1]] == [6] * (len(loader) - 1)
        np.testing.assert_array_equal(
            tables.batch_rows(Dataset(stored.path)), [(batch["seq_idx"] >= 0).sum() for batch in stored]
        )


def test_further_ragged_axes_are_padded_afresh() -> None:
    batches = []
    for sizes in ([(2, 1), (1, 3)], [(4, 2)]):
        frames, width = (max(column) for column in zip(*sizes, strict=True))
        data = np.full((len(sizes), frames, width), -5.0, np.float32)
        for row, (n, m) in enumerate(sizes):
            data[row, :n, :m] = 10 * n + m
        batches.append(
            {"data": data, "seq_idx": np.arange(len(sizes)), "data/size0": np.array([n for n, _ in sizes], np.int32),
             "data/size1": np.array([m for _, m in sizes], np.int32), "seq_tag": Tags.of(map(str, sizes))}
        )  # fmt: skip
    rows = rebatching._Rows.of(batches).at(np.array([2, 0]))
    shape = rebatching._shape("data", rows)
    assert shape == (2, 4, 2)
    out = np.zeros(shape, np.float32)
    rebatching._copy("data", rows, -7.0, out)
    expected = np.full(shape, -7.0)
    expected[0], expected[1, :2, :1] = 42, 21
    np.testing.assert_array_equal(out, expected)


# -- refusals, and ends --


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0, "window": 2}, "rebatch: rows is 0"),
        ({"rows": 2, "window": 1.5}, "rebatch: window is 1.5"),
        ({"rows": True, "window": 1}, "rebatch: rows is True"),
        ({"rows": 4}, r"rebatch is \{'rows': 4\}: give \{\"rows\": R, \"window\": W\}"),
        ({"rows": 4, "window": 2, "seed": 1}, "rebatch is .*seed"),
        (40, "rebatch is 40"),
    ],
)
def test_impossible_options(path: Path, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Loader(path, rebatch=options)


def test_packed_rows_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqprep.runtime.stored.batch_setting", lambda dataset, name: name == "pack")
    with pytest.raises(
        ConfigError, match=r"shards: rebatch is set, but the rows of this dataset are packed.*remove rebatch"
    ):
        Loader(path, rebatch={"rows": 4, "window": 2})
    Loader(path).close()


def test_an_iteration_that_was_ended_gives_nothing_more(path: Path) -> None:
    with Loader(path, rebatch={"rows": 4, "window": 2}) as loader:
        first = iter(loader)
        next(first)
        second = iter(loader)
        with pytest.raises(ClosedError, match="closed, iterated anew or interrupted"):
            next(first)
        assert rows_of(next(second))
        loader.close()
        with pytest.raises(ClosedError, match="closed"):
            next(second)


def test_arrays_stay_as_they_are_while_they_are_held(path: Path) -> None:
    with Loader(path, rebatch={"rows": 4, "window": 2}, prefetch=1) as loader:
        held = [(batch, {name: np.array(batch[name]) for name in batch}) for _ in range(3) for batch in loader]
        assert loader.metrics().unpooled_buffers > 0
    for batch, copies in held:
        for name, copy in copies.items():
            np.testing.assert_array_equal(np.array(batch[name]), copy)
