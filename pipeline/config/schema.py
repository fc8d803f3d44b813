"""The configuration: what a user may write, with its defaults."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, field_validator, model_validator

from seqprep.config.document import Document, as_document
from seqprep.config.layout import BucketConfig, bucket_of, check_order, pad_to_of
from seqprep.config.selection import SelectConfig, SplitConfig, check_partition, split_of
from seqprep.config.units import parse_bytes
from seqprep.config.validation import AT, Options, build
from seqprep.config.values import (
    MOST_FRAMES,
    MOST_ROW_FRAMES,
    FrameRate,
    Frames,
    Number,
    Pad,
    PositiveFrames,
    RowFrames,
    context_forms,
)
from seqprep.errors import ConfigError

BY_FILE = "file"
"""What stands for the path of a file of statistics where a dataset says how it was made."""


class NormalizeConfig(Options):
    """How a key's values are brought to mean 0 and deviation 1."""

    by: str
    """The path of a file that `seqprep stats` wrote, or "sequence": each sequence by its own frames."""
    variance: bool = True
    """False only subtracts the mean."""


def _normalize(value: Any) -> Any:
    """Brings the short form, the path or "sequence" alone, to the long one."""
    return {"by": value} if isinstance(value, str) else value


class KeyConfig(Options):
    """What becomes of one key of the source."""

    input: bool = False
    """The key in whose frames chunks are counted; the first key unless told."""
    dtype: str | None = None
    """numpy dtype to store, or bfloat16; null keeps the source's (float32 or float64 for normalised values)."""
    normalize: Annotated[NormalizeConfig | None, BeforeValidator(_normalize)] = None
    """How values are normalised, before they are padded."""
    rate: int | None = Field(default=1, ge=1, le=MOST_ROW_FRAMES)
    """Frames of the input key for which one frame of this key stands; null is a time axis of its own."""
    frame_rate: FrameRate = None
    """Frames per second, for settings in seconds; null asks the source, or follows from the input key's by the rate."""
    align: Literal["ceil", "floor", "exact"] = "ceil"
    """How a sequence's length in this key follows from that of the input key."""
    tolerance: RowFrames = 0
    """Frames of this key by which its length may differ from that; what becomes of such sequences says `on_mismatch`."""
    on_mismatch: Literal["error", "trim", "pad", "drop"] = "error"
    """`trim` what is longer, `pad` what is shorter with its `pad_value`, `drop` the sequence."""
    pad_value: Number = 0.0
    """What rows hold beyond their valid frames."""


class ChunkConfig(Options):
    """How sequences are cut, in frames of the input key, or per key."""

    size: PositiveFrames | None = None
    """Frames of a chunk; null keeps sequences whole."""
    step: PositiveFrames | None = None
    """Frames from one chunk's start to the next; null is the size (no overlap)."""
    min_size: Frames = Field(default={"": 0})
    """No chunk but the first starts where this many frames or fewer are left."""
    tail: Literal["keep", "drop", "shift"] = "keep"
    """What becomes of the short chunks that this leaves: `shift` moves them inwards until they are full."""
    stop_when_covered: bool = False
    """No chunk that lies wholly inside the one before it."""
    jitter: bool = False
    """Moves the grid of chunks by a random offset, of each sequence in each epoch its own."""

    @model_validator(mode="after")
    def _whole(self) -> ChunkConfig:
        if self.size is not None:
            return self
        useless = {
            "step": self.step is not None,
            "min_size": any(frames not in (0, "0s") for frames in self.min_size.values()),
            "tail": self.tail != "keep",
            "stop_when_covered": self.stop_when_covered,
            "jitter": self.jitter,
        }
        name = next((name for name, is_set in useless.items() if is_set), None)
        if name:
            raise ValueError(
                f"chunk.{name} is set but chunk.size is null: whole sequences have no {name}; set both or none"
            )
        return self


class ContextConfig(Options):
    """Real neighbouring frames around each chunk."""

    left: RowFrames = 0
    right: RowFrames = 0
    left_initial: RowFrames | None = None
    """In place of `left` for chunks that begin at a sequence's first frame."""
    right_final: RowFrames | None = None
    """In place of `right` for chunks that end with a sequence's last frame."""
    pad: Pad = "zero"
    """What stands outside the sequence: zeros, its first and last frame (`edge`), itself mirrored (`reflect`), a number;
    or nothing: the row is shorter there (`clip`), or left out (`drop`)."""

    @model_validator(mode="after")
    def _effective(self) -> ContextConfig:
        if self.model_fields_set == {"pad"}:
            raise ValueError(f"{AT}.pad is {self.pad!r} but there is no context; set {AT}.left or {AT}.right")
        for name in ("left_initial", "right_final"):
            if self.pad in ("clip", "drop") and getattr(self, name) is not None:
                raise ValueError(
                    f"{AT}.{name} is set but {AT}.pad is {self.pad!r}, which has no frame outside the sequence; "
                    "remove one of them"
                )
        return self


class BatchConfig(Options):
    """Which rows make a batch, and how long they become."""

    max_frames: PositiveFrames | None = None
    """Most frames of a batch with its padding, rows times longest row; for every key, or per key."""
    max_sequences: int | None = Field(default=None, ge=1, le=MOST_FRAMES)
    """Most rows of a batch."""
    drop_last: bool = False
    """Leave out the last batch of a shard (of each length class) if more rows would fit in it."""
    bucket: Annotated[BucketConfig, BeforeValidator(bucket_of)] = BucketConfig()
    """Length classes."""
    pad_to: Annotated[Literal["longest", "bucket"] | dict[str, int], BeforeValidator(pad_to_of)] = "longest"
    """Length of a batch's rows: that of the longest, of its class, or the next multiple of a number of frames."""
    pad_rows: bool = False
    """Fill the last batch of a shard (of each length class) with empty rows."""
    pack: bool = False
    """Lay several chunks or sequences into one row."""
    row_frames: int | None = Field(default=None, ge=1, le=MOST_ROW_FRAMES)
    """Longest row that is packed, in frames of the input key."""

    @model_validator(mode="after")
    def _budget(self) -> BatchConfig:
        if not self.max_frames and self.max_sequences is None:
            raise ValueError(
                "batch has no budget; set batch.max_frames (--max-frames), batch.max_sequences (--max-sequences) or both"
            )
        return self

    @model_validator(mode="after")
    def _together(self) -> BatchConfig:
        if self.pad_to == "bucket" and not self.bucket.has_classes:
            raise ValueError(
                "batch.pad_to is bucket but there are no length classes; set batch.bucket to {auto: 8} or {boundaries: […]}"
            )
        if self.drop_last and self.pad_rows:
            raise ValueError("batch.drop_last and batch.pad_rows are both set: a batch is filled or left out; keep one")
        if self.pack and self.row_frames is None:
            raise ValueError("batch.pack is set without batch.row_frames; set it to the most frames of a packed row")
        if self.row_frames is not None and not self.pack:
            raise ValueError(
                f"batch.row_frames is {self.row_frames} but rows aren't packed; set batch.pack: true, or remove it"
            )
        if self.pack and self.bucket != BucketConfig():
            raise ValueError("batch.bucket and batch.pack are both set: packed rows are about equally long; keep one")
        return self


class OrderConfig(Options):
    """In what order sequences, and rows within a shard, are laid down."""

    by: Annotated[str, BeforeValidator(check_order)] = "source"
    """source, reverse, random, sorted, sorted_reverse, or laplace:BINS."""
    seed: int = 0
    scope: Literal["sequence", "global"] = "sequence"
    """What is shuffled: sequences, then the rows of each shard; or all rows of the dataset."""

    @model_validator(mode="after")
    def _scope(self) -> OrderConfig:
        if self.scope == "global" and self.by != "random":
            raise ValueError(
                f"order.scope is global but order.by is {self.by!r}: only a shuffle can be over all rows; "
                "set order.by: random, or order.scope: sequence"
            )
        return self


class OutputConfig(Options):
    """Where the shards go, and as what."""

    path: str
    """A folder; with `split`, {split} in it stands for the part's name."""
    format: Literal["hdf5", "tfrecord"] = "hdf5"
    compression: Literal["none", "gzip", "zstd"] = "none"
    """Of the shards; TFRecord knows gzip alone."""
    shard_size: Annotated[
        int, BeforeValidator(lambda size: parse_bytes(size, "output.shard_size")), Field(le=1 << 62)
    ] = 256_000_000
    """Bytes of a shard's rows without padding; larger sequences are split over shards."""

    @model_validator(mode="after")
    def _known_to_readers(self) -> OutputConfig:
        if self.format == "tfrecord" and self.compression == "zstd":
            raise ValueError(
                "output.compression is 'zstd', which no reader of TFRecord knows; use gzip, or output.format hdf5"
            )
        return self


def _none_is_empty(value: Any) -> Any:
    return {} if value is None else value


class Config(Options):
    """One run of `seqprep chunk`, whole."""

    source: Annotated[dict[str, Any], BeforeValidator(_none_is_empty)]
    keys: Annotated[dict[str, KeyConfig], BeforeValidator(_none_is_empty)] = Field(default={})
    chunk: ChunkConfig = ChunkConfig()
    context: Annotated[dict[str, ContextConfig], BeforeValidator(context_forms)] = Field(default={})
    batch: BatchConfig
    order: OrderConfig = OrderConfig()
    epochs: int = Field(default=1, ge=1, le=10_000)
    """Passes over the input that are written, each in an order of its own; more would be a slip of the hand."""
    select: SelectConfig = SelectConfig()
    split: Annotated[SplitConfig | None, BeforeValidator(split_of)] = None
    partition: Annotated[str | None, BeforeValidator(check_partition)] = None
    """k/n: only part k, from 1 on, of n contiguous parts of the ordered sequences."""
    output: OutputConfig

    _document: Document = PrivateAttr(default_factory=lambda: Document("settings"))

    @field_validator("source")
    @classmethod
    def _typed(cls, value: dict[str, Any]) -> dict[str, Any]:
        joined = {name: inner for name, inner in value.items() if name != "on_missing"}
        if not joined or not all(isinstance(inner, dict) for inner in joined.values()):
            joined = {"": value}  # one source, whose type is text
        for name, inner in joined.items():
            kind, setting = inner.get("type"), f"source.{name}.type" if name else "source.type"
            if not isinstance(kind, str):
                said = "is missing" if kind is None else f"is {kind!r}"
                raise ValueError(f"{setting} {said}; set it to the kind of input, such as hdf5 or audio")
        return value

    @model_validator(mode="after")
    def _folders(self) -> Config:
        if self.split is not None and "{split}" not in self.output.path:
            raise ValueError(
                f"output.path is {self.output.path!r}, one folder for all parts of the split; write {{split}} in it, "
                f"such as {self.output.path.rstrip('/')}/{{split}}"
            )
        if self.split is None and "{split}" in self.output.path:
            raise ValueError(
                f"output.path is {self.output.path!r} but there is no split; set split, such as {{train: 0.9, dev: 0.1}}"
            )
        return self

    @property
    def document(self) -> Document:
        """Where the settings came from, for messages about them."""
        return self._document

    def decisive(self) -> dict[str, Any]:
        """All settings that decide what the shards hold, defaults filled in: everything but the output's path."""
        settings = self.model_dump(mode="json")
        del settings["output"]["path"]
        for key in settings["keys"].values():
            if key["normalize"] and key["normalize"]["by"] != "sequence":
                key["normalize"]["by"] = BY_FILE  # what it says is part of the input's fingerprint
        settings["keys"] = list(settings["keys"].items())  # their order counts: the first may be the input key
        if settings["split"] is not None:
            settings["split"]["parts"] = list(settings["split"]["parts"].items())  # and so does theirs
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
