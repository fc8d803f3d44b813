"""Rows become sequences again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from seqprep import convert, export, merge, repair
from seqprep.errors import BusyError, ConfigError, DatasetError, MismatchError, OutputError
from seqprep.shards import FolderLock, Storage
from seqprep.sources import open_source
from tests.shards.shards import KINDS

from .small import QUICK, arrays, content, corpus, make, small
from .systems import QuickStorage


def assert_exported(folder: Path, settings: dict[str, Any], base: int = 0) -> None:
    source = open_source(settings)
    listed = json.loads((folder / "export.json").read_text(encoding="utf-8"))["sequences"]
    for number, tag in enumerate(source.tags):
        entry = listed[base + number]
        assert entry["seq_tag"] == tag
        with np.load(folder / entry["file"]) as found:
            assert found["seq_tag"] == tag
            assert set(found.files) == {*source.keys, "seq_tag"}
            for key, spec in source.keys.items():
                np.testing.assert_array_equal(found[key], source.read(key, number), strict=True)
                assert found[key].dtype.name == spec.dtype


@pytest.mark.parametrize(("format", "compression"), KINDS)
@pytest.mark.parametrize("chunk", [{"size": 10, "step": 5}, {"size": 6, "step": 6}, None])
def test_exported_sequences_equal_the_source(tmp_path: Path, format: str, compression: str, chunk: Any) -> None:
    source = corpus(tmp_path / "corpus.hdf", frames=(23, 9, 7, 40))
    folder = make(tmp_path / "out", format, compression, source=source, chunk=chunk)
    result = export(folder, tmp_path / "npz", storage=QUICK)
    assert (result.sequences, result.frames, result.format) == (4, 79, "npz")
    assert_exported(tmp_path / "npz", source)
    assert export(folder, tmp_path / "flat.h5", storage=QUICK).format == "hdf5"
    flat = open_source({"type": "hdf5", "path": str(tmp_path / "flat.h5")})
    original = open_source(source)
    assert flat.tags == original.tags
    for number in range(4):
        for key in original.keys:
            np.testing.assert_array_equal(flat.read(key, number), original.read(key, number), strict=True)


def test_what_is_exported_can_be_chunked_again(tmp_path: Path) -> None:
    folder = make(tmp_path / "out")
    export(folder, tmp_path / "flat.hdf")
    again = make(tmp_path / "again", source={"type": "hdf5", "path": str(tmp_path / "flat.hdf")})
    assert arrays(again) == arrays(folder)


def test_keys_without_time_bfloat16_and_chosen_keys(tmp_path: Path) -> None:
    from seqprep.types import KeySpec
    from tests.shards.shards import make_content, write_dataset

    keys = {"data": KeySpec(dtype="bfloat16", shape=(2,)), "speaker": KeySpec(dtype="int64", has_time=False)}
    made = make_content(keys, [3], [5])
    fields = made.table.fields
    fields["seq_idx"][:] = [2, 0, 1]
    fields["data/start"][:] = 0
    fields["data/length"][:] = fields["data/core"][:, 1]
    write_dataset(tmp_path / "in", made, "hdf5")
    index = json.loads((tmp_path / "in" / "index.json").read_bytes())
    assert index["statistics"]["sequences"] == 1 << 40
    from tests.shards.test_versions import write_index

    write_index(tmp_path / "in" / "index.json", {"statistics": index["statistics"] | {"sequences": 3}})
    export(tmp_path / "in", tmp_path / "npz")
    export(tmp_path / "in", tmp_path / "flat.h5")
    listed = json.loads((tmp_path / "npz" / "export.json").read_text(encoding="utf-8"))["sequences"]
    with h5py.File(tmp_path / "flat.h5") as flat:
        lengths = np.append(0, np.cumsum(flat["seqLengths"][:, 0]))
        for row, place in enumerate([2, 0, 1]):
            left, core = fields["data/core"][row]
            due = made.batches[0]["data"][row, left : left + core].astype(np.float32)
            with np.load(tmp_path / "npz" / listed[place]["file"]) as found:
                assert found["data"].tobytes() == due.tobytes()
                assert found["speaker"] == made.batches[0]["speaker"][row]
            assert flat["inputs"][lengths[place] : lengths[place + 1]].tobytes() == due.tobytes()
            assert flat["values/speaker"][place] == made.batches[0]["speaker"][row]
    export(tmp_path / "in", tmp_path / "only", keys=["data"])
    with np.load(tmp_path / "only" / listed[0]["file"]) as found:
        assert set(found.files) == {"data", "seq_tag"}
    with pytest.raises(ConfigError, match="no key 'dat'; did you mean 'data'"):
        export(tmp_path / "in", tmp_path / "x", keys=["dat"])
    with pytest.raises(ConfigError, match="none of the keys to export has a time axis"):
        export(tmp_path / "in", tmp_path / "x", keys=["speaker"])


def test_gaps_are_an_error_or_nan(tmp_path: Path) -> None:
    source = corpus(tmp_path / "corpus.hdf", frames=(23, 9))
    folder = make(tmp_path / "out", source=source, chunk={"size": 4, "step": 5}, context=0)
    with pytest.raises(DatasetError, match=r"key 'data': \d+ frames are in no row, the first is 4"):
        export(folder, tmp_path / "npz")
    assert not (tmp_path / "npz" / "export.json").exists()
    with pytest.raises(DatasetError, match="int32 knows no NaN; leave the key out"):
        export(folder, tmp_path / "npz", gaps="nan")
    export(folder, tmp_path / "npz", gaps="nan", keys=["data"], overwrite=True)
    listed = json.loads((tmp_path / "npz" / "export.json").read_text(encoding="utf-8"))["sequences"]
    with np.load(tmp_path / "npz" / listed[0]["file"]) as found:
        missing = np.isnan(found["data"]).all(axis=1)
        assert np.flatnonzero(missing).tolist() == [4, 9, 14, 19]
        kept = open_source(source).read("data", 0)[~missing]
        np.testing.assert_array_equal(found["data"][~missing], kept)
    export(folder, tmp_path / "flat.h5", gaps="nan", keys=["data"])
    with pytest.raises(DatasetError, match="are in no row"):
        export(folder, tmp_path / "bad.h5")
    assert not list(tmp_path.glob("bad.h5*"))


def test_rows_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    from seqprep.types import KeySpec
    from tests.shards.shards import make_content, write_dataset

    made = make_content({"data": KeySpec(dtype="int64")}, [2], [4])
    made.table.fields["seq_idx"][:] = 0
    made.table.fields["data/core"][:] = [[0, 4], [0, 4]]
    made.table.fields["data/start"][:] = [0, 2]
    made.table.fields["data/length"][:] = 6
    write_dataset(tmp_path / "in", made, "tfrecord")
    from tests.shards.test_versions import write_index

    statistics = json.loads((tmp_path / "in" / "index.json").read_bytes())["statistics"]
    write_index(tmp_path / "in" / "index.json", {"statistics": statistics | {"sequences": 1}})
    with pytest.raises(DatasetError, match=r"key 'data', frame 2: rows hold different values"):
        export(tmp_path / "in", tmp_path / "npz")


@pytest.mark.parametrize("refer", [False, True])
def test_a_merged_dataset_is_exported_run_by_run(tmp_path: Path, refer: bool) -> None:
    sources = [corpus(tmp_path / f"{seed}.hdf", frames=(23, 9), seed=seed) for seed in range(2)]
    inputs = [make(tmp_path / f"in{seed}", source=source) for seed, source in enumerate(sources)]
    merge(tmp_path / "merged", inputs, refer=refer, storage=QUICK)
    convert(tmp_path / "merged", tmp_path / "out", format="tfrecord", shard_bytes=10**9, storage=QUICK)
    export(tmp_path / "out", tmp_path / "npz", storage=QUICK)
    for number, source in enumerate(sources):
        assert_exported(tmp_path / "npz", source, base=2 * number)


def test_nothing_is_replaced_unless_told(tmp_path: Path) -> None:
    folder = make(tmp_path / "out")
    (tmp_path / "npz").mkdir()
    (tmp_path / "npz" / "mine.txt").write_text("keep me")
    (tmp_path / "flat.h5").write_text("keep me")
    for target in ("npz", "flat.h5"):
        with pytest.raises(MismatchError, match="choose another output, or add --overwrite"):
            export(folder, tmp_path / target)
    assert (tmp_path / "flat.h5").read_text() == "keep me"
    export(folder, tmp_path / "npz", overwrite=True, storage=QUICK)
    first = content(tmp_path / "npz")
    other = make(tmp_path / "other", source={**small(tmp_path)["source"], "sequences": 3})
    export(other, tmp_path / "npz", overwrite=True, storage=QUICK)
    second = content(tmp_path / "npz")
    assert len(first) == 6 + 2
    assert len(second) == 3 + 2
    assert second["mine.txt"] == b"keep me"


def test_an_export_goes_on_after_a_failure(tmp_path: Path) -> None:
    folder = make(tmp_path / "out")
    export(folder, tmp_path / "model", storage=QUICK)

    class Stopping(QuickStorage):
        left = 4

        def write_file(self, path: Path, data: bytes, sync: bool = True) -> None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            Storage.write_file(self, path, data, sync)

    with pytest.raises(KeyboardInterrupt):
        export(folder, tmp_path / "npz", storage=Stopping())
    assert not (tmp_path / "npz" / "export.json").exists()
    export(folder, tmp_path / "npz", storage=QUICK)
    assert content(tmp_path / "npz") == content(tmp_path / "model")
    assert os.listdir(tmp_path / "npz")


def test_what_an_export_leaves_that_was_killed_is_no_hindrance_and_goes(tmp_path: Path) -> None:
    folder, out = make(tmp_path / "out"), tmp_path / "npz"
    out.mkdir()
    for name in ("seqprep.lock", "export.unfinished.partial"):  # before it could say what it was
        (out / name).write_bytes(b"")
    export(folder, out, storage=QUICK)
    whole = content(out)
    (out / "export.unfinished").write_text("of something else")
    (out / "00000099-later.npz.partial").write_bytes(b"cut off")
    export(folder, out, overwrite=True, storage=QUICK)
    assert content(out) == whole


def test_only_files_of_exports_are_replaced(tmp_path: Path) -> None:
    folder, out = make(tmp_path / "out"), tmp_path / "npz"
    out.mkdir()
    mine = [out / name for name in ("2024-run.npz", "20240101-run.npz", "1-.npz.partial")]
    for path in mine:
        path.write_bytes(b"keep me")
    for _ in range(2):
        export(folder, out, overwrite=True, storage=QUICK)
        assert all(path.read_bytes() == b"keep me" for path in mine)


def test_a_stopped_export_keeps_the_files_of_others_too(tmp_path: Path) -> None:
    folder, out = make(tmp_path / "out"), tmp_path / "npz"
    out.mkdir()
    mine = out / "20240101-run.npz"
    mine.write_bytes(b"keep me")

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            export(folder, out, overwrite=True, storage=QUICK, progress=stop)
        assert (out / "export.unfinished").exists()
        assert mine.read_bytes() == b"keep me"
    export(folder, out, storage=QUICK)
    assert mine.read_bytes() == b"keep me"
    assert not (out / "export.unfinished").exists()


def test_one_file_is_written_by_one_export_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, flat = make(tmp_path / "out"), tmp_path / "flat.h5"
    monkeypatch.setattr("seqprep.shards.lock._ORPHANS_SECONDS", 0.0)
    with (
        FolderLock(tmp_path, QUICK, flat.name),
        pytest.raises(BusyError, match=r"flat\.h5: another run is writing there"),
    ):
        export(folder, flat, storage=QUICK)
    assert not flat.exists()
    with FolderLock(tmp_path, QUICK, flat.name):
        export(folder, tmp_path / "other.h5", storage=QUICK)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.h5", "out"]


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".h5"])
def test_a_name_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    made = make(tmp_path / "made")
    with pytest.raises(OutputError, match="File name too long"):
        export(made, tmp_path / name)
    with pytest.raises(DatasetError, match="no such folder"):
        repair(tmp_path / ("x" * 300))
