"""Options that several commands share, and how they print."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class State:
    """What the command line as a whole was told."""

    debug: bool = False


def _set_debug(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.ensure_object(State).debug = True


def common(command: Command) -> Command:
    """--json and --debug."""
    command = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(command)
    return click.option(
        "--debug", is_flag=True, expose_value=False, callback=_set_debug, help="Show the traceback of an error."
    )(command)


def dataset_argument(command: Command) -> Command:
    """The folder of a finished dataset."""
    return click.argument("path", metavar="DATASET", type=click.Path())(command)


@contextmanager
def warnings_told() -> Iterator[None]:
    """Says the warnings of what is called on stderr, a line each."""
    import logging

    class Telling(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            click.echo(f"seqprep: {record.levelname.lower()}: {record.getMessage()}", err=True)

    log, handler = logging.getLogger("seqprep"), Telling()
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = True


def print_json(result: Any) -> None:
    """Prints a result for machines; paths become strings."""
    click.echo(json.dumps(result, indent=1, ensure_ascii=False, default=str))


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Prints aligned columns, the first to the left and the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = [
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())


def summary_sentence(summary: Any) -> str:
    """Says in a line what a run made: a `seqprep.Summary`."""
    from seqprep.config.units import format_bytes

    done = "already complete" if summary.already_complete else "done"
    speed = "" if summary.already_complete else f" in {summary.seconds:.1f} s"
    return (
        f"{summary.path}: {done}: {summary.sequences:,} sequences as {summary.rows:,} rows in {summary.batches:,} batches, "
        f"{summary.shards:,} shards, {format_bytes(summary.bytes)}{speed}"
    )
