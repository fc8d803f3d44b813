"""The files of a source: where they are, and what their headers say, as arrays."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from seqprep.errors import SourceError
from seqprep.sources.audio.listing import Listing
from seqprep.sources.audio.options import AudioOptions
from seqprep.sources.audio.soundfiles import FLOATING, Header, Recording, examine
from seqprep.types import Tags

_NO_OFFSET = -1


class Recordings:
    """Examines every file's header.

    Args:
        listed: the files, and the sequences made of them.
        options: what is made of the samples.

    Raises:
        SourceError: a file is missing, damaged, or can't be what the options ask for; or files differ in channels or
            sample rate, and options don't bring them together.
    """

    def __init__(self, listed: Listing, options: AudioOptions) -> None:
        count = len(listed.recordings)
        self._paths = Tags.of(os.fsencode(one.path) for one in listed.recordings)  # no object per file
        self._offsets = np.array(
            [_NO_OFFSET if one.offset is None else one.offset for one in listed.recordings], np.int64
        )
        self._commands = frozenset(number for number, one in enumerate(listed.recordings) if one.is_command)
        self.frames = np.zeros(count, np.int64)
        """Samples of each channel, of every file."""
        self.rates = np.zeros(count, np.int64)
        """Sample rate of every file, in Hz."""
        self.channels = np.zeros(count, np.int16)
        """Channels of every file."""
        self._subtypes: list[str] = []
        self._subtype = np.zeros(count, np.int16)
        self._used: dict[int, int] = {}
        for sequence, number in enumerate(listed.recording):
            self._used.setdefault(number, sequence)
        for number, sequence in self._used.items():
            self._examine(number, listed.recordings[number], listed.place(sequence))
        self._first = listed.recording[0]
        for number, sequence in self._used.items():
            self._check(number, listed.name(sequence), listed.name(0), options)
        self.made_channels = self._check_channels(listed, options)
        """Channels of what is made of every file."""

    def _examine(self, number: int, recording: Recording, place: str) -> None:
        header = examine(recording, place)
        self.frames[number], self.channels[number], self.rates[number] = header[:3]
        if header.subtype not in self._subtypes:
            self._subtypes.append(header.subtype)
        self._subtype[number] = self._subtypes.index(header.subtype)

    def _check(self, number: int, name: str, first_name: str, options: AudioOptions) -> None:
        """Holds a file against the options and the first file."""
        header, first = self[number][1], self[self._first][1]
        if options.sample_type != "float32" and header.subtype.startswith(FLOATING):
            raise SourceError(
                f"{name}: its samples are floats ({header.subtype}), of which source.sample_type {options.sample_type} "
                "would keep no true value; set float32"
            )
        wanted = options.sample_rate or first.sample_rate
        if header.sample_rate != wanted and options.sample_rate is None:
            raise SourceError(
                f"{name} has {_shown(header)}, but {first_name} has {_shown(first)}; set source.sample_rate"
            )
        if header.sample_rate != wanted and options.sample_type != "float32":
            raise SourceError(
                f"{name} has {_shown(header)} and would be resampled, to floats alone; set source.sample_type: float32"
            )

    def _check_channels(self, listed: Listing, options: AudioOptions) -> int:
        """Holds the channels that sequences take against each other; gives how many each has."""
        made, first = 0, self[self._first][1]
        for sequence, number in enumerate(listed.recording):
            own = listed.channels[sequence] if listed.channels else None
            channel = options.channel if own is None else own
            has = self.channels.item(number)
            if isinstance(channel, int) and channel >= has:
                raise SourceError(
                    f"{listed.name(sequence)}: it has no channel {channel}: there are {has}, counted from 0"
                )
            makes = has if channel is None else 1
            made = made or makes
            if makes != made:
                raise SourceError(
                    f"{listed.name(sequence)} has {_shown(self[number][1])}, but {listed.name(0)} has {_shown(first)}; set "
                    "source.channel to one of them, or to mean"
                )
            if options.features and makes != 1:
                raise SourceError(
                    f"{listed.name(sequence)}: features are made of one channel, and it has {has}; set source.channel"
                )
        return made

    def __getitem__(self, number: int) -> tuple[Recording, Header]:
        offset = self._offsets.item(number)
        path = self._paths[number]
        recording = Recording(path, None if offset == _NO_OFFSET else offset, number in self._commands)
        subtype = self._subtypes[self._subtype.item(number)]
        return recording, Header(self.frames.item(number), self.channels.item(number), self.rates.item(number), subtype)

    @property
    def rate(self) -> int:
        """Sample rate of the first sequence's file, in Hz."""
        return self.rates.item(self._first)

    def files(self) -> list[Path]:
        """The files of sequences, each once, without commands."""
        used = (self._paths[number] for number in self._used if number not in self._commands)
        return [Path(path) for path in dict.fromkeys(used)]

    def commands(self) -> list[str]:
        """The commands of sequences."""
        return [self._paths[number] for number in self._used if number in self._commands]


def _shown(header: Header) -> str:
    return f"{header.channels} channel{'' if header.channels == 1 else 's'} at {header.sample_rate} Hz"
