"""What the instances of a source share: its workers' ids, its batch sizes, and the run that goes on."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from seqprep.errors import ClosedError, ConfigError, WorkerError
from seqprep.runtime.data_fetch import Inputs
from seqprep.runtime.data_metrics import ConsumerCounters, Ledger, WorkerCounters
from seqprep.runtime.data_run import STOP_SECONDS, Job, Run, Sizes
from seqprep.runtime.options import whole_number

_IDS = itertools.count()  # of workers, unique over all sources of the process


class Source:
    """A source of batches with any number of instances that take from it.

    Args:
        job: what its workers do.
        inputs: what they fetch.
        init: called before each start, with what starts it.
    """

    def __init__(self, job: Job, inputs: Inputs, init: Callable[[Any], object] | None) -> None:
        workers = max(job.num_workers, 1)
        self.job = job
        self.sizes = Sizes()
        self.ledger = Ledger([WorkerCounters() for _ in range(workers)])
        self.worker_ids = [next(_IDS) for _ in range(workers)]
        self.run: Run | None = None
        self.closed = False
        self._inputs, self._init = inputs, init
        self._halt_when_gone: weakref.finalize[Any, Source] | None = None
        self._lock = threading.RLock()

    def add(self, scope: str, batch_size: int) -> ConsumerCounters:
        """Makes room for one more instance.

        Raises:
            ConfigError: there is one of that name, or the size is less than 1.
        """
        if scope in self.sizes.of:
            raise ConfigError(f"source {self.job.source!r} has an instance {scope!r} already; give another scope")
        self.resize(scope, batch_size)
        return self.ledger.consumers.setdefault(scope, ConsumerCounters())

    def resize(self, scope: str, batch_size: int) -> None:
        """Sets the batch size of an instance.

        Raises:
            ConfigError: it is less than 1.
        """
        batch_size = whole_number("batch_size", batch_size, 1)
        with self._lock:
            self.sizes.set(scope, batch_size)
            if self.run is not None:
                self.run.resize()

    def prepare(self, starter: Any, *, after_failure: bool = False) -> Run:
        """Gives the run that goes on, or makes one that isn't launched yet.

        Args:
            starter: what `init` is told.
            after_failure: make another where a worker has failed.

        Raises:
            ClosedError: the source is closed.
            WorkerError: `init` raised.
        """
        with self._lock:
            if self.run is not None and self.run.is_current(after_failure):
                return self.run
            if self.closed:
                raise ClosedError(f"source {self.job.source!r}: these data workers are closed; make others")
            if self.run is not None:
                self._give_up(self.run)
            self._call_init(starter)
            self.run = run = Run(self.job, self._inputs, self.sizes, self.ledger, self.worker_ids)
            self._halt_when_gone = weakref.finalize(self, run.halt)  # never joins: it may run in any thread
            self._halt_when_gone.atexit = False
            return run

    def _give_up(self, run: Run) -> None:
        """Leaves a run that has failed or was stopped; workers that are still at it keep their ids for themselves."""
        if not run.exchange.stopped:
            run.stop(time.monotonic() + STOP_SECONDS)
        if self._halt_when_gone is not None:
            self._halt_when_gone.detach()
        self.worker_ids = [next(_IDS) if run.is_alive(place) else old for place, old in enumerate(self.worker_ids)]

    def _call_init(self, starter: Any) -> None:
        if self._init is None:
            return
        try:
            self._init(starter)
        except Exception as error:
            raise WorkerError(f"source {self.job.source!r}: init raised {type(error).__name__}: {error}") from error
