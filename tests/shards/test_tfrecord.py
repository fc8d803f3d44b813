"""TFRecord shards, read with plain TensorFlow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqprep.errors import OutputError
from seqprep.shards import tfrecord
from seqprep.types import Array, KeySpec

from .shard_contract import ShardContract
from .shards import make_content, write


class TfRecordContract(ShardContract):
    format = "tfrecord"

    def read(self, path: Path) -> list[dict[str, Array]]:
        tf = pytest.importorskip("tensorflow")
        from tensorflow.core.framework.tensor_pb2 import TensorProto

        batches = []
        records = tf.data.TFRecordDataset(str(path), compression_type={"none": "", "gzip": "GZIP"}[self.compression])
        for record in records:
            example = tf.train.Example.FromString(record.numpy())
            batch: dict[str, Array] = {}
            for name, feature in example.features.feature.items():
                values = list(feature.bytes_list.value)
                if name == "seq_tag":
                    tags = np.empty(len(values), object)
                    tags[:] = values
                    batch[name] = tags
                elif name != "seqprep":
                    dtype = tf.dtypes.as_dtype(TensorProto.FromString(values[0]).dtype)
                    batch[name] = tf.io.parse_tensor(values[0], dtype).numpy()
            batches.append(batch)
        return batches


class TestPlain(TfRecordContract):
    pass


class TestGzip(TfRecordContract):
    compression = "gzip"


def test_a_batch_larger_than_a_record_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord, "MAX_RECORD_BYTES", 1000)
    content = make_content({"data": KeySpec(dtype="float32", shape=(40,))}, [2], [30])
    with pytest.raises(OutputError, match=r"batch 0 has \d+ bytes, more than a TFRecord can hold"):
        write(tmp_path / "shard.x", content, "tfrecord")
    assert list(tmp_path.iterdir()) == []
