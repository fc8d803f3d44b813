"""seqprep: chunks variable-length sequences once, offline, and streams the batches at the speed of memory.

Public names are imported when they are first used, so that `import seqprep` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqprep.config import Config as Config
    from seqprep.config import load_config as load_config
    from seqprep.errors import SeqprepError as SeqprepError
    from seqprep.execution import Summary as Summary
    from seqprep.execution import chunk as chunk
    from seqprep.execution import convert as convert
    from seqprep.execution import export as export
    from seqprep.execution import merge as merge
    from seqprep.execution import plan as plan
    from seqprep.execution import repair as repair
    from seqprep.execution import stats as stats
    from seqprep.execution import verify as verify
    from seqprep.runtime import DataWorkers as DataWorkers
    from seqprep.runtime import Loader as Loader
    from seqprep.runtime import Metrics as Metrics
    from seqprep.runtime import Mix as Mix
    from seqprep.runtime import MixMetrics as MixMetrics
    from seqprep.runtime import Stitched as Stitched
    from seqprep.runtime import mix as mix
    from seqprep.runtime import stitch as stitch
    from seqprep.runtime import unpack as unpack
    from seqprep.sources import Source as Source
    from seqprep.sources import open_source as open_source
    from seqprep.streaming import Stream as Stream
    from seqprep.streaming import stream as stream

_HOMES = {
    "Config": "seqprep.config",
    "DataWorkers": "seqprep.runtime",
    "Loader": "seqprep.runtime",
    "Metrics": "seqprep.runtime",
    "Mix": "seqprep.runtime",
    "MixMetrics": "seqprep.runtime",
    "SeqprepError": "seqprep.errors",
    "Source": "seqprep.sources",
    "Stitched": "seqprep.runtime",
    "Stream": "seqprep.streaming",
    "Summary": "seqprep.execution",
    "chunk": "seqprep.execution",
    "convert": "seqprep.execution",
    "export": "seqprep.execution",
    "load_config": "seqprep.config",
    "merge": "seqprep.execution",
    "mix": "seqprep.runtime",
    "open_source": "seqprep.sources",
    "plan": "seqprep.execution",
    "repair": "seqprep.execution",
    "stats": "seqprep.execution",
    "stitch": "seqprep.runtime",
    "stream": "seqprep.streaming",
    "unpack": "seqprep.runtime",
    "verify": "seqprep.execution",
}

__all__ = [*sorted(_HOMES), "__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("seqprep")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'seqprep' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
