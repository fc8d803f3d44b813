"""Kaldi's tables of text: a tag, white space, and what belongs to it, on every line."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from seqprep.errors import SourceError

_SAMPLED_COMMANDS = 8
_RANGE = re.compile(r"^(.*?)\[([^\[\]]*)\]$", re.DOTALL)
_SECONDS = re.compile(r"-?\d+(\.\d*)?([eE][+-]?\d{1,2})?|\.\d+")
_OFFSET = re.compile(r"^(.+):(\d{1,18})$", re.DOTALL)


@dataclass(frozen=True)
class Table:
    """The lines of a table, in their order: lists of one length."""

    path: Path
    tags: list[str]
    values: list[str]
    lines: list[int]
    """The number of each line, from 1."""

    def where(self, place: int) -> str:
        """Names a line, for messages."""
        return f"{self.path}, line {self.lines[place]}"


def read_table(path: Path) -> Table:
    """Reads a table.

    Raises:
        SourceError: it can't be read, a line has a tag alone, or two have the same.
    """
    table = Table(path, [], [], [])
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path}: can't be read: {error.strerror}; check the path") from error
    for number, line in enumerate(content.split(b"\n"), 1):
        parts = [os.fsdecode(part) for part in line.split(None, 1)]  # bytes: only ASCII's white space separates
        if len(parts) == 1:
            raise SourceError(f"{path}, line {number}: {parts[0][:80]!r} stands alone; a tag and its value are needed")
        if parts:
            table.tags.append(parts[0])
            table.values.append(parts[1].rstrip(" \t\r\v\f"))
            table.lines.append(number)
    _check_unique(table)
    return table


def _check_unique(table: Table) -> None:
    if len(set(table.tags)) == len(table.tags):
        return
    seen: dict[str, int] = {}
    for place, tag in enumerate(table.tags):
        if tag in seen:
            raise SourceError(
                f"{table.where(place)}: tag {tag!r} stands on line {table.lines[seen[tag]]} already; rename one"
            )
        seen[tag] = place


class Span(NamedTuple):
    """Rows or columns first, first + 1, …, last of a matrix, as a scp file asks for."""

    first: int
    last: int | None
    """None: to the end."""


WHOLE = Span(0, None)


class Target(NamedTuple):
    """Where an object is: what follows its tag in a scp file."""

    file: str
    """A path as written, or a shell command."""
    is_command: bool
    offset: int
    """Of the object in the file, in bytes."""
    rows: Span
    columns: Span


def parse_target(text: str, place: str) -> Target:
    """Reads what follows a tag in a scp file: `path`, `path:offset`, either with a range, or `command |`.

    A range is [rows] or [rows,columns], each as `first:last`, both included, or empty for all.

    Args:
        text: what follows the tag.
        place: file and line, for messages.

    Raises:
        SourceError: a range isn't one, or the target is a command's input.
    """
    rows = columns = WHOLE
    found = _RANGE.match(text) if text.endswith("]") else None
    if found:
        text = found[1].rstrip()
        parts = found[2].split(",")
        if len(parts) > 2:
            raise SourceError(f"{place}: [{found[2]}] isn't a range of rows and columns, such as [0:9,0:3]")
        rows, columns = ([*(_span(part, place) for part in parts), WHOLE])[:2]
    if text.startswith("|") or text == "-" or "\0" in text:
        raise SourceError(f"{place}: {text!r} can't be read from; name a file")
    if text.endswith("|"):
        return Target(text[:-1].strip(), True, 0, rows, columns)
    offset = _OFFSET.match(text)
    if offset:
        return Target(offset[1], False, int(offset[2]), rows, columns)
    return Target(text, False, 0, rows, columns)


def _span(text: str, place: str) -> Span:
    if text.strip() in ("", ":"):
        return WHOLE
    first, colon, last = (part.strip() for part in text.partition(":"))
    if not colon or not first.isdecimal() or not last.isdecimal() or int(first) > int(last) or len(last) > 9:
        raise SourceError(f"{place}: {text!r} isn't a range of rows or columns, such as 0:9")
    return Span(int(first), int(last))


def resolve(written: str, folder: Path) -> str:
    """Finds a file that a scp file names: beside the scp file, else (as Kaldi does) from the current folder on.

    Args:
        written: the path as it stands there.
        folder: that of the scp file.
    """
    beside = os.path.join(folder, written)  # an absolute path stays itself
    return written if not os.path.exists(beside) and os.path.exists(written) else beside


def check_command(command: str, place: str, allowed: bool) -> None:
    """Refuses commands unless the user allowed them.

    Raises:
        SourceError: they aren't allowed.
    """
    if not allowed:
        raise SourceError(
            f"{place}: {command!r} is a shell command, which is only run with source.allow_pipes: true; store its output "
            "in a file, or set that if you trust the list"
        )


def run_command(command: str) -> bytes:
    """Runs a shell command and gives what it writes.

    Raises:
        OSError: it fails.
    """
    done = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[-200:]
        raise OSError(f"the command {command!r} failed with status {done.returncode}: {said or 'it said nothing'}")
    return done.stdout


def sample_outputs(commands: Sequence[str]) -> list[bytes]:
    """What a few of many commands write, evenly spread over all.

    Raises:
        SourceError: one fails.
    """
    places = {(len(commands) - 1) * number // (_SAMPLED_COMMANDS - 1) for number in range(_SAMPLED_COMMANDS)}
    try:
        return [run_command(commands[place]) for place in sorted(places)]
    except OSError as error:
        raise SourceError(f"{error}; check the scp file") from error


class Segment(NamedTuple):
    """A stretch of a recording, in seconds."""

    recording: str
    start: Fraction
    end: Fraction | None
    """None: to the recording's end."""
    channel: int | None


def parse_segment(text: str, place: str) -> Segment:
    """Reads what follows a tag in a `segments` file: recording, start, end (−1: its end), optionally the channel.

    Raises:
        SourceError: it isn't that, or ends before it starts.
    """
    fields = text.split()
    channel = int(fields[3]) if len(fields) == 4 and fields[3].isdecimal() else None
    if len(fields) - (channel is not None) != 3:
        raise SourceError(f"{place}: {text!r} isn't a recording, a start and an end in seconds")
    start, end = parse_seconds(fields[1], place), parse_seconds(fields[2], place)
    if start < 0 or (end < start and end != -1):
        raise SourceError(f"{place}: {text!r} ends before it starts; give its start and its end in seconds")
    return Segment(fields[0], start, None if end == -1 else end, channel)


def parse_seconds(text: str, place: str) -> Fraction:
    """Reads a time, exactly as it is written.

    Raises:
        SourceError: it isn't a number.
    """
    if not _SECONDS.fullmatch(text):
        raise SourceError(f"{place}: {text!r} isn't a time in seconds, such as 1.25")
    return Fraction(text)


def to_frames(seconds: Fraction, rate: int | Fraction) -> int:
    """Turns a time into a count of frames or samples: the nearest, an even one at equal distance."""
    return round(seconds * rate)
