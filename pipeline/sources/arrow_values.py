"""Arrow's arrays as numpy's: which columns can be keys, and their values without nesting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from seqprep.errors import DependencyError
from seqprep.types import Array, Int64, KeySpec


def import_arrow() -> ModuleType:
    """The package pyarrow.

    Raises:
        DependencyError: it isn't installed.
    """
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise DependencyError(f"source.type parquet needs pyarrow ({error}); pip install 'seqprep[parquet]'") from error
    return pyarrow  # type: ignore[no-any-return]


_TEXTS = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "fixed_size_binary")


class ColumnError(ValueError):
    """Values that a key can't have; says which and why."""


@dataclass(frozen=True)
class Column:
    """What becomes of a column: how its lists are nested, and what lies inside."""

    sizes: tuple[int | None, ...]
    """Entries of each level of lists, the outermost first; None where they vary, or aren't known yet."""
    dtype: str
    has_time: bool

    def may_be(self, other: Column) -> bool:
        """Whether two columns can be one key, as far as their types tell."""
        alike = (self.dtype, self.has_time, len(self.sizes)) == (other.dtype, other.has_time, len(other.sizes))
        return alike and all(one == two or None in (one, two) for one, two in zip(self.sizes, other.sizes, strict=True))

    @property
    def length(self) -> int | None:
        """Frames of every row, where the type alone tells them and all sizes; 1 without time."""
        if None in self.sizes:
            return None
        return self.sizes[0] if self.has_time else 1

    @property
    def spec(self) -> KeySpec:
        """The key, as far as it is known; inner lists of unknown size are taken for empty."""
        shape = self.sizes[1:] if self.has_time else self.sizes
        return KeySpec(dtype=self.dtype, shape=tuple(size or 0 for size in shape), has_time=self.has_time)


def column_of(type_: Any, with_time: bool) -> Column | None:
    """Works out what a column's type comes to.

    Args:
        type_: of Arrow.
        with_time: a fixed-size list on the outside goes along time, instead of being one value.

    Returns:
        None if it holds no numbers, or lists of strings, structures, ….
    """
    types = import_arrow().types
    sizes: list[int | None] = []
    type_ = _storage(type_)
    while types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        sizes.append(type_.list_size if types.is_fixed_size_list(type_) else None)
        type_ = _storage(type_.value_type)
    if not (types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_)):
        return None
    has_time = bool(sizes) and (sizes[0] is None or with_time)
    return Column(tuple(sizes), np.dtype(type_.to_pandas_dtype()).name, has_time)


def _storage(type_: Any) -> Any:
    return getattr(type_, "storage_type", type_)


@dataclass(frozen=True)
class Flat:
    """The values of a column's rows back to back."""

    column: Column
    """With the sizes of inner lists that the values have shown."""
    lengths: Int64
    """int64 [rows]: frames of each; 1 for a key without time."""
    leaf: Any
    """Arrow's array of the values."""

    def values(self) -> Array:
        """The values as numpy's; [frames of all rows, *shape]."""
        array = self.leaf.to_numpy(zero_copy_only=False)
        shape = self.column.spec.unit_shape
        return array.reshape(-1, *shape) if np.prod(shape) else np.empty((int(self.lengths.sum()), *shape), array.dtype)


def flatten(array: Any, column: Column, first_row: int = 0) -> Flat:
    """Takes lists apart.

    Args:
        array: a chunk of a column, of Arrow.
        column: what is known of it.
        first_row: the number of its first row, for messages.

    Raises:
        ColumnError: a value is null, or inner lists are of different sizes; names the row.
    """
    lengths = np.ones(len(array), np.int64)
    sizes, levels = list(column.sizes), list[Int64]()
    for level, size in enumerate(sizes):
        array = getattr(array, "storage", array)
        _check_no_null(array, levels, first_row)
        counts = _sizes_of(array)
        if level == 0 and column.has_time:
            lengths = counts
        else:
            sizes[level] = _one_size(counts, size, levels, first_row)
        levels.append(counts)
        array = array.flatten()
    array = getattr(array, "storage", array)
    _check_no_null(array, levels, first_row)
    return Flat(replace(column, sizes=tuple(sizes)), lengths, array)


def _row_of(entry: int, levels: list[Int64], first_row: int) -> int:
    """The row of an entry: `levels` holds the sizes of the lists around it, the outermost first."""
    for counts in reversed(levels):
        entry = int(np.searchsorted(np.cumsum(counts), entry, side="right"))
    return first_row + entry


def _check_no_null(array: Any, levels: list[Int64], first_row: int) -> None:
    if array.null_count:
        first = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        row = _row_of(first, levels, first_row)
        raise ColumnError(f"row {row} holds a null; fill it in, or leave the row out")


def _sizes_of(array: Any) -> Int64:
    """Entries of each list; int64 [lists]."""
    if import_arrow().types.is_fixed_size_list(array.type):
        return np.full(len(array), array.type.list_size, np.int64)
    sizes: Int64 = array.value_lengths().to_numpy().astype(np.int64)
    return sizes


def _one_size(counts: Int64, known: int | None, levels: list[Int64], first_row: int) -> int | None:
    """The size of inner lists, which have to be equal, here and to what is known; None if there is none yet."""
    if not len(counts):
        return known
    size = int(counts[0]) if known is None else known
    other = np.flatnonzero(counts != size)
    if len(other):
        place = int(other[0])
        raise ColumnError(
            f"row {_row_of(place, levels, first_row)} has a frame of {counts[place]} values, where earlier ones have "
            f"{size}; all frames of a key have one shape"
        )
    return size


def texts(array: Any, first_row: int = 0) -> list[str | bytes]:
    """Tags from a chunk of a column of strings, bytes, or whole numbers; `first_row` as for `flatten`.

    Raises:
        ColumnError: a value is null, or something else.
    """
    arrow = import_arrow()
    if arrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    _check_no_null(array, [], first_row)
    if arrow.types.is_integer(array.type):
        return list(map(str, array.to_pylist()))
    if str(array.type).partition("[")[0] not in _TEXTS:
        raise ColumnError(f"holds {array.type}, and tags are strings, bytes or whole numbers")
    names: list[str | bytes] = array.cast(arrow.binary()).to_pylist()  # as they are, for not all may be UTF-8
    return names
