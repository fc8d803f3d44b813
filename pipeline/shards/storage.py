"""The one layer through which shards, sidecars and indexes are written, so that tests can make it fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqprep.errors import OutputError


class Storage:
    """Writes local files. A file is written under its name with `.partial`, and gets its name when it is safe on disk."""

    def make_folder(self, path: Path) -> None:
        """Makes a folder and those above it; it may exist.

        Raises:
            OutputError: it can't be made.
        """
        with _told(path):
            path.mkdir(parents=True, exist_ok=True)

    def open(self, path: Path, create: bool = True) -> int:
        """Opens a file for writing; gives its descriptor.

        Args:
            path: the file.
            create: make it, or empty it if it exists; else it has to exist and is kept.

        Raises:
            OutputError: it can't be opened.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        with _told(path):
            return os.open(path, flags, 0o666)

    def write(self, descriptor: int, buffers: Sequence[Any], offset: int, path: Path) -> int:
        """Writes buffers one behind the other from a byte offset on; gives the bytes written.

        Raises:
            OutputError: not all of it could be written; names the path.
        """
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        total = sum(len(view) for view in views)
        with _told(path):
            done = os.pwritev(descriptor, views, offset) if total else 0
            while done < total:  # a short write: what is left, piece by piece
                rest = memoryview(b"".join(views))[done:]
                done += os.pwrite(descriptor, rest, offset + done)
        return total

    def commit(self, descriptor: int, partial: Path, path: Path) -> None:
        """Makes a file's content safe on disk, closes it, gives it its name, and makes the name safe.

        Raises:
            OutputError: the disk refuses.
        """
        with _told(partial):
            os.fsync(descriptor)
            os.close(descriptor)
            partial.rename(path)
        self.sync_folder(path.parent)

    def sync_folder(self, path: Path) -> None:
        """Makes the names in a folder safe on disk.

        Raises:
            OutputError: the disk refuses.
        """
        with _told(path):
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def write_file(self, path: Path, data: bytes) -> None:
        """Writes a small file, all or nothing.

        Raises:
            OutputError: it can't be written.
        """
        partial = partial_path(path)
        descriptor = self.open(partial)
        try:
            self.write(descriptor, [data], 0, partial)
            self.commit(descriptor, partial, path)
        except BaseException:
            self.discard(descriptor, partial)
            raise

    def discard(self, descriptor: int, partial: Path) -> None:
        """Closes and removes a file that was not committed, as far as that is still possible."""
        for undo in (lambda: os.close(descriptor), partial.unlink):
            _quietly(undo)

    def remove(self, path: Path) -> None:
        """Removes a file; it may be missing.

        Raises:
            OutputError: it can't be removed.
        """
        with _told(path):
            path.unlink(missing_ok=True)


def partial_path(path: Path) -> Path:
    """The name under which a file is written until it is whole."""
    return path.with_name(path.name + ".partial")


def _quietly(undo: Callable[[], None]) -> None:
    try:
        undo()
    except OSError:
        return  # the error that led here is the one to report


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turns the operating system's errors into ours."""
    try:
        yield
    except OSError as error:
        remedy = {
            errno.ENOSPC: "free some space or choose another output; what is finished is kept",
            errno.EDQUOT: "your quota is used up; free some space or choose another output; what is finished is kept",
            errno.EACCES: "give yourself the right to write there, or choose another output",
            errno.EROFS: "the file system is read-only; choose another output",
            errno.ENOTDIR: "a part of the path is a file; choose another output",
            errno.EEXIST: "a file of that name stands in the way; choose another output",
        }.get(error.errno or 0, "check the disk, or choose another output")
        raise OutputError(f"{path}: can't be written: {error.strerror or error}; {remedy}") from error
