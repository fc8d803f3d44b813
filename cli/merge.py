"""`seqprep merge`."""

from __future__ import annotations

import click

from seqprep.cli.options import common, print_json, summary_sentence


@click.command()
@click.argument("output", metavar="OUT", type=click.Path())
@click.argument("inputs", metavar="IN...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--refer", is_flag=True, help="Name the shards where they are, by relative paths, instead of linking them."
)
@click.option("--overwrite", is_flag=True, help="Replace what OUT holds, if it is something else.")
@common
def command(output: str, inputs: tuple[str, ...], refer: bool, overwrite: bool, as_json: bool) -> None:
    """Make one dataset of several with equal keys, without copying them.

    OUT's shards are hard links to theirs, so that it stays whole whatever becomes of them. On another file system, use
    --refer: then OUT holds an index alone, and the datasets have to stay where they are.

    \b
    Example:
      seqprep merge shards/all shards/english shards/german
    """
    from dataclasses import asdict

    from seqprep.execution import merge

    summary = merge(output, inputs, refer=refer, overwrite=overwrite)
    if as_json:
        print_json(asdict(summary))
    else:
        click.echo(summary_sentence(summary))
