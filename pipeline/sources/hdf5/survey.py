"""Lists all datasets of a file, opening each once: a file may hold millions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from seqprep.errors import SourceError
from seqprep.sources.hdf5.columns import THROUGH_H5PY
from seqprep.sources.hdf5.files import check_stored, file_number, offset_in


class Leaf(NamedTuple):
    """One dataset."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    """Where its bytes begin in the file, or THROUGH_H5PY."""


Survey = dict[str, Leaf]
"""All datasets by their paths, in their order, level by level."""


def survey(path: str, file: Any) -> Survey:
    """Lists the datasets of a file.

    Args:
        path: the file.
        file: the same, opened.

    Raises:
        SourceError: a link leads nowhere, or to a group of another file.
    """
    import h5py

    links: list[tuple[bytes, int]] = []
    file.id.links.visit(lambda name, info: links.append((name, info.type)), info=True)
    groups = {name.rpartition(b"/")[0] for name, _ in links}
    home, found = file_number(file), Survey()
    for name, kind in sorted(links, key=lambda link: link[0].split(b"/")):
        if name in groups:
            continue
        shown = name.decode("utf-8", "surrogateescape")
        try:
            item = h5py.h5o.open(file.id, name)
        except KeyError as error:
            raise SourceError(
                f"{path}: {shown!r} can't be opened: {error}; is it a link that leads nowhere?"
            ) from error
        if isinstance(item, h5py.h5d.DatasetID):
            found[shown] = _leaf(shown, item, None if kind == h5py.h5l.TYPE_HARD else home)
        elif isinstance(item, h5py.h5g.GroupID) and kind == h5py.h5l.TYPE_EXTERNAL:
            raise SourceError(f"{path}: {shown!r} leads to a group of another file; name that in source.path")
    return found


def _leaf(name: str, item: Any, home: int | None) -> Leaf:
    """Describes an opened dataset; `home` is its file's number if it may lie in another."""
    shape, dtype = item.shape, item.dtype
    check_stored(name, item, shape, dtype)
    offset = offset_in(item, dtype, home)
    return Leaf(shape, dtype, THROUGH_H5PY if offset is None else offset)
