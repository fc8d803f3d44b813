"""The checksums of shards."""

from __future__ import annotations

from seqprep.checksum import checksum as checksum
from seqprep.checksum import crc32c as crc32c
from seqprep.checksum import masked as masked
