"""Stand-ins for the system calls that the storage layer makes: one that fails, one that keeps a journal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqprep.shards import Storage

CHANGING = ("open", "mkdir", "pwritev", "ftruncate", "fsync", "rename", "unlink", "link", "close")


class FailingSystem:
    """The module os, until its n-th call; that one fails instead, and with `forever` all behind it. Nothing is synced.

    Args:
        at: number of the call, from 0; −1 for none.
        error: errno.
        forever: the disk doesn't recover.
    """

    def __init__(self, at: int = -1, error: int = 0, forever: bool = False) -> None:
        self.calls: list[str] = []
        self._at, self._error, self._forever = at, error, forever

    def __getattr__(self, name: str) -> Any:
        real = getattr(QuickStorage.system, name)
        if name not in CHANGING:
            return real

        def call(*arguments: Any) -> Any:
            number = len(self.calls)
            self.calls.append(name)
            if number == self._at or (self._forever and 0 <= self._at < number):
                if name == "close":
                    os.close(*arguments)  # closed all the same, as Linux does
                raise OSError(self._error, os.strerror(self._error))
            return real(*arguments)

        return call


class QuickSystem:
    """The module os, but nothing is made safe, which takes most of the time."""

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: None) if name in ("fsync", "sync") else getattr(os, name)


class QuickStorage(Storage):
    """A storage for where the machine won't lose its power."""

    system = QuickSystem()


class FailingStorage(Storage):
    """A storage whose system fails."""

    commits_aside = False

    def __init__(self, at: int = -1, error: int = 0, forever: bool = False) -> None:
        self.system = FailingSystem(at, error, forever)


@dataclass
class File:
    """What a disk holds of a file: what is safe, and what was written since."""

    safe: bytes = b""
    changes: list[tuple[str, int, bytes]] = field(default_factory=list)

    def content(self, kept: Sequence[bool]) -> bytes:
        """The content, if of the unsafe changes just these were kept."""
        data = bytearray(self.safe)
        for (kind, place, written), keep in zip(self.changes, kept, strict=True):
            if not keep:
                continue
            if kind == "truncate":
                data[place:] = bytes(max(place - len(data), 0))
            else:
                data.extend(bytes(max(place - len(data), 0)))
                data[place : place + len(written)] = written
        return bytes(data)


class Disk:
    """A folder on a disk that keeps for sure only what was synced: contents by fsync of the file, names by that of
    the folder."""

    def __init__(self) -> None:
        self.safe_names: dict[str, File] = {}
        self.names: dict[str, File] = {}
        self.name_changes: list[tuple[str, str, str | None]] = []

    def apply(self, operation: tuple[Any, ...]) -> None:
        kind, *rest = operation
        if kind == "create":
            self.names[rest[0]] = File()
            self.name_changes.append(("create", rest[0], None))
        elif kind in ("write", "truncate"):
            self.names[rest[0]].changes.append((kind, rest[1], rest[2]))
        elif kind == "fsync":
            file = self.names[rest[0]]
            file.safe, file.changes = file.content([True] * len(file.changes)), []
        elif kind == "rename":
            self.names[rest[1]] = self.names.pop(rest[0])
            self.name_changes.append(("rename", rest[0], rest[1]))
        elif kind == "unlink":
            self.names.pop(rest[0])
            self.name_changes.append(("unlink", rest[0], None))
        elif kind == "link":  # of a file elsewhere that is safe
            self.names[rest[0]] = File(rest[1])
            self.name_changes.append(("create", rest[0], None))
        elif kind == "sync_folder":
            self.safe_names, self.name_changes = dict(self.names), []
        elif kind == "sync":
            for name in self.names:
                self.apply(("fsync", name))
            self.apply(("sync_folder",))

    def after_power_loss(self, keep: Any) -> dict[str, bytes]:
        """What is there when power is back.

        Args:
            keep: told "name" or "data", says whether this unsafe change has reached the disk.
        """
        names = dict(self.safe_names)
        files = {id(file): file for file in [*self.safe_names.values(), *self.names.values()]}
        live = dict(self.safe_names)
        for kind, one, other in self.name_changes:
            kept = keep("name")
            if kind == "create":
                file = live[one] = self._created(one, live)
                if kept:
                    names[one] = file
            elif kind == "rename":
                assert other is not None
                file = live[other] = live.pop(one)
                if kept:
                    names.pop(one, None)
                    names[other] = file
            else:
                live.pop(one)
                if kept:
                    names.pop(one, None)
        contents = {number: file.content([keep("data") for _ in file.changes]) for number, file in files.items()}
        return {name: contents[id(file)] for name, file in names.items() if id(file) in contents}

    def _created(self, name: str, live: dict[str, File]) -> File:
        """The file that a name was given to; it may have got another name since, or none."""
        following = name
        for kind, one, other in self.name_changes:
            if kind == "rename" and one == following:
                following = str(other)
        return self.names.get(following, File())


class JournalSystem:
    """The module os, with a journal of what it changes in one folder."""

    def __init__(self, folder: Path) -> None:
        self.journal: list[tuple[Any, ...]] = []
        self._folder = folder
        self._open: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _name(self, path: Any) -> str | None:
        return Path(path).name if Path(path).parent == self._folder else None

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        existed = os.path.exists(path)
        descriptor = os.open(path, flags, mode)
        name = self._name(path)
        self._open[descriptor] = "" if name is None else name
        if name is not None and not existed:
            self.journal.append(("create", name))
        elif name is not None and flags & os.O_TRUNC:
            self.journal.append(("truncate", name, 0, b""))
        if Path(path) == self._folder:
            self._open[descriptor] = "."
        return descriptor

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)
        os.close(descriptor)

    def pwritev(self, descriptor: int, buffers: Sequence[Any], offset: int) -> int:
        done = os.pwritev(descriptor, buffers, offset)
        self.journal.append(("write", self._open[descriptor], offset, b"".join(bytes(buffer) for buffer in buffers)))
        return done

    def ftruncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)
        self.journal.append(("truncate", self._open[descriptor], size, b""))

    def fsync(self, descriptor: int) -> None:
        name = self._open[descriptor]
        if name == ".":
            self.journal.append(("sync_folder",))
        elif name:
            self.journal.append(("fsync", name))

    def rename(self, source: Any, target: Any) -> None:
        os.rename(source, target)
        self.journal.append(("rename", self._name(source), self._name(target)))

    def unlink(self, path: Any) -> None:
        os.unlink(path)
        self.journal.append(("unlink", self._name(path)))

    def link(self, existing: Any, path: Any) -> None:
        os.link(existing, path)
        self.journal.append(("link", self._name(path), Path(path).read_bytes()))

    def sync(self) -> None:
        self.journal.append(("sync",))


class JournalStorage(Storage):
    """A storage that keeps a journal."""

    commits_aside = False

    def __init__(self, folder: Path) -> None:
        self.system = JournalSystem(folder)
