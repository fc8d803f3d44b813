"""The formats on disk: writing, the sidecar and the index, opening, verification."""

from seqprep.shards.checksum import checksum, crc32c
from seqprep.shards.dataset import Dataset
from seqprep.shards.index import INDEX_NAME, Index, read_index, write_index
from seqprep.shards.sidecar import Sidecar, read_sections, read_sidecar
from seqprep.shards.storage import Storage
from seqprep.shards.table import ShardTable
from seqprep.shards.verification import Fault, verify_dataset, verify_shard
from seqprep.shards.writing import ShardRecord, record_of, shard_name, write_shard

__all__ = [
    "INDEX_NAME",
    "Dataset",
    "Fault",
    "Index",
    "ShardRecord",
    "ShardTable",
    "Sidecar",
    "Storage",
    "checksum",
    "crc32c",
    "read_index",
    "read_sections",
    "read_sidecar",
    "record_of",
    "shard_name",
    "verify_dataset",
    "verify_shard",
    "write_index",
    "write_shard",
]
