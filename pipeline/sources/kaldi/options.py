"""The options of `source: {type: kaldi}`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from seqprep.config import Options as BaseOptions

INPUT_KEY = "data"


class KaldiOptions(BaseOptions):
    """Where the archives are, and what belongs to them."""

    path: str | list[str] | None = None
    """A data folder (its feats.scp), a `.scp` or `.ark` file, a glob, or a list of these: the key `data`."""
    keys: dict[str, str | list[str]] | None = None
    """{key: the same}, in place of `path`; the first is the input, and its tags and their order are the source's."""
    labels: list[str] | dict[str, str] = Field(default=[])
    """Tables such as utt2spk that become keys without time: [file, …], or {key: file}; beside the first key's file
    unless a folder is given."""
    without_time: list[str] = Field(default=[])
    """Keys of which an object is one value (such as an x-vector), without a time axis."""
    segments: str | None = None
    """A Kaldi `segments` file: its stretches are the sequences, cut from recordings where a key holds those. Unless told,
    that of a data folder whose features are of recordings."""
    frame_rate: float = Field(default=100, gt=0, allow_inf_nan=False)
    """Rows a second, for `segments`."""
    on_missing: Literal["error", "drop"] = "error"
    """What becomes of a sequence that one of the keys or labels lacks: an error, or it is left out."""
    allow_pipes: bool = False
    """Runs the shell commands that scp files name; only for lists that you trust."""

    @model_validator(mode="after")
    def _check(self) -> KaldiOptions:
        if (self.path is None) == (self.keys is None):
            given = "neither" if self.path is None else "both"
            raise ValueError(f"source.path and source.keys: {given} of them is set; set one")
        if self.keys is not None and not self.keys:
            raise ValueError("source.keys is empty; name a key and its files")
        for key in self.label_files:
            if key in self.key_files:
                raise ValueError(f"source.labels names a key {key!r}, which is one of the data; give it another name")
        for key in self.without_time:
            if key not in self.key_files:
                raise ValueError(f"source.without_time names {key!r}, which is no key; keys are {list(self.key_files)}")
        return self

    @property
    def key_files(self) -> dict[str, str | list[str]]:
        """For each key, its files."""
        return {INPUT_KEY: self.path or []} if self.keys is None else self.keys

    @property
    def label_files(self) -> dict[str, str]:
        """For each key without time, its table."""
        return self.labels if isinstance(self.labels, dict) else {name.rpartition("/")[2]: name for name in self.labels}
