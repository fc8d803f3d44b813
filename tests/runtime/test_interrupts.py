"""Ctrl-C at any moment, not only where the consumer sleeps: nothing hangs, and the position stays one to go on from."""

from __future__ import annotations

import gc
import importlib
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqprep
from seqprep import Loader
from tests.execution.small import QUICK, small

from .conftest import SECONDS, our_threads, wait_for_threads

pytestmark = pytest.mark.usefixtures("bounded", "no_code_of_others_in_collections")

Source = Callable[[Loader], Any]


@pytest.fixture
def no_code_of_others_in_collections() -> Iterator[None]:
    """JAX and hypothesis, once imported, have a function called with each garbage collection; there, too, Python ignores an
    interrupt.
    """
    kept = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = kept


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some two hundred batches."""
    config = small(tmp_path_factory.mktemp("interrupts") / "out")
    config["source"] |= {"sequences": 250, "features": 8}
    config["output"]["shard_size"] = 20_000
    return seqprep.chunk(config, storage=QUICK).path


def place(batch: Any) -> tuple[int, ...]:
    """Through numpy: TensorFlow's own iteration of a tensor can crash when it is interrupted, or swallow that."""
    return (*np.asarray(batch["seq_idx"]).tolist(), *np.asarray(batch["data/start"]).tolist())


def interrupted(source: Any, delay: float) -> tuple[list[tuple[int, ...]], bool]:
    """What a consumer got until an interrupt came after some time, and whether it came before the end.

    A timer raises it as Ctrl-C is raised. It is that of the `bounded` fixture, which goes on behind it. Python ignores one
    that comes within a finaliser: there may be a few for each iteration, but none for each batch.
    """
    ignored: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: ignored.append(unraisable.object)
    got: list[tuple[int, ...]] = []
    whole, watch = False, signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        for batch in source:
            got.append(place(batch))  # noqa: PERF401 - what came before the interrupt counts
        whole = True
        time.sleep(delay + 0.5)
    except KeyboardInterrupt:
        return got, not whole
    finally:
        signal.signal(signal.SIGALRM, watch)
        signal.alarm(SECONDS)
        sys.unraisablehook = hook
    # Python's own, of threads, too.
    assert [one.__module__ in ("weakref", "_weakrefset") for one in ignored] == [True], ignored
    return got, False


def assert_goes_on(path: Path, source_of: Source, times: int, **options: Any) -> None:
    """Interrupts an epoch so many times at random moments, and goes on from the position each time: no batch is lost but the
    one in hand, and none comes twice.
    """
    with Loader(path, threads=0, shuffle=True) as loader:
        whole = [place(batch) for batch in loader]
    random.seed(times)
    with Loader(path, shuffle=True, **options) as loader:
        source = source_of(loader)
        started = time.perf_counter()
        assert [place(batch) for batch in source] == whole
        span, start, hits = time.perf_counter() - started, loader.state_dict() | {"epoch": 0, "position": 0}, 0
        for _ in range(50 * times):
            source.load_state_dict(start)
            got, hit = interrupted(source, random.uniform(1e-5, span))
            assert got == whole[: len(got)]
            state = source.state_dict()
            if not hit:
                assert len(got) == len(whole)
                continue
            hits += 1
            taken = state["position"] if state["epoch"] == 0 else len(whole)
            assert taken - len(got) in (0, 1)
            source.load_state_dict(state)
            rest = [place(batch) for batch in source]
            if state["epoch"] == 0:
                assert rest == whole[taken:]
            else:
                assert len(rest) == len(whole)
            if hits == times:
                break
        if source is not loader:
            source.close()
    assert hits == times
    assert not our_threads()


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_loader_that_is_interrupted(path: Path, threads: int) -> None:
    assert_goes_on(path, lambda loader: loader, 6, threads=threads, prefetch=2)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("prefetch", [1, 8])
def test_a_loader_that_is_interrupted_often(path: Path, threads: int, prefetch: int) -> None:
    assert_goes_on(path, lambda loader: loader, 50, threads=threads, prefetch=prefetch)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["tensorflow", "torch", "jax"])
def test_a_stage_that_is_interrupted(request: pytest.FixtureRequest, path: Path, framework: str) -> None:
    pytest.importorskip(framework)
    if framework == "tensorflow":
        request.getfixturevalue("no_unstage_without_its_stage")
    stage = importlib.import_module(f"seqprep.{framework}").stage
    assert_goes_on(path, lambda loader: stage(loader, depth=2), 10, threads=2)
    assert not wait_for_threads()
