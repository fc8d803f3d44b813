"""`seqprep chunk`."""

from __future__ import annotations

import os
from typing import Any

import click

from seqprep.cli.document import config_options, document_of
from seqprep.cli.options import common, print_json, summary_sentence, warnings_told


@click.command()
@config_options
@click.option("--workers", type=click.IntRange(min=1), help="Processes; the number of cores unless given.")
@click.option(
    "--overwrite", is_flag=True, help="Replace what OUTPUT holds, if it was made from something else or is damaged."
)
@common
def command(workers: int | None, overwrite: bool, as_json: bool, **arguments: Any) -> None:
    """Cut sequences into chunks, batch them, and write shards.

    Takes a configuration, or an input (a file, folder or glob; "synthetic" makes its own) and an output folder. A flag
    beats the configuration. Interrupted, the same command goes on where it stopped.

    \b
    Example:
      seqprep chunk config.yaml
      seqprep chunk corpus.hdf shards/train --chunk-size 50 --chunk-step 25 --context 5 --max-frames 5000
    """
    from dataclasses import asdict

    from seqprep.cli.progress import ProgressDisplay
    from seqprep.config import load_config
    from seqprep.execution import chunk
    from seqprep.planning import report_lines

    document = document_of(**arguments)
    display = ProgressDisplay()
    try:
        with warnings_told():
            summary = chunk(
                load_config(document), workers=workers or os.cpu_count() or 1, overwrite=overwrite, progress=display
            )
    finally:
        display.close()
    if as_json:
        print_json(asdict(summary))
        return
    click.echo(summary_sentence(summary))
    for part in (summary.parts or {"": summary}).values():
        if summary.parts:
            click.echo(f"  {summary_sentence(part)}")
        for line in report_lines(part.report):
            click.echo(f"  {line}")
