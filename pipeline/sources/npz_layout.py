"""Which sequences a list of numpy's files holds: one in each, or many back to back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqprep.config import suggestion
from seqprep.errors import ConfigError, SourceError
from seqprep.sources.byteranges import ByteRanges
from seqprep.sources.npz_arrays import KeyArrays, StoredArray, list_arrays, load
from seqprep.sources.reading import check_equal_keys, join_tags, numbered_tags, numeric_dtype, tags_of_files
from seqprep.types import Array, Int64, KeySpec, Tags


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How arrays become keys; the options of the source, worked out."""

    array_of: Mapping[str, str] | None
    """For each key, its array; None for all."""
    npy_key: str
    """What the array of an .npy file is called."""
    extents: str | Mapping[str, str] | None
    """The array that holds lengths or offsets, of all keys or for each; None if each file is a sequence."""
    are_offsets: bool
    """`extents` holds where sequences begin, and last where the data ends; else their lengths."""
    tags: str | None
    """The array that holds the tags."""
    without_time: frozenset[str]
    """Keys of one value for each sequence."""

    @property
    def special(self) -> set[str]:
        """Names of arrays that aren't keys."""
        named = [self.extents] if isinstance(self.extents, str) else list((self.extents or {}).values())
        return {name for name in [*named, self.tags] if name is not None}


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """What was found."""

    keys: dict[str, KeySpec]
    arrays: dict[str, KeyArrays]
    tags: Tags
    lengths: dict[str, Int64]
    """For each key with time, int64 [sequences]."""
    begin: dict[str, Int64]
    """For each key, int64 [sequences]: the first frame of each in its file's array."""
    first: Int64
    """int64 [files + 1]: the first sequence of each file."""


def find_sequences(paths: list[Path], layout: Layout, files: ByteRanges) -> Sequences:
    """Reads what files say of their arrays.

    Raises:
        ConfigError: the layout names an array or key that isn't there.
        SourceError: a file can't be read, or files differ in their keys.
    """
    found: list[dict[str, StoredArray]] = []
    first_keys: dict[str, KeySpec] = {}
    for path in paths:
        listed = list_arrays(str(path), layout.npy_key, files)
        chosen = _choose(listed, layout, path)
        keys = {name: _spec(name, array, layout) for name, array in chosen.items()}
        first_keys = first_keys or keys
        check_equal_keys(path, keys, paths[0], first_keys)
        found.append({name: chosen[name] for name in first_keys})
    unknown = sorted(layout.without_time - first_keys.keys())
    if unknown:
        raise ConfigError(
            f"source.without_time names {unknown[0]!r}, which {paths[0]} has no array for{suggestion(unknown[0], first_keys)}"
        )
    if layout.extents is None:
        return _one_a_file(paths, first_keys, found)
    return _back_to_back(paths, first_keys, found, layout, files)


def _choose(listed: dict[str, StoredArray], layout: Layout, path: Path) -> dict[str, StoredArray]:
    """The arrays of a file that become keys."""
    if layout.array_of is None:
        return {name: array for name, array in listed.items() if name not in layout.special}
    for name in layout.array_of.values():
        if name not in listed:
            raise SourceError(f"{path}: has no array {name!r}{suggestion(name, listed)}; check source.arrays")
    return {key: listed[name] for key, name in layout.array_of.items()}


def _spec(key: str, array: StoredArray, layout: Layout) -> KeySpec:
    header, _, place = array
    if header.dtype.kind in "SU":
        remedy = "if it names the sequences, name it in source.tags, else choose the others in source.arrays"
        raise SourceError(f"{place} holds {header.dtype}, not numbers; {remedy}")
    dtype = numeric_dtype(header.dtype, place)
    if layout.extents is not None:
        if not header.shape:
            raise SourceError(f"{place}: is a single number; name the arrays of the sequences in source.arrays")
        return KeySpec(dtype=dtype, shape=header.shape[1:], has_time=key not in layout.without_time)
    has_time = bool(header.shape) and key not in layout.without_time
    return KeySpec(dtype=dtype, shape=header.shape[has_time:], has_time=has_time)


def _one_a_file(paths: list[Path], keys: dict[str, KeySpec], found: list[dict[str, StoredArray]]) -> Sequences:
    arrays = {
        name: KeyArrays(spec, [file[name] for file in found], whole=not spec.has_time) for name, spec in keys.items()
    }
    nothing = np.zeros(len(paths), np.int64)
    return Sequences(
        keys=keys,
        arrays=arrays,
        tags=Tags.of(tags_of_files(paths)),
        lengths={
            name: np.array([file[name].header.shape[0] for file in found], np.int64)
            for name, spec in keys.items()
            if spec.has_time
        },
        begin=dict.fromkeys(keys, nothing),
        first=np.arange(len(paths) + 1),
    )


def _back_to_back(
    paths: list[Path], keys: dict[str, KeySpec], found: list[dict[str, StoredArray]], layout: Layout, files: ByteRanges
) -> Sequences:
    tags: list[Tags] = []
    lengths: dict[str, list[Int64]] = {name: [] for name in keys}
    for path, arrays, stem in zip(paths, found, tags_of_files(paths), strict=True):
        per_key = {name: _lengths_in(path, name, layout, files) for name, spec in keys.items() if spec.has_time}
        if not per_key:
            raise SourceError(f"{path}: no array has a time axis; check source.arrays and source.without_time")
        count = len(next(iter(per_key.values())))
        for name, spec in keys.items():
            own = per_key.get(name, np.ones(count, np.int64))
            _check_rows(arrays[name], own, count, spec, layout)
            lengths[name].append(own)
        tags.append(_tags_in(path, stem, count, layout, files))
    per_file = np.array([len(part) for part in tags], np.int64)
    return Sequences(
        keys=keys,
        arrays={name: KeyArrays(spec, [file[name] for file in found], whole=False) for name, spec in keys.items()},
        tags=join_tags(tags),
        lengths={name: np.concatenate(lengths[name]) for name, spec in keys.items() if spec.has_time},
        begin={name: np.concatenate([np.cumsum(part) - part for part in lengths[name]]) for name in keys},
        first=np.concatenate([np.zeros(1, np.int64), np.cumsum(per_file)]),
    )


def _check_rows(array: StoredArray, lengths: Int64, count: int, spec: KeySpec, layout: Layout) -> None:
    rows, total = array.header.shape[0], int(lengths.sum())
    if len(lengths) != count:
        raise SourceError(f"{array.place}: has lengths of {len(lengths)} sequences, where another key has {count}")
    if rows != total:
        what = f"{total} frames in all" if spec.has_time else f"{count} sequences"
        raise SourceError(
            f"{array.place}: has {rows} rows, but source.{'offsets' if layout.are_offsets else 'lengths'} tells of {what}; "
            "give its own ({key: array}), name it in source.without_time, or name the others in source.arrays"
        )


def _lengths_in(path: Path, key: str, layout: Layout, files: ByteRanges) -> Int64:
    """Frames of each sequence of a file in one key; int64 [sequences]."""
    setting = "source.offsets" if layout.are_offsets else "source.lengths"
    named = layout.extents if isinstance(layout.extents, str) else (layout.extents or {}).get(key)
    if named is None:
        raise ConfigError(f"{setting} names no array for key {key!r}; add it, or name the key in source.without_time")
    values, place = _small_array(path, named, setting, files)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise SourceError(
            f"{place}: is {values.dtype} {list(values.shape)}; {setting} has to be a list of whole numbers"
        )
    numbers = values.astype(np.int64)
    if layout.are_offsets:
        if len(numbers) == 0 or numbers[0] != 0:
            raise SourceError(
                f"{place}: doesn't begin with 0; source.offsets holds where each sequence begins, and last where the "
                "data ends"
            )
        numbers = np.diff(numbers)
    if (numbers < 0).any():
        sequence = int(np.flatnonzero(numbers < 0)[0])
        raise SourceError(f"{place}: gives sequence {sequence} a length of {numbers[sequence]}; make it again")
    return numbers


def _tags_in(path: Path, stem: str, count: int, layout: Layout, files: ByteRanges) -> Tags:
    if layout.tags is None:
        return numbered_tags([stem], [count])
    values, place = _small_array(path, layout.tags, "source.tags", files)
    if values.shape != (count,):
        raise SourceError(f"{place}: has the shape {list(values.shape)} for {count} sequences; give one tag for each")
    if values.dtype.kind not in "USiu":
        raise SourceError(f"{place}: holds {values.dtype}, not strings; save it as numpy.array(names, dtype=str)")
    return Tags.of(tag if isinstance(tag, bytes) else str(tag) for tag in values.tolist())


def _small_array(path: Path, name: str, setting: str, files: ByteRanges) -> tuple[Array, str]:
    """An array of the file, or a file of its own; with its place for messages."""
    own_file = name.lower().endswith(".npy")
    listed = list_arrays(name if own_file else str(path), name, files)
    if name not in listed:
        raise SourceError(f"{path}: has no array {name!r}{suggestion(name, listed)}; check {setting}")
    return load(listed[name], files, name if own_file else str(path)), listed[name].place
