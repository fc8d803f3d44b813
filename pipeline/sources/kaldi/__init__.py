"""Archives of Kaldi (`ark`, `scp`) and the small tables that lie beside them.

`source` is the reader, `lists` reads tables of text (scp, utt2spk, segments), `objects` the objects of an archive,
`entries` finds them.
"""

from seqprep.sources.kaldi.source import KaldiSource

__all__ = ["KaldiSource"]
