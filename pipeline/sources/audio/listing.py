"""Which stretches of which files are sequences, whichever way the user names them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

from seqprep.errors import SourceError
from seqprep.sources.audio.options import AudioOptions
from seqprep.sources.audio.soundfiles import Recording
from seqprep.sources.kaldi.lists import (
    Table,
    check_command,
    parse_seconds,
    parse_segment,
    parse_target,
    read_table,
    resolve,
)
from seqprep.sources.manifest import Manifest, read_manifest
from seqprep.sources.paths import find_files, names_below

_SUFFIXES = (".wav", ".flac", ".ogg")
_SEGMENTS = "segments"

Stretch = tuple[Fraction, Fraction | None]
"""Start and end in seconds; None: the file's end."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Sequences, in their order: lists of one length, but for `recordings`."""

    recordings: list[Recording]
    """The files, each once."""
    recording: list[int]
    """The file of each sequence."""
    tags: list[str]
    stretches: list[Stretch] | None = None
    """Of each sequence's file, or None for whole files."""
    channels: list[int | None] | None = None
    """Of each sequence, where the list says it."""
    places: list[str] = field(default_factory=list)
    """The list and the line that names each sequence, to stand before a message; empty without a list."""
    columns: dict[str, list[str]] = field(default_factory=dict)
    """The text of each column, or table, that options name."""

    def place(self, sequence: int) -> str:
        """Names the line of a sequence, to stand before a message."""
        return self.places[sequence] if self.places else ""

    def name(self, sequence: int) -> str:
        """Names the line and the file of a sequence."""
        return f"{self.place(sequence)}{self.recordings[self.recording[sequence]]}"


def list_sequences(options: AudioOptions) -> Listing:
    """Lists the sequences.

    Raises:
        SourceError: a list can't be read or says what can't be, or there is no file.
    """
    if options.manifest is None:
        files = find_files(options.path or [], _SUFFIXES)
        recordings = [Recording(str(file)) for file in files]
        return Listing(recordings=recordings, recording=list(range(len(files))), tags=names_below(files))
    if options.is_scp:
        return _of_scp(Path(options.manifest), options)
    columns = [*options.label_columns.values(), *options.target_columns.values()]
    return _of_manifest(read_manifest(Path(options.manifest), columns), options.manifest)


def _of_manifest(manifest: Manifest, name: str) -> Listing:
    numbers: dict[Path, int] = {}
    recording = [numbers.setdefault(file, len(numbers)) for file in manifest.files]
    places = [f"{name}, line {line}: " for line in manifest.lines]
    stretches = [_stretch(span, place[:-2]) for span, place in zip(manifest.spans, places, strict=True)]
    channels = [_channel(text, place) for text, place in zip(manifest.channels, places, strict=True)]
    return Listing(
        recordings=[Recording(str(file)) for file in numbers],
        recording=recording,
        tags=manifest.tags,
        stretches=stretches if any(start or end or "" for start, end in manifest.spans) else None,
        channels=channels if any(channel is not None for channel in channels) else None,
        places=places,
        columns=manifest.columns,
    )


def _stretch(span: tuple[str, str], place: str) -> Stretch:
    start, end = (parse_seconds(text, place) if text else None for text in span)
    if (start or 0) < 0 or (end is not None and end < (start or 0)):
        raise SourceError(f"{place}: start {span[0] or 0} and end {span[1]} are no stretch; give both in seconds")
    return start or Fraction(0), end


def _channel(text: str, place: str) -> int | None:
    if text and not (text.isascii() and text.isdecimal() and len(text) < 5):
        raise SourceError(f"{place}channel is {text!r}; channels are counted from 0")
    return int(text) if text else None


def _of_scp(path: Path, options: AudioOptions) -> Listing:
    """Reads a wav.scp, and the stretches of a `segments` file."""
    table = read_table(path)
    recordings = [_recording(table, place, options.allow_pipes) for place in range(len(table.tags))]
    if not recordings:
        raise SourceError(f"{path}: the manifest lists no file; check source.manifest")
    own = path.with_name(_SEGMENTS)
    named = own if options.segments == "auto" else Path(options.segments)
    if options.segments == "none" or (options.segments == "auto" and not own.is_file()):
        places = [f"{table.where(place)}: " for place in range(len(recordings))]
        listing = Listing(recordings=recordings, recording=list(range(len(recordings))), tags=table.tags, places=places)
    else:
        listing = _of_segments(read_table(named), table, recordings)
    columns = {name: _values(name, path, listing.tags) for name in options.label_columns.values()}
    return replace(listing, columns=columns)


def _recording(table: Table, place: int, allow_pipes: bool) -> Recording:
    target = parse_target(table.values[place], table.where(place))
    if target.is_command:
        check_command(target.file, table.where(place), allow_pipes)
        return Recording(target.file, is_command=True)
    is_inside = table.values[place] != target.file
    return Recording(resolve(target.file, table.path.parent), target.offset if is_inside else None)


def _of_segments(segments: Table, table: Table, recordings: list[Recording]) -> Listing:
    numbers = {tag: number for number, tag in enumerate(table.tags)}
    found = [parse_segment(value, segments.where(place)) for place, value in enumerate(segments.values)]
    for place, segment in enumerate(found):
        if segment.recording not in numbers:
            raise SourceError(
                f"{segments.where(place)}: recording {segment.recording!r} isn't in {table.path}; complete it, or leave "
                "the segment out"
            )
    channels = [segment.channel for segment in found]
    return Listing(
        recordings=recordings,
        recording=[numbers[segment.recording] for segment in found],
        tags=segments.tags,
        stretches=[(segment.start, segment.end) for segment in found],
        channels=channels if any(channel is not None for channel in channels) else None,
        places=[f"{segments.where(place)}: " for place in range(len(found))],
    )


def _values(name: str, scp: Path, tags: list[str]) -> list[str]:
    """Reads a table of a value for each tag, beside the wav.scp unless a folder is named."""
    table = read_table(Path(name) if "/" in name else scp.with_name(name))
    values = dict(zip(table.tags, table.values, strict=True))
    for tag in tags:
        if tag not in values:
            raise SourceError(f"{table.path}: sequence {tag!r} of {scp} isn't in it; complete it")
    return [values[tag] for tag in tags]
