"""Finds out from an HDF5 shard alone what it holds and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.errors import CorruptError
from seqprep.shards.index import Index, parse_description
from seqprep.shards.sidecar import NO_REGIONS, Pieces, Sidecar
from seqprep.shards.table import ShardTable, parse_numbers
from seqprep.types import Int64, Tags


def hdf5_layout(path: Path) -> tuple[Sidecar, Index]:
    """Describes a shard, all checksums left at 0.

    Returns:
        What its sidecar holds, but for checksums, regions and size; and its dataset's index, without shards.

    Raises:
        CorruptError: it is no whole shard of ours.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            description = file["batches/dataset"][...].tobytes()
            about = parse_description(description, path)
            table = _table(file, about, parse_numbers(description))
            _check(file, table)
            if about.compression == "none":
                pieces = None
                offsets = {
                    key: int(file[key].id.get_offset() or 0) + table.units_before(key)[:-1] * spec.nbytes
                    for key, spec in table.keys.items()
                }
            else:
                offsets, pieces = _chunks(file, table, about.compression)
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, IndexError) as error:
        raise CorruptError(f"{path}: isn't a whole HDF5 shard: {error}; seqprep repair makes it again") from error
    crcs = {key: np.zeros(len(table.batch_rows), np.uint32) for key in table.keys}
    return Sidecar("hdf5", 0, about.fingerprint, table, offsets, crcs, NO_REGIONS, pieces), about


def _table(file: Any, about: Index, numbers: dict[str, int]) -> ShardTable:
    packed = "batches/segments" in file
    entries = file["segments" if packed else "rows"]
    fields = json.loads(entries["fields"][...].tobytes())
    return ShardTable(
        keys=about.keys,
        batch_rows=file["batches/rows"][...],
        batch_frames={key: file[f"batches/{key}.frames"][...] for key, spec in about.keys.items() if spec.has_time},
        batch_sizes={
            key: np.stack([file[f"batches/{key}.size{axis + 1}"][...] for axis in spec.ragged], axis=1)
            for key, spec in about.keys.items()
            if spec.ragged
        },
        fields={field: entries[field.replace("/", ".")][...] for field in fields},
        tags=Tags(entries["seq_tag"][...], entries["seq_tag.end"][...]),
        batch_segments=file["batches/segments"][...] if packed else None,
        **numbers,
    )


def _chunks(file: Any, table: ShardTable, compression: str) -> tuple[dict[str, Int64], Pieces]:
    """Walks the chunks in the order in which they were written."""
    offsets = {key: np.zeros(len(table.batch_rows), np.int64) for key in table.keys}
    units = {key: np.diff(table.units_before(key)) for key in table.keys}
    entries, decoded = [], 0
    for batch in range(len(table.batch_rows)):
        for key, spec in table.keys.items():
            dataset = file[key]
            offsets[key][batch] = decoded
            if dataset.chunks is None:
                continue
            first, chunk = int(file[f"batches/{key}.offset"][batch]), int(dataset.chunks[0])
            frames = int(units[key][batch])
            for frame in range(first, first + frames, chunk):
                info = dataset.id.get_chunk_info_by_coord((frame, *(0 for _ in spec.unit_shape)))
                if info.byte_offset is None:
                    raise ValueError(f"batch {batch}, key {key!r} lacks a chunk")
                entries.append((info.byte_offset, info.size, chunk * spec.nbytes))
                decoded += chunk * spec.nbytes
    return offsets, Pieces.of(compression, entries)


def _check(file: Any, table: ShardTable) -> None:
    """Holds the tables against each other and the datasets.

    Raises:
        ValueError: they contradict each other.
    """
    first = "batches/first_row" if table.batch_segments is None else "batches/first_segment"
    wrong = [] if np.array_equal(file[first], table.bounds[:-1]) else [first]
    for key, spec in table.keys.items():
        dataset, needed = file[key], np.diff(table.units_before(key))
        filled = needed if dataset.chunks is None else -(-needed // dataset.chunks[0]) * dataset.chunks[0]
        if dataset.shape != (filled.sum(), *spec.unit_shape):
            wrong.append(key)
        elif not np.array_equal(file[f"batches/{key}.offset"], np.cumsum(filled) - filled):
            wrong.append(f"batches/{key}.offset")
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: contradict the numbers of rows and frames")
