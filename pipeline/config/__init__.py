"""What users may set, checked; errors name file, line, setting and remedy."""

from seqprep.config.document import Document, parse_assignment, read_document
from seqprep.config.schema import (
    BatchConfig,
    ChunkConfig,
    Config,
    ContextConfig,
    KeyConfig,
    OrderConfig,
    OutputConfig,
    load_config,
)
from seqprep.config.validation import Options, build, suggestion

__all__ = [
    "BatchConfig",
    "ChunkConfig",
    "Config",
    "ContextConfig",
    "Document",
    "KeyConfig",
    "Options",
    "OrderConfig",
    "OutputConfig",
    "build",
    "load_config",
    "parse_assignment",
    "read_document",
    "suggestion",
]
