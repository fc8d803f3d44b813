"""How many examples property tests look at: a third in the default run, other ones each time; all in the longer run."""

import os

FULL = os.environ.get("SEQPREP_EXAMPLES") == "full"


def examples(most: int) -> int:
    """How many of so many examples this run looks at."""
    return most if FULL else -(-most // 3)
