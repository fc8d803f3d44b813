"""Collects the compressed pieces of a shard as they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seqprep.shards.checksum import checksum
from seqprep.shards.codecs import Codec
from seqprep.shards.sidecar import Pieces


class PieceList:
    """Compresses pieces, and keeps where each went.

    Args:
        codec: compresses.
        compression: its name.
    """

    def __init__(self, codec: Codec, compression: str) -> None:
        self._codec, self._compression = codec, compression
        self._entries: list[tuple[int, int, int]] = []
        self._crcs: list[int] = []
        self.decoded_bytes = 0
        """Of all pieces."""
        self.end = 0
        """One past the last piece's bytes in the shard."""

    def encode(self, parts: Sequence[Any]) -> bytes:
        """Compresses buffers, one behind the other."""
        return self._codec.compress(parts)

    def note(self, encoded: bytes, offset: int, decoded: int) -> None:
        """Keeps where a piece went.

        Args:
            encoded: its bytes in the shard.
            offset: where they begin there.
            decoded: how many bytes they hold.
        """
        self._entries.append((offset, len(encoded), decoded))
        self._crcs.append(checksum(encoded))
        self.decoded_bytes += decoded
        self.end = offset + len(encoded)

    @property
    def pieces(self) -> Pieces:
        """All of them."""
        return replace(Pieces.of(self._compression, self._entries), crc=np.array(self._crcs, np.uint32))
