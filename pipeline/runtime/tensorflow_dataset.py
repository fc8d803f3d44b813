"""Batches as a tf.data.Dataset, for Keras' `fit` and whatever else takes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.config import shown, suggestion
from seqprep.errors import ConfigError
from seqprep.runtime.epochs import Epochs
from seqprep.runtime.frameworks import import_framework
from seqprep.runtime.opened import DERIVED
from seqprep.runtime.tensorflow_records import records

Names = str | Sequence[str]


def dataset(
    source: Epochs | str | Path, *, inputs: Names | None = None, targets: Names | None = None, **options: Any
) -> Any:
    """Makes a tf.data.Dataset of batches, from a loader (or stream), or natively from the folder of a dataset.

    Names with `/` are written with `_`, as Keras wants them: `data/size0` becomes `data_size0`. Give `fit` shuffle=False,
    for it warns otherwise.

    **Of a loader**, each iteration is one epoch of it. Numeric arrays aren't copied. Add `.prefetch(2)` to run ahead of the
    training step (checkpoints then take `Loader.state_at`). The epoch of the loader advances when the last batch is
    taken, even where the consumer, as `fit` does, counts batches and never asks for what comes behind it. What the
    loader raises arrives as an error of tf.errors with its message. Standing inside an epoch (a state was loaded), the
    loader leaves the dataset's cardinality unknown, for the first epoch is shorter; so does one whose epochs differ in
    length.

    **Of a folder** of TFRecord shards, tf.data's own operations read and parse the records (and check their checksums),
    without Python in the loop; see `seqprep.runtime.tensorflow_records.records` for the `options`. Its shuffle is
    tf.data's, and it has no position that could be restored.

    Args:
        source: a loader or stream; or the folder of a dataset in TFRecord shards.
        inputs: one name, for the bare tensor, or several, for a dict of tensors.
        targets: likewise.
        options: `shuffle`, `seed`, `rank`, `world_size`, `even`, `pass_number`, `parallel`, of a folder alone.

    Returns:
        A dataset of `(inputs, targets)`; of `inputs` alone without targets; of a dict of all arrays if neither is
        given. Tensors are [B, T, …] with unknown B and T; `seq_tag` is tf.string.

    Raises:
        ConfigError: the batches hold no such name, or there is no batch; an option is impossible, or the folder's shards
            aren't TFRecord.
        DatasetError: the folder is no finished dataset.
        DependencyError: TensorFlow isn't installed.
    """
    if inputs is None and targets is not None:
        raise ConfigError(
            f"targets is {shown(targets)} but inputs isn't set; name both, or neither for a dict of all arrays"
        )
    tf = import_framework("tensorflow")
    if isinstance(source, str | Path):
        made, specs = records(tf, source, names=_named(inputs, targets), **options)
        return made.map(_selection(specs, inputs, targets))
    if options:
        raise ConfigError(f"{', '.join(options)}: for the folder of a dataset alone; give it to the loader")
    return _of_loader(tf, source, inputs, targets)


def _named(inputs: Names | None, targets: Names | None) -> list[str] | None:
    """All names that are wanted; None for all there are."""
    given = [names for names in (inputs, targets) if names is not None]
    return [name for names in given for name in ([names] if isinstance(names, str) else names)] or None


def _selection(specs: Mapping[str, Any], inputs: Names | None, targets: Names | None) -> Callable[[Any], Any]:
    """A function that takes what is wanted out of a mapping.

    Raises:
        ConfigError: there is no such name.
    """
    wanted = [names for names in (inputs, targets) if names is not None] or [list(specs)]
    for option, names in zip(("inputs", "targets"), wanted, strict=False):
        for name in [names] if isinstance(names, str) else names:
            if name not in specs:
                raise ConfigError(f"{option}: the batches hold no {name!r}{suggestion(name, specs)}")
        taken = [_keras_name(name) for name in names] if not isinstance(names, str) else []
        if len(set(taken)) < len(taken):
            raise ConfigError(f"{option}: two of {', '.join(names)} are the same with '_' for '/'; take one of them")

    def select(values: Mapping[str, Any]) -> Any:
        parts = tuple(
            values[names] if isinstance(names, str) else {_keras_name(name): values[name] for name in names}
            for names in wanted
        )
        return parts if len(parts) > 1 else parts[0]

    return select


def _of_loader(tf: Any, loader: Epochs, inputs: Names | None, targets: Names | None) -> Any:
    specs = _specs(tf, loader)
    select, whole = _selection(specs, inputs, targets), _starts_whole(loader)

    def elements() -> Iterator[Any]:
        if whole and not _starts_whole(loader):
            raise ConfigError("the loader's state was loaded after its dataset was made; load it before")
        for batch in _one_ahead(iter(loader)):
            yield select({**batch, "seq_tag": _encoded(batch["seq_tag"])})

    made = tf.data.Dataset.from_generator(elements, output_signature=select(specs))
    return made.apply(tf.data.experimental.assert_cardinality(len(loader))) if whole and loader.same_length else made


def _starts_whole(loader: Epochs) -> bool:
    """Whether the loader's next iteration is a whole epoch."""
    began = loader.state_at(0)
    return bool(began["position"] == 0) or loader.epoch != began["epoch"]


def _one_ahead(batches: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Takes each batch before giving the one in front of it, so that the last is given at the end of the epoch."""
    held = next(batches, None)
    while held is not None:
        following = next(batches, None)
        yield held
        held = following


def _specs(tf: Any, loader: Epochs) -> dict[str, Any]:
    """For each array of a batch, its tf.TensorSpec."""
    if not len(loader):
        raise ConfigError("the loader has no batch, so there is nothing to make a dataset of")
    specs = {
        name: tf.TensorSpec((None, None, *key.shape) if key.has_time else (None, *key.shape), key.dtype)
        for name, key in loader.keys.items()
    }
    for name, value in loader.batch(0).items():
        if name not in specs:
            is_number = isinstance(value, np.ndarray) and not value.dtype.hasobject
            shape = (None, None) if name.rpartition("/")[2] in DERIVED else (None, *np.shape(value)[1:])
            specs[name] = tf.TensorSpec(shape, value.dtype if is_number else tf.string)
    return specs


def _encoded(tags: Any) -> Any:
    """UTF-8 of the tags, and the bytes of those that never were any; object [B]."""
    return np.array([tag.encode("utf-8", "surrogateescape") for tag in tags], object)


def _keras_name(name: str) -> str:
    return name.replace("/", "_")
