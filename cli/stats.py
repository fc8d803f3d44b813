"""`seqprep stats`."""

from __future__ import annotations

import os
from typing import Any

import click

from seqprep.cli.document import assign, assignments_option, document_of_input, is_config
from seqprep.cli.options import common, print_json, print_table


@click.command()
@click.argument("path", metavar="CONFIG.yaml | INPUT")
@click.option("--output", "-o", type=click.Path(), help="Where to write the result, for keys.NAME.normalize.")
@click.option("--part", help="The part of a split to measure, such as train; all together unless given.")
@assignments_option
@click.option("--threads", type=click.IntRange(min=1), help="That read at once; the number of cores unless given.")
@common
def command(
    path: str, part: str | None, output: str | None, assignments: tuple[str, ...], threads: int | None, as_json: bool
) -> None:
    """Measure mean and deviation of every key, over the sequences that a configuration takes.

    \b
    Example:
      seqprep stats config.yaml --output stats.json
      seqprep chunk config.yaml --set keys.data.normalize=stats.json
    """
    from seqprep.cli.progress import ProgressDisplay
    from seqprep.config import load_config
    from seqprep.execution import describe_statistics, stats

    display = ProgressDisplay()
    try:
        found = stats(
            load_config(_document(path, assignments)),
            part=part,
            output=output,
            threads=threads or os.cpu_count() or 1,
            progress=lambda done, total: display.show(done, total, "sequences"),
        )
    finally:
        display.close()
    if as_json:
        print_json(describe_statistics(found))
        return
    print_table(
        ["key", "frames", "mean", "std", "least", "greatest"],
        [
            [key, f"{one.frames:,}", *(_range(getattr(one, part)) for part in ("mean", "std", "least", "greatest"))]
            for key, one in found.items()
        ],
    )


def _document(path: str, assignments: tuple[str, ...]) -> Any:
    """The configuration; for a bare input one that takes all of it."""
    document = document_of_input(path)
    if not is_config(path):
        document.set(("batch", "max_sequences"), 1, "INPUT")
        document.set(("output", "path"), ".", "INPUT")
    assign(document, assignments)
    return document


def _range(values: Any) -> str:
    """One number, or the least and the greatest over the features."""
    least, greatest = float(values.min()), float(values.max())
    return f"{least:.4g}" if values.size == 1 else f"{least:.4g} … {greatest:.4g}"
