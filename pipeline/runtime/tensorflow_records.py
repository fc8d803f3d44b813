"""TFRecord shards read and parsed by tf.data's own operations, without Python in the loop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqprep.errors import ConfigError
from seqprep.runtime.options import rank_of, whole_number
from seqprep.shards import Dataset, ShardTable

_BATCHES_MIXED = 64  # in the buffer of tf.data's shuffle


def records(
    tf: Any,
    path: str | Path,
    *,
    shuffle: bool = False,
    seed: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    pass_number: int = 0,
    parallel: int | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Makes a tf.data.Dataset of one pass over a dataset, a mapping of tensors for each batch.

    What follows from the fields alone where rows are packed (`<key>/segment_ids`, `<key>/positions`) isn't stored, and so
    isn't there.

    Args:
        tf: the module tensorflow.
        path: the folder, of TFRecord shards with or without compression.
        shuffle: read the shards in another order in each iteration, and mix 64 batches at a time; by tf.data.
        seed: of the shuffle.
        rank: which of `world_size` equal readers this is: it takes every `world_size`-th batch.
        world_size: how many there are.
        pass_number: which pass over the input is read, of several that the dataset may hold; modulo their number.
        parallel: shards and batches worked on at a time; as tf.data likes unless told.

    Returns:
        The dataset, and a tf.TensorSpec for each name.

    Raises:
        ConfigError: the shards aren't TFRecord, an option is impossible, or there is no batch for this rank.
        DatasetError: the folder is no finished dataset.
    """
    stored = Dataset(path)
    if stored.index.format != "tfrecord":
        raise ConfigError(
            f"{path}: its shards are {stored.index.format}, which tf.data can't read: give a seqprep.Loader of it, or "
            "`seqprep convert` it to tfrecord"
        )
    bounds, own = stored.pass_bounds(), whole_number("pass_number", pass_number, 0) % stored.index.epochs
    rank, world_size = rank_of(rank, world_size)
    count = -(-(bounds[own + 1] - bounds[own] - rank) // world_size)
    if count < 1:
        raise ConfigError(f"{path}: has no batch for rank {rank} of {world_size}; use fewer ranks")
    files = [str(stored.shard_path(number)) for number, shard in enumerate(stored.index.shards) if shard.epoch == own]
    specs = _specs(tf, stored.sidecar(0).table)
    parallel = tf.data.AUTOTUNE if parallel is None else whole_number("parallel", parallel, 1)
    compression = "GZIP" if stored.index.compression == "gzip" else None
    if shuffle:
        names = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files), seed, reshuffle_each_iteration=True)
        made = names.interleave(
            lambda name: tf.data.TFRecordDataset(name, compression),
            cycle_length=min(4, len(files)),
            num_parallel_calls=parallel,
            deterministic=True,
        )
    else:
        made = tf.data.TFRecordDataset(files, compression)
    if world_size > 1:
        made = made.shard(world_size, rank)
    if shuffle:
        made = made.shuffle(_BATCHES_MIXED, seed, reshuffle_each_iteration=True)
    made = made.map(lambda record: _parsed(tf, record, specs), num_parallel_calls=parallel, deterministic=True)
    return made.apply(tf.data.experimental.assert_cardinality(count)).prefetch(2), specs


def _specs(tf: Any, table: ShardTable) -> dict[str, Any]:
    """For each name in a record, its tf.TensorSpec."""
    specs = {
        name: tf.TensorSpec((None, None, *key.shape) if key.has_time else (None, *key.shape), key.dtype)
        for name, key in table.keys.items()
    }
    specs |= {name: tf.TensorSpec((None, *field.shape[1:]), field.dtype) for name, field in table.fields.items()}
    return specs | {"seq_tag": tf.TensorSpec((None,), tf.string)}


def _parsed(tf: Any, record: Any, specs: Mapping[str, Any]) -> dict[str, Any]:
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in specs if name != "seq_tag"}
    found = tf.io.parse_single_example(record, features | {"seq_tag": tf.io.RaggedFeature(tf.string)})
    parsed = {name: tf.io.parse_tensor(found[name], specs[name].dtype) for name in features}
    return {
        name: tf.ensure_shape(value, specs[name].shape)
        for name, value in (parsed | {"seq_tag": found["seq_tag"]}).items()
    }
