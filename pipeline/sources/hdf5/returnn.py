"""The layouts of the toolkit RETURNN.

Flat (HDFDataset, HDFDatasetWriter, SimpleHDFWriter): `inputs` [frames, …] holds all sequences back to back, `seqLengths`
[sequences, 1 + targets] their frames per key, `seqTags` their tags, `targets/data/<name>` the further keys, in the sorted
order of their names, `targets/labels/<name>` and `labels` the names of classes. There may be targets alone. Where the
input has several axes of varying length they are flattened into one, and the target `sizes` holds each sequence's own:
then all but the first become ragged axes of the key.

Streams (NextGenHDFDataset): `seq_names`, and for every key a group `streams/<name>` with the attribute `parser` and a
dataset per sequence, `data/<tag>`, in which a backslash stands for each slash of the tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from seqprep.errors import SourceError
from seqprep.sources.hdf5.attributes import read_text
from seqprep.sources.hdf5.columns import Column, Content, PerSequence, Rows, Segments
from seqprep.sources.hdf5.files import dataset_in, group_in, read_array
from seqprep.sources.hdf5.groups import describe_datasets
from seqprep.sources.hdf5.naming import back_to_back, chosen, input_first, number_type, rows_of
from seqprep.sources.hdf5.options import Hdf5Options
from seqprep.sources.hdf5.strings import read_tags
from seqprep.sources.hdf5.survey import survey
from seqprep.types import Int64, KeySpec, Tags

INPUT_KEY = "data"
"""What the dataset `inputs` is called as a key."""
_SIZES = "sizes"
_PARSERS = ("feature_sequence", "sparse", "segment_alignment")


def describe_flat(path: str, file: Any, options: Hdf5Options) -> Content:
    """Describes a file in the flat layout.

    Raises:
        SourceError: it isn't, or the parts don't go together.
    """
    targets = sorted(group_in(file, "targets/data")) if "targets/data" in file else []
    needed = ("seqLengths", "seqTags") if targets else ("inputs", "seqLengths", "seqTags")
    for name in needed:
        if name not in file:
            raise SourceError(
                f"{path}: has no dataset {name!r}, so it is not in RETURNN's flat layout; check source.path"
            )
    tags, inputs = read_tags(dataset_in(file, "seqTags")), {INPUT_KEY: "inputs"} if "inputs" in file else {}
    available = inputs | {name: f"targets/data/{name}" for name in targets}
    stored = _lengths_per_dataset(
        path, np.asarray(read_array(dataset_in(file, "seqLengths")), np.int64), tags, list(available.values())
    )
    axes = _axes(file, stored) if inputs and _SIZES in targets else None
    if axes is not None and not (options.keys is not None and _SIZES in options.keys):
        del available[_SIZES]
    taken = chosen(available, options, path)
    columns: dict[str, Column] = {}
    lengths: dict[str, Int64] = {}
    sizes: dict[str, Int64] = {}
    for key, name in taken.items():
        column = _column(path, file, name, key, stored[name], key not in options.without_time)
        if name == "inputs" and axes is not None:
            lengths[key], sizes[key] = axes[:, 0], axes[:, 1:]
            ragged = replace(column.spec, shape=(*[None] * (axes.shape[1] - 1), *column.spec.shape))
            column = replace(column, spec=ragged, units=np.prod(sizes[key], axis=1))
        elif column.spec.has_time:
            lengths[key] = stored[name]
        columns[key] = column
    return Content(path=path, tags=tags, columns=columns, lengths=lengths, sizes=sizes)


def _column(path: str, file: Any, name: str, key: str, frames: Int64, timed: bool) -> Rows:
    """Describes a key of the flat layout.

    Raises:
        SourceError: the frames don't add up to the data, or there are several of a key without time.
    """
    total = len(dataset_in(file, name))
    if (frames < 0).any() or frames.sum() != total:
        raise SourceError(
            f"{path}: seqLengths adds up to {frames.sum()} frames of key {key!r} but the data has {total}; "
            "the file is damaged, or its writer was stopped; make it again"
        )
    if not timed and (frames != 1).any():
        raise SourceError(f"{path}: key {key!r} has several frames in a sequence; take it out of source.without_time")
    column = rows_of(path, file, name, key, back_to_back(frames), timed=timed)
    return replace(column, spec=_named(column.spec, _labels(file, name)))


def _axes(file: Any, stored: Mapping[str, Int64]) -> Int64 | None:
    """The lengths of the input's axes, if several vary and are flattened to one; int64 [sequences, axes]."""
    sizes, counts = dataset_in(file, f"targets/data/{_SIZES}"), stored[f"targets/data/{_SIZES}"]
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or not len(counts):
        return None
    axes = counts.item(0)
    if axes < 2 or (counts != axes).any() or len(sizes) != axes * len(counts):
        return None
    lengths = np.asarray(read_array(sizes), np.int64).reshape(-1, axes)
    return lengths if (lengths >= 0).all() and (lengths.prod(axis=1) == stored["inputs"]).all() else None


def _lengths_per_dataset(path: str, lengths: Int64, tags: Tags, datasets: list[str]) -> dict[str, Int64]:
    """Splits seqLengths into columns, which stand in the order of the datasets."""
    if len(lengths) != len(tags):
        raise SourceError(
            f"{path}: seqLengths tells of {len(lengths)} sequences but seqTags of {len(tags)}; the file is damaged"
        )
    if lengths.ndim == 1:
        lengths = np.repeat(lengths[:, None], len(datasets), axis=1)  # one length for all keys, as old files have it
    if lengths.ndim != 2 or lengths.shape[1] < len(datasets):
        raise SourceError(
            f"{path}: seqLengths has shape {list(lengths.shape)} for {len(datasets)} keys; the file is damaged"
        )
    return {name: np.ascontiguousarray(lengths[:, column]) for column, name in enumerate(datasets)}


def _labels(file: Any, name: str) -> Iterable[str]:
    """Names of a key's classes, if the file has one for each class; else none."""
    if name == "inputs":
        where, count = "labels", file.attrs.get("inputPattSize", 0)
    else:
        target = name.rpartition("/")[2]
        where, size = (
            f"targets/labels/{target}",
            file["targets/size"].attrs.get(target, 0) if "targets/size" in file else 0,
        )
        count = np.asarray(size).reshape(-1)[0]
    if where not in file or not 1 < len(dataset_in(file, where)) == count:
        return ()
    return read_tags(dataset_in(file, where))


def _named(spec: KeySpec, labels: Iterable[str]) -> KeySpec:
    """Gives the names of classes to a key of class numbers."""
    is_class = spec.shape == () and np.dtype(spec.dtype).kind in "iu"
    return replace(spec, labels=tuple(labels) or None) if is_class else spec


def describe_streams(path: str, file: Any, options: Hdf5Options) -> Content:
    """Describes a file of streams; a stream of segments becomes the class of every frame.

    Raises:
        SourceError: it isn't one, or the parts don't go together.
    """
    for name in ("seq_names", "streams"):
        if name not in file:
            raise SourceError(
                f"{path}: has no {name!r}, so it is not in RETURNN's layout of streams; check source.path"
            )
    tags = read_tags(dataset_in(file, "seq_names"))
    available = {name: name for name in input_first(group_in(file, "streams"))}
    columns: dict[str, Column] = {}
    lengths: dict[str, Int64] = {}
    found = survey(path, file)
    for key, name in chosen(available, options, path).items():
        stream, timed = group_in(file, f"streams/{name}"), key not in options.without_time
        pattern = f"streams/{name}/data/{{tag}}"
        column, frames = describe_datasets(path, found, pattern, tags, slash="\\", timed=timed)
        names = read_tags(dataset_in(stream, "feature_names")) if "feature_names" in stream else ()
        if _parser_of(path, name, stream) == "segment_alignment":
            segments, frames = _segments(path, file, column, frames)
            columns[key] = replace(segments, spec=_named(segments.spec, names))
        else:
            columns[key] = replace(column, spec=_named(column.spec, names))
        if columns[key].spec.has_time:
            lengths[key] = frames
    return Content(path=path, tags=tags, columns=columns, lengths=lengths)


def _parser_of(path: str, name: str, stream: Any) -> str:
    text = read_text(stream, "parser") or _PARSERS[0]
    if text not in _PARSERS:
        raise SourceError(f"{path}: stream {name!r} has the parser {text!r}; known are {', '.join(_PARSERS)}")
    return text


def _segments(path: str, file: Any, column: PerSequence, counts: Int64) -> tuple[Segments, Int64]:
    """Reads the lengths of all segments; gives the key of their classes, and its frames per sequence."""
    if column.spec.shape != (2,) or np.dtype(column.spec.dtype).kind not in "iu":
        raise SourceError(
            f"{path}: {column.pattern} holds {column.spec.dtype} {list(column.spec.shape)} a segment, not its class and "
            "its frames"
        )
    frames = np.empty(len(counts), np.int64)
    for place, tag in enumerate(column.tags):
        spans = np.asarray(read_array(dataset_in(file, column.name_of(tag))), np.int64)[:, 1]
        if (spans < 0).any():
            raise SourceError(f"{path}: sequence {tag!r} has a segment of {spans.min()} frames; the file is damaged")
        frames[place] = spans.sum()
    spec = KeySpec(dtype=number_type(np.dtype(column.spec.dtype), path, column.pattern))
    return Segments(segments=column, spec=spec, counts=counts), frames
