"""The seam to libsndfile: files opened, examined, and decoded by ranges."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np

from seqprep.errors import DependencyError, SourceError
from seqprep.sources.audio import ogg
from seqprep.sources.kaldi.lists import run_command
from seqprep.types import Array, FrameRange

FLOATING = ("FLOAT", "DOUBLE", "VORBIS", "OPUS", "MPEG")
"""Encodings that decode to floats: libsndfile's integers of them are all 0, or wrap around at loud samples."""
_SEEKABLE = ("PCM_", "ULAW", "ALAW", "FLOAT", "DOUBLE")
"""Encodings of which the samples after a seek are those of the whole; Vorbis and MP3 differ in the last bits."""
_UNKNOWN_LENGTH = 0x7FFF0000
"""What programs that write WAV into a pipe claim as its size, or more."""
_NO_LENGTH = 1 << 62


class Recording(NamedTuple):
    """Where a file's bytes are."""

    path: str
    """A path, or a shell command that writes them."""
    offset: int | None = None
    """In bytes, if it is a WAV inside of an archive."""
    is_command: bool = False

    def __str__(self) -> str:
        return self.path if self.offset is None else f"{self.path}:{self.offset}"


class Header(NamedTuple):
    """What a file says of itself."""

    frames: int
    """Samples of each channel."""
    channels: int
    sample_rate: int
    subtype: str
    """Its encoding, in libsndfile's words."""


def header_of(file: Any) -> Header:
    """The header of a file that libsndfile opened."""
    return Header(file.frames, file.channels, file.samplerate, file.subtype)


@contextmanager
def opened(recording: Recording, place: str = "", *, tag: str | None = None, for_data: bool = True) -> Iterator[Any]:
    """Opens a file with libsndfile, whose errors in here become ours.

    Args:
        recording: the file.
        place: the line of the list that named it, for messages.
        tag: the sequence that is read, for messages.
        for_data: an Ogg file's checksums are checked, for which all of it is read.

    Raises:
        DependencyError: soundfile, or libsndfile, is missing.
        SourceError: the file can't be read, or not as audio.
    """
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: the package is there, libsndfile isn't
        raise DependencyError(f"source.type audio needs soundfile ({error}); pip install 'seqprep[audio]'") from error
    name = f"{place}{recording}" if tag is None else f"{place}{recording}, sequence {tag!r}"
    try:
        with soundfile.SoundFile(_openable(recording, name, for_data)) as file:
            yield file
    except soundfile.SoundFileError as error:
        what = str(getattr(error, "error_string", error)).rstrip(".") or "damaged"
        raise SourceError(f"{name}: can't be read as audio: {what}; restore it or leave it out") from error
    except OSError as error:
        raise SourceError(f"{name}: can't be opened: {error.strerror or error}; check the path") from error


def _openable(recording: Recording, name: str, for_data: bool) -> bytes | io.BytesIO:
    """What libsndfile opens: a path, or bytes where a file's own aren't (all of) the audio.

    Raises:
        OSError: the file can't be read, or the command fails.
        SourceError: the file is empty, an Ogg file is damaged, or there is no WAV where one should be.
    """
    if recording.is_command:
        return io.BytesIO(run_command(recording.path))
    with open(recording.path, "rb") as file:
        if recording.offset is not None:
            return io.BytesIO(_wav_at(file, recording.offset, name))
        start = file.read(4)
        if not start:
            raise SourceError(f"{name}: it is empty (0 bytes); restore it or leave it out")
        if not ogg.is_ogg(start) or not for_data:
            return os.fsencode(recording.path)
        content = start + file.read()
    at = ogg.damaged_page(content)
    if at is not None:  # decoders pass over such a page, and what follows moves forward
        raise SourceError(f"{name}: damaged at byte {at} of {len(content)}; restore it or leave it out")
    return io.BytesIO(content)


def _wav_at(file: Any, offset: int, name: str) -> bytes:
    """The bytes of a WAV inside of an archive."""
    file.seek(offset)
    header = file.read(8)
    if header[:4] != b"RIFF":
        raise SourceError(f"{name}: there is no WAV at this byte; check the scp file")
    size = int.from_bytes(header[4:8], "little")
    content: bytes = header + file.read(min(size, os.fstat(file.fileno()).st_size))
    return content


def examine(recording: Recording, place: str) -> Header:
    """Reads a file's header, and finds what libsndfile passes over: a lost end, and a length that isn't told.

    Raises:
        DependencyError: soundfile is missing.
        SourceError: the file can't be read or isn't whole; begins with `place`.
    """
    name = f"{place}{recording}"
    with opened(recording, place, for_data=False) as file:
        header, kind, log = header_of(file), file.format, file.extra_info
    found = re.search(r"^data : (\d+) \(should be (\d+)\)", log, re.MULTILINE) if kind.startswith("WAV") else None
    if found and int(found[2]) < int(found[1]) < _UNKNOWN_LENGTH:
        raise SourceError(
            f"{name}: cut off: its header tells of {found[1]} bytes, and {found[2]} are there; restore it or leave it out"
        )
    on_disk = not recording.is_command and recording.offset is None
    if kind == "OGG" and on_disk and ogg.lost_end(_tail(recording, ogg.TAIL)):
        raise SourceError(f"{name}: cut off: its last page isn't there, or isn't whole; restore it or leave it out")
    if header.frames >= _NO_LENGTH:
        if kind == "FLAC" and on_disk and _flac_is_empty(recording):
            return header._replace(frames=0)
        raise SourceError(f"{name}: its header doesn't say how long it is; write it again, not into a pipe")
    return header


def _tail(recording: Recording, size: int) -> bytes:
    with open(recording.path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return file.read()


def _flac_is_empty(recording: Recording) -> bool:
    """Whether nothing follows a FLAC file's blocks of metadata: then its unknown length is 0."""
    with open(recording.path, "rb") as file:
        file.seek(4)
        last = False
        while not last and len(block := file.read(4)) == 4:
            last = bool(block[0] & 0x80)
            file.seek(int.from_bytes(block[1:], "big"), os.SEEK_CUR)
        return file.tell() >= os.fstat(file.fileno()).st_size


def decode(recording: Recording, header: Header, span: FrameRange, out: Array, tag: str) -> None:
    """Decodes a range of samples.

    Args:
        recording: the file.
        header: what it said of itself when it was examined.
        span: the range, not empty.
        out: [samples] or [samples, channels] of float32, int32 or int16; filled.
        tag: the sequence, for messages.

    Raises:
        SourceError: the file isn't what it was, or can't be read.
    """
    with opened(recording, tag=tag) as file:
        now = header_of(file)
        if now[1:] != header[1:]:
            raise SourceError(f"{recording}, sequence {tag!r}: the file changed since it was opened; start again")
        is_seekable = header.subtype.startswith(_SEEKABLE)
        file.seek(span.start if is_seekable else 0)  # an MP3's first bits depend on whether there was a seek at all
        if is_seekable:
            missing = len(out) - len(file.read(out=out))
        else:
            samples = file.read(span.stop, dtype=out.dtype.name)[span.start :]  # at once: calls between would too
            missing = len(out) - len(samples)
            out[: len(samples)] = samples
    if missing:
        raise SourceError(
            f"{recording}, sequence {tag!r}: cut off: {missing} of the samples [{span.start}, {span.stop}) are missing; "
            "restore the file or leave it out"
        )


def read_span(
    recording: Recording, header: Header, span: FrameRange, channel: int | Literal["mean"] | None, dtype: str, tag: str
) -> Array:
    """Decodes a range of samples of all channels, of one, or their mean.

    Args:
        recording: the file.
        header: what it said of itself when it was examined.
        span: the range.
        channel: from 0; None for all.
        dtype: float32, int32 or int16.
        tag: the sequence, for messages.

    Returns:
        [samples], or [samples, channels] of several.

    Raises:
        SourceError: as `decode`.
    """
    count = span.stop - span.start
    out = np.empty((count,) if header.channels == 1 else (count, header.channels), dtype)
    if count:
        decode(recording, header, span, out, tag)
    if header.channels == 1 or channel is None:
        return out
    return np.ascontiguousarray(out.mean(axis=1) if channel == "mean" else out[:, channel])
