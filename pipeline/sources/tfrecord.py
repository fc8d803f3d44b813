"""TFRecord files of tf.train.Example or SequenceExample, read without TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Mapping

from seqprep import config
from seqprep.errors import SourceError
from seqprep.sources.byteranges import ByteRanges
from seqprep.sources.examples import parse_record, read
from seqprep.sources.fingerprint import fingerprint_of, short_hash
from seqprep.sources.paths import find_files
from seqprep.sources.protobuf import WireError
from seqprep.sources.reading import Place, check_unique, file_of, target_of
from seqprep.sources.records import SUFFIXES, FeatureOptions, damaged, index_records, place_of, read_record
from seqprep.types import Array, FrameRange, Int64, KeySpec, Tags


class TfRecordSource:
    """A record is a sequence: a SequenceExample, whose feature lists are keys with time and whose context has one value
    for each sequence; or an Example, whose lists go along time unless each record has one value.

    Files are read once when they are opened, for only that tells lengths; every record is held against its CRC32C then,
    and again whenever it is read. Whole files may be gzip.

    Args:
        options: what to read.

    Raises:
        ConfigError: the records lack a feature that is asked for, or none holds numbers.
        SourceError: a file is missing, damaged or cut off, or records differ in their features.
    """

    class Options(config.Options):
        """The section `source` with `type: tfrecord`."""

        path: str | list[str]
        """A file, a folder (.tfrecord, .tfrecords and .tfrec, also with .gz), a glob, or a list of these."""
        features: list[str] | dict[str, FeatureOptions] | None = None
        """Features that become keys: [feature, …] or {key: {feature, time, shape, encoding, dtype}}; unless given, all
        that hold numbers in the first 64 records."""
        tag: str | None = None
        """The feature that names a sequence, one byte string or whole number; numbered unless given."""

        @property
        def wishes(self) -> dict[str, FeatureOptions] | None:
            """For each key, what is said of its feature."""
            if isinstance(self.features, list):
                return {name: FeatureOptions() for name in self.features}
            return self.features

    def __init__(self, options: Options) -> None:
        self._options = options
        self._files = ByteRanges()
        self._paths = find_files(options.path, (*SUFFIXES, ".gz"))
        self._index = index_records(self._paths, options.wishes, options.tag, self._files)
        check_unique(self._index.tags, self._place, "choose another source.tag, or leave it out to number them")

    def _place(self, sequence: int) -> str:
        file = file_of(self._index.first, sequence)
        number = sequence - int(self._index.first[file])
        return place_of(self._paths[file], number, int(self._index.offset[sequence]))

    @property
    def keys(self) -> Mapping[str, KeySpec]:
        """The features, `data` first and the others by name, or as `features` says."""
        return self._index.keys

    @property
    def tags(self) -> Tags:
        """Tags of all records, file by file."""
        return self._index.tags

    def lengths(self, key: str) -> Int64:
        """Frames of every sequence in one key; int64 [sequences]."""
        return self._index.lengths[key]

    def read(self, key: str, sequence: int, frames: FrameRange | None = None, out: Array | None = None) -> Array:
        """Reads frames of one sequence, and its whole record for that; see `Source.read`."""
        spec = self._index.keys[key]
        length = int(self._index.lengths[key][sequence]) if spec.has_time else 1
        (start, stop), out = target_of(spec, length, frames, out)
        if stop == start:
            return out
        path = str(self._paths[file_of(self._index.first, sequence)])
        place = Place(lambda: f"{self._place(sequence)}: sequence {self.tags[sequence]!r}, key {key!r}")
        data = read_record(self._files, path, int(self._index.offset[sequence]), place)
        try:
            values = None if data is None else read(parse_record(data), self._index.features[key], spec)
        except (WireError, ValueError) as error:
            raise damaged(place, WireError(str(error))) from error
        if values is None or (spec.has_time and len(values) != length):
            raise SourceError(f"{place}: the file changed since it was opened; start again")
        out[...] = values[start:stop] if spec.has_time else values
        return out

    def fingerprint(self) -> Mapping[str, str]:
        """As `Source.fingerprint`, with `options` (what is made of the features)."""
        parts = fingerprint_of(self.keys, self.tags, self._index.lengths, self._paths)
        wishes = self._options.wishes
        made = None if wishes is None else [(key, wish.model_dump()) for key, wish in wishes.items()]
        parts["options"] = short_hash([json.dumps(made).encode()])
        return parts

    def close(self) -> None:
        """Gives back open files."""
        self._files.close()
