"""Takes the rows of a batch apart again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from seqprep.config import suggestion
from seqprep.errors import ConfigError
from seqprep.runtime.ranges import segment_starts
from seqprep.types import Array


def unpack(batch: Mapping[str, Any], key: str) -> list[Array]:
    """Gives the chunks or sequences of a batch one by one, without padding: the segments of packed rows, else the rows.

    Args:
        batch: of a loader, or a plain mapping of the same arrays.
        key: the key.

    Returns:
        For each entry of `seq_idx`, in its order, a view of its frames, [frames, …], context included; [] for an empty
        row. For a key without time its one value.

    Raises:
        ConfigError: the batch holds no such key.
    """
    if key not in batch or "/" in key:
        names = {name for name in batch if "/" not in name} - {"seq_idx", "seq_tag", "segment_row", "segment_start"}
        raise ConfigError(f"the batch holds no key {key!r}{suggestion(key, names)}")
    values = np.asarray(batch[key])
    if f"{key}/size0" not in batch:
        return list(values)
    sizes = np.asarray(batch[f"{key}/size0"])
    if "segment_row" in batch:
        rows, starts = np.asarray(batch["segment_row"]), np.asarray(segment_starts(batch, key))
    else:
        rows, starts = np.arange(len(sizes)), np.zeros(len(sizes), np.int64)
    places = zip(rows.tolist(), starts.tolist(), (starts + sizes).tolist(), strict=True)
    return [values[row, start:stop] for row, start, stop in places]
