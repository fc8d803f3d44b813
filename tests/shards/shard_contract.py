"""What every kind of shard owes, checked with stock tools alone: plain h5py, plain tf.data, numpy and a CRC of the
standard's own definition. A new format inherits it and says how it is read."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from seqprep import Loader
from seqprep.shards import Dataset, ShardReader, Storage, read_sidecar, rebuild_sidecar, verify_shard
from seqprep.shards.sidecar import Sidecar
from seqprep.types import Array, KeySpec
from tests.examples import examples

from .shards import Content, assert_equal_arrays, contents, make_content, write, write_dataset

QUICK = settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
MANY = make_content(
    {"data": KeySpec(dtype="float32", shape=(40,)), "labels": KeySpec(dtype="int32"), "speaker": KeySpec(dtype="int64", has_time=False)},
    rows=[40, 40, 7],
    frames=[60, 33, 50],
)  # fmt: skip


class ShardContract:
    """Every shard, of every format and compression."""

    format: str
    compression: str = "none"

    def read(self, path: Path) -> list[dict[str, Array]]:
        """Reads all batches and fields of rows with a stock tool; `seq_tag` as an array of bytes objects."""
        raise NotImplementedError

    @QUICK
    @given(contents())
    def test_stock_tools_read_what_was_written(self, tmp_path: Path, content: Content) -> None:
        path = tmp_path / "shard-00000-of-00001.x"
        write(path, content, self.format, self.compression)
        read = self.read(path)
        table = content.table
        assert len(read) == len(content.batches)
        for number, (found, due) in enumerate(zip(read, content.batches, strict=True)):
            rows = slice(int(table.bounds[number]), int(table.bounds[number + 1]))
            assert found.keys() == {*due, *table.fields, "seq_tag"}
            for key, array in due.items():
                assert_equal_arrays(found[key], array)
            for name, values in table.fields.items():
                assert_equal_arrays(found[name], values[rows])
            tags = [tag.encode("utf-8", "surrogateescape") for tag in table.tags[rows]]
            assert list(found["seq_tag"]) == tags

    @QUICK
    @given(contents())
    def test_the_sidecar_says_where_every_byte_is(self, tmp_path: Path, content: Content) -> None:
        path = tmp_path / "shard-00000-of-00001.x"
        write(path, content, self.format, self.compression)
        data, sidecar = path.read_bytes(), read_sidecar(path)
        assert sidecar.file_bytes == len(data)
        stream = self.check_coverage(data, sidecar)
        for number, batch in enumerate(content.batches):
            for key, array in batch.items():
                begin = int(sidecar.offsets[key][number])
                stored = stream[begin : begin + array.nbytes]
                assert stored == array.tobytes()
                assert google_crc32c.value(stored) == sidecar.crcs[key][number]

    def check_coverage(self, data: bytes, sidecar: Sidecar) -> bytes:
        """Arrays (or pieces) and regions cover the file once, with right checksums; gives the decoded stream."""
        covered = np.zeros(len(data), np.int64)
        regions = sidecar.regions
        stretches = list(zip(regions.offset, regions.size, regions.crc, strict=True))
        stream = data
        if sidecar.pieces is not None:
            pieces = sidecar.pieces
            stretches += list(zip(pieces.offset, pieces.size, pieces.crc, strict=True))
            parts = [self.decode(data[at : at + size]) for at, size in zip(pieces.offset, pieces.size, strict=True)]
            assert [len(part) for part in parts] == pieces.decoded.tolist()
            stream = b"".join(parts)
        else:
            for key in sidecar.table.keys:
                stretches += list(
                    zip(sidecar.offsets[key], sidecar.table.array_bytes(key), sidecar.crcs[key], strict=True)
                )
        for offset, size, crc in stretches:
            covered[offset : offset + size] += 1
            assert google_crc32c.value(data[offset : offset + size]) == crc
        assert (covered == 1).all()
        return stream

    def decode(self, piece: bytes) -> bytes:
        """Decodes a piece with a stock tool."""
        if self.compression == "gzip":
            return zlib.decompress(piece, 47)
        zstd = pytest.importorskip("zstandard")
        decoded: bytes = zstd.ZstdDecompressor().decompress(piece)
        return decoded

    @QUICK
    @given(contents())
    def test_our_readers_give_it_back(self, tmp_path: Path, content: Content) -> None:
        path = write_dataset(tmp_path, content, self.format, self.compression)
        reader = ShardReader(path, read_sidecar(path))
        with Loader(tmp_path, rank=0, world_size=1, verify="always") as loader:
            for number, (batch, due) in enumerate(zip(loader, content.batches, strict=True)):
                own = reader.batch(number)
                rows = slice(int(content.table.bounds[number]), int(content.table.bounds[number + 1]))
                for key, array in due.items():
                    assert_equal_arrays(batch[key], array)
                    assert_equal_arrays(own[key], array)
                for name, values in content.table.fields.items():
                    assert_equal_arrays(batch[name], values[rows])
                assert list(batch["seq_tag"]) == list(content.table.tags[rows])

    @QUICK
    @given(contents())
    def test_the_sidecar_follows_from_the_shard(self, tmp_path: Path, content: Content) -> None:
        path = write_dataset(tmp_path, content, self.format, self.compression)
        sidecar, about = rebuild_sidecar(path)
        assert sidecar.encode() == path.with_suffix(".idx").read_bytes()
        index = Dataset(tmp_path).index
        assert about.describe() == index.describe()

    def test_equal_content_gives_equal_bytes(self, tmp_path: Path) -> None:
        one, other = tmp_path / "one.x", tmp_path / "other.x"
        assert write(one, MANY, self.format, self.compression).sidecar_crc32c == (
            write(other, MANY, self.format, self.compression).sidecar_crc32c
        )
        assert one.read_bytes() == other.read_bytes()

    def test_many_batches(self, tmp_path: Path) -> None:
        path = write_dataset(tmp_path, MANY, self.format, self.compression)
        assert verify_shard(path, read_sidecar(path))[1] == []
        for found, due in zip(self.read(path), MANY.batches, strict=True):
            for key, array in due.items():
                assert_equal_arrays(found[key], array)

    def test_a_writer_that_fails_leaves_nothing(self, tmp_path: Path) -> None:
        class Broken(Exception):
            pass

        def batches():  # type: ignore[no-untyped-def]
            yield MANY.batches[0]
            raise Broken("the source is gone")

        content = Content(MANY.table, batches())
        with pytest.raises(Broken, match="the source is gone"):
            write(tmp_path / "shard-00000-of-00001.x", content, self.format, self.compression, Storage())
        assert list(tmp_path.iterdir()) == []

    def test_the_sidecars_header_says_what_it_is(self, tmp_path: Path) -> None:
        path = tmp_path / "shard-00000-of-00001.x"
        write(path, MANY, self.format, self.compression)
        data = path.with_suffix(".idx").read_bytes()
        header = json.loads(data[16 : 16 + int.from_bytes(data[8:16], "little")])
        assert header["version"] == 1
        assert header["format"] == self.format
        assert header.get("compression", "none") == self.compression
        assert google_crc32c.value(data[:-4]) == int.from_bytes(data[-4:], "little")
