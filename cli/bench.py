"""`seqprep bench`."""

from __future__ import annotations

import click

from seqprep.cli.options import common, print_json, print_table


@click.command()
@click.argument("path", metavar="DATASET | CONFIG.yaml", type=click.Path())
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Times each reader reads.")
@click.option("--max-size", default="1GB", show_default=True, help="Read no more than the first batches of this size.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Reading threads.")
@click.option(
    "--staging/--no-staging", default=True, show_default=True, help="Also through the TensorFlow staging area."
)
@click.option("--device", help="Where to stage, such as /GPU:0; the first GPU, else the CPU, unless given.")
@common
def command(
    path: str, rounds: int, max_size: str, threads: int, staging: bool, device: str | None, as_json: bool
) -> None:
    """Measure how fast a dataset is read, beside what the machine can do.

    All readers take turns in every round; the figures are medians. With a configuration, the batches that it
    makes without shards are measured.

    \b
    Example:
      seqprep bench shards/train
      seqprep bench config.yaml
    """
    import os
    from dataclasses import asdict

    from seqprep.config.units import format_bytes, parse_bytes
    from seqprep.report.bench import bench

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's notes on its own start are none of the result
    result = bench(
        path,
        rounds=rounds,
        max_bytes=parse_bytes(max_size, "--max-size"),
        threads=threads,
        staging=staging,
        device=device,
    )
    if as_json:
        print_json(asdict(result))
        return
    click.echo(f"{path}: {result.batches:,} batches, {format_bytes(result.bytes)}, medians of {result.rounds} rounds\n")
    print_table(
        ["reader", "GB/s", "batches/s", "rows/s", "of the limit", "first batch"],
        [
            [
                reading.name,
                f"{reading.gigabytes_per_second:.2f}",
                f"{reading.batches_per_second:,.0f}",
                f"{reading.rows_per_second:,.0f}",
                f"{reading.share_of_limit:.2f}",
                "" if reading.first_batch_ms is None else f"{reading.first_batch_ms:.1f} ms",
            ]
            for reading in result.readings
        ],
    )
