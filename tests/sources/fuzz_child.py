"""Opens and reads damaged files, in a process of its own: python fuzz_child.py FOLDER FIRST LAST.

Each folder in FOLDER holds a sample, and truth.pickle: its settings, the file to damage, its values, and whether a checksum
covers them. A case that doesn't end in time kills the process; what it was at stands in FOLDER/progress.
"""

from __future__ import annotations

import json
import pickle
import random
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from seqprep.errors import SeqprepError
from seqprep.sources import open_source

_CASE_SECONDS = 20
_MOST_BYTES = 600_000_000
"""That a case may take beyond what the process has before; the samples have some kilobytes."""


def damage(content: bytes, draw: random.Random) -> bytes:
    """Cuts a file off, flips a few bits, overwrites, removes, or doubles a stretch."""
    kind = draw.randrange(6)
    place = draw.randrange(len(content))
    size = draw.choice([1, 2, 4, 8, 100])
    if kind == 0:
        return content[:place]
    if kind == 1:
        return content[:place] + content[place + size :]
    if kind == 2:
        return content[: place + size] + content[place:]
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 5])):
        spot = draw.randrange(len(content))
        if kind in (3, 4):
            changed[spot] ^= 1 << draw.randrange(8)
        else:
            changed[spot : spot + size] = bytes(draw.choice([0, 255, draw.randrange(256)]) for _ in range(size))[
                : len(content) - spot
            ]
    return bytes(changed)


def expect(truth: bool, message: str) -> None:
    if not truth:
        raise AssertionError(message)


def check(settings: dict[str, Any], truth: dict[str, dict[str, Any]], folder: str, must_be_right: bool) -> str:
    """Opens and reads everything; gives what came of it. An error has to be ours, and name the file and the sequence."""
    try:
        source = open_source(settings)
    except SeqprepError as error:
        expect(folder in str(error), f"no file in: {error}")
        return "refused"
    outcome = "read"
    for key, spec in source.keys.items():
        lengths = source.lengths(key).tolist() if spec.has_time else [1] * len(source.tags)
        for sequence, tag in enumerate(source.tags):
            if lengths[sequence] * max(spec.nbytes, 1) > _MOST_BYTES // 4:
                continue  # a length of a format without checksums that claims too much; nobody has asked for it
            try:
                values = source.read(key, sequence)
            except SeqprepError as error:
                expect(folder in str(error), f"no file in: {error}")
                expect(repr(tag) in str(error), f"no sequence {tag!r} in: {error}")
                outcome = "failed"
                continue
            if must_be_right and tag in truth.get(key, {}):
                right = truth[key][tag]
                same = values.dtype == right.dtype and values.tobytes() == right.tobytes()
                expect(same, f"key {key!r} of {tag!r} is silently wrong")
            shape = (lengths[sequence], *spec.shape) if spec.has_time else spec.shape
            expect(values.shape == shape, f"key {key!r} of {tag!r} has the shape {values.shape}, not {shape}")
    source.close()
    return outcome


def limit_memory() -> None:
    """Makes an allocation fail that the samples can't need."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _MOST_BYTES, resource.RLIM_INFINITY))


def main() -> None:
    folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    samples = {}
    for sample in sorted(path for path in folder.iterdir() if path.is_dir()):
        settings, path, truth, must_be_right = pickle.loads((sample / "truth.pickle").read_bytes())
        (folder / "progress").write_text(f"{sample.name}, undamaged")
        expect(check(settings, truth, str(sample), True) == "read", f"{sample.name}: the sample can't be read")
        samples[sample.name] = settings, truth, must_be_right, path, path.read_bytes()
    limit_memory()
    outcomes: dict[str, dict[str, int]] = {}
    for kind, (settings, truth, must_be_right, path, whole) in samples.items():
        counts = outcomes[kind] = {}
        for case in range(first, last):
            (folder / "progress").write_text(f"{kind}, case {case}")
            path.write_bytes(damage(whole, random.Random(f"{kind} {case}")))
            signal.alarm(_CASE_SECONDS)
            outcome = check(settings, truth, str(path.parent), must_be_right)
            signal.alarm(0)
            counts[outcome] = counts.get(outcome, 0) + 1
    print(json.dumps(outcomes))


if __name__ == "__main__":
    np.seterr(all="raise")
    main()
