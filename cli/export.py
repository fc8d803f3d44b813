"""`seqprep export`."""

from __future__ import annotations

import click

from seqprep.cli.options import common, print_json


@click.command()
@click.argument("source", metavar="IN", type=click.Path())
@click.argument("output", metavar="OUT", type=click.Path())
@click.option(
    "--format", type=click.Choice(["npz", "hdf5"]), help="By OUT's ending unless given: .h5 is hdf5, else npz."
)
@click.option(
    "--key", "keys", multiple=True, metavar="KEY", help="Export this key, and others so named; all unless given."
)
@click.option(
    "--gaps",
    type=click.Choice(["error", "nan"]),
    default="error",
    show_default=True,
    help="What becomes of frames that no row holds.",
)
@click.option("--overwrite", is_flag=True, help="Replace what OUT holds.")
@common
def command(
    source: str, output: str, format: str | None, keys: tuple[str, ...], gaps: str, overwrite: bool, as_json: bool
) -> None:
    """Put a dataset's rows back together to whole sequences.

    npz makes OUT a folder with a file for each sequence, hdf5 one file in RETURNN's flat layout. Chunks are joined
    without their context; where they overlap, they have to agree.

    \b
    Example:
      seqprep export shards/train sequences
      seqprep export shards/train corpus.h5 --key data
    """
    from dataclasses import asdict

    from seqprep.cli.progress import ProgressDisplay
    from seqprep.execution import export

    display = ProgressDisplay(unit="sequences")
    try:
        result = export(
            source,
            output,
            format=format,  # type: ignore[arg-type]  # click has checked it
            keys=keys or None,
            gaps=gaps,  # type: ignore[arg-type]
            overwrite=overwrite,
            progress=display,
        )
    finally:
        display.close()
    if as_json:
        print_json(asdict(result))
    else:
        click.echo(f"{result.path}: {result.sequences:,} sequences with {result.frames:,} frames as {result.format}")
