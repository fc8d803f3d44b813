"""Labels per frame beside audio: .npy and .txt files that a manifest names, and Kaldi's alignments."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import seqprep
from seqprep.errors import ConfigError, SourceError
from seqprep.sources import Source
from seqprep.types import Array

from .audio_files import audio, listed, noise, write
from .kaldi_files import binary, write_ark, write_table
from .source_contract import SourceContract, Truth

LENGTHS = (4000, 2500, 8000)
LABELS = [np.random.default_rng(1).integers(0, 5, length // 240).astype(np.int32) for length in LENGTHS]


def write_manifest(folder: Path, columns: dict[str, list[str]]) -> Path:
    """A manifest of three recordings with these columns."""
    for number, length in enumerate(LENGTHS):
        write(folder / f"{number}.wav", noise(length, seed=number))
    rows = [[f"{number}.wav", *(values[number] for values in columns.values())] for number in range(3)]
    manifest = folder / "all.csv"
    manifest.write_text("\n".join(map(",".join, [["path", *columns], *rows])) + "\n", encoding="utf-8")
    return manifest


class OfTargets(SourceContract):
    """Raw samples with a label for every 240."""

    reader = "audio"
    targets: ClassVar[dict[str, str]] = {"ali": "labels"}

    def write_labels(self, folder: Path, labels: list[Array]) -> dict[str, list[str]]:
        raise NotImplementedError

    def write(self, folder: Path, labels: list[Array]) -> Path:
        return write_manifest(folder, self.write_labels(folder, labels))

    @pytest.fixture
    def truth(self) -> Truth:
        return {"data": [noise(length, seed=number) for number, length in enumerate(LENGTHS)], "ali": LABELS}

    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        return listed(self.write(tmp_path, LABELS), targets=self.targets, sample_type="int16")

    @pytest.fixture
    def reopen(self, tmp_path: Path, source: Source) -> Callable[[], Source]:
        return lambda: listed(tmp_path / "all.csv", targets=self.targets, sample_type="int16")

    @pytest.fixture
    def changed(self, tmp_path: Path) -> Callable[[], Source]:
        labels = [LABELS[0] + 1, *LABELS[1:]]
        return lambda: listed(self.write(tmp_path, labels), targets=self.targets, sample_type="int16")


class TestArrays(OfTargets):
    def write_labels(self, folder: Path, labels: list[Array]) -> dict[str, list[str]]:
        for number, array in enumerate(labels):
            np.save(folder / f"{number}.npy", array)
        return {"labels": [f"{number}.npy" for number in range(3)]}


class TestText(OfTargets):
    def write_labels(self, folder: Path, labels: list[Array]) -> dict[str, list[str]]:
        for number, array in enumerate(labels):
            (folder / f"{number}.txt").write_text("\n".join(map(str, array.tolist())), encoding="utf-8")
        return {"labels": [f"{number}.txt" for number in range(3)]}


class TestNames(OfTargets):
    words = ("aː", "b", "sil", "x", "z")

    def write_labels(self, folder: Path, labels: list[Array]) -> dict[str, list[str]]:
        for number, array in enumerate(labels):
            words = [self.words[label % 5] for label in array]
            (folder / f"{number}.txt").write_text(" ".join(words), encoding="utf-8")
        return {"labels": [f"{number}.txt" for number in range(3)]}

    @pytest.fixture
    def truth(self) -> Truth:
        order = np.argsort(np.argsort(self.words)).astype(np.int32)
        samples = [noise(length, seed=number) for number, length in enumerate(LENGTHS)]
        return {"data": samples, "ali": [order[labels] for labels in LABELS]}

    def test_names_are_kept(self, source: Source) -> None:
        assert source.keys["ali"].labels == tuple(sorted(self.words))


class TestAlignments(OfTargets):
    def write_labels(self, folder: Path, labels: list[Array]) -> dict[str, list[str]]:
        objects = {str(number): binary(labels[number]) for number in (2, 0, 1)}
        type(self).targets = {"ali": str(write_table(folder / "ali.scp", write_ark(folder / "ali.ark", objects)))}
        return {}


def test_alignments_of_real_recordings(shared_data: Path, tmp_path: Path) -> None:
    """Features and alignments of the same recordings, at a third of the rate, chunked frame by frame."""
    from .kaldi_files import opened

    alignments = opened(shared_data / "kaldi" / "ali.scp")
    features = opened(shared_data / "kaldi" / "feats.scp")
    write_table(tmp_path / "wav.scp", {tag: shared_data / "fsdd" / f"{tag}.wav" for tag in alignments.tags})
    source = {
        "type": "audio",
        "manifest": str(tmp_path / "wav.scp"),
        "features": {"bins": 23, "snip_edges": False},
        "targets": {"ali": str(shared_data / "kaldi" / "ali.scp")},
    }
    own = seqprep.sources.open_source(source)  # type: ignore[attr-defined]
    assert own.lengths("data").tolist() == features.lengths("data").tolist()
    for place in range(len(own.tags)):
        np.testing.assert_allclose(own.read("data", place), features.read("data", place), atol=2e-3)
    seqprep.chunk(
        {
            "source": source,
            "keys": {"data": {}, "ali": {"rate": 3}},
            "chunk": {"size": 9, "step": 9},
            "batch": {"max_sequences": 10},
            "output": {"path": str(tmp_path / "out")},
        }
    )
    with seqprep.Loader(tmp_path / "out") as loader:
        for batch in loader:
            for row, sequence in enumerate(batch["seq_idx"].tolist()):
                start, size = int(batch["ali/start"][row]), int(batch["ali/size0"][row])
                expected = alignments.read("data", sequence)[start : start + size]
                assert np.array_equal(batch["ali"][row, :size], expected)


def test_targets_of_listed_files(tmp_path: Path) -> None:
    write_manifest(tmp_path, {})
    ark = tmp_path / "ali.ark"
    write_ark(ark, {str(number): binary(labels) for number, labels in enumerate(LABELS)})
    source = audio(tmp_path / "*.wav", targets={"ali": str(ark)})
    assert np.array_equal(source.read("ali", 2), LABELS[2])
    write_ark(ark, {"0": binary(LABELS[0]), "2": binary(LABELS[2])})
    with pytest.raises(SourceError, match=r"ali\.ark: sequence '1' isn't in it \(1 such\); complete it"):
        audio(tmp_path / "*.wav", targets={"ali": str(ark)})


def test_several_values_per_frame(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.arange(12.0).reshape(4, 3) + number)
    source = listed(write_manifest(tmp_path, {"f0": [f"{number}.npy" for number in range(3)]}), targets={"f0": "f0"})
    assert (source.keys["f0"].dtype, source.keys["f0"].shape) == ("float64", (3,))
    assert source.read("f0", 1)[2].tolist() == [7, 8, 9]


def test_numbers_as_text(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("1 2.5\n-3e-1\n")
    source = listed(write_manifest(tmp_path, {"f0": ["0.txt", "1.txt", "2.txt"]}), targets={"f0": "f0"})
    assert source.keys["f0"].dtype == "float32"
    assert source.read("f0", 1).tolist() == [1, 2.5, np.float32(-0.3)]


class Evil:
    """Says that it was loaded."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, ("raise AssertionError('unpickled')",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            np.array([Evil()], object),
            r"0\.npy: it holds object \[1\]; store plain numbers, time first, with numpy\.save",
        ),
        (np.array(5), r"0\.npy: it holds int64 \[\]; store plain numbers"),
        (np.array(["a"]), r"0\.npy: it holds <U1 \[1\]; store plain numbers"),
        (np.zeros((3, 2), order="F"), r"0\.npy: it holds float64 \[3, 2\] in columns; store plain numbers"),
        (np.zeros(3, ">f4"), r"0\.npy: it holds >f4 \[3\]; store plain numbers"),
        (
            np.zeros((3, 2), np.int32),
            r"1\.npy: it holds int32 with frames of \[\], but .*0\.npy int32 of \[2\]; make them",
        ),
        (b"\x93NUMPY\x01\x00v\x00{'descr': oh", r"0\.npy: can't be read as an array: .*; store plain numbers"),
        (b"", r"0\.npy: can't be read as an array"),
        (None, r"0\.npy: can't be read as an array: .*No such file"),
    ],
)
def test_arrays_that_are_no_labels(tmp_path: Path, content: Any, message: str) -> None:
    manifest = write_manifest(tmp_path, {"labels": ["0.npy", "1.npy", "2.npy"]})
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", LABELS[number])
    if isinstance(content, bytes):
        (tmp_path / "0.npy").write_bytes(content)
    elif content is None:
        (tmp_path / "0.npy").unlink()
    else:
        np.save(tmp_path / "0.npy", content, allow_pickle=content.dtype == object)
    with pytest.raises(SourceError, match=message) as caught:
        listed(manifest, targets={"ali": "labels"})
    assert "\n" not in str(caught.value)


def test_arrays_cut_off_before_and_after(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, {"labels": ["0.npy", "1.npy", "2.npy"]})
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", LABELS[number])
    source = listed(manifest, targets={"ali": "labels"})
    content = (tmp_path / "2.npy").read_bytes()
    (tmp_path / "2.npy").write_bytes(content[:-5])
    with pytest.raises(SourceError, match=r"2\.npy: cut off: its header tells of \[33\]; restore it"):
        listed(manifest, targets={"ali": "labels"})
    with pytest.raises(SourceError, match=r"2\.npy: can't be read: the file ends inside it; it changed since"):
        source.read("ali", 2)
    pickle.loads(pickle.dumps(source)).read("ali", 1)


def test_text_that_changes(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, {"labels": ["0.txt", "1.txt", "2.txt"]})
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("a b c")
    source = listed(manifest, targets={"ali": "labels"})
    for text in ("a b", "a b new"):
        (tmp_path / "1.txt").write_text(text)
        with pytest.raises(
            SourceError, match=r"1\.txt: can't be read: .*; it changed since it was opened, start again"
        ):
            source.read("ali", 1)
    (tmp_path / "1.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(SourceError, match=r"line 3: .*1\.txt: can't be read as labels: .*codec can't decode"):
        listed(manifest, targets={"ali": "labels"})
    np.save(tmp_path / "1.npy", LABELS[1])
    (tmp_path / "all.csv").write_text("path,labels\n0.wav,0.txt\n1.wav,1.npy\n")
    with pytest.raises(SourceError, match=r"1\.npy: a \.npy file among text files; give files of one kind"):
        listed(manifest, targets={"ali": "labels"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"manifest": "m.csv", "targets": {"data": "x"}}, r"source.targets names a key 'data', which holds the audio"),
        (
            {"manifest": "m.csv", "targets": {"a": "x"}, "labels": ["a"]},
            r"source.targets and source.labels both name a key 'a'",
        ),
        (
            {"path": "x", "targets": {"a": "x"}},
            r"source.targets.a is 'x': without a manifest of columns it names a Kaldi",
        ),
        ({"manifest": "wav.scp", "targets": {"a": "x"}}, r"source.targets.a is 'x': without a manifest of columns"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        seqprep.sources.open_source({"type": "audio", **options})  # type: ignore[attr-defined]
