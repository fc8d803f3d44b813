"""How long planning takes, and how much memory, in every mode; each in a process of its own.

    python benchmarks/planning.py [--sequences 1000000] [--modes random,global] [--commands]

Sequences are as long as sentences are (lognormal, 113 frames on average), in chunks of 50 by 25: about five of them each,
with 5 frames of context on both sides, a label per frame, and shards of 256 MB. "plan" is what the client does; "shards"
is the planning of every row and batch of all shards, which runs in the workers. A second table is of the command
`seqprep plan` on sequences like these, from its start to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

from seqprep.config import load_config
from seqprep.planning import SelectRule, SplitRule, count_chunks, plan_parts, resolve, select
from seqprep.types import KeySpec, Tags

MODES: dict[str, dict[str, Any]] = {
    "source": {},
    "reverse": {"order": {"by": "reverse"}},
    "random": {"order": {"by": "random"}},
    "sorted": {"order": {"by": "sorted"}},
    "laplace:100": {"order": {"by": "laplace:100"}},
    "global": {"order": {"by": "random", "scope": "global"}},
    "bucket sorted": {"batch": {"bucket": "sorted"}},
    "boundaries": {"batch": {"bucket": {"boundaries": [20, 30, 40, 50]}}},
    "auto:8, pad_to bucket": {"batch": {"bucket": {"auto": 8}, "pad_to": "bucket", "pad_rows": True}},
    "pad_to 8, drop_last": {"batch": {"pad_to": 8, "drop_last": True}},
    "pack chunks": {"batch": {"pack": True, "row_frames": 1000}, "order": {"by": "random"}},
    "pack sequences": {"batch": {"pack": True, "row_frames": 1000}, "chunk": None, "order": {"by": "random"}},
    "auto:32, sequences": {"batch": {"bucket": {"auto": 32}, "pad_to": "bucket"}, "chunk": None},
    "budget too small": {"batch": {"max_frames": 40}},
    "select, split by regex": {
        "select": {"include": "spk", "exclude": "9$", "min_frames": 20, "max_frames": 2000},
        "split": {"train": 0.9, "dev": 0.05, "test": 0.05, "by": "(spk[0-9]+)"},
        "output": {"path": "{split}"},
    },
    "partition 2/3": {"partition": "2/3", "order": {"by": "random"}},
    "epochs 2": {"epochs": 2, "order": {"by": "random"}},
}


def corpus(sequences: int) -> tuple[dict[str, np.ndarray], Tags]:
    """Lengths per key, and tags such as spk0123-utt00004567."""
    frames = np.exp(np.random.default_rng(1).normal(4.5, 0.67, sequences)).astype(np.int64) + 1
    numbers = np.arange(sequences)
    digits = [*(numbers % 997 // 10**p % 10 for p in (3, 2, 1, 0)), *(numbers // 10**p % 10 for p in range(7, -1, -1))]
    text = np.full((sequences, 19), ord("-"), np.uint8)
    text[:, :3], text[:, 8:11] = list(b"spk"), list(b"utt")
    text[:, [3, 4, 5, 6, *range(11, 19)]] = np.stack(digits, axis=1) + ord("0")
    tags = Tags(text.reshape(-1), np.arange(1, sequences + 1) * 19)
    return {"data": frames, "classes": frames.copy()}, tags


def settings(mode: str) -> dict[str, Any]:
    """The configuration of a mode."""
    wanted = MODES[mode]
    base: dict[str, Any] = {
        "source": {"type": "synthetic"},
        "chunk": {"size": 50, "step": 25},
        "context": 5,
        "batch": {"max_frames": 5000, "max_sequences": 80},
        "order": {"by": "source"},
        "output": {"path": "out"},
    }
    return {name: base[name] | wanted[name] if wanted.get(name) and name in base else wanted.get(name, value)
            for name, value in (base | wanted).items()}  # fmt: skip


def measure(mode: str, sequences: int) -> dict[str, float]:
    """Plans in one mode; seconds and bytes."""
    lengths, tags = corpus(sequences)
    specs = {"data": KeySpec(dtype="float32", shape=(40,)), "classes": KeySpec(dtype="int32")}
    config = load_config(settings(mode))
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    rules, _ = resolve(config, specs)
    selected = select(lengths["data"], count_chunks(lengths, rules), tags, SelectRule.of(config, None))
    parts = plan_parts(lengths, tags, selected, rules, SplitRule.of(config))
    planned = time.perf_counter()
    shards = batches = 0
    for plan in parts.values():
        for shard in range(len(plan)):
            batches += len(plan.shard(shard).batch_rows)
        shards += len(plan)
    ended = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "rows": sum(plan.rows for plan in parts.values()), "batches": batches, "shards": shards,
        "plan": planned - started, "all": ended - planned, "peak": peak * 1024, "more": (peak - before) * 1024,
    }  # fmt: skip


COMMANDS = {"hdf5": [], "tfrecord": ["--format", "tfrecord"], "global": ["--set", "order.scope=global"]}


def measure_command(options: list[str], sequences: int) -> tuple[int, float, int]:
    """Runs `seqprep plan` on made-up sequences of 115 frames on average: chunks, seconds and bytes of memory."""
    command = [sys.executable, "-m", "seqprep", "plan", "synthetic", "out", "--json", "--order", "random",
               "--chunk-size", "50", "--chunk-step", "25", "--context", "5", "--max-frames", "5000", "--max-sequences", "80",
               "--set", f"source.sequences={sequences}", "--set", "source.mean_frames=115",
               "--set", "source.min_frames=10", "--set", "source.max_frames=1000", *options]  # fmt: skip
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        raise SystemExit("seqprep plan failed")
    return json.loads(printed)["chunks"], seconds, usage.ru_maxrss * 1024


def print_commands(sequences: int) -> None:
    """Measures the command in every way, and prints a table."""
    print("\n| seqprep plan | chunks | seconds | peak, MB |\n|---|---|---|---|")
    for name, options in COMMANDS.items():
        chunks, seconds, peak = measure_command(options, sequences)
        print(f"| {name} | {chunks:,} | {seconds:.2f} | {peak / 1e6:.0f} |", flush=True)


def main() -> None:
    """Runs every mode in a fresh process, and prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sequences", type=int, default=1_000_000)
    parser.add_argument("--modes", help="comma-separated beginnings of their names")
    parser.add_argument("--commands", action="store_true", help="the second table alone")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.sequences)))
        return
    print(f"{arguments.sequences:,} sequences\n")
    if arguments.commands:
        print_commands(arguments.sequences)
        return
    print("| mode | rows | batches | shards | plan, s | shards, s | together, s | peak, MB | of it planning, MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for mode in MODES:
        if arguments.modes and not any(mode.startswith(wanted) for wanted in arguments.modes.split(",")):
            continue
        command = [sys.executable, __file__, "--sequences", str(arguments.sequences), "--one", mode]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"| {mode} | {found['rows']:,} | {found['batches']:,} | {found['shards']} | {found['plan']:.2f} | "
            f"{found['all']:.2f} | {found['plan'] + found['all']:.2f} | {found['peak'] / 1e6:.0f} | {found['more'] / 1e6:.0f} |",
            flush=True,
        )
    print_commands(arguments.sequences)


if __name__ == "__main__":
    main()
