"""`seqprep.repair`: makes right what is wrong in a dataset, to the same bytes.

What the shards still say is used first: an index follows from all of them, a sidecar from its shard. Only shards that
are lost or damaged themselves are made again from the source.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqprep.config import Config, load_config
from seqprep.errors import CorruptError, DatasetError, MismatchError, UnfinishedError
from seqprep.execution.merging import merged_index
from seqprep.execution.planning import plan_source
from seqprep.execution.resume import MARKER_NAME, differences, remove_leftovers
from seqprep.execution.run import Progress, Total, describe_run, job_for, run_tasks
from seqprep.execution.stored import CONVERTED, stored_config
from seqprep.execution.threads import side_by_side
from seqprep.shards import (
    INDEX_NAME,
    FolderLock,
    Index,
    ShardRecord,
    SharedLock,
    Sidecar,
    Storage,
    dataset_of,
    find_shards,
    read_sidecar,
    rebuild_sidecar,
    record_of,
    shard_count,
    shard_name,
    sidecar_path,
    stored_crc32c,
    verify_index,
    verify_record,
    verify_shard,
    write_index,
)
from seqprep.sources import open_source


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What was made again."""

    index: bool
    """Whether index.json was."""
    sidecars: list[str]
    """Names of the sidecars that were, from their shards."""
    shards: list[str]
    """Names of the shards that were, from the source, with their sidecars."""
    unchecked: list[str] = field(default_factory=list)
    """Names of the shards that were taken as they are, for neither index nor sidecar was left with their checksums, and
    HDF5 holds none of its own. `verify` with `against_source` compares them."""


def repair(
    path: str | Path,
    *,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    workers: int = 1,
    progress: Callable[[Progress], None] | None = None,
    storage: Storage | None = None,
) -> Repair:
    """Makes a damaged dataset whole again, to the bytes that it had.

    Args:
        path: the dataset's folder.
        config: what made it, to make shards from the source again; the dataset's own unless given.
        workers: processes to use for that.
        progress: told how far that is.
        storage: the file layer; local files unless told.

    Raises:
        DatasetError: there is no finished dataset, or it is beyond repair.
        MismatchError: the source or configuration isn't what the dataset was made from; shows what differs.
        BusyError: another run writes there.
        OutputError: the folder can't be written.
        SourceError: the source can't be read.
    """
    folder, storage = Path(path), storage or Storage()
    if not os.path.isdir(folder):
        raise DatasetError(f"{folder}: no such folder; check the path")
    index, faults = verify_index(folder)
    if (folder / MARKER_NAME).exists() and not (folder / INDEX_NAME).exists():
        raise UnfinishedError(f"{folder}: is no finished dataset; run the same seqprep chunk again to finish it")
    with FolderLock(folder, storage) as lock:
        state = _State(folder, index)
        for _ in side_by_side(state.check, range(len(state.paths)), os.cpu_count() or 1):
            pass
        if state.bad:
            _make_again(state, config, workers, progress, storage, lock.shared)
        for number, sidecar in state.sidecars.items():
            storage.write_file(sidecar_path(state.paths[number]), sidecar.encode())
        whole = state.index()
        if index is None or faults:
            write_index(folder, whole, storage)
        remove_leftovers(folder, storage)
    return Repair(
        index=index is None or bool(faults),
        sidecars=[sidecar_path(state.paths[number]).name for number in sorted(state.sidecars)],
        shards=[state.paths[number].name for number in sorted(state.bad)],
        unchecked=[state.paths[number].name for number in sorted(state.unchecked)],
    )


class _State:
    """What of a dataset is right, and what isn't.

    Args:
        folder: of the dataset.
        index: None if it is lost.

    Raises:
        DatasetError: nothing says what the dataset is.
    """

    def __init__(self, folder: Path, index: Index | None) -> None:
        self._folder, self._index = folder, index
        self.bad: list[int] = []
        """Shards to be made again."""
        self.sidecars: dict[int, Sidecar] = {}
        """Sidecars that were made again."""
        self.unchecked: list[int] = []
        """Shards whose values nothing was left to check by."""
        if index is not None:
            self.about = index
            self.paths = [folder / record.name for record in index.shards]
            self.records: list[ShardRecord | None] = list(index.shards)
            return
        found = find_shards(folder)
        if not found:
            raise UnfinishedError(f"{folder}: holds neither an index nor shards; make the dataset with seqprep chunk")
        self.about = _first_description(folder, found)
        count = shard_count(found[0])
        self.paths = [folder / shard_name(number, count, self.about.format) for number in range(count)]
        self.records = [None] * count

    def check(self, number: int) -> None:
        """Finds out what is wrong with a shard and its sidecar; makes the sidecar again if that is all."""
        path, record = self.paths[number], self.records[number]
        if record is not None:
            wrong = {fault.file for fault in verify_record(self._folder, record)[1]}
            name = Path(record.name)
            if wrong == {str(name.with_name(sidecar_path(path).name))}:
                self.sidecars[number] = rebuild_sidecar(path)[0]
            elif wrong:
                self.bad.append(number)
            if wrong and path.parent != self._folder:
                raise DatasetError(
                    f"{self._folder}: {record.name} is damaged, and belongs to another dataset; "
                    f"seqprep repair {path.parent} makes it right in both"
                )
            return
        try:
            sidecar = _own_sidecar(path)
            if sidecar is None:
                sidecar = self.sidecars[number] = rebuild_sidecar(path)[0]
                if sidecar.format == "hdf5":
                    self.unchecked.append(number)
        except DatasetError:
            self.bad.append(number)
            return
        crc = sidecar.crc32c if number in self.sidecars else stored_crc32c(path)
        self.records[number] = record_of(path.name, sidecar, crc)

    def index(self) -> Index:
        """The index, with every shard."""
        if self._index is not None:
            return self._index
        records = [record for record in self.records if record is not None]
        runs: list[tuple[Index, list[ShardRecord]]] = []
        for path, record in zip(self.paths, records, strict=True):
            fingerprint = read_sidecar(path).fingerprint
            if not runs or runs[-1][0].fingerprint != fingerprint:
                runs.append((self.about if fingerprint == self.about.fingerprint else dataset_of(path), []))
            runs[-1][1].append(record)
        return merged_index(runs) if len(runs) > 1 else runs[0][0].with_shards(records)


def _first_description(folder: Path, shards: list[Path]) -> Index:
    """What the first shard that can be understood says of the dataset."""
    for path in shards:
        try:
            return dataset_of(path)
        except CorruptError:
            continue
    raise CorruptError(
        f"{folder}: the index is lost, and none of the {len(shards)} shards can be understood; make the dataset again"
    )


def _own_sidecar(path: Path) -> Sidecar | None:
    """The sidecar of a shard, if it is right.

    Raises:
        CorruptError: it is, but the shard isn't.
    """
    try:
        sidecar = read_sidecar(path)
    except DatasetError:
        return None
    faults = verify_shard(path, sidecar)[1]
    if faults:
        raise CorruptError(str(faults[0]))
    return sidecar


def _make_again(
    state: _State,
    config: Config | Mapping[str, Any] | str | Path | None,
    workers: int,
    progress: Callable[[Progress], None] | None,
    storage: Storage,
    lock: SharedLock,
) -> None:
    """Makes the bad shards from the source."""
    folder, about = state.paths[0].parent, state.about
    if CONVERTED in about.configuration:
        raise DatasetError(
            f"{folder}: {len(state.bad)} shards are damaged, and were put together by seqprep convert; convert again"
        )
    config = stored_config(about, folder) if config is None else _as_config(config, folder)
    source = open_source(config.source, config.document)
    try:
        planned, part = plan_source(config, source), about.configuration.get("part", "")
        if part not in planned.parts:
            raise MismatchError(f"{folder}: is part {part!r} of a split, which the configuration doesn't have")
        plan, now = planned.parts[part], describe_run(config, planned, part)
        if now.fingerprint != about.fingerprint or len(plan) != len(state.paths):
            raise MismatchError(
                f"{folder}: shards can't be made again, for their source or configuration isn't what it was:\n"
                f"{differences(about, now)}; restore the source, or make the dataset again with seqprep chunk --overwrite"
            )
        job = job_for(config, source, now, planned.normalizers, folder, storage, lock)
        advance = Total(sum(plan.task(number).rows for number in state.bad), progress)
        records = run_tasks(job, plan, sorted(state.bad), workers, advance)
    finally:
        source.close()
    for number, record in records.items():
        known = state.records[number]
        if known is not None and known != record:
            raise DatasetError(
                f"{state.paths[number]}: was made again, but to other bytes than the index says; "
                "make the dataset again with seqprep chunk --overwrite"
            )
        state.records[number] = record


def _as_config(config: Config | Mapping[str, Any] | str | Path, folder: Path) -> Config:
    """The configuration, for this folder."""
    config = config if isinstance(config, Config) else load_config(config)
    output = config.output.model_copy(update={"path": str(folder)})
    return config.model_copy(update={"output": output})
