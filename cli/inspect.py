"""`seqprep inspect`."""

from __future__ import annotations

from typing import Any

import click

from seqprep.cli.options import common, print_json, print_table


@click.command()
@click.argument("path", metavar="DATASET | INPUT", type=click.Path())
@click.option("--batch", "number", type=click.IntRange(min=0), help="The batch of a dataset to show; 0 unless given.")
@click.option("--source", "kind", help="Kind of input, if it can't be told from INPUT.")
@common
def command(path: str, number: int | None, kind: str | None, as_json: bool) -> None:
    """Show what a dataset holds, and one of its batches; or what an input holds, and how it could be cut.

    An input is anything that `seqprep chunk` takes: a file, a folder, a glob. The configuration proposed for it can be
    saved as it is.

    \b
    Example:
      seqprep inspect shards/train --batch 3
      seqprep inspect corpus/
    """
    from seqprep.report.source_inspection import describe_source, is_dataset

    if kind is None and is_dataset(path):
        _inspect_dataset(path, number or 0, as_json)
        return
    if number is not None:
        raise click.UsageError(f"--batch is for datasets, and {path} is none", click.get_current_context())
    described = describe_source(path, kind)
    if as_json:
        print_json(described)
    else:
        _print_source(described)


def _inspect_dataset(path: str, number: int, as_json: bool) -> None:
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
             _values(entry["first"])]
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
        ["key", "dtype", "shape"], [[name, spec["dtype"], _shape(spec, "B")] for name, spec in dataset["keys"].items()]
    )


def _print_source(described: dict[str, Any]) -> None:
    from seqprep.config.units import format_bytes

    if described["decided"]:
        click.echo(f"seqprep: {described['decided']}", err=True)
    click.echo(
        f"{described['path']}: {described['source']['type']}, {described['sequences']:,} sequences, "
        f"{format_bytes(described['bytes'])} of values\n"
    )
    statistics = ("least", "median", "mean", "greatest", "empty")
    print_table(
        ["key", "dtype", "shape", "shortest", "median", "mean", "longest", "empty", "first values"],
        [
            [name, spec["dtype"], _shape(spec), *(_short(spec.get("lengths", {}).get(part)) for part in statistics),
             _values(spec["first"])]
            for name, spec in described["keys"].items()
        ],
    )  # fmt: skip
    more = ", …" if described["sequences"] > len(described["first_tags"]) else ""
    click.echo(f"\nfirst tags: {', '.join(map(repr, described['first_tags']))}{more}\n")
    click.echo(described["configuration"] or "no key has frames, so there is nothing to cut", nl=False)


def _shape(spec: dict[str, Any], *first: str) -> str:
    sizes = ["N" if size is None else str(size) for size in spec["shape"]]
    return f"[{', '.join([*first, *(['T'] if spec['has_time'] else []), *sizes])}]"


def _values(values: list[Any]) -> str:
    return ", ".join(map(_short, values))


def _short(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value if len(value) <= 20 else value[:19] + "…"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
