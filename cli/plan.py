"""`seqprep plan`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import click

from seqprep.cli.document import config_options, document_of
from seqprep.cli.options import common, print_json, print_table

_BAR = 40


@click.command()
@config_options
@common
def command(as_json: bool, **arguments: Any) -> None:
    """Tell what seqprep chunk would write, from lengths alone; write nothing.

    Takes what seqprep chunk takes. Sizes are exact where nothing is compressed; sidecars and the index come on top.

    \b
    Example:
      seqprep plan config.yaml
      seqprep plan corpus.hdf shards/train --chunk-size 50 --chunk-step 25 --context 5 --max-frames 5000
    """
    from seqprep.config import load_config
    from seqprep.execution import plan

    parts = plan(load_config(document_of(**arguments)))
    for part in parts.values():
        for message in part.warnings:
            click.echo(f"seqprep: warning: {part.path}: {message}", err=True)
    if as_json:
        described = {name: part.as_dict() for name, part in parts.items()}
        print_json(described[""] if list(parts) == [""] else {"parts": described})
        return
    _print_parts(parts)
    for name, part in parts.items():
        _print_keys(name, part)
        if len(part.passes) > 1:
            _print_passes(part)
        for number, line in enumerate(part.dropped()):
            click.echo(f"{'' if number else chr(10)}{line}")
        lengths = [f"{low:,.0f} – {high - 1:,.0f}" for low, high in pairwise(part.lengths.edges)]
        _print_histogram("frames of a sequence", lengths, part.lengths)
        shares = [f"{low:.0%} – {high:.0%}" for low, high in pairwise(part.padding.edges)]
        _print_histogram("padding of a batch", shares, part.padding)


def _print_parts(parts: Any) -> None:
    """What there will be of everything, a line for each part, and one for all of a split together."""
    from seqprep.config.units import format_bytes

    first = next(iter(parts.values()))
    size = "bytes" if first.compression == "none" else "bytes before compression"
    header = ["dataset", "sequences", "chunks", "rows", "batches", "shapes", "shards", size, ""]
    counted = ("sequences", "chunks", "rows", "batches", "shapes", "shards", "bytes")
    numbers = [
        [part.sequences, part.chunks, *(part.total(name) for name in ("rows", "batches")), part.shapes,
         len(part.shards), part.total("bytes")]
        for part in parts.values()
    ]  # fmt: skip
    names = [str(part.path) for part in parts.values()]
    if len(parts) > 1:
        names.append("together")
        numbers.append([sum(column) for column in zip(*numbers, strict=True)])
    rows = []
    for name, line in zip(names, numbers, strict=True):
        cells = [f"{number:,}" for number in line]
        if name == "together":
            cells[counted.index("shapes")] = ""  # parts may share them
        rows.append([name, *cells, format_bytes(line[-1])])
    print_table(header, rows)


def _print_keys(name: str, part: Any) -> None:
    click.echo()
    if name:
        click.echo(f"{part.path}:")
    print_table(
        ["key", "frames", "of them context", "padding frames", "share of padding", "read, times"],
        [
            [
                key,
                f"{found.frames:,}",
                f"{found.context_share:.1%}",
                f"{found.padding_frames:,}",
                f"{found.padding_share:.1%}",
                f"{found.read_amplification:.2f}",
            ]
            for key, found in part.keys.items()
        ],
    )


def _print_passes(part: Any) -> None:
    click.echo()
    print_table(
        ["pass", "rows", "batches", "shards", "frames", "bytes", *(f"padding of {key}" for key in part.keys)],
        [
            [str(one.epoch), *(f"{number:,}" for number in (one.rows, one.batches, one.shards, one.frames, one.bytes)),
             *(f"{frames:,}" for frames in one.padding.values())]
            for one in part.passes
        ],
    )  # fmt: skip


def _print_histogram(title: str, labels: list[str], histogram: Any) -> None:
    """Bars of plain letters, the fullest bin the longest; a bin with anything in it has one letter at least."""
    click.echo(f"\n{title}")
    most = max(histogram.counts, default=0) or 1
    label_width = max(map(len, labels))
    count_width = max(len(f"{count:,}") for count in histogram.counts)
    for label, count in zip(labels, histogram.counts, strict=True):
        bar = "#" * -(-count * _BAR // most)
        click.echo(f"  {label:>{label_width}}  {count:>{count_width},}  {bar}".rstrip())
