from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqprep.runtime.data_rows import Chunk, Memory, Piece, Rows, join


def chunk(first: int, rows: int, column: int = 0) -> Chunk:
    numbers = np.arange(first, first + rows)
    return Chunk((np.moveaxis(np.repeat(numbers[:, None], 2, axis=1), 0, column), numbers), rows, rows)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 20)), max_size=40))
def test_rows_come_out_in_their_order(steps: list[tuple[bool, int]]) -> None:
    rows, put, taken = Rows(), 0, []
    for puts, count in steps:
        if puts:
            rows.append(chunk(put, count))
            put += count
        else:
            count = min(count, rows.count)
            pieces = rows.take(count)
            assert sum(piece.end - piece.begin for piece in pieces) == count
            taken += [int(n) for piece in pieces for n in piece.chunk.arrays[1][piece.begin : piece.end]]
        assert rows.count == put - len(taken)
    assert taken == list(range(len(taken)))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 1), st.data())
def test_joined_pieces_are_what_numpy_makes_of_them(sizes: list[int], column: int, data: st.DataObject) -> None:
    pieces, first = [], 0
    for size in sizes:
        begin = data.draw(st.integers(0, size - 1))
        pieces.append(Piece(chunk(first, size, column), begin, data.draw(st.integers(begin + 1, size))))
        first += size
    wide, numbers = join(pieces, (column, 0), Memory(1))
    expected = np.concatenate([piece.chunk.arrays[1][piece.begin : piece.end] for piece in pieces])
    np.testing.assert_array_equal(numbers, expected, strict=True)
    np.testing.assert_array_equal(np.moveaxis(wide, column, 0), np.repeat(expected[:, None], 2, axis=1), strict=True)
    assert wide.flags.c_contiguous


@pytest.mark.parametrize("column", [0, 1])
def test_only_what_was_given_away_is_not_copied(column: int) -> None:
    owned, view = np.zeros((4, 4)), np.zeros((8, 4))[:4]
    first, second = join([Piece(Chunk((owned, view), 4, 4), 0, 4)], (column, column), Memory(1))
    assert (first is owned) == (column == 0)
    assert np.shares_memory(first, owned) == (column == 0)
    assert not np.shares_memory(second, view)
