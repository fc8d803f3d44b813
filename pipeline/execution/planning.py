"""Plans what a configuration asks for, against an opened source."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from seqprep.config import Config
from seqprep.errors import ConfigError
from seqprep.execution.normalization import Normalizer, digest, normalizers_for
from seqprep.planning import (
    Alignment,
    DatasetPlan,
    Rules,
    Selected,
    SelectRule,
    SplitRule,
    align_lengths,
    count_chunks,
    count_of,
    joined,
    plan_parts,
    resolve,
    select,
)
from seqprep.sources import Source, axis_sizes, frame_rates
from seqprep.types import Int64, KeySpec, Tags


@dataclass(frozen=True)
class SourcePlan:
    """Everything that is decided about a source."""

    parts: Mapping[str, DatasetPlan]
    """For each part of the split its plan; under "" if there is none."""
    stored: Mapping[str, KeySpec]
    """The keys as they will be stored."""
    fingerprint: Mapping[str, str]
    """The source's, part by part, and that of other files which decided something."""
    normalizers: Mapping[str, Normalizer]
    """Of the keys that are normalised."""


def plan_source(config: Config, source: Source, *, normalized: bool = True) -> SourcePlan:
    """Plans a configuration against an opened source.

    Args:
        config: the configuration.
        source: the source.
        normalized: read the statistics that values are normalised by; without, nothing can be written by the plan.

    Raises:
        ConfigError: a setting doesn't go with the source.
        SourceError: lengths of a sequence's keys don't go together.
    """
    rules, stored = resolve(config, source.keys, frame_rates(source))
    lengths = {rule.name: source.lengths(rule.name) for rule in rules.keys}
    fingerprint, wanted = dict(source.fingerprint()), None
    if config.select.tags_file is not None:
        wanted, fingerprint["tags_file"] = _read_tags(config.select.tags_file, config)
    normalizers = normalizers_for(config, source.keys) if normalized else {}
    if normalizers:
        fingerprint["statistics"] = digest(normalizers)
    inputs = lengths[rules.input.name]
    counts = count_chunks({name: np.maximum(frames, 0) for name, frames in lengths.items()}, rules)
    selected = select(inputs, counts, source.tags, SelectRule.of(config, wanted))
    aligned, selected = _aligned(lengths, selected, counts, rules, source.tags, config)
    sizes = {name: axis_sizes(source, name) for name, spec in stored.items() if spec.ragged}
    parts = plan_parts(
        aligned.lengths, source.tags, selected, rules, SplitRule.of(config), sizes=sizes, aligned=aligned.counts
    )
    return SourcePlan(parts, stored, fingerprint, normalizers)


def _aligned(
    lengths: Mapping[str, Int64], selected: Selected, counts: Int64, rules: Rules, tags: Tags, config: Config
) -> tuple[Alignment, Selected]:
    """Brings the keys of the selected sequences together, and leaves those out that the rules drop."""
    places = selected.places
    own = tags if len(places) == len(tags) else tags.take(places)  # places ascend
    found = align_lengths({name: frames[places] for name, frames in lengths.items()}, rules, own)
    whole = {name: np.array(frames, np.int64) for name, frames in lengths.items()}
    for name, frames in found.lengths.items():
        whole[name][places] = frames
    gone, kept = places[found.dropped], places[~found.dropped]
    if len(gone) and not len(kept):
        raise ConfigError(
            f"{config.document.where(('keys',))}: none of the {len(places):,} sequences is left, for the lengths of the "
            "keys differ in all; set keys.*.on_mismatch to trim or pad"
        )
    dropped = {"keys.on_mismatch": count_of(gone, lengths[rules.input.name], counts)}
    return replace(found, lengths=whole), Selected(kept, joined(selected.left_out, dropped))


def _read_tags(path: str, config: Config) -> tuple[Tags, str]:
    """Reads a file of tags, one a line; gives them with a short hash of the file."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        place = config.document.where(("select", "tags_file"))
        raise ConfigError(
            f"{place}: select.tags_file is {path!r}, which can't be read: {error.strerror}; check the path"
        ) from error
    return Tags.of(line for line in content.splitlines() if line), hashlib.sha256(content).hexdigest()[:16]
