"""Every kind of Kaldi's archives keeps the contract of sources."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from seqprep.sources import Source
from seqprep.types import Array

from .kaldi_files import binary, opened, text, write_ark, write_table
from .source_contract import LARGE_BYTES, MANY_FILES, SourceContract, Truth

TAGS = ("corpus/rec-0/über", "b", "日本", "e\u00a0f", "z")
LENGTHS = (31, 0, 7, 100, 1)


def features(lengths: tuple[int, ...] = LENGTHS, seed: int = 0, columns: int = 5) -> list[Array]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal((length, columns)).astype(np.float32) for length in lengths]


def labels(lengths: tuple[int, ...] = LENGTHS, rate: int = 3) -> list[Array]:
    draw = np.random.default_rng(1)
    return [draw.integers(-3, 2**31 - 1, -(-length // rate)).astype(np.int32) for length in lengths]


class OfArchives(SourceContract):
    """Features in two archives behind one scp file, and labels in another order."""

    reader = "kaldi"
    encode: Callable[[Array], bytes] = staticmethod(binary)
    options: ClassVar[Mapping[str, Any]] = {}

    def values(self) -> dict[str, list[Array]]:
        return {"data": features(), "classes": labels()}

    def write(self, folder: Path, values: Mapping[str, list[Array]], tags: tuple[str, ...] = TAGS) -> dict[str, Path]:
        folder.mkdir(exist_ok=True)
        paths = {}
        for key, arrays in values.items():
            objects = {tag: type(self).encode(array) for tag, array in zip(tags, arrays, strict=True)}
            order = tags if key == next(iter(values)) else tags[::-1]
            places = {}
            for number, part in enumerate((order[:3], order[3:])):
                places |= write_ark(folder / f"{key}.{number}.ark", {tag: objects[tag] for tag in part})
            paths[key] = write_table(folder / f"{key}.scp", {tag: places[tag] for tag in order})
        return paths

    def open(self, paths: Mapping[str, Path]) -> Source:
        return opened(dict(paths), **self.options)

    @pytest.fixture
    def paths(self, tmp_path: Path) -> dict[str, Path]:
        return self.write(tmp_path / "archives", self.values())

    @pytest.fixture
    def truth(self) -> Truth:
        return self.values()

    @pytest.fixture
    def source(self, paths: dict[str, Path]) -> Source:
        return self.open(paths)

    @pytest.fixture
    def reopen(self, paths: dict[str, Path]) -> Callable[[], Source]:
        return lambda: self.open(paths)

    @pytest.fixture
    def changed(self, tmp_path: Path, paths: dict[str, Path]) -> Callable[[], Source]:
        def change() -> Source:
            values = self.values()
            next(iter(values.values()))[0][...] += 1
            assert self.write(tmp_path / "archives", values) == paths
            return self.open(paths)

        return change

    @pytest.fixture
    def names(self) -> list[str]:
        return list(TAGS)

    @pytest.fixture
    def twice(self, tmp_path: Path) -> Callable[[], Source]:
        arrays = next(iter(self.values().values()))
        for name, tags in (("one", ("a", "double")), ("two", ("double", "c"))):
            write_ark(tmp_path / f"{name}.ark", dict(zip(tags, map(type(self).encode, arrays[:2]), strict=True)))
        return lambda: opened(tmp_path / "*.ark")

    @pytest.fixture
    def large(self, tmp_path: Path) -> Callable[[], Source]:
        (tmp_path / "large").mkdir()
        lengths = (LARGE_BYTES // 3 // 16,) * 5
        paths = self.write(tmp_path / "large", {"data": features(lengths, columns=4)})
        return lambda: opened(paths)


class TestFloatMatrices(OfArchives):
    @pytest.fixture
    def many(self, tmp_path: Path) -> Callable[[], Source]:
        place = write_ark(tmp_path / "0.ark", {"x": binary(features()[0])})["x"]
        for number in range(1, MANY_FILES):
            os.link(tmp_path / "0.ark", tmp_path / f"{number}.ark")
        offset = place.partition(":")[2]
        scp = write_table(
            tmp_path / "all.scp", {f"tag-{number}": f"{number}.ark:{offset}" for number in range(MANY_FILES)}
        )
        return lambda: opened(scp)


class TestDoubleMatrices(OfArchives):
    def values(self) -> dict[str, list[Array]]:
        return {"data": [array.astype(np.float64) for array in features()], "classes": labels()}


class TestVectors(OfArchives):
    """Such as pitch, or voiced or not: a value per frame."""

    def values(self) -> dict[str, list[Array]]:
        return {
            "data": [array[:, 0].copy() for array in features()],
            "other": [array[:, 1].astype(float) for array in features()],
        }


class TestText(OfArchives):
    encode = staticmethod(text)

    @pytest.fixture
    def large(self) -> Callable[[], Source]:
        pytest.skip("text has no header")


class TestCountsOfFrames(OfArchives):
    """A data folder whose utt2num_frames saves the headers."""

    def values(self) -> dict[str, list[Array]]:
        return {"data": features()}

    def write(self, folder: Path, values: Mapping[str, list[Array]], tags: tuple[str, ...] = TAGS) -> dict[str, Path]:
        super().write(folder, values, tags)["data"].rename(folder / "feats.scp")
        write_table(
            folder / "utt2num_frames", {tag: len(array) for tag, array in zip(tags, values["data"], strict=True)}
        )
        return {"data": folder}


class TestArchivesAlone(OfArchives):
    def values(self) -> dict[str, list[Array]]:
        return {"data": features()}

    def write(self, folder: Path, values: Mapping[str, list[Array]], tags: tuple[str, ...] = TAGS) -> dict[str, Path]:
        super().write(folder, values, tags)["data"].unlink()
        return {"data": folder}


class TestTextAlone(TestArchivesAlone):
    encode = staticmethod(text)

    @pytest.fixture
    def large(self) -> Callable[[], Source]:
        pytest.skip("text has no header")


class TestIntegersAsText(TestTextAlone):
    def values(self) -> dict[str, list[Array]]:
        return {"data": labels()}


class TestRanges(OfArchives):
    """Rows and columns of the objects, as subsegments have them."""

    def values(self) -> dict[str, list[Array]]:
        whole = features((40, 20, 30, 110, 11))
        return {
            "data": [
                whole[0][3:34, 1:4],
                whole[1][:, 1:4],
                whole[2][10:17, 1:4],
                whole[3][9:109, 1:4],
                whole[4][10:, 1:4],
            ]
        }

    def write(self, folder: Path, values: Mapping[str, list[Array]], tags: tuple[str, ...] = TAGS) -> dict[str, Path]:
        folder.mkdir(exist_ok=True)
        whole = features((40, 20, 30, 110, 11))
        whole[0][3:34, 1:4] = values["data"][0]
        places = write_ark(folder / "a.ark", {tag: binary(array) for tag, array in zip(tags, whole, strict=True)})
        spans = ("[3:33,1:3]", "[,1:3]", "[10:16,1:3]", "[9:108,1:3]", "[10:13,1:3]")  # the last goes beyond by 3
        rows = {tag: place + span for (tag, place), span in zip(places.items(), spans, strict=True)}
        return {"data": write_table(folder / "a.scp", rows)}

    @pytest.fixture
    def large(self) -> Callable[[], Source]:
        pytest.skip("as without ranges")

    @pytest.fixture
    def twice(self) -> Callable[[], Source]:
        pytest.skip("as without ranges")


class TestSegments(OfArchives):
    """Stretches of recordings, ten rows a second."""

    def values(self) -> dict[str, list[Array]]:
        recordings = features((140, 101))
        return {
            "data": [
                recordings[0][12:43],
                recordings[0][5:5],
                recordings[1][:7],
                recordings[1][1:],
                recordings[0][139:],
            ]
        }

    def write(self, folder: Path, values: Mapping[str, list[Array]], tags: tuple[str, ...] = TAGS) -> dict[str, Path]:
        folder.mkdir(exist_ok=True)
        recordings = features((140, 101))
        recordings[0][12:43] = values["data"][0]
        places = write_ark(folder / "a.ark", {"one": binary(recordings[0]), "two": binary(recordings[1])})
        spans = ("one 1.2 4.30", "one 0.5 0.5", "two 0 0.7", "two 0.1 -1", "one 13.9 14.4")
        write_table(folder / "segments", dict(zip(tags, spans, strict=True)))
        write_table(folder / "feats.scp", places)
        return {"data": folder}

    options: ClassVar[Mapping[str, Any]] = {"frame_rate": 10.0}

    @pytest.fixture
    def large(self) -> Callable[[], Source]:
        pytest.skip("as without segments")

    @pytest.fixture
    def twice(self) -> Callable[[], Source]:
        pytest.skip("as without segments")


class TestCommands(OfArchives):
    options: ClassVar[Mapping[str, Any]] = {"allow_pipes": True}

    def values(self) -> dict[str, list[Array]]:
        return {"data": features()}

    def write(self, folder: Path, values: Mapping[str, list[Array]], tags: tuple[str, ...] = TAGS) -> dict[str, Path]:
        folder.mkdir(exist_ok=True)
        for number, array in enumerate(values["data"]):
            (folder / f"{number}.mat").write_bytes(binary(array))
        commands = {tag: f"cat '{folder}/{number}.mat' |" for number, tag in enumerate(tags)}
        return {"data": write_table(folder / "a.scp", commands)}

    @pytest.fixture
    def large(self) -> Callable[[], Source]:
        pytest.skip("a command has to run to its end")

    @pytest.mark.slow
    def test_open_files_stay_flat(self, source: Source, truth: Truth) -> None:
        super().test_open_files_stay_flat(source, truth)


class TestCompressed(OfArchives):
    """Written and read by another package; the values have to be the same to the last bit."""

    method: ClassVar[str] = "kSpeechFeature"

    def values(self) -> dict[str, list[Array]]:
        return {"data": [array * 30 for array in features()]}

    def write(self, folder: Path, values: Mapping[str, list[Array]], tags: tuple[str, ...] = TAGS) -> dict[str, Path]:
        kaldi = pytest.importorskip("kaldi_native_io")
        folder.mkdir(exist_ok=True)
        with kaldi.CompressedMatrixWriter(f"ark,scp:{folder}/a.ark,{folder}/a.scp") as writer:
            for tag, array in zip(tags, values["data"], strict=True):
                writer.write(tag, array if len(array) else array[:, :0], getattr(kaldi.CompressionMethod, self.method))
        return {"data": folder / "a.scp"}

    @pytest.fixture
    def truth(self, paths: dict[str, Path]) -> Truth:
        kaldi = pytest.importorskip("kaldi_native_io")
        with kaldi.SequentialFloatMatrixReader(f"scp:{paths['data']}") as reader:
            read = [np.array(array) for _, array in reader]
        return {"data": [array.reshape(-1, 5) for array in read]}


class TestCompressedToTwoBytes(TestCompressed):
    method = "kTwoByteAuto"


class TestCompressedToOneByte(TestCompressed):
    method = "kOneByteAuto"
