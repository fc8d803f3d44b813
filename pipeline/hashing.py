"""A hash of 64-bit integers that no library release can change: every random order and draw rests on it.

`mix` is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014),
a bijection of 64-bit integers. Numpy's own generators may change their streams between releases (NEP 19).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

UInt64 = npt.NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mix_int(value: int) -> int:
    """Hashes one integer (taken modulo 2^64) to [0, 2^64)."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def mix(values: npt.ArrayLike) -> UInt64:
    """Hashes integers elementwise, as `mix_int` does.

    Args:
        values: integers of any shape; taken modulo 2^64.

    Returns:
        uint64, the same shape.
    """
    hashed = np.array(values).astype(np.uint64)  # a copy: the steps below work in place
    with np.errstate(over="ignore"):
        hashed += np.uint64(_GOLDEN)
        hashed ^= hashed >> np.uint64(30)
        hashed *= np.uint64(0xBF58476D1CE4E5B9)
        hashed ^= hashed >> np.uint64(27)
        hashed *= np.uint64(0x94D049BB133111EB)
        hashed ^= hashed >> np.uint64(31)
    return hashed


def key_of(*parts: int) -> int:
    """Folds integers (a seed, an epoch, the purpose of a draw) into one 64-bit key; the order of the parts matters."""
    key = 0
    for part in parts:
        key = mix_int(key ^ mix_int(part))
    return key


def keyed(key: int, values: npt.ArrayLike) -> UInt64:
    """Hashes integers under a key: another key gives an independent-looking hash.

    Args:
        key: from `key_of`.
        values: integers of any shape.

    Returns:
        uint64, the same shape.
    """
    return mix(mix(values) ^ np.uint64(key))


def order_of(hashes: UInt64) -> npt.NDArray[np.int64]:
    """Sorts hashes: `np.argsort(hashes, kind="stable")`, but several times as fast where few are equal.

    The high bits of each hash are sorted together with its place in the low ones; the few whose high bits are equal are
    then sorted by all of them.

    Args:
        hashes: uint64 [n].

    Returns:
        int64 [n]: places.
    """
    bits = np.uint64(max(len(hashes) - 1, 1).bit_length())
    packed = hashes >> bits << bits
    packed |= np.arange(len(hashes), dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    packed >>= bits
    equal = packed[1:] == packed[:-1]
    if equal.any():
        again = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
        places = order[again]
        order[again] = places[np.argsort(hashes[places], kind="stable")]
    return order


def permutation(key: int, size: int) -> npt.NDArray[np.int64]:
    """Gives the numbers 0 … size−1 in a random order that depends on the key alone.

    Returns:
        int64 [size].
    """
    return order_of(keyed(key, np.arange(size)))
