"""What every source owes, checked against the truth with plain tools: a test class inherits all of it."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import pytest

from seqprep.config import Document
from seqprep.errors import SourceError
from seqprep.sources import Source
from seqprep.sources.registry import find_reader
from seqprep.types import Array, FrameRange, Tags
from tests.descriptors import needs_listing, open_descriptors

from .conftest import FreshProcess

Truth = Mapping[str, Sequence[Array]]
"""For every key, the arrays of all sequences."""

READS = 400
MANY_FILES, MANY_READS, MOST_OPEN = 2000, 10_000, 100
LARGE_BYTES = 4_000_000


def assert_same(given: Array, expected: Array) -> None:
    """Bit for bit: dtype, shape and bytes."""
    assert isinstance(given, np.ndarray)
    assert given.dtype == expected.dtype
    assert given.shape == expected.shape
    assert given.tobytes() == expected.tobytes()


def hash_of(truth: Truth) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for arrays in truth.values() for array in arrays)).hexdigest()


def hash_of_source(source: Source) -> str:
    """Reads everything in order."""
    places = range(len(source.tags))
    return hash_of({key: [source.read(key, place) for place in places] for key in source.keys})


def ranges(truth: Truth, count: int, seed: int = 0) -> Iterator[tuple[str, int, FrameRange, Array]]:
    """Random ranges of keys with time, and what they hold; every third is short, as chunks are."""
    draw = random.Random(seed)
    timed = [key for key, arrays in truth.items() if arrays[0].ndim]
    for place in range(count):
        key = draw.choice(timed)
        sequence = draw.randrange(len(truth[key]))
        array = truth[key][sequence]
        start = draw.randint(0, len(array))
        stop = draw.randint(start, min(len(array), start + 20) if place % 3 else len(array))
        yield key, sequence, FrameRange(start, stop), array[start:stop]


def bytes_read() -> int:
    """What this process has read from files so far, by its calls of the system."""
    with open("/proc/self/io", encoding="ascii") as file:
        return int(file.readline().split()[1])


class SourceContract:
    """Give fixtures `source`, `truth`, `reopen` and `changed`; with a `truth` in the source's order of keys.

    And `names`, `twice`, `large` and `many`, where the kind of source has such inputs.
    """

    reader: ClassVar[str | None] = None
    """`source.type` of what is tested; None of a source without one."""

    @pytest.fixture
    def source(self) -> Source:
        raise NotImplementedError

    @pytest.fixture
    def truth(self) -> Truth:
        raise NotImplementedError

    @pytest.fixture
    def reopen(self) -> Callable[[], Source]:
        """Opens the same input once more."""
        raise NotImplementedError

    @pytest.fixture
    def changed(self) -> Callable[[], Source]:
        """Opens an input of which some data differ."""
        raise NotImplementedError

    @pytest.fixture
    def names(self) -> list[str]:
        """The tags, in the source's order; let some hold spaces, slashes and letters beyond ASCII."""
        pytest.skip("this source makes its own tags")

    @pytest.fixture
    def twice(self) -> Callable[[], Source]:
        """Opens an input in which two sequences have the tag `double`."""
        pytest.skip("no input of this source can have a tag twice")

    @pytest.fixture
    def large(self) -> Callable[[], Source]:
        """Opens an input with at least LARGE_BYTES of data in few sequences."""
        pytest.skip("this format doesn't tell lengths apart from its data")

    @pytest.fixture
    def many(self) -> Callable[[], Source]:
        """Opens an input of MANY_FILES files."""
        pytest.skip("this source reads no files, or shares how it opens them with one that is tested")

    def test_is_a_source(self, source: Source) -> None:
        assert isinstance(source, Source)
        if self.reader is not None:
            assert type(source) is find_reader(self.reader, Document("test"))

    def test_keys(self, source: Source, truth: Truth) -> None:
        assert list(source.keys) == list(truth)
        for key, spec in source.keys.items():
            for array in truth[key]:
                assert np.dtype(spec.dtype) == array.dtype
                assert spec.shape == (array.shape[1:] if spec.has_time else array.shape)
            if spec.labels is not None:
                assert all(isinstance(name, str) for name in spec.labels)
                assert max(int(array.max(initial=0)) for array in truth[key]) < len(spec.labels)

    def test_tags(self, source: Source, truth: Truth) -> None:
        assert isinstance(source.tags, Tags)
        assert source.tags.duplicate() is None
        assert {len(arrays) for arrays in truth.values()} == {len(source.tags)}

    def test_tags_are_kept(self, source: Source, names: list[str]) -> None:
        assert list(source.tags) == names

    def test_duplicate_tags_are_refused(self, twice: Callable[[], Source]) -> None:
        with pytest.raises(SourceError, match=r"tag 'double'") as caught:
            twice()
        assert "\n" not in str(caught.value)

    @pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="needs /proc")
    def test_lengths_without_reading_data(self, large: Callable[[], Source]) -> None:
        source = large()  # whatever is imported or read once
        timed = [key for key, spec in source.keys.items() if spec.has_time]
        total = sum(int(source.lengths(key).sum()) * source.keys[key].nbytes for key in timed)
        assert total >= LARGE_BYTES
        before = bytes_read()
        again = large()
        assert sum(int(again.lengths(key).sum()) for key in timed) > 0
        assert bytes_read() - before < total / 20

    def test_lengths(self, source: Source, truth: Truth) -> None:
        for key, spec in source.keys.items():
            if spec.has_time:
                lengths = source.lengths(key)
                assert lengths.dtype == np.int64
                assert lengths.tolist() == [len(array) for array in truth[key]]

    def test_reads_whole_sequences(self, source: Source, truth: Truth) -> None:
        for key, arrays in truth.items():
            for sequence, array in enumerate(arrays):
                assert_same(source.read(key, sequence), array)

    def test_any_range_is_that_slice(self, source: Source, truth: Truth) -> None:
        for key, sequence, frames, expected in ranges(truth, 300):
            assert_same(source.read(key, sequence, frames), expected)

    def test_empty_ranges(self, source: Source, truth: Truth) -> None:
        for key, spec in source.keys.items():
            if spec.has_time:
                for sequence, array in enumerate(truth[key]):
                    for place in (0, len(array) // 2, len(array)):
                        assert_same(source.read(key, sequence, FrameRange(place, place)), array[:0])

    def test_reads_into_out(self, source: Source, truth: Truth) -> None:
        for key, sequence, frames, expected in ranges(truth, 100, seed=1):
            around = np.full((len(expected) + 2, *expected.shape[1:]), 99, expected.dtype)
            out = around[1:-1]
            assert source.read(key, sequence, frames, out) is out
            assert_same(out, expected)
            assert (around[[0, -1]] == 99).all()
        for key, spec in source.keys.items():
            out = np.full_like(truth[key][-1], 99)
            assert source.read(key, len(truth[key]) - 1, out=out) is out, spec
            assert_same(out, truth[key][-1])

    def test_results_are_the_callers(self, source: Source, truth: Truth) -> None:
        for key, arrays in truth.items():
            source.read(key, 0)[...] = 7
            assert_same(source.read(key, 0), arrays[0])

    def test_threads(self, source: Source, truth: Truth) -> None:
        def check(seed: int) -> None:
            for key, sequence, frames, expected in ranges(truth, 40, seed):
                assert_same(source.read(key, sequence, frames), expected)

        with ThreadPoolExecutor(8) as pool:
            assert len(list(pool.map(check, range(8)))) == 8

    def test_pickled_copy(self, source: Source, truth: Truth) -> None:
        for _ in range(2):  # as opened, and with whatever reading left behind
            copy = pickle.loads(pickle.dumps(source))
            assert copy.keys == source.keys
            assert copy.tags == source.tags
            assert hash_of_source(copy) == hash_of(truth)
            assert copy.fingerprint() == source.fingerprint()
            source.read(next(iter(truth)), 0)

    def test_fresh_process(self, source: Source, truth: Truth, fresh_process: FreshProcess) -> None:
        source.read(next(iter(truth)), 0)
        assert fresh_process.hash_of(source) == hash_of(truth)

    def test_forked_process(self, source: Source, truth: Truth) -> None:
        source.read(next(iter(truth)), 0)
        expected = hash_of(truth)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # numpy has threads of its own; they don't matter here
            child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if hash_of_source(source) == expected else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert hash_of_source(source) == expected

    @needs_listing
    def test_open_files_stay_flat(self, source: Source, truth: Truth) -> None:
        def read(count: int) -> int:
            for key, sequence, frames, _ in ranges(truth, count):
                source.read(key, sequence, frames)
            return open_descriptors()

        before = read(100)
        assert read(READS) <= before
        source.close()

    @needs_listing
    def test_many_files_keep_few_open(self, many: Callable[[], Source]) -> None:
        before = open_descriptors()
        source, draw = many(), random.Random(0)
        assert len(source.tags) >= MANY_FILES
        key, counts = next(iter(source.keys)), []
        for count in (MANY_READS // 2, MANY_READS // 2):
            for _ in range(count):
                source.read(key, draw.randrange(len(source.tags)))
            counts.append(open_descriptors() - before)
        assert counts[1] <= counts[0] <= MOST_OPEN
        source.close()
        assert open_descriptors() <= before

    def test_deterministic(self, source: Source, reopen: Callable[[], Source]) -> None:
        again = reopen()
        assert again.keys == source.keys
        assert again.tags == source.tags
        for key, spec in source.keys.items():
            if spec.has_time:
                assert np.array_equal(again.lengths(key), source.lengths(key))
        assert again.fingerprint() == source.fingerprint()

    def test_fingerprint(self, source: Source, changed: Callable[[], Source]) -> None:
        before = dict(source.fingerprint())
        assert set(before) >= {"keys", "files", "tags", "lengths", "samples"}
        assert all(isinstance(part, str) for part in before.values())
        assert dict(changed().fingerprint()) != before

    def test_reads_after_close(self, source: Source, truth: Truth) -> None:
        source.close()
        assert hash_of_source(source) == hash_of(truth)
        source.close()
        source.close()
