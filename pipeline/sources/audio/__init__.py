"""Audio files (WAV, FLAC, OGG and whatever else libsndfile reads) as raw samples or as features.

`source` is the reader, `listing` says which stretches of which files are sequences, `soundfiles` is the seam to
libsndfile, `resample` and `features` make something of the samples, `targets` reads labels per frame.
"""

from seqprep.sources.audio.source import AudioSource

__all__ = ["AudioSource"]
