"""`seqprep verify`."""

from __future__ import annotations

import click

from seqprep.cli.options import common, dataset_argument, print_json


@click.command()
@dataset_argument
@click.option(
    "--workers", type=click.IntRange(min=1), help="Shards checked at a time; the number of cores unless given."
)
@click.option(
    "--against-source",
    metavar="[CONFIG.yaml]",
    is_flag=False,
    flag_value="",
    help="Also read the source again and compare every batch; by the dataset's own configuration unless one is given.",
)
@common
def command(path: str, workers: int | None, against_source: str | None, as_json: bool) -> None:
    """Check every byte of a dataset against its checksums.

    Shards, sidecars and index are checked, each by itself and against the others. Each fault is named with its file,
    batch, key and bytes; then the exit code is 1.

    \b
    Example:
      seqprep verify shards/train
      seqprep verify shards/train --against-source
    """
    from dataclasses import asdict

    from seqprep.cli.progress import ProgressDisplay
    from seqprep.config.units import format_bytes
    from seqprep.execution import verify

    display = ProgressDisplay()
    try:
        result = verify(
            path,
            workers=workers,
            against_source=True if against_source == "" else against_source,
            progress=display,
        )
    finally:
        display.close()
    if as_json:
        print_json(asdict(result))
    else:
        for fault in result.faults:
            click.echo(str(fault))
        compared = f", {result.compared:,} batches compared with the source" if against_source is not None else ""
        click.echo(
            f"{path}: {format_bytes(result.bytes)} in {result.shards:,} shards checked{compared}, {len(result.faults)} faults"
        )
    if result.faults:
        click.echo("seqprep: error: the dataset is damaged; seqprep repair makes right what is wrong", err=True)
        raise click.exceptions.Exit(1)
