"""Finds the objects of scp files and archives: one entry for each, as arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqprep.errors import SourceError
from seqprep.files import FileCache, read_exactly
from seqprep.sources.kaldi.lists import WHOLE, Target, check_command, parse_target, read_table, resolve, run_command
from seqprep.sources.kaldi.objects import HEADER_BYTES, Content, FormatError, Header, name_of, parse_header
from seqprep.sources.kaldi.text import parse_text, read_text
from seqprep.types import Int32, Int64, Tags, UInt8

_LONGEST_TAG = 4096
_TO_END = -1
_FEW_FILES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Entries:
    """Objects, in their order."""

    tags: Tags
    files: Sequence[str]
    """Paths, or shell commands that write the object."""
    commands: frozenset[int]
    """Which of the files are commands."""
    file: Int32
    """The file of each object; [objects]."""
    offset: Int64
    """Where in its file each object begins, behind its tag; [objects]."""
    rows: Int64
    """First and last row to take of each, −1 for all to the end; [objects, 2]."""
    columns: Int64
    """The same of columns."""

    def __len__(self) -> int:
        return len(self.tags)

    def take(self, places: Int64) -> Entries:
        """Gives the entries at these places, in their order."""
        return Entries(
            tags=self.tags.take(places),
            files=self.files,
            commands=self.commands,
            file=self.file[places],
            offset=self.offset[places],
            rows=self.rows[places],
            columns=self.columns[places],
        )

    def place(self, number: int) -> str:
        """Names an entry, for messages."""
        return f"{self.files[self.file.item(number)]}, sequence {self.tags[number]!r}"


@dataclass(frozen=True)
class FileContent:
    """A file on disk."""

    files: FileCache
    path: str

    @property
    def size(self) -> int:
        """Its bytes."""
        return os.fstat(self.files.get(self.path).descriptor).st_size

    def fetch(self, offset: int, size: int) -> UInt8:
        """As `Content.fetch`."""
        file = self.files.get(self.path)
        most = os.fstat(file.descriptor).st_size - offset  # no memory for sizes that damage made up
        buffer = np.empty(max(0, min(size, most)), np.uint8)
        return buffer[: read_exactly(file.descriptor, buffer, offset)] if len(buffer) else buffer


@dataclass(frozen=True)
class OutputContent:
    """What a command wrote."""

    output: UInt8

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.output)

    def fetch(self, offset: int, size: int) -> UInt8:
        """As `Content.fetch`."""
        return self.output[offset : offset + size]


def content_of(files: FileCache, entries: Entries, number: int) -> Content:
    """The file of an entry; a command is run, and its output stands for the file.

    Raises:
        OSError: a command fails.
    """
    own = entries.file.item(number)
    if own not in entries.commands:
        return FileContent(files, entries.files[own])
    return OutputContent(np.frombuffer(run_command(entries.files[own]), np.uint8))


def header_at(content: Content, at: int) -> Header:
    """Reads an object's header; text is parsed whole, for it has none.

    Raises:
        FormatError: there is no object, or not all of it.
        OSError: the file can't be read.
    """
    start = content.fetch(at, HEADER_BYTES).tobytes()
    if not start:
        raise FormatError("the file ends before it")
    if start[:2] == b"\0B":
        header = parse_header(start, at)
        if header.data + header.nbytes > content.size:
            raise FormatError("the file ends inside it")
        return header
    if start[:1] in b"\0\x1f" or start[:4] == b"RIFF":
        raise FormatError(name_of(start))
    values = parse_text(read_text(content, at))
    columns = values.shape[1] if values.ndim == 2 else None
    return Header("TEXT_INTS" if values.dtype == np.int32 else "TEXT", len(values), columns, at)


def read_entries(paths: Sequence[Path], allow_pipes: bool) -> Entries:
    """Lists the objects of scp files and archives, file by file.

    Args:
        paths: `.scp` files, or archives.
        allow_pipes: whether scp files may name shell commands.

    Raises:
        SourceError: a file can't be read or holds something else; names file and line or sequence.
    """
    listed: list[tuple[str, Target]] = []
    for path in paths:
        listed += _listed(path, allow_pipes) if path.suffix.lower() == ".scp" else _archived(path)
    numbers: dict[tuple[str, bool], int] = {}
    file = [numbers.setdefault((target.file, target.is_command), len(numbers)) for _, target in listed]
    files: Sequence[str] = [name for name, _ in numbers]
    spans = [
        [(span.first, _TO_END if span.last is None else span.last) for span in (target.rows, target.columns)]
        for _, target in listed
    ]
    shaped = np.array(spans, np.int64).reshape(len(listed), 2, 2)
    return Entries(
        tags=Tags.of(tag for tag, _ in listed),
        files=files if len(files) <= _FEW_FILES else Tags.of(files),
        commands=frozenset(number for (_, is_command), number in numbers.items() if is_command),
        file=np.array(file, np.int32),
        offset=np.array([target.offset for _, target in listed], np.int64),
        rows=shaped[:, 0],
        columns=shaped[:, 1],
    )


def _listed(path: Path, allow_pipes: bool) -> list[tuple[str, Target]]:
    table, found, listed = read_table(path), dict[str, str](), []
    for place, (tag, text) in enumerate(zip(table.tags, table.values, strict=True)):
        where = table.where(place)
        target = parse_target(text, where)
        if target.is_command:
            check_command(target.file, where, allow_pipes)
        else:
            if target.file not in found:
                found[target.file] = resolve(target.file, path.parent)
            target = target._replace(file=found[target.file])
        listed.append((tag, target))
    return listed


def _archived(path: Path) -> list[tuple[str, Target]]:
    """Walks through an archive from object to object, reading no data but text."""
    content = FileContent(FileCache(1), str(path))
    found: list[tuple[str, Target]] = []
    at, tag = 0, ""
    try:
        while True:
            tag, behind = _tag_at(content, at)
            if not tag:
                return found
            found.append((tag, Target(str(path), False, behind, WHOLE, WHOLE)))
            at, tag = _object_end(content, behind), ""
    except FormatError as error:
        place = f", sequence {tag!r}" if tag else f" at byte {at}"
        raise SourceError(
            f"{path}{place}: {error}; is it a whole archive? check source.path, or make it again"
        ) from error
    except OSError as error:
        raise SourceError(f"{path}: can't be read: {error.strerror}; check the path") from error
    finally:
        content.files.close()


def _tag_at(content: Content, at: int) -> tuple[str, int]:
    """Reads the tag of the next object; gives it with where the object begins. Empty at the archive's end."""
    for size in (128, _LONGEST_TAG):
        block = content.fetch(at, size).tobytes()
        parts = block.split(None, 1)
        if len(parts) == 2 or len(block) < size:
            break
    if not parts:
        return "", at
    tag = parts[0]
    if b"\0" in tag or tag.startswith(b"\x1f\x8b") or len(tag) == size:
        raise FormatError(
            name_of(block) if block.startswith((b"\x1f\x8b", b"RIFF")) else "there is no tag of an archive"
        )
    behind = block.find(tag) + len(tag)
    skipped = block[behind : behind + 1] != b"\n"  # a line's end belongs to an empty list of integers
    return tag.decode("utf-8", "surrogateescape"), at + behind + skipped


def _object_end(content: Content, at: int) -> int:
    """Where an object ends: the next tag is behind it."""
    header = header_at(content, at)
    if header.kind.startswith("TEXT"):
        return at + len(read_text(content, at))
    return header.data + header.nbytes
