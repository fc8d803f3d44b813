"""`seqprep chunk`."""

from __future__ import annotations

import os
from typing import Any

import click

from seqprep.cli.options import common, print_json


def frames(value: str) -> int | str:
    """A number of frames, or what the configuration takes for a duration."""
    return int(value) if value.lstrip("-").isdigit() else value


_FLAGS: tuple[tuple[str, str, Any, str], ...] = (
    ("--source", "source.type", str, "Kind of input, if it can't be told from INPUT."),
    ("--chunk-size", "chunk.size", frames, "Frames of a chunk; whole sequences unless given."),
    ("--chunk-step", "chunk.step", frames, "Frames from chunk to chunk; the size unless given."),
    ("--min-size", "chunk.min_size", frames, "No chunk but the first starts with so few frames left, or fewer."),
    (
        "--tail",
        "chunk.tail",
        click.Choice(["keep", "drop", "shift"]),
        "What becomes of short chunks at a sequence's end.",
    ),
    ("--context-left", "context.left", frames, "Frames of context in front of each chunk."),
    ("--context-right", "context.right", frames, "Frames of context behind each chunk."),
    (
        "--pad",
        "context.pad",
        click.Choice(["zero", "edge", "reflect", "clip", "drop"]),
        "What stands outside the sequence.",
    ),
    ("--max-frames", "batch.max_frames", frames, "Most frames of a batch, padding included."),
    ("--max-sequences", "batch.max_sequences", int, "Most rows of a batch."),
    ("--order", "order.by", click.Choice(["source", "random"]), "Order of sequences and rows."),
    ("--seed", "order.seed", int, "Seed of the random order."),
    ("--format", "output.format", click.Choice(["hdf5", "tfrecord"]), "Format of the shards."),
    ("--shard-size", "output.shard_size", str, "Size of a shard, such as 256MB."),
)


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _config_flags(command: Any) -> Any:
    for flag, setting, kind, text in reversed(_FLAGS):
        command = click.option(flag, type=kind, help=f"{text} [{setting}]")(command)
    return command


@click.command()
@click.argument("paths", nargs=-1, metavar="CONFIG.yaml | INPUT OUTPUT")
@_config_flags
@click.option("--context", type=frames, help="Frames of context on both sides. [context.left, context.right]")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY.PATH=VALUE", help="Set anything of the configuration."
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes; the number of cores unless given.")
@click.option("--overwrite", is_flag=True, help="Replace what OUTPUT holds, if it was made from something else.")
@common
def command(
    paths: tuple[str, ...],
    assignments: tuple[str, ...],
    context: int | str | None,
    workers: int | None,
    overwrite: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Cut sequences into chunks, batch them, and write shards.

    Takes a configuration, or an input (a file, folder or glob; "synthetic" makes its own) and an output folder. A flag
    beats the configuration. Interrupted, the same command goes on where it stopped.

    \b
    Example:
      seqprep chunk config.yaml
      seqprep chunk corpus.hdf shards/train --chunk-size 50 --chunk-step 25 --context 5 --max-frames 5000
    """
    from dataclasses import asdict

    from seqprep.cli.progress import ProgressDisplay
    from seqprep.config import load_config
    from seqprep.execution import chunk

    document = _document(paths, flags, context, assignments)
    display = ProgressDisplay()
    try:
        summary = chunk(
            load_config(document), workers=workers or os.cpu_count() or 1, overwrite=overwrite, progress=display
        )
    finally:
        display.close()
    if as_json:
        print_json(asdict(summary))
    else:
        click.echo("\n  ".join([_sentence(summary), *summary.changes.lines()]))


def _document(
    paths: tuple[str, ...], flags: dict[str, Any], context: int | str | None, assignments: tuple[str, ...]
) -> Any:
    """The configuration that arguments, flags and --set make together; the later beats the earlier."""
    from seqprep.config import Document, parse_assignment, read_document
    from seqprep.sources.guess import guess_source

    is_config = bool(paths) and paths[0].lower().endswith((".yaml", ".yml"))
    if not ((is_config and len(paths) <= 2) or len(paths) == 2):
        raise click.UsageError("give a configuration (CONFIG.yaml), or INPUT and OUTPUT", click.get_current_context())
    document = read_document(paths[0]) if is_config else Document("the command line")
    if not is_config:
        document.set(("source",), guess_source(paths[0], flags["source"]), "INPUT")
    if len(paths) == 2:
        document.set(("output", "path"), paths[1], "OUTPUT")
    if context is not None:
        document.set(("context", "left"), context, "--context")
        document.set(("context", "right"), context, "--context")
    for flag, setting, _, _ in _FLAGS:
        if flags[_name(flag)] is not None:
            document.set(tuple(setting.split(".")), flags[_name(flag)], flag)
    for assignment in assignments:
        path, value = parse_assignment(assignment)
        document.set(path, value, f"--set {assignment}")
    return document


def _sentence(summary: Any) -> str:
    from seqprep.config.units import format_bytes

    done = "already complete" if summary.already_complete else "done"
    speed = "" if summary.already_complete else f" in {summary.seconds:.1f} s"
    return (
        f"{summary.path}: {done}: {summary.sequences:,} sequences as {summary.rows:,} rows in {summary.batches:,} batches, "
        f"{summary.shards:,} shards, {format_bytes(summary.bytes)}{speed}"
    )
