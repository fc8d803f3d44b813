"""Several datasets as one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seqprep
from seqprep import merge, repair, verify
from seqprep.errors import ConfigError, CorruptError, DatasetError, MismatchError, OutputError
from seqprep.shards import Dataset
from tests.shards.shards import KINDS

from .small import QUICK, arrays, content, make, small
from .systems import QuickStorage


@pytest.mark.parametrize("refer", [False, True])
@pytest.mark.parametrize(("format", "compression"), KINDS)
def test_merged_datasets_are_read_as_one(tmp_path: Path, format: str, compression: str, refer: bool) -> None:
    inputs = [make(tmp_path / f"in{seed}", format, compression, order__seed=seed) for seed in range(3)]
    out = tmp_path / "deeper" / "out"
    summary = merge(out, inputs, refer=refer, storage=QUICK)
    assert arrays(out) == [batch for folder in inputs for batch in arrays(folder)]
    assert summary.rows == sum(Dataset(folder).index.rows for folder in inputs)
    assert verify(out).faults == []
    assert merge(out, inputs, refer=refer).already_complete
    assert len(content(out)) == (1 if refer else 1 + 2 * len(Dataset(out).index.shards))
    sizes = sum(path.stat().st_nlink == 1 for path in out.iterdir())
    assert sizes == 1  # the index: everything else is shared
    moved = tmp_path / "merged twice"
    merge(moved, [out, make(tmp_path / "in3", format, compression, order__seed=3)], refer=refer, storage=QUICK)
    flat = tmp_path / "flat"
    merge(flat, [*inputs, tmp_path / "in3"], refer=refer, storage=QUICK)
    assert (flat / "index.json").read_bytes().replace(b"../", b"") == (moved / "index.json").read_bytes().replace(
        b"../", b""
    )


def test_links_outlive_what_they_were_made_of(tmp_path: Path) -> None:
    inputs = [make(tmp_path / f"in{seed}", order__seed=seed) for seed in range(2)]
    merge(tmp_path / "out", inputs, storage=QUICK)
    before, whole = arrays(tmp_path / "out"), content(tmp_path / "out")
    seqprep.chunk(small(inputs[0], order__seed=9), overwrite=True, storage=QUICK)
    shutil.rmtree(inputs[1])
    assert arrays(tmp_path / "out") == before
    for name in ("index.json", "shard-00002-of-00004.idx"):
        (tmp_path / "out" / name).unlink()
    made = repair(tmp_path / "out")
    assert made.index
    assert made.sidecars == ["shard-00002-of-00004.idx"]
    assert content(tmp_path / "out") == whole
    (tmp_path / "out" / "shard-00003-of-00004.h5").unlink()
    with pytest.raises(DatasetError, match="was merged from 2 datasets"):
        repair(tmp_path / "out")
    merge(tmp_path / "other", [inputs[0], make(tmp_path / "in7", order__seed=7)], storage=QUICK)
    with pytest.raises(DatasetError, match="was merged from 2 datasets"):
        verify(tmp_path / "other", against_source=True)


def test_damage_of_shards_referred_to_is_mended_where_they_are(tmp_path: Path) -> None:
    inputs = [make(tmp_path / f"in{seed}", order__seed=seed) for seed in range(2)]
    merge(tmp_path / "out", inputs, refer=True, storage=QUICK)
    (inputs[1] / "shard-00000-of-00002.idx").unlink()
    assert [fault.file for fault in verify(tmp_path / "out").faults] == ["../in1/shard-00000-of-00002.idx"]
    with pytest.raises(DatasetError, match=r"belongs to another dataset; seqprep repair .*in1"):
        repair(tmp_path / "out")
    repair(inputs[1])
    assert verify(tmp_path / "out").faults == []
    shutil.rmtree(inputs[0])
    with pytest.raises(DatasetError, match=r"in0/shard-00000-of-00002\.h5: the shard can't be opened"):
        Dataset(tmp_path / "out")


def test_what_cannot_be_merged(tmp_path: Path) -> None:
    one = make(tmp_path / "one")
    cases = [
        ([one], ConfigError, "two datasets or more, but 1 is given"),
        ([one, one], MismatchError, "its rows would be there twice"),
        ([one, tmp_path / "out"], DatasetError, "no such folder"),
        ([one, make(tmp_path / "tfrecord", "tfrecord")], MismatchError, "in its format"),
        ([one, make(tmp_path / "gzip", compression="gzip")], MismatchError, "in its compression"),
        (
            [one, make(tmp_path / "half", keys={"data": {"dtype": "float16"}, "classes": {}})],
            MismatchError,
            "in its key 'data'",
        ),
        ([one, make(tmp_path / "fewer", keys={"data": {}})], MismatchError, "in its keys"),
    ]
    for inputs, error, message in cases:
        with pytest.raises(error, match=message):
            merge(tmp_path / "out", inputs)
        assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="is an input and the output"):
        merge(one, [one, make(tmp_path / "two", order__seed=2)])


def test_another_file_system_needs_references(tmp_path: Path) -> None:
    class Elsewhere(QuickStorage):
        def link(self, existing: Path, path: Path) -> None:
            raise OutputError(f"{path}: can't be written: Invalid cross-device link; choose an output on the same one")

    inputs = [make(tmp_path / f"in{seed}", order__seed=seed) for seed in range(2)]
    with pytest.raises(OutputError, match="or add --refer"):
        merge(tmp_path / "out", inputs, storage=Elsewhere())
    merge(tmp_path / "out", inputs, refer=True, overwrite=True, storage=QUICK)
    assert verify(tmp_path / "out").faults == []


def test_packed_rows_are_not_put_beside_others(tmp_path: Path) -> None:
    one = make(tmp_path / "one")
    two = make(tmp_path / "two", batch={"max_frames": 60, "pack": True, "row_frames": 60})
    assert Dataset(two).index.shards[0].segments is not None
    with pytest.raises(MismatchError, match=r"differs from .* in its rows"):
        merge(tmp_path / "out", [one, two], storage=QUICK)


@pytest.mark.parametrize("refer", [False, True])
def test_a_sidecar_that_is_lost_or_of_another_shard_is_refused(tmp_path: Path, refer: bool) -> None:
    inputs = [make(tmp_path / f"in{seed}", order__seed=seed) for seed in range(2)]
    first, second = sorted(inputs[1].glob("*.idx"))
    shutil.copy(first, second)
    with pytest.raises(CorruptError, match=r"isn't the sidecar that index\.json names; seqprep repair"):
        merge(tmp_path / "out", inputs, refer=refer, storage=QUICK)
    second.unlink()
    with pytest.raises(DatasetError, match="the sidecar can't be read: No such file"):
        merge(tmp_path / "out", inputs, refer=refer, storage=QUICK)
    assert not (tmp_path / "out").exists()
