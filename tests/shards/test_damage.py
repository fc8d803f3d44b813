"""Bytes that change on the disk: each is found and named, none reaches a user, and repair brings the old ones back."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import seqprep
from seqprep import Loader, verify
from seqprep.errors import CorruptError, DatasetError
from seqprep.shards import Dataset, Fault
from seqprep.shards.sidecar import Sidecar
from tests.execution.small import content, small
from tests.execution.systems import QuickStorage

from .shards import KINDS

ENDINGS = {"hdf5": ".h5", "tfrecord": ".tfrecord"}


def dataset(folder: Path, format: str, compression: str) -> Path:
    seqprep.chunk(small(folder, format, output__compression=compression), storage=QuickStorage())
    return folder


def flip(path: Path, place: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def places_in_shard(sidecar: Sidecar) -> Iterator[tuple[str, int]]:
    """A byte of every stretch of a shard, and what `verify` has to call it."""
    pieces, table = sidecar.pieces, sidecar.table
    if pieces is not None:
        for number, (offset, size) in enumerate(zip(pieces.offset.tolist(), pieces.size.tolist(), strict=True)):
            named = f"batch {number}" if sidecar.format == "tfrecord" else "batch "
            yield named, offset + number % size
    else:
        for key, offsets in sidecar.offsets.items():
            for batch, (offset, size) in enumerate(zip(offsets.tolist(), table.array_bytes(key).tolist(), strict=True)):
                yield f"batch {batch}, key {key!r}", offset + batch % size
    part = "the header and tables" if sidecar.format == "hdf5" else "framing"
    for offset, size in zip(sidecar.regions.offset.tolist(), sidecar.regions.size.tolist(), strict=True):
        yield part, offset + size // 2


def read_all(folder: Path) -> list[dict[str, bytes]]:
    with Loader(folder, rank=0, world_size=1) as loader:
        return [
            {name: np.asarray(array).tobytes() for name, array in batch.items() if name != "seq_tag"}
            for batch in loader
        ]


def assert_named(faults: list[Fault], file: str, named: str, place: int) -> None:
    assert len(faults) == 1, faults
    fault = faults[0]
    assert fault.file == file
    assert named in str(fault), (named, str(fault))
    assert fault.offset <= place < fault.offset + fault.size


@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_a_flip_in_every_stretch_is_named_refused_and_repaired(tmp_path: Path, format: str, compression: str) -> None:
    folder = dataset(tmp_path / "out", format, compression)
    whole, batches = content(folder), read_all(folder)
    opened = Dataset(folder)
    for shard in range(2):
        path = opened.shard_path(shard)
        for number, (named, place) in enumerate(places_in_shard(opened.sidecar(shard))):
            flip(path, place, number % 8)
            assert_named(verify(folder, workers=1).faults, path.name, named, place)
            unread = "framing" in named or "header" in named  # the loader delivers neither
            try:
                found = read_all(folder)
            except CorruptError as error:
                message = str(error)
                assert not unread
                assert path.name in message
                assert named in message
            else:
                assert unread or compression != "none", named  # a flip in gzip's own header changes nothing it holds
                assert found == batches
            repaired = seqprep.repair(folder, storage=QuickStorage())
            assert repaired.shards == [path.name]
            assert content(folder) == whole


def flip_beside(tmp_path: Path, format: str, compression: str, step: int) -> None:
    """Bits of a sidecar and of the index."""
    folder = dataset(tmp_path / "out", format, compression)
    whole = content(folder)
    for name in ("index.json", "shard-00001-of-00002.idx"):
        for place in range(0, len(whole[name]), step):
            flip(folder / name, place, place % 8)
            assert_named(verify(folder, workers=1).faults, name, "differ from their checksum", place)
            if name != "index.json" or not whole[name][place : place + 1].isspace():
                with pytest.raises(DatasetError, match=name):
                    read_all(folder)
            repaired = seqprep.repair(folder, storage=QuickStorage())
            assert repaired.index == (name == "index.json")
            assert repaired.sidecars == ([] if name == "index.json" else [name])
            assert repaired.shards == []
            assert content(folder) == whole


@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_flips_in_sidecar_and_index(tmp_path: Path, format: str, compression: str) -> None:
    flip_beside(tmp_path, format, compression, 211)


@pytest.mark.slow
@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_a_flip_anywhere_in_sidecar_or_index(tmp_path: Path, format: str, compression: str) -> None:
    flip_beside(tmp_path, format, compression, 23)


def borders(sidecar: Sidecar) -> list[int]:
    """Where every stretch of a shard begins and ends, and a byte to each side."""
    stretches = [
        *stretches_of_data(sidecar),
        *zip(sidecar.regions.offset.tolist(), sidecar.regions.size.tolist(), strict=True),
    ]
    places = {place + aside for offset, size in stretches for place in (offset, offset + size) for aside in (-1, 0, 1)}
    return sorted(place for place in places if 0 <= place < sidecar.file_bytes)


def cut_everywhere(tmp_path: Path, format: str, compression: str, step: int) -> None:
    folder = dataset(tmp_path / "out", format, compression)
    whole = content(folder)
    shard, beside = f"shard-00001-of-00002{ENDINGS[format]}", "shard-00001-of-00002.idx"
    cuts = [(shard, place) for place in borders(Dataset(folder).sidecar(1))]
    cuts += [(beside, place) for place in range(0, len(whole[beside]), 8)]
    cuts += [("index.json", place) for place in range(0, len(whole["index.json"].rstrip()), 16)]
    for name, place in cuts[::step]:
        (folder / name).write_bytes(whole[name][:place])
        faults = verify(folder, workers=1).faults
        assert {fault.file for fault in faults} == {name}, (name, place, faults)
        if name == shard:
            assert (faults[0].offset, faults[0].size) == (place, len(whole[name]) - place)
            assert "cut off" in str(faults[0])
        with pytest.raises(DatasetError, match=re.escape(name)):
            read_all(folder)
        repaired = seqprep.repair(folder, storage=QuickStorage())
        assert (repaired.shards, repaired.sidecars) == (
            [shard] if name == shard else [],
            [beside] if name == beside else [],
        )
        assert content(folder) == whole


@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_cuts_at_some_borders(tmp_path: Path, format: str, compression: str) -> None:
    cut_everywhere(tmp_path, format, compression, 29)


@pytest.mark.slow
@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_cuts_at_every_border(tmp_path: Path, format: str, compression: str) -> None:
    cut_everywhere(tmp_path, format, compression, 1)


@pytest.mark.parametrize(("format", "compression"), KINDS)
@pytest.mark.parametrize("what", ["shard", "sidecar", "index"])
def test_what_is_cut_off_or_appended_to_or_gone(tmp_path: Path, format: str, compression: str, what: str) -> None:
    folder = dataset(tmp_path / "out", format, compression)
    whole = content(folder)
    name = {
        "shard": f"shard-00000-of-00002{ENDINGS[format]}",
        "sidecar": "shard-00000-of-00002.idx",
        "index": "index.json",
    }[what]
    size = len(whole[name])
    for changed in (
        None,
        b"",
        whole[name][:7],
        whole[name][: size // 2],
        whole[name][:-1],
        whole[name] + b"x",
        bytes(size),
    ):
        if changed is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(changed)
        faults = verify(folder, workers=1).faults
        assert {fault.file for fault in faults} == {name}, faults
        if changed is None:
            assert "are missing" in str(faults[0])
        elif what == "shard" and len(changed) < size:
            assert (faults[0].offset, faults[0].size) == (len(changed), size - len(changed))
            assert "cut off" in str(faults[0])
        elif what == "shard" and len(changed) > size:
            assert f"bytes {size} to {size + 1} stand behind the shard's end" in str(faults[0])
        if changed is None or what != "index" or changed.strip() != whole[name].strip():  # JSON's end may be missing
            with pytest.raises(DatasetError, match=name if what != "index" or changed else r"index\.json"):
                read_all(folder)
        seqprep.repair(folder, storage=QuickStorage())
        assert content(folder) == whole


@pytest.mark.parametrize("format", ["hdf5", "tfrecord"])
def test_everything_but_one_shard_is_lost(tmp_path: Path, format: str) -> None:
    folder = dataset(tmp_path / "out", format, "none")
    whole = content(folder)
    for name in whole:
        if name != f"shard-00001-of-00002{ENDINGS[format]}":
            (folder / name).unlink()
    assert seqprep.repair(folder).index
    assert content(folder) == whole


def flip_many(tmp_path: Path, format: str, compression: str, count: int) -> None:
    """Random bits of shards, sidecars and index, one after the other."""
    folder = dataset(tmp_path / "out", format, compression)
    whole = content(folder)
    names = sorted(whole)
    sizes = [len(whole[name]) for name in names]
    draw = random.Random(1)
    for _ in range(count):
        name = draw.choices(names, sizes)[0]
        place, bit = draw.randrange(len(whole[name])), draw.randrange(8)
        flip(folder / name, place, bit)
        faults = verify(folder, workers=1).faults
        assert [fault.file for fault in faults] == [name], (name, place, bit, faults)
        (folder / name).write_bytes(whole[name])
    assert verify(folder).faults == []


@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_few_flips_are_noticed(tmp_path: Path, format: str, compression: str) -> None:
    flip_many(tmp_path, format, compression, 100)


def stretches_of_data(sidecar: Sidecar) -> list[tuple[int, int]]:
    """Offset and bytes of every array (compressed: of every piece) in a shard."""
    if sidecar.pieces is not None:
        return list(zip(sidecar.pieces.offset.tolist(), sidecar.pieces.size.tolist(), strict=True))
    return [
        stretch
        for key, offsets in sidecar.offsets.items()
        for stretch in zip(offsets.tolist(), sidecar.table.array_bytes(key).tolist(), strict=True)
    ]


def flip_data(tmp_path: Path, format: str, compression: str, count: int) -> None:
    """Random bits of arrays alone, one after the other: `verify` and the loader both say where."""
    folder = dataset(tmp_path / "out", format, compression)
    whole, batches = content(folder), read_all(folder)
    opened = Dataset(folder)
    stretches = [
        (opened.shard_path(shard), *some) for shard in range(2) for some in stretches_of_data(opened.sidecar(shard))
    ]
    sizes = [size for _, _, size in stretches]
    draw = random.Random(3)
    for _ in range(count):
        path, offset, size = draw.choices(stretches, sizes)[0]
        place, bit = offset + draw.randrange(size), draw.randrange(8)
        flip(path, place, bit)
        assert_named(verify(folder, workers=1).faults, path.name, "batch ", place)
        try:
            assert read_all(folder) == batches
        except CorruptError as error:
            message = str(error)
            assert path.name in message
            assert "batch " in message
        else:
            assert compression != "none", (path.name, place, bit)  # a codec has bits of no effect
        path.write_bytes(whole[path.name])
    assert verify(folder).faults == []


@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_few_flips_in_data_are_noticed(tmp_path: Path, format: str, compression: str) -> None:
    flip_data(tmp_path, format, compression, 50)


@pytest.mark.slow
@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_no_flip_in_data_goes_unnoticed(tmp_path: Path, format: str, compression: str) -> None:
    flip_data(tmp_path, format, compression, 2000)


@pytest.mark.slow
@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_no_flip_goes_unnoticed(tmp_path: Path, format: str, compression: str) -> None:
    flip_many(tmp_path, format, compression, 2000)


@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_no_flip_reaches_a_user(tmp_path: Path, format: str, compression: str) -> None:
    """Random bits of everything: the loader refuses, or delivers what it always did."""
    folder = dataset(tmp_path / "out", format, compression)
    whole, batches = content(folder), read_all(folder)
    draw = random.Random(2)
    refused = 0
    for _ in range(60):
        name = draw.choice(sorted(whole))
        place, bit = draw.randrange(len(whole[name])), draw.randrange(8)
        flip(folder / name, place, bit)
        try:
            assert read_all(folder) == batches, (name, place, bit)
        except DatasetError:
            refused += 1
        (folder / name).write_bytes(whole[name])
    assert refused > 20
