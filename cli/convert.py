"""`seqprep convert`."""

from __future__ import annotations

import click

from seqprep.cli.options import common, print_json, summary_sentence


@click.command()
@click.argument("source", metavar="IN", type=click.Path())
@click.argument("output", metavar="OUT", type=click.Path())
@click.option(
    "--format", type=click.Choice(["hdf5", "tfrecord"]), help="Format of the shards; that of IN unless given."
)
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "zstd"]), help="Of the shards; that of IN unless given."
)
@click.option(
    "--shard-size", help="Size of a shard's batches, such as 256MB; the shards stay as they are unless given."
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="Shards written at a time; the number of cores unless given."
)
@click.option("--overwrite", is_flag=True, help="Replace what OUT holds, if it is something else.")
@common
def command(
    source: str,
    output: str,
    format: str | None,
    compression: str | None,
    shard_size: str | None,
    workers: int | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write a dataset's batches in another format, compression, or size of shards.

    The batches and their order stay the same. Interrupted, the same command goes on where it stopped.

    \b
    Example:
      seqprep convert shards/train shards/records --format tfrecord --compression gzip
    """
    from dataclasses import asdict

    from seqprep.cli.progress import ProgressDisplay
    from seqprep.config.units import parse_bytes
    from seqprep.execution import convert

    display = ProgressDisplay()
    try:
        summary = convert(
            source,
            output,
            format=format,
            compression=compression,
            shard_bytes=None if shard_size is None else parse_bytes(shard_size, "--shard-size"),
            workers=workers,
            overwrite=overwrite,
            progress=display,
        )
    finally:
        display.close()
    if as_json:
        print_json(asdict(summary))
    else:
        click.echo(summary_sentence(summary))
