"""`seqprep repair`."""

from __future__ import annotations

import click

from seqprep.cli.options import common, dataset_argument, print_json


@click.command()
@dataset_argument
@click.option(
    "--config", metavar="CONFIG.yaml", help="What made the dataset, should its source have moved; its own unless given."
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="Processes for making shards; the number of cores unless given."
)
@common
def command(path: str, config: str | None, workers: int | None, as_json: bool) -> None:
    """Make a damaged dataset whole again, to the same bytes.

    A lost or damaged index is made from the shards, a sidecar from its shard; only shards that are damaged themselves
    are made again from the source.

    \b
    Example:
      seqprep repair shards/train
    """
    import os
    from dataclasses import asdict

    from seqprep.cli.progress import ProgressDisplay
    from seqprep.execution import repair

    display = ProgressDisplay()
    try:
        result = repair(path, config=config, workers=workers or os.cpu_count() or 1, progress=display)
    finally:
        display.close()
    if result.unchecked:
        click.echo(
            f"seqprep: warning: {path}: taken without a checksum, for none was left: {', '.join(result.unchecked)}; "
            "seqprep verify --against-source compares them with their source",
            err=True,
        )
    if as_json:
        print_json(asdict(result))
        return
    made = [*(["the index"] if result.index else []), *result.sidecars, *result.shards]
    for name in made:
        click.echo(f"{path}: made again: {name}")
    click.echo(f"{path}: {'whole again' if made else 'nothing was wrong'}")
