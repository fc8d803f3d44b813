"""The options of `source: {type: audio}`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from seqprep import config
from seqprep.sources.audio.features import FeatureOptions

DATA = "data"


class AudioOptions(config.Options):
    """Which files, and what is made of them."""

    path: str | list[str] | None = None
    """A file, a folder (WAV, FLAC and OGG in it and below), a glob, or a list of these. A file's tag is its path
    below the folder that they all share, without its suffix."""
    manifest: str | None = None
    """A list of the files. A CSV or JSON-lines file has a column `path` (below the manifest's folder), and optionally
    `tag`, `start` and `end` (in seconds: the stretch that is a sequence), `channel`, labels and targets. A Kaldi
    wav.scp has a tag and a path on every line."""
    segments: str = "auto"
    """With a wav.scp, the Kaldi `segments` file that names stretches of it; `auto` takes the one that lies beside it, if
    there is one, and `none` whole recordings."""
    labels: list[str] | dict[str, str] = Field(default=[])
    """Columns of the manifest that become keys without time: [column, …], or {key: column}. With a wav.scp, tables such
    as utt2spk beside it."""
    targets: dict[str, str] = Field(default={})
    """Keys with a label per frame: {key: column}, a column of the manifest with paths of .npy or .txt files (below its
    folder), or {key: ali.scp}, Kaldi's alignments with the same tags."""
    sample_type: Literal["int16", "int32", "float32"] = "float32"
    """The dtype of raw samples: floats in [−1, 1), or integers of full range."""
    sample_rate: int | None = Field(default=None, ge=1)
    """In Hz; files of another rate are resampled. Unless told, all files have one rate, which is kept."""
    channel: int | Literal["mean"] | None = None
    """Of files with several: one, counted from 0, or the mean of all. Unless told, all channels are kept."""
    features: FeatureOptions | None = None
    """Features in place of raw samples."""
    on_empty: Literal["error", "keep"] = "error"
    """What becomes of a sequence without a sample (or too short for one frame): an error, or a sequence of length 0."""
    allow_pipes: bool = False
    """Runs the shell commands that a wav.scp names; only for lists that you trust."""

    @model_validator(mode="after")
    def _check(self) -> AudioOptions:
        if (self.path is None) == (self.manifest is None):
            given = "neither" if self.path is None else "both"
            raise ValueError(f"source.path and source.manifest: {given} of them is set; set one")
        if self.labels and self.manifest is None:
            raise ValueError("source.labels is set without source.manifest, whose columns it names; set both")
        for option, keys in (("labels", self.label_columns), ("targets", self.targets)):
            if DATA in keys:
                raise ValueError(
                    f"source.{option} names a key 'data', which holds the audio; give {{another_key: data}}"
                )
        for key in self.targets:
            if key in self.label_columns:
                raise ValueError(f"source.targets and source.labels both name a key {key!r}; give one another name")
        for key, name in self.target_columns.items():
            if self.manifest is None or self.is_scp:
                raise ValueError(
                    f"source.targets.{key} is {name!r}: without a manifest of columns it names a Kaldi .scp or .ark file"
                )
        if self.segments != "auto" and not self.is_scp:
            raise ValueError(f"source.segments is {self.segments!r} without a wav.scp in source.manifest; leave it out")
        if self.allow_pipes and not self.is_scp:
            raise ValueError("source.allow_pipes is set without a wav.scp in source.manifest; leave it out")
        if isinstance(self.channel, int) and self.channel < 0:
            raise ValueError(f"source.channel is {self.channel}; channels are counted from 0")
        return self._check_samples()

    def _check_samples(self) -> AudioOptions:
        if self.sample_type == "float32":
            return self
        for option, given in (("features", self.features is not None), ("channel: mean", self.channel == "mean")):
            if given:
                raise ValueError(
                    f"source.sample_type is {self.sample_type} but source.{option} makes float32; leave it out"
                )
        return self

    @property
    def is_scp(self) -> bool:
        """Whether the manifest is Kaldi's."""
        return self.manifest is not None and self.manifest.lower().endswith(".scp")

    @property
    def label_columns(self) -> dict[str, str]:
        """For each key without time, its column in the manifest, or its table."""
        return self.labels if isinstance(self.labels, dict) else {name.rpartition("/")[2]: name for name in self.labels}

    @property
    def target_columns(self) -> dict[str, str]:
        """For each key with a label per frame, its column in the manifest."""
        return {key: name for key, name in self.targets.items() if not is_archive(name)}


def is_archive(name: str) -> bool:
    """Whether a target names a file of Kaldi's, not a column."""
    return name.lower().endswith((".scp", ".ark"))
