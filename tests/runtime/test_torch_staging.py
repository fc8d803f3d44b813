import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seqprep import Loader
from seqprep.errors import ConfigError
from seqprep.runtime.staging import Stage
from seqprep.runtime.torch_staging import CudaArea
from seqprep.torch import dataset, stage

from .conftest import MakeDataset
from .resumable import plain

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("bounded")

Batch = dict[str, Any]


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
        "broadcast": np.broadcast_to(values[:4, None], (4, 5)),
        "big-endian": values.reshape(4, 6).astype(">f4"),
        "no frames": np.zeros((4, 0, 3), np.float32),
        "no rows": np.zeros((0, 3), np.int32),
        "scalar": np.array(3, np.int64),
        **{
            dtype: np.arange(12).reshape(4, 3).astype(dtype)
            for dtype in ("?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "F", "D")
        },
    }


def assert_same(batch: Batch, arrays: dict[str, np.ndarray]) -> None:
    assert list(batch) == list(arrays)
    for name, array in arrays.items():
        assert type(batch[name]) is torch.Tensor
        np.testing.assert_array_equal(
            batch[name].cpu().numpy(), array.astype(array.dtype.newbyteorder("=")), strict=True
        )


def test_every_kind_of_array_becomes_the_same_tensor() -> None:
    arrays = odd_arrays()
    for batch in stage([arrays] * 3, device="cpu"):
        assert_same(batch, arrays)


def test_bfloat16_and_what_torch_has_no_dtype_for() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([[1.5, -2], [0, 300]], ml_dtypes.bfloat16)
    others = {"date": np.array(["2020-01-01"], "M8[D]"), "long": np.ones(2, np.longdouble), "text": np.array(["a"])}
    (batch,) = stage([{"x": values, **others}], device="cpu")
    assert batch["x"].dtype == torch.bfloat16
    assert batch["x"].float().tolist() == [[1.5, -2], [0, 300]]
    assert batch["x"].data_ptr() == values.ctypes.data
    assert all(batch[name] is value for name, value in others.items())


def test_batches_may_hold_tensors(make_dataset: MakeDataset) -> None:
    learnt = torch.ones(2, requires_grad=True)
    (batch,) = stage([{"x": torch.arange(3), "learnt": learnt}], device="cpu")
    assert batch["x"].tolist() == [0, 1, 2]
    assert batch["learnt"] is learnt
    path = make_dataset()
    with Loader(path) as loader:
        expected = [plain(batch) for batch in loader]
    loader = torch.utils.data.DataLoader(dataset(path), batch_size=None)
    with stage(loader, device="cpu") as staged:
        assert [plain(batch) for batch in staged] == expected


def test_other_devices_get_copies() -> None:
    (batch,) = stage([{"x": np.ones((2, 3), np.float32), "tag": ["a", "b"]}], device="meta")
    assert (batch["x"].device.type, batch["x"].shape, batch["x"].dtype) == ("meta", (2, 3), torch.float32)
    assert batch["tag"] == ["a", "b"]


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("bogus", "device is 'bogus': .*; such as 'cuda:0' or 'cpu'"),
        (3.5, "device is '3.5'"),
        ("mps", "device is 'mps'"),
        pytest.param(
            "cuda:0", "finds no GPU; use 'cpu'", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="has one")
        ),
    ],
)
def test_refuses_devices_that_are_not_there(device: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        stage([], device=device)


def test_finds_the_device() -> None:
    assert stage([], device=torch.device("cpu")).device == "cpu"
    assert stage([]).device == (f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu")


# -- a GPU, and one that stands for it: copies are made late, by a thread --


class LateStream:
    """Does what it is told after a while, in order."""

    def __init__(self, seconds: float) -> None:
        self.jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.seconds = seconds
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            time.sleep(self.seconds)
            job()

    def wait_event(self, event: "LateEvent") -> None:
        event.passed.wait()  # a real one lets the device wait


class LateEvent:
    def __init__(self, **_: Any) -> None:
        self.passed = threading.Event()

    def record(self, stream: LateStream) -> None:
        stream.jobs.put(self.passed.set)

    def synchronize(self) -> None:
        self.passed.wait()


class LateTorch:
    """PyTorch with a GPU in the host's memory, as far as staging uses one."""

    def __init__(self) -> None:
        late = self
        self.streams: list[LateStream] = []
        self.current: list[LateStream] = []
        self.consumer = LateStream(0)
        self.pinned: list[Any] = []
        self.recorded: list[LateStream] = []

        class OnDevice(torch.Tensor):
            def copy_(self, source: Any, non_blocking: bool = False) -> Any:
                assert non_blocking
                late.current[-1].jobs.put(lambda: self.as_subclass(torch.Tensor).copy_(source))
                return self

            def record_stream(self, stream: LateStream) -> None:
                late.recorded.append(stream)

        self.kind = OnDevice
        self.cuda = SimpleNamespace(
            Stream=self.make_stream, Event=LateEvent, stream=self.use, current_stream=lambda _: self.consumer
        )

    def make_stream(self, _: Any) -> LateStream:
        self.streams.append(LateStream(0.003))
        return self.streams[-1]

    @contextlib.contextmanager
    def use(self, stream: LateStream) -> Iterator[None]:
        self.current.append(stream)
        yield
        self.current.pop()

    def empty(self, size: int, *, dtype: Any, pin_memory: bool = False, device: Any = None) -> Any:
        memory = torch.full((size,), 77, dtype=dtype)
        if pin_memory:
            self.pinned.append(memory)
            return memory
        assert device == "late"
        return memory.as_subclass(self.kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_copies_that_come_late_find_their_batch(make_dataset: MakeDataset, depth: int) -> None:
    late = LateTorch()
    with Loader(make_dataset(sequences=15), shuffle=True) as loader:
        expected = [plain(batch) for batch in loader]
        loader.load_state_dict(loader.state_dict() | {"epoch": 0})
        with Stage(loader, device="late", depth=depth, area_of=lambda: CudaArea(late, "late")) as staged:
            kept = list(staged)
    assert len(kept) == len(expected) > 5
    assert [plain(batch) for batch in kept] == expected
    assert len(late.streams) == 1
    assert len({memory.data_ptr() for memory in late.pinned if len(memory) == max(map(len, late.pinned))}) <= 2
    assert late.recorded == [late.consumer] * len(kept)
    for stream in (*late.streams, late.consumer):
        stream.jobs.put(None)


def test_one_copy_takes_arrays_of_every_kind() -> None:
    late = LateTorch()
    arrays = odd_arrays()
    area = CudaArea(late, "late")
    entries = [area.put({**arrays, "tag": ["a"]}), area.put({}), area.put({"none": np.zeros(0)}), area.put(arrays)]
    batches = [area.take(entry) for entry in entries]
    assert batches[0].pop("tag") == ["a"]
    for batch in (batches[0], batches[3]):
        assert_same({name: value.as_subclass(torch.Tensor) for name, value in batch.items()}, arrays)
        assert all(
            value.data_ptr() % 512 == batch["read-only"].data_ptr() % 512 for value in batch.values() if value.numel()
        )
    assert batches[1] == {}
    assert batches[2]["none"].shape == (0,)
    for stream in (*late.streams, late.consumer):
        stream.jobs.put(None)


needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")]


@pytest.mark.parametrize("depth", [pytest.param(depth, marks=needs_gpu) for depth in (1, 2, 5)])
def test_gpu_gives_what_the_loader_gives(make_dataset: MakeDataset, depth: int) -> None:
    with Loader(make_dataset(), prefetch=2) as loader, stage(loader, depth=depth) as staged:
        expected = [plain(batch) for batch in loader]
        for _ in range(3):
            kept = []
            for batch in staged:
                assert batch["data"].device == torch.device(staged.device)
                torch.cuda._sleep(200_000)  # the step is still at it when the next copies arrive
                kept.append(
                    {name: getattr(value, "clone", lambda value=value: value)() for name, value in batch.items()}
                )
                del batch
            got = [
                {name: getattr(value, "cpu", lambda value=value: value)() for name, value in batch.items()}
                for batch in kept
            ]
            assert [plain(batch) for batch in got] == expected
        with pytest.raises(ConfigError, match="which isn't there; there are cuda:0"):
            stage(loader, device=f"cuda:{torch.cuda.device_count()}")


@pytest.mark.parametrize("kind", [pytest.param("odd", marks=needs_gpu)])
def test_gpu_takes_arrays_of_every_kind(kind: str) -> None:
    assert kind == "odd"
    arrays = odd_arrays()
    for batch in stage([arrays] * 5):
        assert_same(batch, arrays)
