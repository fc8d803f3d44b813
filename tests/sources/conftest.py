"""A process of its own in which sources are read, shared by all tests: starting one takes most of their time."""

from __future__ import annotations

import pickle
import select
import subprocess
import sys
from collections.abc import Iterator

import pytest

from seqprep.sources import Source

_CHILD = """
import hashlib, pickle, sys, traceback
while True:
    try:
        source = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    try:
        digest = hashlib.sha256()
        for key in source.keys:
            for sequence in range(len(source.tags)):
                digest.update(source.read(key, sequence).tobytes())
        source.close()
        print(digest.hexdigest(), flush=True)
    except BaseException:
        print(repr(traceback.format_exc()), flush=True)
"""
_SECONDS = 60


class FreshProcess:
    """A process that inherited nothing, in which every warning is an error."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "error", "-c", _CHILD]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def hash_of(self, source: Source) -> str:
        """Reads all of a pickled copy; gives the SHA-256 of the values, or what went wrong."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(pickle.dumps(source))
        self._child.stdin.flush()
        assert select.select([self._child.stdout], [], [], _SECONDS)[0], "the child doesn't answer"
        return self._child.stdout.readline().decode().strip()

    def close(self) -> None:
        """Ends the process."""
        self._child.kill()
        self._child.communicate()


@pytest.fixture(scope="session")
def fresh_process() -> Iterator[FreshProcess]:
    process = FreshProcess()
    yield process
    process.close()
