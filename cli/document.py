"""The configuration that arguments and flags make together, for every command that takes one."""

from __future__ import annotations

from typing import Any

import click

from seqprep.cli.options import Command


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


def assignments_option(command: Command) -> Command:
    """--set."""
    return click.option(
        "--set", "assignments", multiple=True, metavar="KEY.PATH=VALUE", help="Set anything of the configuration."
    )(command)


def config_options(command: Command) -> Command:
    """A configuration, or INPUT and OUTPUT, and the flags that beat it; `document_of` takes what they give."""
    command = assignments_option(command)
    command = click.option(
        "--context", type=frames, help="Frames of context on both sides. [context.left, context.right]"
    )(command)
    for flag, setting, kind, text in reversed(_FLAGS):
        command = click.option(flag, type=kind, help=f"{text} [{setting}]")(command)
    return click.argument("paths", nargs=-1, metavar="CONFIG.yaml | INPUT OUTPUT")(command)


def is_config(path: str) -> bool:
    """Whether a path is that of a configuration."""
    return path.lower().endswith((".yaml", ".yml"))


def document_of(paths: tuple[str, ...], assignments: tuple[str, ...], context: int | str | None, **flags: Any) -> Any:
    """The configuration that arguments, flags and --set make together; the later beats the earlier.

    Raises:
        ConfigError: the configuration can't be read, or an assignment is none.
        SourceError: what kind of input it is can't be told.
    """
    if not ((len(paths) == 1 and is_config(paths[0])) or len(paths) == 2):
        raise click.UsageError("give a configuration (CONFIG.yaml), or INPUT and OUTPUT", click.get_current_context())
    document = document_of_input(paths[0], flags["source"])
    if len(paths) == 2:
        document.set(("output", "path"), paths[1], "OUTPUT")
    if context is not None:
        document.set(("context", "left"), context, "--context")
        document.set(("context", "right"), context, "--context")
    for flag, setting, _, _ in _FLAGS:
        if flags[_name(flag)] is not None:
            document.set(tuple(setting.split(".")), flags[_name(flag)], flag)
    assign(document, assignments)
    return document


def document_of_input(path: str, source_type: str | None = None) -> Any:
    """Reads a configuration, or begins one for a bare input, and says what kind that was taken for.

    Args:
        path: of either.
        source_type: the input's kind, if it was told.

    Raises:
        ConfigError: the configuration can't be read.
        SourceError: what kind of input it is can't be told.
    """
    from seqprep.config import Document, read_document
    from seqprep.sources.guess import guess_source

    if is_config(path):
        return read_document(path)
    guess = guess_source(path, source_type)
    if guess.reason:
        click.echo(f"seqprep: {guess.reason}", err=True)
    document = Document("the command line")
    document.set(("source",), guess.settings, "INPUT")
    return document


def assign(document: Any, assignments: tuple[str, ...]) -> None:
    """Sets what --set gave.

    Raises:
        ConfigError: one is no assignment.
    """
    from seqprep.config import parse_assignment

    for assignment in assignments:
        setting, value = parse_assignment(assignment)
        document.set(setting, value, f"--set {assignment}")
