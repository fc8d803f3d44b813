"""TFRecord shards read and parsed by tf.data's own operations, without Python in the loop."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.errors import ConfigError
from seqprep.runtime.options import EVENS, check_choice, rank_of, whole_number
from seqprep.runtime.order import Even
from seqprep.shards import Dataset, ShardTable

_BATCHES_MIXED = 64  # in the buffer of tf.data's shuffle


def records(
    tf: Any,
    path: str | Path,
    *,
    names: Collection[str] | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    even: Even = "pad",
    pass_number: int = 0,
    parallel: int | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Makes a tf.data.Dataset of one pass over a dataset, a mapping of tensors for each batch.

    What follows from the fields alone where rows are packed (`<key>/segment_ids`, `<key>/positions`) isn't stored, and so
    isn't there.

    Args:
        tf: the module tensorflow.
        path: the folder, of TFRecord shards with or without compression.
        names: parse only these; all unless told.
        shuffle: read the shards in another order in each iteration, and mix 64 batches at a time; by tf.data.
        seed: of the shuffle; with tf.random.set_seed, which counts for tf.data, too.
        rank: which of `world_size` equal readers this is: it takes every `world_size`-th batch, the same ones whatever
            the shuffle is, so that ranks need no common seed.
        world_size: how many there are.
        even: what ranks do when the batches don't divide by them: `pad` (equal steps: a rank that has one batch less
            takes one of its own twice), `drop` (equal steps: a rank that has one more leaves one out, with shuffle
            another one in each iteration), `none` (every batch once, steps may differ by 1).
        pass_number: which pass over the input is read, of several that the dataset may hold; modulo their number.
        parallel: shards and batches worked on at a time; as tf.data likes unless told.

    Returns:
        The dataset, and a tf.TensorSpec for each name that a batch can have.

    Raises:
        ConfigError: the shards aren't TFRecord, an option is impossible, or there is no batch for this rank (with `pad`
            there is, if there is any).
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
    check_choice("even", even, EVENS)
    if not 0 <= rank < world_size:
        raise ConfigError(f"rank is {rank}: with world_size {world_size} it has to lie in [0, {world_size})")
    batches = bounds[own + 1] - bounds[own]
    steps = {"pad": -(-batches // world_size), "drop": batches // world_size}.get(
        even, -(-(batches - rank) // world_size)
    )
    if steps < 1:
        raise ConfigError(
            f"{path}: has no batch for rank {rank} of {world_size} with even {even!r}; use fewer ranks, or set even to 'pad'"
        )
    if batches < world_size and even == "pad":  # one step, in which each rank takes one of them
        rank, world_size = rank % batches, batches
    shards = [number for number, shard in enumerate(stored.index.shards) if shard.epoch == own]
    files = [str(stored.shard_path(number)) for number in shards]
    skipped = (rank + bounds[own] - stored.batches_before()[shards]) % world_size  # in front of each shard's first
    specs = _specs(tf, stored.sidecar(0).table)
    parsed = {name: spec for name, spec in specs.items() if names is None or name in names} or specs
    parallel = tf.data.AUTOTUNE if parallel is None else whole_number("parallel", parallel, 1)
    compression = "GZIP" if stored.index.compression == "gzip" else None
    if shuffle:
        parts = tf.data.Dataset.from_tensor_slices((files, np.asarray(skipped, np.int64)))
        parts = parts.shuffle(len(files), seed, reshuffle_each_iteration=True)
        made = parts.interleave(
            lambda file, skip: tf.data.TFRecordDataset(file, compression).skip(skip).shard(world_size, 0),
            cycle_length=min(4, len(files)),
            num_parallel_calls=parallel,
            deterministic=True,
        ).shuffle(_BATCHES_MIXED, seed, reshuffle_each_iteration=True)
    else:
        made = tf.data.TFRecordDataset(files, compression).shard(world_size, rank)
    made = made.repeat(2 if even == "pad" else 1).take(steps)  # at most one more than a rank has
    made = made.map(lambda record: _parsed(tf, record, parsed), num_parallel_calls=parallel, deterministic=True)
    return made.apply(tf.data.experimental.assert_cardinality(steps)).prefetch(2), specs


def _specs(tf: Any, table: ShardTable) -> dict[str, Any]:
    """For each name in a record, its tf.TensorSpec."""
    specs = {
        name: tf.TensorSpec((None, None, *key.shape) if key.has_time else (None, *key.shape), key.dtype)
        for name, key in table.keys.items()
    }
    specs |= {name: tf.TensorSpec((None, *field.shape[1:]), field.dtype) for name, field in table.fields.items()}
    return specs | {"seq_tag": tf.TensorSpec((None,), tf.string)}


def _parsed(tf: Any, record: Any, specs: Mapping[str, Any]) -> dict[str, Any]:
    tags = tf.io.RaggedFeature(tf.string)
    features = {name: tags if name == "seq_tag" else tf.io.FixedLenFeature([], tf.string) for name in specs}
    found = tf.io.parse_single_example(record, features)
    return {
        name: tf.ensure_shape(
            found[name] if name == "seq_tag" else tf.io.parse_tensor(found[name], spec.dtype), spec.shape
        )
        for name, spec in specs.items()
    }
