"""Plans what a configuration asks for, against an opened source."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seqprep.config import Config
from seqprep.errors import ConfigError
from seqprep.execution.normalization import Normalizer, digest, normalizers_for
from seqprep.planning import (
    DatasetPlan,
    SelectRule,
    SplitRule,
    check_lengths,
    count_chunks,
    plan_parts,
    resolve,
    select,
)
from seqprep.sources import Source
from seqprep.types import KeySpec, Tags


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
    rules, stored = resolve(config, source.keys)
    lengths = {rule.name: source.lengths(rule.name) for rule in rules.keys}
    fingerprint, wanted = dict(source.fingerprint()), None
    if config.select.tags_file is not None:
        wanted, fingerprint["tags_file"] = _read_tags(config.select.tags_file, config)
    normalizers = normalizers_for(config, source.keys) if normalized else {}
    if normalizers:
        fingerprint["statistics"] = digest(normalizers)
    inputs = lengths[rules.input.name]
    selected = select(inputs, count_chunks(lengths, rules), source.tags, SelectRule.of(config, wanted))
    taken = {name: frames[selected.places] for name, frames in lengths.items()}
    check_lengths(taken, rules, source.tags.take(selected.places))
    parts = plan_parts(lengths, source.tags, selected, rules, SplitRule.of(config))
    return SourcePlan(parts, stored, fingerprint, normalizers)


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
