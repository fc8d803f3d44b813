"""Puts batches onto a PyTorch device ahead of who trains on them.

On a CPU, tensors use the loader's memory itself. For a GPU, a batch is packed into one pinned buffer and copied in one
piece on a stream of its own, so that the copy runs under the step of the batch before. Three things keep that safe: a
pinned buffer is filled again only when the event behind its last copy has passed; the consumer's stream waits for the
copy's event before it uses the batch; and the memory on the device, which the copy's stream allocates, is recorded on
the consumer's, so that it isn't given out again while a step still reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seqprep.config import shown
from seqprep.errors import ConfigError
from seqprep.runtime.frameworks import import_framework
from seqprep.runtime.protocol import BatchSource
from seqprep.runtime.staging import Area, Stage
from seqprep.runtime.torch_tensors import Place, lay_out, pack, split_batch, unpack

_PINNED = 2  # one is filled while the other is copied


class DirectArea:
    """A device that takes tensors without a stream of ours: the CPU, where nothing is copied, and others."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device

    def check(self) -> None:
        """Does nothing."""

    def put(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Makes tensors of the arrays, and moves them to the device if that isn't the CPU."""
        tensors, rest = split_batch(self._torch, batch)
        return {name: rest[name] if name in rest else tensors[name].to(self._device) for name in batch}

    def take(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Gives what `put` made."""
        return entry

    def release(self) -> None:
        """Does nothing."""


class _PinnedBuffer:
    """Host memory that the GPU copies from; grows with the batches."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._memory: Any = None
        self.copied: Any = None
        """The event behind the last copy out of it."""

    def free(self, size: int) -> Any:
        """Waits until the last copy is done.

        Returns:
            uint8 [size], pinned.
        """
        if self.copied is not None:
            self.copied.synchronize()
        if self._memory is None or len(self._memory) < size:
            self._memory = self._torch.empty(1 << (size - 1).bit_length(), dtype=self._torch.uint8, pin_memory=True)
        return self._memory[:size]


class _Copying(NamedTuple):
    """A batch on its way to the GPU."""

    names: tuple[str, ...]
    block: Any
    places: list[Place]
    rest: dict[str, Any]
    copied: Any


class CudaArea:
    """A GPU, written to by copies of our own stream.

    Args:
        torch: the module.
        device: the torch.device, with its index.
    """

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device
        self._stream = torch.cuda.Stream(device)
        self._pinned = [_PinnedBuffer(torch) for _ in range(_PINNED)]

    def check(self) -> None:
        """Does nothing."""

    def put(self, batch: Mapping[str, Any]) -> _Copying:
        """Packs a batch into pinned memory, and begins to copy it; waits for an earlier copy if it has to."""
        torch = self._torch
        tensors, rest = split_batch(torch, batch)
        places, size = lay_out(tensors)
        buffer = self._pinned.pop(0)
        with torch.cuda.stream(self._stream):  # all of it: pinning, too, is done for the current device
            pinned = buffer.free(max(size, 1))
            pack(torch, tensors, places, pinned)
            block = torch.empty(len(pinned), dtype=torch.uint8, device=self._device)
            block.copy_(pinned, non_blocking=True)
            buffer.copied = torch.cuda.Event(blocking=True)  # blocking: who waits for it sleeps
            buffer.copied.record(self._stream)
        self._pinned.append(buffer)
        return _Copying(tuple(batch), block, places, rest, buffer.copied)

    def take(self, entry: _Copying) -> dict[str, Any]:
        """Lets the current stream of the calling thread wait for the copy; the host doesn't wait."""
        stream = self._torch.cuda.current_stream(self._device)
        stream.wait_event(entry.copied)
        entry.block.record_stream(stream)
        tensors = unpack(entry.block, entry.places)
        return {name: entry.rest[name] if name in entry.rest else tensors[name] for name in entry.names}

    def release(self) -> None:
        """Does nothing."""


def stage(loader: BatchSource, *, device: Any = None, depth: int = 2, names: Sequence[str] | None = None) -> Stage:
    """Stages batches on a device from a thread of its own, so that the copy of the next runs under this one's step.

    A batch is a dict in the loader's order of names: arrays of numbers as torch.Tensor of the same shape and dtype on
    the device, the rest (`seq_tag`) as it is, on the host. Tensors are the caller's for as long as they live: on a CPU
    they are on the loader's memory, which isn't used again before they are gone; those of a batch on a GPU share one
    piece of memory, which stays as long as any of them. They can be used in the stream that is current when the batch
    is taken; for others, PyTorch's own rules hold (`wait_stream`, `record_stream`).

    uint16, uint32 and uint64 stay what they are, though torch computes little with them: cast them (`.to(torch.int64)`)
    before use. bfloat16 becomes torch.bfloat16. Batches may hold tensors in CPU memory, too: a `DataLoader` can be
    staged.

    Args:
        loader: a `seqprep.Loader`, or anything that gives batches (see `seqprep.runtime.protocol`).
        device: a torch.device or its name, such as "cuda:0"; the current GPU, or the CPU where there is none.
        depth: batches staged ahead.
        names: stage only these, such as ["data", "classes"]; all of a batch unless told.

    Raises:
        DependencyError: PyTorch isn't installed.
        ConfigError: depth is less than 1, or there is no such device.
    """
    torch = import_framework("torch")
    found = _find_device(torch, device)

    def area() -> Area:
        return CudaArea(torch, found) if found.type == "cuda" else DirectArea(torch, found)

    return Stage(loader, device=str(found), depth=depth, area_of=area, names=names)


def _find_device(torch: Any, device: Any) -> Any:
    """Gives the torch.device, a GPU's with its index."""
    cuda = torch.cuda
    if device is None:
        device = "cuda" if cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
        if found.type == "cuda":
            count = cuda.device_count() if cuda.is_available() else 0
            if not count:
                raise ConfigError(f"device is {shown(str(device))}, but this PyTorch finds no GPU; use 'cpu'")
            found = torch.device("cuda", cuda.current_device() if found.index is None else found.index)
            if found.index >= count:
                known = ", ".join(f"cuda:{number}" for number in range(count))
                raise ConfigError(f"device is {shown(str(device))}, which isn't there; there are {known}, cpu")
        else:
            torch.empty(0, device=found)
    except (RuntimeError, TypeError, NotImplementedError, AssertionError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"device is {shown(str(device))}: {reason}; such as 'cuda:0' or 'cpu'") from error
    return found
