"""How long the command line takes to start, beside Python importing click: medians of interleaved runs.

python benchmarks/startup.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "python -c 'import click'": [sys.executable, "-c", "import click"],
    "python -c 'import seqprep'": [sys.executable, "-c", "import seqprep"],
    "seqprep --help": [shutil.which("seqprep") or "seqprep", "--help"],
    "seqprep chunk --help": [shutil.which("seqprep") or "seqprep", "chunk", "--help"],
}


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    for command in COMMANDS.values():
        seconds(command)
    times = [{name: seconds(command) for name, command in COMMANDS.items()} for _ in range(rounds)]
    base = "python -c 'import click'"
    for name in COMMANDS:
        median = statistics.median(one[name] for one in times)
        share = statistics.median(one[name] / one[base] for one in times)
        print(f"{name:28} {median * 1e3:6.1f} ms  {share:5.2f} of importing click")


if __name__ == "__main__":
    main()
