"""The configuration: what a user may write, with its defaults."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, field_validator, model_validator

from seqprep.config.document import Document, as_document
from seqprep.config.units import parse_bytes
from seqprep.config.validation import Options, build
from seqprep.errors import ConfigError


def _per_key(value: Any) -> Any:
    """Brings one number for every key, and {key: number}, to one form: the number for the rest under ""."""
    return value if value is None or isinstance(value, Mapping) else {"": value}


Frames = Annotated[dict[str, Annotated[int, Field(ge=0)]], BeforeValidator(_per_key)]
"""Frames of the input key (under ""), or per key."""
PositiveFrames = Annotated[dict[str, Annotated[int, Field(ge=1)]], BeforeValidator(_per_key)]


class KeyConfig(Options):
    """What becomes of one key of the source."""

    input: bool = False
    """The key in whose frames chunks are counted; the first key unless told."""
    dtype: str | None = None
    """numpy dtype to store, or bfloat16; null keeps the source's."""
    rate: int = Field(default=1, ge=1)
    """Frames of the input key for which one frame of this key stands."""
    align: Literal["ceil", "floor", "exact"] = "ceil"
    """How a sequence's length in this key follows from that of the input key."""
    pad_value: float = 0.0
    """What rows hold beyond their valid frames."""


class ChunkConfig(Options):
    """How sequences are cut, in frames of the input key, or per key."""

    size: PositiveFrames | None = None
    """Frames of a chunk; null keeps sequences whole."""
    step: PositiveFrames | None = None
    """Frames from one chunk's start to the next; null is the size (no overlap)."""
    min_size: Frames = Field(default={"": 0})
    """No chunk but the first starts where this many frames or fewer are left."""
    tail: Literal["keep"] = "keep"
    """What becomes of the short chunks at a sequence's end."""

    @model_validator(mode="after")
    def _whole(self) -> ChunkConfig:
        if self.size is None and self.step is not None:
            raise ValueError("chunk.step is set but chunk.size is null: whole sequences have no step; set both or none")
        return self


class ContextConfig(Options):
    """Real neighbouring frames around each chunk."""

    left: int = Field(default=0, ge=0)
    right: int = Field(default=0, ge=0)
    pad: Literal["zero", "edge"] = "zero"
    """What stands outside the sequence: zeros, or its first and last frame repeated."""


class BatchConfig(Options):
    """Budgets of a batch."""

    max_frames: PositiveFrames | None = None
    """Most frames of a batch with its padding, rows times longest row; for every key, or per key."""
    max_sequences: int | None = Field(default=None, ge=1)
    """Most rows of a batch."""

    @model_validator(mode="after")
    def _budget(self) -> BatchConfig:
        if not self.max_frames and self.max_sequences is None:
            raise ValueError(
                "batch has no budget; set batch.max_frames (--max-frames), batch.max_sequences (--max-sequences) or both"
            )
        return self


class OrderConfig(Options):
    """In what order sequences, and rows within a shard, are laid down."""

    by: Literal["source", "random"] = "source"
    seed: int = 0


class OutputConfig(Options):
    """Where the shards go, and as what."""

    path: str
    format: Literal["hdf5", "tfrecord"] = "hdf5"
    compression: Literal["none", "gzip", "zstd"] = "none"
    """Of the shards; TFRecord knows gzip alone."""
    shard_size: Annotated[int, BeforeValidator(lambda size: parse_bytes(size, "output.shard_size"))] = 256_000_000
    """Bytes of a shard's rows without padding; larger sequences are split over shards."""

    @model_validator(mode="after")
    def _known_to_readers(self) -> OutputConfig:
        if self.format == "tfrecord" and self.compression == "zstd":
            raise ValueError(
                "output.compression is 'zstd', which no reader of TFRecord knows; use gzip, or output.format hdf5"
            )
        return self


def _per_key_context(value: Any) -> Any:
    """Brings {left, right, pad} for the input key and {key: {left, …}} to one form, the input key under ""."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"": {"left": value, "right": value}}
    if (
        isinstance(value, Mapping)
        and (set(value) - {""})
        and not all(isinstance(inner, Mapping) for inner in value.values())
    ):
        return {"": dict(value)}
    return {} if value is None else value


class Config(Options):
    """One run of `seqprep chunk`, whole."""

    source: dict[str, Any]
    keys: dict[str, KeyConfig] = Field(default={})
    chunk: ChunkConfig = ChunkConfig()
    context: Annotated[dict[str, ContextConfig], BeforeValidator(_per_key_context)] = Field(default={})
    batch: BatchConfig
    order: OrderConfig = OrderConfig()
    output: OutputConfig

    _document: Document = PrivateAttr(default_factory=lambda: Document("settings"))

    @field_validator("chunk", mode="before")
    @classmethod
    def _null_chunk(cls, value: Any) -> Any:
        return {} if value is None else value

    @field_validator("source")
    @classmethod
    def _typed(cls, value: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(value.get("type"), str):
            raise ValueError("source.type is missing; set it to the kind of input, such as hdf5 or audio")
        return value

    @property
    def document(self) -> Document:
        """Where the settings came from, for messages about them."""
        return self._document

    def decisive(self) -> dict[str, Any]:
        """All settings that decide what the shards hold, defaults filled in: everything but the output's path."""
        settings = self.model_dump(mode="json")
        del settings["output"]["path"]
        settings["keys"] = list(settings["keys"].items())  # their order counts: the first may be the input key
        return settings

    def fingerprint(self) -> str:
        """A hash of `decisive`, 16 hexadecimal digits: equal for equal shards from an equal source."""
        return hashlib.sha256(json.dumps(self.decisive(), sort_keys=True).encode()).hexdigest()[:16]


def load_config(settings: Document | Mapping[str, Any] | str | Path) -> Config:
    """Reads and checks a configuration.

    Args:
        settings: the path of a YAML file, a nested mapping of the same form, or a document of overridden settings.

    Raises:
        ConfigError: a setting is unknown, mistyped or impossible; names file, line and remedy.
    """
    document = as_document(settings)
    config = build(Config, {"batch": {}} | document.data, document)
    config._document = document
    inputs = [name for name, key in config.keys.items() if key.input]
    if len(inputs) > 1:
        raise ConfigError(
            f"{document.where(('keys', inputs[1], 'input'))}: keys {' and '.join(inputs)} are both marked input; mark one"
        )
    return config
