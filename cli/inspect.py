"""`seqprep inspect`."""

from __future__ import annotations

from typing import Any

import click

from seqprep.cli.options import common, dataset_argument, print_json, print_table


@click.command()
@dataset_argument
@click.option("--batch", "number", type=click.IntRange(min=0), default=0, show_default=True, help="The batch to show.")
@common
def command(path: str, number: int, as_json: bool) -> None:
    """Show what a dataset holds, and one of its batches.

    \b
    Example:
      seqprep inspect shards/train --batch 3
    """
    from seqprep.report.inspection import describe_batch, describe_dataset

    dataset, batch = describe_dataset(path), describe_batch(path, number)
    if as_json:
        print_json({"dataset": dataset, "batch": batch})
        return
    _print_dataset(dataset)
    click.echo(f"\nbatch {number}")
    print_table(
        ["name", "dtype", "shape", "least", "greatest", "first values"],
        [
            [name, str(entry["dtype"]), str(entry["shape"]), *(_short(entry.get(part)) for part in ("least", "greatest")),
             ", ".join(map(_short, entry["first"]))]
            for name, entry in batch.items()
        ],
    )  # fmt: skip


def _print_dataset(dataset: dict[str, Any]) -> None:
    from seqprep.config.units import format_bytes

    click.echo(
        f"{dataset['path']}: {dataset['sequences']:,} sequences as {dataset['rows']:,} rows in {dataset['batches']:,} batches, "
        f"{dataset['shards']:,} {dataset['format']} shards, {format_bytes(dataset['bytes'])}, "
        f"{dataset['padding_share']:.1%} padding\n"
    )
    print_table(
        ["key", "dtype", "shape"],
        [[name, spec["dtype"], _shape(spec)] for name, spec in dataset["keys"].items()],
    )


def _shape(spec: dict[str, Any]) -> str:
    sizes = ["N" if size is None else str(size) for size in spec["shape"]]
    return f"[{', '.join(['B', *(['T'] if spec['has_time'] else []), *sizes])}]"


def _short(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value if len(value) <= 20 else value[:19] + "…"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
