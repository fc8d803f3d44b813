"""Damaged files of every format: an error of ours that names file and sequence, or right values; never a crash."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import soundfile

from seqprep.types import Array

from . import test_hdf5_layouts as layouts
from .audio_files import noise
from .audio_files import write as write_audio
from .formats import (
    TAGS,
    Corpus,
    Settings,
    corpus,
    write_arrow,
    write_csv_files,
    write_jsonl,
    write_npz_pair,
    write_parquet,
    write_tfrecord,
)
from .hdf5_files import OfLayout
from .kaldi_files import binary, text, write_ark, write_table


class Sample(NamedTuple):
    """A source, of which a file is going to be damaged."""

    settings: Settings
    damaged: Path
    truth: dict[str, dict[str, Array]]
    """By key and tag."""


def write_npy(folder: Path, made: Corpus, order: Any) -> Settings:
    np.save(folder / "all.npy", made["data"][2])
    return {"type": "npz", "path": str(folder / "all.npy")}


def write_one_csv(folder: Path, made: Corpus, order: Any) -> Settings:
    (folder / "files").mkdir()
    settings = write_csv_files(folder / "files", {key: values[2:3] for key, values in made.items()}, ["all"])
    return settings | {"path": str(folder / "files" / "all.csv")}


def of_corpus(write: Callable[..., Settings], folder: Path) -> Sample:
    made = corpus()
    settings = write(folder, made, TAGS)
    truth = {}
    if settings.keys() & {"tag", "tags", "id"}:
        truth = {key: dict(zip(TAGS, values, strict=True)) for key, values in made.items()}
    return Sample(settings, Path(settings["path"]), truth)


def of_layout(layout: type[OfLayout], folder: Path) -> Sample:
    written, path = layout(), folder / "all.h5"
    values = written.values()
    written.make(path, layout.tags, values)
    truth = {key: dict(zip(layout.tags, values[key], strict=True)) for key in layout.keys}
    return Sample({"type": "hdf5", "path": str(path), **layout.options}, path, truth)


def of_archive(damaged: str, name: str, encode: Callable[[Array], bytes], folder: Path) -> Sample:
    tags, values = [tag.replace(" ", "_") for tag in TAGS], corpus()["data"]
    objects = {tag: encode(array) for tag, array in zip(tags, values, strict=True)}
    write_table(folder / "all.scp", write_ark(folder / "all.ark", objects))
    truth = {"data": dict(zip(tags, values, strict=True))}
    return Sample({"type": "kaldi", "path": str(folder / name)}, folder / damaged, truth)


def of_compressed_archive(folder: Path) -> Sample:
    kaldi = pytest.importorskip("kaldi_native_io")
    with kaldi.CompressedMatrixWriter(f"ark,scp:{folder}/all.ark,{folder}/all.scp") as writer:
        for number, array in enumerate(corpus()["data"]):
            writer.write(f"tag-{number}", array if len(array) else array[:, :0], kaldi.CompressionMethod.kSpeechFeature)
    return Sample({"type": "kaldi", "path": str(folder / "all.scp")}, folder / "all.ark", {})


def of_recordings(name: str, folder: Path) -> Sample:
    """Files of one kind, and of these the first; or a list of them."""
    suffix = name if name.startswith(".") else ".wav"
    files = [write_audio(folder / f"{tag}{suffix}", noise(3000, seed=place)) for place, tag in enumerate("ab")]
    truth = {"data": {file.stem: soundfile.read(file, dtype="float32")[0] for file in files}}
    if name == suffix:
        return Sample({"type": "audio", "path": str(folder)}, files[0], truth)
    listed = "".join(f"{file.stem} {file.name}\n" for file in files)
    if name.endswith(".csv"):
        listed = "tag,path,start,speaker\n" + "".join(f"{file.stem},{file.name},0.1,x\n" for file in files)
    (folder / name).write_text(listed)
    return Sample({"type": "audio", "manifest": str(folder / name)}, folder / name, {})


FORMATS: dict[str, tuple[Callable[[Path], Sample], bool]] = {
    "npz": (partial(of_corpus, write_npz_pair), True),
    "npz compressed": (partial(of_corpus, partial(write_npz_pair, save=np.savez_compressed)), True),
    "npy": (partial(of_corpus, write_npy), False),
    "tfrecord": (partial(of_corpus, write_tfrecord), True),
    "tfrecord gzip": (partial(of_corpus, partial(write_tfrecord, name="all.tfrecord.gz")), True),
    "parquet": (partial(of_corpus, write_parquet), False),
    "parquet zstd": (partial(of_corpus, partial(write_parquet, compression="zstd", write_page_checksum=True)), False),
    "arrow": (partial(of_corpus, write_arrow), False),
    "arrow lz4": (partial(of_corpus, partial(write_arrow, compression="lz4")), False),
    "arrow stream": (partial(of_corpus, partial(write_arrow, kind="stream")), False),
    "jsonl": (partial(of_corpus, write_jsonl), False),
    "jsonl gzip": (partial(of_corpus, partial(write_jsonl, name="all.jsonl.gz")), True),
    "csv": (partial(of_corpus, write_one_csv), False),
    "hdf5 flat": (partial(of_layout, layouts.TestFlat), False),
    "hdf5 packed": (partial(of_layout, layouts.TestFlatCompressed), False),
    "hdf5 streams": (partial(of_layout, layouts.TestStreams), False),
    "hdf5 padded": (partial(of_layout, layouts.TestPaddedCompressed), False),
    "hdf5 rows": (partial(of_layout, layouts.TestRowsOfTheirOwnLengths), False),
    "hdf5 groups": (partial(of_layout, layouts.TestAGroupPerSequence), False),
    "kaldi": (partial(of_archive, "all.ark", "all.scp", binary), False),
    "kaldi ark alone": (partial(of_archive, "all.ark", "all.ark", binary), False),
    "kaldi text": (partial(of_archive, "all.ark", "all.ark", text), False),
    "kaldi scp": (partial(of_archive, "all.scp", "all.scp", binary), False),
    "kaldi compressed": (of_compressed_archive, False),
    "audio wav": (partial(of_recordings, ".wav"), False),
    "audio flac": (partial(of_recordings, ".flac"), True),
    "audio ogg": (partial(of_recordings, ".ogg"), True),
    "audio list": (partial(of_recordings, "all.csv"), False),
    "audio scp": (partial(of_recordings, "wav.scp"), False),
}
"""Each with whether a checksum covers its values."""


def write_sample(folder: Path, kind: str) -> None:
    write, has_checksum = FORMATS[kind]
    folder.mkdir()
    (folder / "truth.pickle").write_bytes(pickle.dumps((*write(folder), has_checksum)))


@pytest.mark.parametrize("cases", [40, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", ["np", "tfrecord", "parquet", "arrow", "jsonl", "csv", "hdf5", "kaldi", "audio"])
def test_damaged_files(tmp_path: Path, family: str, cases: int) -> None:
    kinds = [kind for kind in FORMATS if kind.startswith(family)]
    for kind in kinds:
        write_sample(tmp_path / kind, kind)
    child = subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__).with_name("fuzz_child.py")), str(tmp_path), "0", str(cases)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, f"{(tmp_path / 'progress').read_text()}: {child.returncode}\n{child.stderr[-3000:]}"
    outcomes = json.loads(child.stdout)
    assert outcomes.keys() == set(kinds)
    for counts in outcomes.values():
        assert sum(counts.values()) == cases
        assert counts.get("refused", 0) + counts.get("failed", 0) > cases / 10
