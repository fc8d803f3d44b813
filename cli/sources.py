"""`seqprep sources`."""

from __future__ import annotations

import textwrap
from typing import Any

import click

from seqprep.cli.options import common, print_json

_WIDTH = 100


@click.command()
@click.argument("types", nargs=-1, metavar="[TYPE]…")
@common
def command(types: tuple[str, ...], as_json: bool) -> None:
    """List the readers of inputs, with their options.

    Without TYPE all of them. An input's reader is told from its ending, or by source.type and --source.

    \b
    Example:
      seqprep sources
      seqprep sources npz csv
    """
    from dataclasses import asdict

    from seqprep.config import suggestion
    from seqprep.sources.catalogue import describe_readers

    readers = describe_readers()
    known = [reader.type for reader in readers]
    for name in types:
        if name not in known:
            raise click.UsageError(f"no reader goes by {name!r}{suggestion(name, known)}", click.get_current_context())
    readers = [reader for reader in readers if not types or reader.type in types]
    if as_json:
        print_json([asdict(reader) for reader in readers])
        return
    for place, reader in enumerate(readers):
        click.echo(("\n" if place else "") + f"{reader.type}{_needs(reader)}")
        click.echo(_indented(reader.problem or reader.summary, 2))
        for option in reader.options:
            click.echo(f"  {option.name}: {_default(option)}")
            click.echo(_indented(f"{option.meaning} [{option.type}]".strip(), 6))


def _needs(reader: Any) -> str:
    if reader.extra is None:
        return ""
    have = "installed" if reader.installed else f"not installed: pip install 'seqprep[{reader.extra}]'"
    return f" (extra {reader.extra}, {have})"


def _default(option: Any) -> str:
    if option.required:
        return "(required)"
    if isinstance(option.default, bool) or option.default is None:
        return {True: "true", False: "false", None: "null"}[option.default]
    return str(option.default)


def _indented(text: str, depth: int) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=" " * depth, subsequent_indent=" " * depth)
