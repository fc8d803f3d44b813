"""HDF5 files in every usual layout: one file per family of layouts, behind one reader.

`source` is the reader, `layouts` tells which layout a file has, `columns` are the ways in which the sequences of one key
lie in a file, `files` is the seam to h5py.
"""

from seqprep.sources.hdf5.source import Hdf5Source

__all__ = ["Hdf5Source"]
