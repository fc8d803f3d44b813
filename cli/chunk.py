"""`seqprep chunk`."""

from __future__ import annotations

import os
from typing import Any

import click

from seqprep.cli.options import common, print_json, summary_sentence, warnings_told


def frames(value: str) -> int | str:
    """A number of frames, or what the configuration takes for a duration."""
    return int(value) if value.lstrip("-").isdigit() else value


_FLAGS: tuple[tuple[str, str, Any, str], ...] = (
    ("--source", "source.type", str, "Kind of input, if it can't be told from INPUT."),
    ("--chunk-size", "chunk.size", frames, "Frames of a chunk; whole sequences unless given."),
    ("--chunk-step", "chunk.step", frames, "Frames from chunk to chunk; the size unless given."),
    ("--min-size", "chunk.min_size", frames, "No chunk but the first starts with so few frames left, or fewer."),
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
    ("--bucket", "batch.bucket", str, "Length classes: none, sorted, auto:8, or boundaries:100,200."),
    (
        "--pad-to",
        "batch.pad_to",
        str,
        "Length of rows: longest (of the batch), bucket, or a multiple of so many frames.",
    ),
    ("--order", "order.by", str, "source, reverse, random, sorted, sorted_reverse, or laplace:BINS."),
    ("--seed", "order.seed", int, "Seed of every random order."),
    ("--epochs", "epochs", int, "Passes over the input, each in an order of its own."),
    ("--partition", "partition", str, "k/n: only part k (from 1) of n of the ordered sequences."),
    ("--format", "output.format", click.Choice(["hdf5", "tfrecord"]), "Format of the shards."),
    ("--compression", "output.compression", click.Choice(["none", "gzip", "zstd"]), "Compression of the shards."),
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
@click.option(
    "--overwrite", is_flag=True, help="Replace what OUTPUT holds, if it was made from something else or is damaged."
)
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
    from seqprep.planning import cut_lines

    document = _document(paths, flags, context, assignments)
    display = ProgressDisplay()
    try:
        with warnings_told():
            summary = chunk(
                load_config(document), workers=workers or os.cpu_count() or 1, overwrite=overwrite, progress=display
            )
    finally:
        display.close()
    if as_json:
        print_json(asdict(summary))
        return
    click.echo(summary_sentence(summary))
    for part in (summary.parts or {"": summary}).values():
        if summary.parts:
            click.echo(f"  {summary_sentence(part)}")
        for reason, count in part.report.get("left_out", {}).items():
            click.echo(f"  left out by {reason}: {_counted(count)}")
        for line in cut_lines(part.report.get("cut", {})):
            click.echo(f"  {line}")


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
        guess = guess_source(paths[0], flags["source"])
        if guess.reason:
            click.echo(f"seqprep: {guess.reason}", err=True)
        document.set(("source",), guess.settings, "INPUT")
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


def _counted(count: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in count.items() if number)
