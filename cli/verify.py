"""`seqprep verify`."""

from __future__ import annotations

import click

from seqprep.cli.options import common, dataset_argument, print_json


@click.command()
@dataset_argument
@click.option("--threads", type=click.IntRange(min=1), help="Shards read at a time; the number of cores unless given.")
@common
def command(path: str, threads: int | None, as_json: bool) -> None:
    """Check every byte of a dataset against its checksums.

    \b
    Example:
      seqprep verify shards/train
    """
    from dataclasses import asdict

    from seqprep.config.units import format_bytes
    from seqprep.shards import Dataset, verify_dataset

    dataset = Dataset(path)
    checked, faults = 0, []
    for size, found in verify_dataset(dataset, threads):
        checked += size
        faults += found
    shards = len(dataset.index.shards)
    if as_json:
        print_json({"shards": shards, "bytes": checked, "faults": [asdict(fault) for fault in faults]})
    else:
        for fault in faults:
            click.echo(str(fault))
        click.echo(f"{path}: {format_bytes(checked)} in {shards:,} shards checked, {len(faults)} faults")
    if faults:
        click.echo("seqprep: error: the dataset is damaged; make it again with seqprep chunk --overwrite", err=True)
        raise click.exceptions.Exit(1)
