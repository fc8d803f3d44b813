"""Keeps two runs from writing into one folder.

The lock is the kernel's (flock) on a file in the folder, so it ends with the processes that hold it, however they end.
Who begins a run needs it alone; then all of the run's processes share it, each while it writes a shard, so that nobody
begins another run while a worker of a dead one still writes.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from seqprep.errors import BusyError, OutputError
from seqprep.shards.storage import Storage

LOCK_NAME = "seqprep.lock"
_ORPHANS_SECONDS = 10.0
"""How long to wait for workers whose run has died; they end by themselves."""
_POLL_SECONDS = 0.02
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@dataclass(frozen=True)
class SharedLock:
    """The lock of a run under way, as its workers know it; small, and picklable."""

    folder: Path
    run: str
    """Tells the run from all others."""

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Has a part in the run, from `with` on.

        Raises:
            BusyError: the run has ended, so there is nothing to have a part in.
        """
        path = self.folder / LOCK_NAME
        ended = f"{self.folder}: the run that this work was part of has ended; nothing was written"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise BusyError(ended) from error
        except OSError as error:
            raise OutputError(f"{path}: can't be opened: {error.strerror}; check the disk") from error
        try:
            holder = _holder(path) if _lock(descriptor, fcntl.LOCK_SH) else None
            if holder is None or holder.run != self.run or not _is_current(descriptor, path):
                raise BusyError(ended)
            yield
        finally:
            os.close(descriptor)


class FolderLock:
    """Holds a folder for one run, from `with` on; the folder has to exist.

    Where the file system knows no locks, it holds nobody off.

    Args:
        folder: the output.
        storage: the file layer.
        file: hold only the file of this name in the folder.
    """

    def __init__(self, folder: Path, storage: Storage, file: str = "") -> None:
        self._folder, self._storage = folder / file, storage
        self._path = folder / (f"{file}.lock" if file else LOCK_NAME)
        self._own = _Holder(socket.gethostname(), os.getpid(), secrets.token_hex(8))
        self._descriptor = -1

    @property
    def shared(self) -> SharedLock:
        """What the run's workers take."""
        return SharedLock(self._path.parent, self._own.run)

    def __enter__(self) -> FolderLock:
        """Takes the lock.

        Raises:
            BusyError: another run has it; names its host and process.
            OutputError: the folder can't be written.
        """
        give_up = time.monotonic() + _ORPHANS_SECONDS
        while not self._try():
            holder = _holder(self._path)
            if time.monotonic() > give_up or not (holder is None or holder.is_dead()):
                raise BusyError(
                    f"{self._folder}: another run is writing there: {holder or 'one whose workers still run'}; "
                    "wait for its end, stop it, or choose another output"
                )
            time.sleep(_POLL_SECONDS)
        return self

    def _try(self) -> bool:
        """Takes the lock, if nobody has it."""
        descriptor = self._storage.open(self._path, create=True, empty=False)
        if not (_lock(descriptor, fcntl.LOCK_EX) and _is_current(descriptor, self._path)):
            os.close(descriptor)
            return False
        own = json.dumps(asdict(self._own)).encode()
        try:
            self._storage.truncate(descriptor, 0, self._path)
            self._storage.write(descriptor, [own], 0, self._path)
        except BaseException:
            self._storage.discard(descriptor, self._path)
            raise
        if not _lock(descriptor, fcntl.LOCK_SH):  # between the two kinds, somebody else was quicker
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def __exit__(self, *_: object) -> None:
        # Removed while it is held, so that who has opened it before sees that it is gone.
        self._storage.discard(self._descriptor, self._path)


@dataclass(frozen=True)
class _Holder:
    host: str
    process: int
    run: str

    def __str__(self) -> str:
        return f"process {self.process} on host {self.host}"

    def is_dead(self) -> bool:
        """Whether it is certain that the process is gone."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False


def _holder(path: Path) -> _Holder | None:
    """Who took the lock last; None if that isn't written yet."""
    try:
        content = json.loads(path.read_bytes())
        return _Holder(str(content["host"]), int(content["process"]), str(content["run"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lock(descriptor: int, kind: int) -> bool:
    """Takes a lock if nobody is against it; where locks are unknown, nobody is."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return True
        raise OutputError(f"the lock of the output folder can't be taken: {error.strerror}; check the disk") from error
    return True


def _is_current(descriptor: int, path: Path) -> bool:
    """Whether the file is still the one of that name, and not one that the last holder has removed."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
