"""Datasets with all sequences in them: back to back, with an array of lengths or offsets beside; each in a padded row,
[sequences, frames, …]; or in rows that have their own lengths each.

A dataset with one row per sequence and none of these is a key without time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqprep.errors import SourceError
from seqprep.sources.hdf5.columns import Column, Content
from seqprep.sources.hdf5.files import read_array
from seqprep.sources.hdf5.naming import back_to_back, chosen, input_first, rows_of
from seqprep.sources.hdf5.options import Hdf5Options
from seqprep.sources.hdf5.ragged import describe_ragged, row_type
from seqprep.sources.hdf5.strings import read_tags
from seqprep.types import Int64, Tags

TAG_NAMES = (
    "tags", "tag", "seq_tags", "seqTags", "names", "name", "seq_names", "ids", "id", "utt_ids", "utt_id", "utterance_ids",
    "utt", "utts", "uttids", "utterances", "keys",
)  # fmt: skip
LENGTH_NAMES = (
    "lengths", "length", "lens", "seq_lengths", "seq_lens", "sequence_lengths", "seqLengths", "num_frames", "n_frames", "sizes",
)  # fmt: skip
_MOST_TABLES = 200
"""Datasets at the root of a file that holds all sequences in each; with more of them, each is a sequence."""
OFFSET_NAMES = ("offsets", "offset", "indptr", "boundaries", "starts", "ptr")


@dataclass(frozen=True)
class _Spans:
    """What a file says of where a key's sequences lie, or nothing."""

    lengths: Int64 | None
    offsets: Int64 | None


@dataclass(frozen=True)
class _Table:
    """A file of tables, and what all its keys share."""

    path: str
    file: Any
    layout: str
    """flat, padded, vlen, or tables: each dataset is to be told apart."""
    options: Hdf5Options
    count: int | None
    """Sequences, if the tags or all lengths say it."""


def has_tables(file: Any) -> bool:
    """Whether something in the file tells that its datasets hold all sequences."""
    if len(file) > _MOST_TABLES:
        return False
    names = {name for name in file if _is_dataset(file[name])}
    return any(_role(name, names) for name in names) or any(row_type(file[name]) is not None for name in names)


def _is_dataset(item: Any) -> bool:
    return hasattr(item, "dtype") and hasattr(item, "nbytes")


def _role(name: str, names: set[str], ends: tuple[str, ...] = (*LENGTH_NAMES, *OFFSET_NAMES)) -> bool:
    """Whether a dataset's name says that it holds lengths or offsets, of all keys or of one."""
    if name in ends:
        return len(names) > 1
    return any(name.endswith(f"_{end}") and name.removesuffix(f"_{end}") in names for end in ends)


def describe_tables(path: str, name: str, file: Any, layout: str, options: Hdf5Options) -> Content:
    """Describes a file of tables.

    Args:
        path: the file.
        name: what tags are made of if it holds none.
        file: the same, opened.
        layout: flat, padded, vlen, or tables (each dataset is to be told apart).
        options: what the user says of it.

    Raises:
        SourceError: a dataset can't be told apart or doesn't go with the others.
    """
    tags = _find_tags(path, file, options)
    table = _Table(path, file, layout, options, _count(file, options) if tags is None else len(tags))
    taken = chosen(_available(file, options), options, path) if not options.datasets else _existing(path, file, options)
    if not taken:
        there = ", ".join(f"{dataset} ({file[dataset].dtype})" for dataset in file if _is_dataset(file[dataset]))
        raise SourceError(
            f"{path}: no dataset at its root holds numbers of sequences; there are: {there or 'none'}; name one in source.keys"
        )
    columns: dict[str, Column] = {}
    lengths: dict[str, Int64] = {}
    counts: dict[str, int] = {}
    for key, dataset in taken.items():
        columns[key], frames = _describe(table, key, dataset)
        counts[key] = len(frames)
        if columns[key].spec.has_time:
            lengths[key] = frames
    _check_counts(path, counts, None if tags is None else len(tags))
    if tags is None:
        digits = max(6, len(str(next(iter(counts.values())) - 1)))
        tags = Tags.of(f"{name}-{number:0{digits}}" for number in range(next(iter(counts.values()))))
    return Content(path=path, tags=tags, columns=columns, lengths=lengths)


def _find_tags(path: str, file: Any, options: Hdf5Options) -> Tags | None:
    if options.tags is not None:
        return read_tags(_dataset(path, file, options.tags, "source.tags"))
    for name in TAG_NAMES:
        if name in file and _is_dataset(file[name]) and file[name].dtype.kind in "SO" and row_type(file[name]) is None:
            return read_tags(file[name])
    return None


def _count(file: Any, options: Hdf5Options) -> int | None:
    """How many sequences a file has, if all its arrays of lengths say the same."""
    names = {name for name in file if _is_dataset(file[name])}
    said = {name for name in _named(options.lengths) if name in file and _is_dataset(file[name])}
    counts = {file[name].size for name in said or {name for name in names if _role(name, names, LENGTH_NAMES)}}
    return int(counts.pop()) if len(counts) == 1 and None not in counts else None


def _dataset(path: str, file: Any, name: str, option: str) -> Any:
    if name not in file or not _is_dataset(file[name]):
        raise SourceError(f"{path}: there is no dataset {name!r}, which {option} names; check it")
    return file[name]


def _existing(path: str, file: Any, options: Hdf5Options) -> dict[str, str]:
    for name in options.datasets.values():
        _dataset(path, file, name, "source.keys")
    return options.datasets


def _available(file: Any, options: Hdf5Options) -> dict[str, str]:
    """The datasets that may be keys: those of numbers, at the root, that don't say where others' sequences lie."""
    names = {name for name in file if _is_dataset(file[name])}
    said = {options.tags, *_named(options.lengths), *_named(options.offsets)}
    numeric = {name for name in names if file[name].dtype.kind in "biuf" or row_type(file[name]) is not None}
    return {name: name for name in input_first(numeric) if name not in said and not _role(name, names)}


def _named(option: str | Mapping[str, str] | None) -> list[str]:
    values = [] if option is None else [option] if isinstance(option, str) else list(option.values())
    return [value.strip("/") for value in values]


def _spans(table: _Table, key: str, dataset: str) -> _Spans:
    """Reads a key's lengths and offsets: where the options say, else where names tell."""
    options = table.options
    if options.lengths is None and options.offsets is None:
        return _Spans(_by_name(table, dataset, LENGTH_NAMES), _by_name(table, dataset, OFFSET_NAMES))
    return _Spans(_said(table, key, options.lengths, "lengths"), _said(table, key, options.offsets, "offsets"))


def _said(table: _Table, key: str, option: str | Mapping[str, str] | None, name: str) -> Int64 | None:
    where = option if isinstance(option, str) or option is None else option.get(key)
    return None if where is None else _integers(table, _dataset(table.path, table.file, where, f"source.{name}"))


def _by_name(table: _Table, dataset: str, names: tuple[str, ...]) -> Int64 | None:
    for name in (*(f"{dataset}_{end}" for end in names), *names):
        if name in table.file and _is_dataset(table.file[name]):
            return _integers(table, table.file[name])
    return None


def _integers(table: _Table, dataset: Any) -> Int64:
    shape = [size for size in dataset.shape if size != 1] or [dataset.size]
    values = np.asarray(read_array(dataset)) if dataset.dtype.kind in "iuf" and len(shape) == 1 else None
    if values is not None and values.dtype.kind == "f":  # some tools know no other numbers
        values = (
            values if (np.isfinite(values) & (np.abs(values) < 1 << 53) & (values == np.rint(values))).all() else None
        )
    if values is None:
        raise SourceError(
            f"{table.path}: dataset {dataset.name.strip('/')!r} holds {dataset.dtype} {list(dataset.shape)}, not a whole "
            "number per sequence; name another in source.lengths or source.offsets"
        )
    return values.astype(np.int64).reshape(-1)


def _describe(table: _Table, key: str, name: str) -> tuple[Column, Int64]:
    """Describes one key; gives it with the frames of its sequences (ones for a key without time)."""
    dataset = table.file[name]
    if row_type(dataset) is not None:
        return describe_ragged(table.path, key, name, table.file, table.options)
    if key in table.options.without_time:
        return _without_time(table, key, name)
    spans = _spans(table, key, name)
    ways = _ways(table, dataset, spans) if table.layout == "tables" else [table.layout]
    if len(ways) > 1:
        raise SourceError(
            f"{table.path}: dataset {name!r} {list(dataset.shape)} may hold sequences back to back or in padded rows; set "
            "source.layout to flat or padded, or name it in source.without_time"
        )
    if ways == ["flat"]:
        begin, lengths = _flat(table, key, len(dataset), spans)
        return rows_of(table.path, table.file, name, key, begin), lengths
    if ways == ["padded"]:
        lengths = _padded_lengths(table, key, dataset, spans)
        begin = np.arange(len(lengths)) * dataset.shape[1]
        return rows_of(table.path, table.file, name, key, begin, padded=True), lengths
    if ways == ["without_time"]:
        return _without_time(table, key, name)
    raise SourceError(
        f"{table.path}: dataset {name!r} {dataset.dtype} {list(dataset.shape)} holds neither one row nor the frames of each "
        "sequence; name the datasets to take in source.keys, and those of lengths in source.lengths"
    )


def _ways(table: _Table, dataset: Any, spans: _Spans) -> list[str]:
    """In which ways a dataset may hold its sequences."""
    lengths, shape = spans.lengths, dataset.shape
    if spans.offsets is not None:
        return ["flat"]
    if lengths is None:
        return ["without_time"] if shape and shape[0] == table.count else []
    ways = ["flat"] if shape and shape[0] == lengths.sum() else []
    if ways and not len(lengths) and len(shape) <= 2:
        return ways  # of a file without sequences only the frames' shape matters
    if len(shape) >= 2 and shape[0] == len(lengths):
        longest = int(lengths.max(initial=0))
        if shape[1] == longest or (shape[1] > longest and len(shape) > 2):
            ways.append("padded")
        elif shape[1] > longest:  # frames of one value in longer rows than needed, or a vector without time
            ways += ["padded", "without_time"]
    if not ways and shape and shape[0] == len(lengths):
        ways.append("without_time")
    return ways


def _without_time(table: _Table, key: str, name: str) -> tuple[Column, Int64]:
    dataset = table.file[name]
    if not dataset.shape:
        raise SourceError(f"{table.path}: key {key!r} is one value, not one per sequence; leave it out of source.keys")
    begin = np.arange(len(dataset))
    return rows_of(table.path, table.file, name, key, begin, timed=False), np.ones(len(dataset), np.int64)


def _flat(table: _Table, key: str, total: int, spans: _Spans) -> tuple[Int64, Int64]:
    """Where the sequences of a dataset of `total` frames begin, and their lengths."""
    lengths, offsets = spans.lengths, spans.offsets
    place = f"{table.path}: key {key!r}"
    if lengths is None and offsets is None:
        raise SourceError(f"{place}: nothing says where its sequences lie; set source.lengths or source.offsets")
    if offsets is None:
        assert lengths is not None
        begin = back_to_back(lengths)
    elif lengths is None:
        begin, lengths = _between(place, offsets, total, table.count)
    elif len(offsets) - len(lengths) in (0, 1):
        begin = offsets[: len(lengths)]
    else:
        raise SourceError(f"{place}: there are {len(offsets)} offsets and {len(lengths)} lengths; the file is damaged")
    if (lengths < 0).any() or (begin < 0).any() or (begin > total - lengths).any():
        raise SourceError(
            f"{place}: its lengths or offsets lead outside of its {total} frames; the file is damaged, or source.lengths "
            "names another key's"
        )
    if offsets is None and lengths.sum() != total:
        raise SourceError(
            f"{place}: its lengths add up to {lengths.sum()} frames but there are {total}; the file is damaged, or "
            "source.lengths names another key's"
        )
    return begin, lengths


def _between(place: str, offsets: Int64, total: int, count: int | None) -> tuple[Int64, Int64]:
    """Reads offsets: where sequences begin, where they end, or both with one more than there are sequences."""
    from_zero, to_end = offsets[:1].tolist() == [0], offsets[-1:].tolist() == [total]
    both = from_zero and to_end
    if both and len(offsets) == count:
        raise SourceError(
            f"{place}: its offsets are as many as its sequences and may be where they begin or where they end; give "
            "source.lengths in their place"
        )
    if not from_zero and not to_end:
        raise SourceError(
            f"{place}: its offsets neither begin at 0 nor end at its {total} frames; give source.lengths too"
        )
    edges = offsets if both else np.append(offsets, total) if from_zero else np.append(0, offsets)
    return edges[:-1], np.diff(edges)


def _padded_lengths(table: _Table, key: str, dataset: Any, spans: _Spans) -> Int64:
    if dataset.ndim < 2:
        raise SourceError(
            f"{table.path}: key {key!r} {list(dataset.shape)} has no padded rows; name it in source.without_time, or the "
            "keys to take in source.keys"
        )
    rows, frames = dataset.shape[:2]
    lengths = np.full(rows, frames, np.int64) if spans.lengths is None else spans.lengths
    if len(lengths) != rows or (lengths < 0).any() or (lengths > frames).any():
        raise SourceError(
            f"{table.path}: key {key!r} has {rows} rows of {frames} frames but {len(lengths)} lengths of up to "
            f"{lengths.max(initial=0)}; the file is damaged, or source.lengths names another key's"
        )
    return lengths


def _check_counts(path: str, counts: Mapping[str, int], tags: int | None) -> None:
    """Finds keys, or tags, of another number of sequences."""
    said = dict(counts) if tags is None else {**counts, "the tags": tags}
    if len(set(said.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in said.items())
        raise SourceError(
            f"{path}: the numbers of sequences differ: {listed}; name the keys that go together in source.keys"
        )
