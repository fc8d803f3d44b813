"""The options of `source: {type: hdf5}`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from seqprep.config import Options as BaseOptions

TAG = "{tag}"
_TABLES = ("auto", "flat", "padded", "vlen")

Size = Annotated[int, Field(ge=1)]


class Hdf5Options(BaseOptions):
    """Where the files are, and what is in them where they don't say it themselves."""

    path: str | list[str]
    """A file, a folder, a glob, or a list of these."""
    layout: Literal["auto", "returnn", "streams", "flat", "padded", "vlen", "per_sequence", "per_file"] = "auto"
    """How sequences lie in a file; `auto` tells by the names and shapes of the first file's datasets."""
    keys: list[str] | dict[str, str] | None = None
    """Which keys to take: their names, or {key: dataset}. With a dataset per sequence, the dataset's path holds
    `{tag}` where the sequence's tag stands: {data: "{tag}/feats"}."""
    lengths: str | dict[str, str] | None = None
    """The dataset of every sequence's frames, for all keys or {key: dataset}."""
    offsets: str | dict[str, str] | None = None
    """The dataset of the frames at which sequences begin (or end, or both), for all keys or {key: dataset}."""
    tags: str | None = None
    """The dataset of tags."""
    without_time: list[str] = Field(default=[])
    """Keys that hold one value (or vector) per sequence, without a time axis."""
    frame_shape: dict[str, list[Size]] = Field(default={})
    """For keys stored as one row of values per sequence, of which the rows differ in length: the shape of a frame."""

    @model_validator(mode="after")
    def _check(self) -> Hdf5Options:
        patterns = [name for name in self.datasets.values() if TAG in name]
        if patterns and self.layout not in ("auto", "per_sequence"):
            raise ValueError(
                f"source.keys names {patterns[0]!r}, a dataset per sequence, but source.layout is {self.layout}; leave "
                "source.layout out or set it to per_sequence"
            )
        lacking = [name for name in self.datasets.values() if name.count(TAG) != 1]
        if lacking and (patterns or self.layout == "per_sequence"):
            raise ValueError(f"source.keys names {lacking[0]!r} among datasets per sequence; put {TAG} into it, once")
        if self.keys is not None and not self.keys:
            raise ValueError("source.keys is empty; name a key or leave it out")
        for option in ("lengths", "offsets", "tags"):
            if getattr(self, option) is not None and (self.layout not in _TABLES or patterns):
                raise ValueError(
                    f"source.{option} is set, but in this layout the file says it itself; leave it out, or set "
                    "source.layout to flat, padded or vlen"
                )
        return self

    @property
    def datasets(self) -> dict[str, str]:
        """The dataset of each key, where the option says it; paths without slashes around."""
        return {key: name.strip("/") for key, name in self.keys.items()} if isinstance(self.keys, dict) else {}
