from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from seqprep.errors import ConfigError, SourceError
from seqprep.sources.guess import guess_source


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.h5", "hdf5"), ("a.HDF5", "hdf5"), ("a.wav", "audio"), ("a.npz", "npz"), ("a.npy", "npz"),
        ("a.tfrecord", "tfrecord"), ("a.tfrecords.gz", "tfrecord"), ("a.parquet", "parquet"), ("a.arrow", "parquet"),
        ("a.feather", "parquet"),
    ],
)  # fmt: skip
def test_endings(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    assert guess_source(str(path)) == ({"type": kind, "path": str(path)}, None)
    assert guess_source(str(tmp_path)) == ({"type": kind, "path": str(tmp_path)}, None)
    assert guess_source(f"{tmp_path}/*") == ({"type": kind, "path": f"{tmp_path}/*"}, None)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.csv", "tag,path\nx,a.wav\n", "manifest"),
        ("a.csv", '\ufeff"path"\na.wav\n', "manifest"),
        ("a.tsv", "tag\tpath\n", "manifest"),
        ("a.csv", "time,y\n1,2\n", "csv"),
        ("a.csv", "a_path,y\n1,2\n", "csv"),
        ("a.csv", "", "csv"),
        ("a.tsv", "1\t2\n", "csv"),
        ("a.jsonl", '\n{"path": "a.wav"}\n', "manifest"),
        ("a.jsonl", '{"path": [1, 2]}\n', "jsonl"),
        ("a.ndjson", '{"tokens": [1, 2]}\n', "jsonl"),
        ("a.jsonl", "not json", "jsonl"),
    ],
)
def test_text_is_looked_into(tmp_path: Path, name: str, content: str, kind: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    found = guess_source(str(path))
    if kind == "manifest":
        assert found.settings == {"type": "audio", "manifest": str(path)}
        assert "has a " in str(found.reason)
    else:
        assert found.settings == {"type": kind, "path": str(path)}
        assert f"taken as {kind}" in str(found.reason)
    assert guess_source(str(path), "csv").settings == {"type": "csv", "path": str(path)}
    assert guess_source(str(path), "audio").settings == {"type": "audio", "manifest": str(path)}


def test_compressed_text_is_looked_into(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"tokens": [1]}\n'))
    assert guess_source(str(path)).settings == {"type": "jsonl", "path": str(path)}


def test_a_folder_of_several_kinds(tmp_path: Path) -> None:
    for name in ("a.npy", "b.npy", "c.wav", "list.csv", "more.csv", "again.csv", "readme.md"):
        (tmp_path / name).write_bytes(b"")
    found = guess_source(str(tmp_path))
    assert found.settings == {"type": "npz", "path": str(tmp_path)}
    assert "2 files; left out: " in str(found.reason)
    assert "1 of audio" in str(found.reason)
    assert guess_source(str(tmp_path), "csv") == ({"type": "csv", "path": str(tmp_path)}, None)
    for name in ("a.npy", "b.npy", "c.wav"):
        (tmp_path / name).unlink()
    assert guess_source(str(tmp_path)) == ({"type": "csv", "path": str(tmp_path)}, None)


def test_nothing_to_tell_from(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"the folder is empty; check INPUT"):
        guess_source(str(tmp_path))
    for kind in (None, "npz"):
        with pytest.raises(SourceError, match=r"none: no such file or folder; check INPUT"):
            guess_source(str(tmp_path / "none"), kind)
    (tmp_path / "a.xyz").write_bytes(b"")
    for path in (tmp_path, tmp_path / "a.xyz"):
        with pytest.raises(ConfigError, match=r"can't tell what kind of input this is; say it with --source"):
            guess_source(str(path))
    assert guess_source("database", "my.module:Reader").settings == {"type": "my.module:Reader", "path": "database"}
    assert guess_source("synthetic").settings == {"type": "synthetic"}
