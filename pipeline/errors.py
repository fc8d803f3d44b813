"""Every error that seqprep raises on purpose.

SeqprepError                 anything below; the command line prints its message alone and exits with `exit_code`
├── ConfigError              a setting is wrong (also a ValueError); exit 2
├── DependencyError          a package of an extra is missing (also an ImportError)
├── SourceError              the input can't be read, or isn't what it says it is
├── OutputError              the output can't be written
│   └── BusyError            another run writes there
├── DatasetError             a folder of shards can't be used
│   ├── UnfinishedError      it has no index: its run was interrupted or goes on
│   ├── MismatchError        it was made from something else than what is asked for now
│   └── CorruptError         its bytes are not those that were written
├── WorkerError              a process or thread of ours died without a message of its own
└── ClosedError              a loader or stage was used after close()

A message is one line: what is wrong, where (file, sequence, shard, batch), and what to do about it.
Errors of other libraries are turned into these where they are met, with the original as `__cause__`.
"""

from __future__ import annotations

from typing import ClassVar


class SeqprepError(Exception):
    """Base of all errors of seqprep."""

    exit_code: ClassVar[int] = 1


class ConfigError(SeqprepError, ValueError):
    """A setting is unknown, of the wrong type, or impossible; the message names it, its value and the remedy."""

    exit_code: ClassVar[int] = 2


class DependencyError(SeqprepError, ImportError):
    """An optional package is missing; the message names the extra that brings it."""


class SourceError(SeqprepError):
    """The input can't be read; the message names the file and, where there is one, the sequence."""


class OutputError(SeqprepError):
    """The output can't be written; the message names the path."""


class BusyError(OutputError):
    """Another run writes in the folder; the message names its host and process."""


class DatasetError(SeqprepError):
    """A folder of shards can't be used; the message names the file."""


class UnfinishedError(DatasetError):
    """The folder holds no index.json, so no reader takes it."""


class MismatchError(DatasetError):
    """The folder was made from another source or configuration; the message shows both sides."""


class CorruptError(DatasetError):
    """Bytes differ from their checksum; the message names shard, batch, key and byte range."""


class WorkerError(SeqprepError):
    """A worker died without saying why (killed, out of memory); the message says which work it had."""


class ClosedError(SeqprepError):
    """Something was used after it was closed."""
