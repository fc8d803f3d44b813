"""The formats on disk: writing, the sidecar and the index, opening, verification."""

from seqprep.shards.checksum import checksum, crc32c
from seqprep.shards.codecs import codec_release
from seqprep.shards.dataset import Dataset
from seqprep.shards.decoding import Decoder
from seqprep.shards.flat_hdf5 import FlatHdf5Writer
from seqprep.shards.index import INDEX_NAME, Index, read_index, write_index
from seqprep.shards.lock import LOCK_NAME, FolderLock, SharedLock
from seqprep.shards.prediction import shard_bytes
from seqprep.shards.reading import ShardReader
from seqprep.shards.rebuilding import dataset_of, find_shards, rebuild_sidecar, shard_count
from seqprep.shards.sidecar import NO_REGIONS, Sidecar, read_sections, read_sidecar, sidecar_path, stored_crc32c
from seqprep.shards.storage import Storage, partial_path
from seqprep.shards.table import ShardTable
from seqprep.shards.verification import Fault, verify_index, verify_record, verify_shard
from seqprep.shards.writing import MadeShard, ShardRecord, record_of, record_of_table, shard_name, write_shard

__all__ = [
    "INDEX_NAME",
    "LOCK_NAME",
    "NO_REGIONS",
    "Dataset",
    "Decoder",
    "Fault",
    "FlatHdf5Writer",
    "FolderLock",
    "Index",
    "MadeShard",
    "ShardReader",
    "ShardRecord",
    "ShardTable",
    "SharedLock",
    "Sidecar",
    "Storage",
    "checksum",
    "codec_release",
    "crc32c",
    "dataset_of",
    "find_shards",
    "partial_path",
    "read_index",
    "read_sections",
    "read_sidecar",
    "rebuild_sidecar",
    "record_of",
    "record_of_table",
    "shard_bytes",
    "shard_count",
    "shard_name",
    "sidecar_path",
    "stored_crc32c",
    "verify_index",
    "verify_record",
    "verify_shard",
    "write_index",
    "write_shard",
]
