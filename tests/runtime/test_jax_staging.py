from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from seqprep import Loader
from seqprep.errors import ConfigError, SeqprepError
from seqprep.jax import stage

from .conftest import MakeDataset

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.usefixtures("bounded")

jax.config.update("jax_num_cpu_devices", 4)  # before JAX has looked for them

Batch = dict[str, Any]


@pytest.fixture
def wide() -> Iterator[None]:
    """All 64 bits."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def odd_arrays() -> dict[str, np.ndarray]:
    values = np.arange(24, dtype=np.float32)
    read_only = np.zeros((4, 3), np.float32)
    read_only.flags.writeable = False
    unaligned = np.zeros(100, np.uint8)[1:97].view(np.float32).reshape(4, 6)
    unaligned[...] = values.reshape(4, 6)
    return {
        "read-only": read_only,
        "unaligned": unaligned,
        "transposed": values.reshape(6, 4).T,
        "strided": values.reshape(4, 6)[:, ::2],
        "backwards": values.reshape(4, 6)[::-1],
        "big-endian": values.reshape(4, 6).astype(">f4"),
        "no frames": np.zeros((4, 0, 3), np.float32),
        "no rows": np.zeros((0, 3), np.int32),
        "scalar": np.array(3, np.int64),
        "bfloat16": values.astype(jax.numpy.bfloat16),
        **{
            dtype: np.arange(12).reshape(4, 3).astype(dtype)
            for dtype in ("?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "F", "D")
        },
    }


@pytest.mark.usefixtures("wide")
def test_every_kind_of_array_becomes_the_same() -> None:
    arrays = odd_arrays()
    for batch in stage([arrays] * 3):
        assert list(batch) == list(arrays)
        for name, array in arrays.items():
            assert isinstance(batch[name], jax.Array)
            assert batch[name].dtype == array.dtype.newbyteorder("=")
            np.testing.assert_array_equal(batch[name], array)


def test_64_bits_become_32_unless_told_otherwise() -> None:
    arrays = odd_arrays()
    narrow = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
    (batch,) = stage([arrays])
    for name, array in arrays.items():
        assert batch[name].dtype == narrow.get(array.dtype.name, array.dtype.newbyteorder("="))
        np.testing.assert_array_equal(batch[name], array)


@pytest.mark.parametrize(("value", "dtype"), [(3_000_000_000, np.int64), (-(2**31) - 1, np.int64), (2**32, np.uint64)])
def test_integers_that_do_not_fit_are_an_error(value: int, dtype: type) -> None:
    batches = iter(stage([{"data/start": np.array([0, value], dtype)}]))
    with pytest.raises(ConfigError, match=rf"data/start holds {value}, but JAX keeps it as u?int32; .*jax_enable_x64"):
        next(batches)


def test_what_is_no_number_stays_on_the_host() -> None:
    others = {"date": np.array(["2020-01-01"], "M8[D]"), "long": np.ones(2, np.longdouble), "text": np.array(["a"])}
    (batch,) = stage([others])
    assert all(batch[name] is value for name, value in others.items())


def test_does_not_let_itself_be_traced() -> None:
    batches = iter(stage([{"x": np.zeros(1, np.float32)}, {"x": np.ones(1, np.float32)}]))

    @jax.jit
    def traced() -> Any:
        return next(batches)["x"]

    with pytest.raises(SeqprepError, match=r"inside a jax\.jit"):
        traced()
    assert [float(batch["x"][0]) for batch in batches] == [0, 1]


def test_an_array_given_away_leaves_the_loaders_memory_alone(make_dataset: MakeDataset) -> None:
    """A donated argument may be written over by the result, if its memory is JAX' own."""
    double = jax.jit(lambda x: x * 2, donate_argnums=0)
    kept, expected = [], []

    class Spy:
        def __iter__(self) -> Iterator[Any]:
            for batch in loader:
                kept.append(batch["data"])
                expected.append(batch["data"].copy())
                yield {"data": batch["data"]}

    with Loader(make_dataset()) as loader:
        results = [double(batch["data"]) for batch in stage(Spy(), device="cpu")]
    for result, array, copy in zip(results, kept, expected, strict=True):
        np.testing.assert_array_equal(result, copy * 2)
        np.testing.assert_array_equal(array, copy)


def test_finds_the_device() -> None:
    devices = jax.local_devices(backend="cpu")
    for device, expected in ((devices[2], devices[2]), ("cpu:3", devices[3]), ("cpu", devices[0])):
        staged = stage([{"x": np.zeros(2)}], device=device)
        assert staged.device == str(expected)
        assert [batch["x"].devices() for batch in staged] == [{expected}]
    with jax.default_device(devices[1]):
        (batch,) = stage([{"x": np.zeros(2)}])
    assert batch["x"].devices() == {devices[1]}
    assert not batch["x"].committed  # it may be used beside arrays elsewhere


@pytest.mark.parametrize("device", ["bogus", "cpu:9", "cpu:x"])
def test_refuses_devices_that_are_not_there(device: str) -> None:
    with pytest.raises(ConfigError, match=f"device is '{device}', which isn't there; there are .*:0"):
        stage([], device=device)


# -- several devices --


def sharding(*axes: str | None, shape: tuple[int, ...] = (4,)) -> Any:
    names = ("batch", "model")[: len(shape)]
    devices = np.array(jax.local_devices(backend="cpu")).reshape(shape)
    return jax.sharding.NamedSharding(jax.sharding.Mesh(devices, names), jax.sharding.PartitionSpec(*axes))


def batches_of(*rows: int) -> list[Batch]:
    return [
        {
            "data": np.arange(number * 6, dtype=np.float32).reshape(number, 2, 3) + 1,
            "data/size0": np.full(number, 2, np.int32),
            "seq_idx": np.arange(number),
            "seq_tag": [f"t{place}" for place in range(number)],
        }
        for number in rows
    ]


def test_a_batch_is_shared_among_devices() -> None:
    batches = batches_of(8, 4)
    for staged, batch in zip(stage(batches, sharding=sharding("batch")), batches, strict=True):
        for name in ("data", "data/size0", "seq_idx"):
            np.testing.assert_array_equal(staged[name], batch[name])
            assert len(staged[name].sharding.device_set) == 4
            assert {len(part.data) for part in staged[name].addressable_shards} == {len(batch["data"]) // 4}
        assert staged["seq_tag"] == batch["seq_tag"]


@pytest.mark.parametrize(
    ("axes", "shape", "parts"), [(("batch",), (2, 2), 2), ((), (4,), 1), ((("batch", "model"),), (2, 2), 4)]
)
def test_rows_have_to_divide_by_the_parts_of_their_axis(axes: Any, shape: tuple[int, ...], parts: int) -> None:
    wanted = sharding(*axes, shape=shape)
    for rows in range(1, 9):
        batches = batches_of(rows)
        if rows % parts == 0:
            (staged,) = stage(batches, sharding=wanted)
            np.testing.assert_array_equal(staged["data"], batches[0]["data"])
        else:
            with pytest.raises(ConfigError, match=f"a batch has {rows} rows, which {parts} devices can't share evenly"):
                list(stage(batches, sharding=wanted))
        (staged,) = stage(batches, sharding=wanted, pad_rows=True)
        assert len(staged["data"]) == -(-rows // parts) * parts


def test_what_is_not_by_row_is_not_shared() -> None:
    (batch,) = batches_of(4)
    others = {"segment_row": np.array([0, 0, 1, 2, 3]), "total": np.array(7)}
    (staged,) = stage([batch | others], sharding=sharding("batch"))
    assert len(staged["seq_idx"].sharding.device_set) == 4
    for name, array in others.items():
        assert isinstance(staged[name], np.ndarray)
        np.testing.assert_array_equal(staged[name], array)


def test_empty_rows_fill_up(make_dataset: MakeDataset) -> None:
    with Loader(make_dataset()) as loader, stage(loader, sharding=sharding("batch"), pad_rows=True) as staged:
        expected = [{name: np.array(value) for name, value in batch.items()} for batch in loader]
        assert any(len(batch["seq_idx"]) % 4 for batch in expected)
        for batch, arrays in zip(staged, expected, strict=True):
            rows = len(arrays["seq_idx"])
            values = {name: np.asarray(value) for name, value in batch.items()}
            more = len(values["seq_idx"]) - rows
            assert (rows + more) % 4 == 0
            assert more < 4
            assert values["seq_idx"][rows:].tolist() == [-1] * more
            assert values["seq_tag"][rows:].tolist() == [""] * more
            for name, array in arrays.items():
                np.testing.assert_array_equal(values[name][:rows], array)
                if name not in ("seq_idx", "seq_tag"):
                    assert not np.any(values[name][rows:])


def test_refuses_impossible_shardings() -> None:
    with pytest.raises(ConfigError, match="give one of them"):
        stage([], sharding=sharding("batch"), device="cpu")
    with pytest.raises(ConfigError, match=r"sharding is 'batch': it has to be a jax\.sharding\.Sharding"):
        stage([], sharding="batch")
    with pytest.raises(ConfigError, match="pad_rows is set but sharding isn't"):
        stage([], pad_rows=True)


def _has_gpu() -> bool:
    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:
        return False


needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not _has_gpu(), reason="no GPU here")]


@pytest.mark.parametrize("depth", [pytest.param(depth, marks=needs_gpu) for depth in (1, 2, 5)])
def test_gpu_gives_what_the_loader_gives(make_dataset: MakeDataset, depth: int) -> None:
    with Loader(make_dataset(), prefetch=2) as loader, stage(loader, device="gpu:0", depth=depth) as staged:
        expected = [{name: np.array(batch[name]) for name in set(batch) - {"seq_tag"}} for batch in loader]
        for _ in range(3):
            kept = []
            for batch in staged:
                assert batch["data"].devices() == {jax.devices("gpu")[0]}
                kept.append(batch)
            for batch, arrays in zip(kept, expected, strict=True):
                for name, array in arrays.items():
                    np.testing.assert_array_equal(batch[name], array)
