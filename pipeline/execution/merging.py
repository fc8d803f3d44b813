"""`seqprep.merge`: several datasets become one, without their shards being copied."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seqprep.errors import ConfigError, CorruptError, MismatchError, OutputError
from seqprep.execution.resume import make_dataset
from seqprep.execution.run import Summary, summarize
from seqprep.execution.stored import MERGED
from seqprep.shards import (
    INDEX_NAME,
    Dataset,
    Index,
    ShardRecord,
    SharedLock,
    Storage,
    shard_name,
    sidecar_path,
    stored_crc32c,
)


def merge(
    output: str | Path,
    inputs: Sequence[str | Path],
    *,
    refer: bool = False,
    overwrite: bool = False,
    storage: Storage | None = None,
) -> Summary:
    """Makes one dataset of several with equal keys, in the order given.

    Its shards are hard links to theirs, so it stays whole whatever becomes of them; both have to lie on one file
    system. With `refer`, its index names their shards where they are, by paths relative to the output.

    `seq_idx` of a row still is the place in the source of its own dataset.

    Args:
        output: the folder to make.
        inputs: two datasets or more.
        refer: name shards where they are.
        overwrite: replace what the output holds, if it is something else.
        storage: the file layer; local files unless told.

    Raises:
        ConfigError: there are fewer than two inputs, or one of them is the output.
        MismatchError: they differ in keys, format, compression or packing, or one is there twice; shows both sides.
        DatasetError: an input can't be used.
        OutputError: the output can't be written, or lies on another file system.
    """
    started = time.monotonic()
    folder, storage = Path(output), storage or Storage()
    datasets = [Dataset(path) for path in inputs]
    _check(folder, datasets)
    expected = merged_index([(dataset.index, dataset.index.shards) for dataset in datasets])
    total = len(expected.shards)
    sources = [dataset.shard_path(shard) for dataset in datasets for shard in range(len(dataset.index.shards))]

    def make_shards(_: SharedLock) -> list[ShardRecord]:
        records = []
        for number, (path, record) in enumerate(zip(sources, expected.shards, strict=True)):
            if refer:
                records.append(replace(record, name=os.path.relpath(path.resolve(), folder.resolve())))
                continue
            name = shard_name(number, total, expected.format)
            for existing, new in ((path, folder / name), (sidecar_path(path), sidecar_path(folder / name))):
                _link(existing, new, storage)
            records.append(replace(record, name=name))
        storage.sync_folder(folder)
        return records

    index, before = make_dataset(folder, replace(expected, shards=()), total, storage, overwrite, make_shards)
    return summarize(folder, index, time.monotonic() - started, before)


def merged_index(parts: Sequence[tuple[Index, Sequence[ShardRecord]]]) -> Index:
    """Gives the index of several runs' shards together; it follows from what the shards say of their runs.

    Args:
        parts: what each run made, and its shards. An index that was merged itself counts as the runs it names.

    Returns:
        Their shards, one behind the other, as they are named.
    """
    first = parts[0][0]
    runs = [run for index, shards in parts for run in _runs(index, shards)]
    fingerprints = json.dumps([run["fingerprint"] for run in runs]).encode()
    return Index(
        format=first.format,
        fingerprint=hashlib.sha256(fingerprints).hexdigest()[:16],
        configuration={MERGED: runs},
        source={},
        keys=first.keys,
        sequences=sum(run["sequences"] for run in runs),
        shards=tuple(shard for _, shards in parts for shard in shards),
        compression=first.compression,
        codec=first.codec if all(index.codec == first.codec for index, _ in parts) else "several",
    )


def _runs(index: Index, shards: Sequence[ShardRecord]) -> list[dict[str, Any]]:
    if MERGED in index.configuration:
        return list(index.configuration[MERGED])
    return [
        {
            "fingerprint": index.fingerprint,
            "batches": sum(shard.batches for shard in shards),
            "sequences": index.sequences,
            "configuration": index.configuration,
            "source": dict(index.source),
            **({"codec": index.codec} if index.codec else {}),
        }
    ]


def _check(folder: Path, datasets: Sequence[Dataset]) -> None:
    if len(datasets) < 2:
        raise ConfigError(f"{folder}: merging takes two datasets or more, but {len(datasets)} is given")
    seen: dict[str, Path] = {}
    first = datasets[0]
    for dataset in datasets:
        if dataset.index.epochs > 1:
            raise ConfigError(
                f"{dataset.path}: holds {dataset.index.epochs} passes over its input, whose shards can't be put beside "
                "those of another; make it with epochs: 1, or mix loaders"
            )
        if dataset.path.resolve() == folder.resolve():
            raise ConfigError(f"{folder}: is an input and the output; choose another output")
        for run in _runs(dataset.index, ()):
            if run["fingerprint"] in seen:
                raise MismatchError(
                    f"{dataset.path}: holds the same run as {seen[run['fingerprint']]} (fingerprint {run['fingerprint']}), "
                    "so its rows would be there twice; give each dataset once"
                )
            seen[run["fingerprint"]] = dataset.path
        for what, there, here in _sides(first.index, dataset.index):
            if there != here:
                raise MismatchError(
                    f"{dataset.path}: differs from {first.path} in its {what}:\n  {first.path}: {there}\n"
                    f"  {dataset.path}: {here}\n  make them equal first, by seqprep convert or by their configurations"
                )
        _check_sidecars(dataset)


def _sides(one: Index, other: Index) -> list[tuple[str, Any, Any]]:
    """What merged datasets have to agree in."""
    return [
        ("format", one.format, other.format),
        ("compression", one.compression, other.compression),
        ("rows", _rows(one), _rows(other)),
        ("keys", list(one.keys), list(other.keys)),
        *((f"key {name!r}", spec, other.keys.get(name)) for name, spec in one.keys.items()),
    ]


def _rows(index: Index) -> str:
    packed = any(shard.segments is not None for shard in index.shards)
    return "packed with several sequences each" if packed else "of one sequence each"


def _check_sidecars(dataset: Dataset) -> None:
    """Looks whether each shard has the sidecar that the index names, by the checksum that ends it."""
    for number, record in enumerate(dataset.index.shards):
        path = dataset.shard_path(number)
        if stored_crc32c(path) != record.sidecar_crc32c:
            raise CorruptError(
                f"{sidecar_path(path)}: isn't the sidecar that {INDEX_NAME} names; seqprep repair {path.parent} makes it "
                "again"
            )


def _link(existing: Path, path: Path, storage: Storage) -> None:
    if os.path.exists(path):
        if path.samefile(existing):
            return
        storage.remove(path)
    try:
        storage.link(existing, path)
    except OutputError as error:
        raise OutputError(f"{error}; or add --refer to name the shards where they are") from error
