"""The one layer through which shards, sidecars and indexes are written.

Whatever changes a file or folder goes through `Storage`, and there through few system calls, so that tests can make
each of them fail, or forget what was not synced. docs/format.md says what is safe when.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqprep.errors import OutputError

_MOST_BUFFERS = 512
"""Buffers of one system call; Linux takes 1024."""


class Storage:
    """Writes local files. A file is written under its name with `.partial`, and gets its name when it is safe on disk."""

    system: Any = os
    """The system calls."""
    commits_aside = True
    """A file may be made safe in another thread while the next one is written; else calls come in one order."""

    def make_folder(self, path: Path) -> None:
        """Makes a folder and those above it, each safe on disk; it may exist.

        Raises:
            OutputError: it can't be made.
        """
        if os.path.isdir(path):  # a name of any length
            return
        if path != path.parent:
            self.make_folder(path.parent)
        with _told(path):
            try:
                self.system.mkdir(path)
            except FileExistsError:
                if not path.is_dir():  # it is no folder of another run that was quicker
                    raise
                return
        self.sync_folder(path.parent)

    def open(self, path: Path, create: bool = True, empty: bool = True) -> int:
        """Opens a file for writing; gives its descriptor.

        Args:
            path: the file.
            create: make it if it doesn't exist; else it has to exist and is kept.
            empty: of a file to be created: empty it if it exists.

        Raises:
            OutputError: it can't be opened.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0) | (os.O_TRUNC if create and empty else 0)
        with _told(path):
            return int(self.system.open(path, flags, 0o666))

    def write(self, descriptor: int, buffers: Sequence[Any], offset: int, path: Path) -> int:
        """Writes buffers one behind the other from a byte offset on; gives the bytes written.

        Raises:
            OutputError: not all of it could be written; names the path.
        """
        views = [view for view in [memoryview(buffer) for buffer in buffers] if view.nbytes]
        left = sum([view.nbytes for view in views])
        position = offset
        try:
            while left:
                done = self.system.pwritev(descriptor, views[:_MOST_BUFFERS], position)
                if done == 0:
                    raise OSError(errno.EIO, "the disk takes no more bytes")
                position += done
                left -= done
                if left:
                    views = _behind(views, done)
        except OSError as error:
            raise _ours(error, path, "written") from error
        return position - offset

    def truncate(self, descriptor: int, size: int, path: Path) -> None:
        """Gives a file a size; what is new reads as zeros.

        Raises:
            OutputError: the disk refuses.
        """
        with _told(path):
            self.system.ftruncate(descriptor, size)

    def commit(self, descriptor: int, partial: Path, path: Path) -> None:
        """Makes a file's content safe on disk, gives it its name, makes the name safe, and closes the file.

        Raises:
            OutputError: the disk refuses; the descriptor is still open then.
        """
        with _told(partial):
            self.system.fsync(descriptor)
            self.system.rename(partial, path)
        self.sync_folder(path.parent)
        _quietly(lambda: self.system.close(descriptor))  # after fsync, nothing that counts can go wrong

    def link(self, existing: Path, path: Path) -> None:
        """Gives a file one more name, which must be free.

        Raises:
            OutputError: it can't have one, as on another file system.
        """
        with _told(path):
            self.system.link(existing, path)

    def sync_folder(self, path: Path) -> None:
        """Makes the names in a folder safe on disk.

        Raises:
            OutputError: the disk refuses.
        """
        with _told(path):
            folder = self.system.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self.system.fsync(folder)
            finally:
                _quietly(lambda: self.system.close(folder))

    def write_file(self, path: Path, data: bytes, sync: bool = True) -> None:
        """Writes a small file, all or nothing.

        Args:
            path: the file.
            data: its content.
            sync: make it safe on disk; else that comes with `sync_all`.

        Raises:
            OutputError: it can't be written.
        """
        partial = partial_path(path)
        descriptor = self.open(partial)
        try:
            self.write(descriptor, [data], 0, partial)
            if sync:
                self.commit(descriptor, partial, path)
                return
        except BaseException:
            self.discard(descriptor, partial)
            raise
        try:
            with _told(partial):  # some file systems say only now that they had no room
                self.system.close(descriptor)
                self.system.rename(partial, path)
        except BaseException:
            _quietly(lambda: self.system.unlink(partial))
            raise

    def sync_all(self) -> None:
        """Makes everything written so far safe on disk, whoever wrote it."""
        self.system.sync()

    def discard(self, descriptor: int, partial: Path) -> None:
        """Removes and closes a file that was not committed, as far as that is still possible."""
        for undo in (lambda: self.system.unlink(partial), lambda: self.system.close(descriptor)):
            _quietly(undo)

    def remove(self, path: Path) -> None:
        """Removes a file; it may be missing.

        Raises:
            OutputError: it can't be removed.
        """
        with _told(path, "removed"):
            try:
                self.system.unlink(path)
            except FileNotFoundError:
                return


def partial_path(path: Path) -> Path:
    """The name under which a file is written until it is whole."""
    return path.with_name(path.name + ".partial")


def _behind(views: list[memoryview], done: int) -> list[memoryview]:
    """What is left of buffers of which the first `done` bytes are written."""
    for place, view in enumerate(views):
        if done < view.nbytes:
            return [view.cast("B")[done:], *views[place + 1 :]]
        done -= view.nbytes
    return []


def _quietly(undo: Callable[[], None]) -> None:
    try:
        undo()
    except OSError:
        return  # the error that led here is the one to report


_REMEDIES = {
    errno.ENOSPC: "free some space or choose another output; what is finished is kept",
    errno.EDQUOT: "your quota is used up; free some space or choose another output; what is finished is kept",
    errno.EACCES: "give yourself the right to write there, or choose another output",
    errno.EPERM: "give yourself the right to write there, or choose another output",
    errno.EROFS: "the file system is read-only; choose another output",
    errno.ENOTDIR: "a part of the path is a file; choose another output",
    errno.EEXIST: "a file of that name stands in the way; choose another output",
    errno.EFBIG: "the file system takes no file of that size; choose smaller shards (output.shard_size) or another output",
    errno.EMFILE: "the process has too many files open; raise its limit (ulimit -n)",
    errno.ENFILE: "the machine has too many files open; close some, or raise its limit (fs.file-max)",
    errno.EMLINK: "the file has as many names as its file system allows; copy the shards first",
    errno.ENAMETOOLONG: "the name is longer than the file system allows; choose a shorter one",
    errno.EXDEV: "it lies on another file system; choose an output on the same one",
}


@contextmanager
def _told(path: Path, done: str = "written") -> Iterator[None]:
    """Turns the operating system's errors into ours."""
    try:
        yield
    except OSError as error:
        raise _ours(error, path, done) from error


def _ours(error: OSError, path: Path, done: str) -> OutputError:
    remedy = _REMEDIES.get(error.errno or 0, "check the disk, or choose another output")
    return OutputError(f"{path}: can't be {done}: {error.strerror or error}; {remedy}")
