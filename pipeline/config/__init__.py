"""What users may set, checked; errors name file, line, setting and remedy."""

from seqprep.config.document import Document, as_document, parse_assignment, read_document
from seqprep.config.layout import BucketConfig, OrderName
from seqprep.config.schema import (
    BY_FILE,
    BatchConfig,
    ChunkConfig,
    Config,
    ContextConfig,
    KeyConfig,
    OrderConfig,
    OutputConfig,
    load_config,
)
from seqprep.config.selection import SelectConfig, SplitConfig, exact_share
from seqprep.config.units import parse_bytes
from seqprep.config.validation import Options, build, shown, suggestion

__all__ = [
    "BY_FILE",
    "BatchConfig",
    "BucketConfig",
    "ChunkConfig",
    "Config",
    "ContextConfig",
    "Document",
    "KeyConfig",
    "Options",
    "OrderConfig",
    "OrderName",
    "OutputConfig",
    "SelectConfig",
    "SplitConfig",
    "as_document",
    "build",
    "exact_share",
    "load_config",
    "parse_assignment",
    "parse_bytes",
    "read_document",
    "shown",
    "suggestion",
]
