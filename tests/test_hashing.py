from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqprep.hashing import key_of, keyed, mix, mix_int, order_of, permutation

INTEGERS = st.integers(-(2**63), 2**63 - 1)
KEYS = st.integers(0, 2**64 - 1)


def test_mix_is_splitmix64() -> None:
    """The published generator adds its constant to the state and gives the mixed state; seeded with 0 it gives these."""
    golden = 0x9E3779B97F4A7C15
    assert [mix_int(step * golden) for step in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_values_never_change() -> None:
    assert [mix_int(value) for value in (1, -1, 2**63)] == [0x910A2DEC89025CC1, 0xE4D971771B652C20, 0x481EC0A212A9F3DB]
    assert [key_of(), key_of(0), key_of(1, 2), key_of(2, 1)] == [
        0,
        0xA706DD2F4D197E6F,
        0xD97D4205FDAB0823,
        0x186A2DE8268E9286,
    ]
    assert keyed(key_of(5), [0, 1, 2]).tolist() == [0x6DB5DC24D62AA120, 0xD122B55BC6AD1993, 0x69D0A7168CB611EE]
    assert permutation(key_of(1), 10).tolist() == [7, 8, 9, 1, 0, 3, 5, 6, 4, 2]


@given(st.lists(INTEGERS, max_size=20))
def test_vector_equals_scalar(values: list[int]) -> None:
    hashed = mix(np.array(values, np.int64))
    assert hashed.dtype == np.uint64
    assert hashed.tolist() == [mix_int(value) for value in values]
    assert mix(np.array(values, np.int64).astype(np.uint64)).tolist() == hashed.tolist()


@given(KEYS, st.lists(INTEGERS, max_size=20))
def test_keyed_equals_its_scalar_form(key: int, values: list[int]) -> None:
    expected = [mix_int(mix_int(value) ^ key) for value in values]
    assert keyed(key, np.array(values, np.int64)).tolist() == expected


def test_mix_keeps_shape_and_input() -> None:
    values = np.arange(6, dtype=np.uint64).reshape(2, 3)
    assert mix(values).shape == (2, 3)
    assert values.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert mix(7).shape == ()
    assert int(mix(7)) == mix_int(7)
    assert mix(np.arange(3, dtype=np.int8)).tolist() == mix(np.arange(3)).tolist()


@given(INTEGERS, INTEGERS)
def test_mix_is_a_bijection(one: int, other: int) -> None:
    assert (mix_int(one) == mix_int(other)) == (one % 2**64 == other % 2**64)


@given(st.lists(INTEGERS, min_size=1, max_size=4), st.integers(0, 3), INTEGERS)
def test_every_part_of_a_key_counts(parts: list[int], place: int, value: int) -> None:
    place %= len(parts)
    changed = [*parts[:place], value, *parts[place + 1 :]]
    assert (key_of(*parts) == key_of(*changed)) == (parts == changed)
    assert key_of(*parts, 0) != key_of(*parts)


@given(KEYS, st.integers(0, 300))
def test_permutation_is_one(key: int, size: int) -> None:
    order = permutation(key, size)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(size))


def test_permutations_differ_by_key() -> None:
    assert len({tuple(permutation(key_of(seed), 20)) for seed in range(200)}) == 200


def test_hashes_look_uniform() -> None:
    hashed = mix(np.arange(1 << 16))
    bits = (hashed[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert bits.mean(axis=0) == pytest.approx(0.5, abs=0.01)  # five deviations
    counts = np.bincount((keyed(key_of(3), np.arange(1 << 16)) % np.uint64(64)).astype(int))
    assert counts == pytest.approx(1024, abs=160)


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 9) | st.integers(2**64 - 9, 2**64 - 1), max_size=40))
def test_hashes_are_sorted_by_all_their_bits_and_equal_ones_keep_their_order(hashes: list[int]) -> None:
    values = np.array(hashes, np.uint64)
    assert order_of(values).tolist() == sorted(range(len(hashes)), key=hashes.__getitem__)
    assert values.tolist() == hashes
