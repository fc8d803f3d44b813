"""Text files line by line, each with its place in the file, so that it can be read again alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from seqprep.errors import SourceError
from seqprep.sources.byteranges import ByteRanges

_MOST_BYTES = 1 << 30
_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line with its end."""

    number: int
    """From 1."""
    start: int
    """Its first byte in the file (or in what the gzip file holds), behind a byte-order mark."""
    content: bytes

    @property
    def stop(self) -> int:
        """One past its last byte."""
        return self.start + len(self.content)


def lines_of(files: ByteRanges, path: str) -> Iterator[Line]:
    """Goes through a file's lines; they end at a line feed.

    Raises:
        SourceError: the file can't be read, or a line is longer than 1 GiB.
    """
    number, start, parts, size = 0, 0, list[bytes](), 0
    for block in files.blocks(path):
        pieces = block.split(b"\n")
        for piece in pieces[:-1]:
            parts.append(piece)
            parts.append(b"\n")
            number += 1
            line = _line(number, start, b"".join(parts))
            yield line
            start, parts, size = line.stop, [], 0
        if pieces[-1]:
            parts.append(pieces[-1])
            size += len(pieces[-1])
            if size > _MOST_BYTES:
                raise SourceError(f"{path}, line {number + 1}: has more than 1 GiB; is this a text file?")
    if parts:
        yield _line(number + 1, start, b"".join(parts))


def _line(number: int, start: int, content: bytes) -> Line:
    if start == 0 and content.startswith(_BOM):
        return Line(number, len(_BOM), content[len(_BOM) :])
    return Line(number, start, content)


def decode(content: bytes, place: str) -> str:
    """Takes bytes as UTF-8.

    Raises:
        SourceError: they aren't.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"{place}: isn't UTF-8: {error.reason}; convert the file, with iconv for instance") from error
