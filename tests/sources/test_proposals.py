"""What `seqprep inspect INPUT` proposes for an input of any kind is a configuration that `seqprep chunk` takes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml

from seqprep.cli.main import main
from seqprep.sources.registry import BUILT_IN

from . import formats
from . import test_hdf5_layouts as layouts
from .audio_files import noise, write
from .formats import TAGS, corpus
from .hdf5_files import OfLayout
from .kaldi_files import binary, write_ark, write_table

Write = Callable[[Path], tuple[Path, int]]
"""Writes an input into a folder; gives its path, and how many sequences it has."""


def of_corpus(write_corpus: Callable[..., formats.Settings], folder: Path) -> tuple[Path, int]:
    return Path(write_corpus(folder, corpus(), TAGS)["path"]), len(TAGS)


def of_layout(layout: type[OfLayout], folder: Path) -> tuple[Path, int]:
    written = layout()
    return written.write(folder / "corpus", written.values()), len(written.tags)


def write_npy(folder: Path) -> tuple[Path, int]:
    np.save(folder / "a.npy", np.zeros((50, 3)))
    return folder / "a.npy", 1


def write_long_csv(folder: Path) -> tuple[Path, int]:
    rows = [f"T{series},{step},{step / 7}" for series in range(3) for step in range(20)]
    (folder / "series.csv").write_text("\n".join(["unique_id,step,y", *rows]) + "\n")
    return folder / "series.csv", 3


def write_data_folder(folder: Path) -> tuple[Path, int]:
    objects = {tag: binary(np.zeros((40, 3), np.float32)) for tag in "abc"}
    write_table(folder / "feats.scp", write_ark(folder / "feats.ark", objects))
    write_table(folder / "wav.scp", dict.fromkeys("abc", "missing.wav"))
    write_table(folder / "utt2spk", dict.fromkeys("abc", "ann"))
    return folder, 3


def write_recordings(name: str, folder: Path) -> tuple[Path, int]:
    """A folder, a list of its files, or Kaldi's."""
    for tag in "ab":
        write(folder / f"{tag}{'.flac' if name == 'flac' else '.wav'}", noise(4000))
    if name == "list":
        (folder / "list.csv").write_text("path,speaker\na.wav,x\nb.wav,y\n")
        return folder / "list.csv", 2
    if name in ("wav.scp", "folder of wav.scp"):
        (folder / "data").mkdir()
        write_table(folder / "data/wav.scp", {tag: folder / f"{tag}.wav" for tag in "ab"})
        return folder / "data/wav.scp" if name == "wav.scp" else folder / "data", 2
    return folder, 2


INPUTS: dict[str, tuple[str, Write]] = {
    "npz": ("npz", partial(of_corpus, formats.write_npz_files)),
    "npy": ("npz", write_npy),
    "tfrecord": ("tfrecord", partial(of_corpus, formats.write_tfrecord)),
    "tfrecord, gzip": ("tfrecord", partial(of_corpus, partial(formats.write_tfrecord, name="all.tfrecord.gz"))),
    "parquet": ("parquet", partial(of_corpus, formats.write_parquet)),
    "arrow": ("parquet", partial(of_corpus, formats.write_arrow)),
    "jsonl": ("jsonl", partial(of_corpus, formats.write_jsonl)),
    "csv": ("csv", partial(of_corpus, formats.write_csv_files)),
    "csv, long": ("csv", write_long_csv),
    "kaldi folder": ("kaldi", write_data_folder),
    "kaldi scp": ("kaldi", lambda folder: (write_data_folder(folder)[0] / "feats.scp", 3)),
    "kaldi ark": ("kaldi", lambda folder: (write_data_folder(folder)[0] / "feats.ark", 3)),
    **{f"audio, {name}": ("audio", partial(write_recordings, name))
       for name in ("wav", "flac", "list", "wav.scp", "folder of wav.scp")},
    **{f"hdf5, {name}": ("hdf5", partial(of_layout, getattr(layouts, name)))
       for name in ("TestFlat", "TestTargetsAlone", "TestStreams", "TestLengths", "TestPadded", "TestADatasetPerSequence",
                    "TestRowsOfTheirOwnLengths", "TestAGroupPerSequence", "TestAGroupPerKey", "TestAFilePerSequence")},
    "synthetic": ("synthetic", lambda folder: (Path("synthetic"), 1000)),
}  # fmt: skip


def test_every_reader_is_here() -> None:
    assert {kind for kind, _ in INPUTS.values()} == set(BUILT_IN)


@pytest.mark.parametrize("name", INPUTS)
def test_what_is_proposed_can_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, error = capsys.readouterr()
        assert not ended.value.code, error
        return out

    monkeypatch.chdir(tmp_path)
    (tmp_path / "input").mkdir()
    kind, write_input = INPUTS[name]
    path, sequences = write_input(tmp_path / "input")
    described = json.loads(run("inspect", str(path), "--json"))
    assert described["source"]["type"] == kind
    assert described["sequences"] == sequences
    proposed = yaml.safe_load(described["configuration"])
    if kind == "synthetic":
        proposed["source"]["sequences"] = sequences = 20
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(proposed, sort_keys=False))
    summary = json.loads(run("chunk", "config.yaml", "--json", "--workers", "1"))
    assert summary["sequences"] == sequences
    assert summary["rows"] > 0
    shutil.rmtree(tmp_path / "shards")
