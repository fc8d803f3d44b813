import gc
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.examples import examples

settings.register_profile("seqprep", max_examples=examples(100))
settings.load_profile("seqprep")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell leaves it for what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests send it to themselves, and programs inherit it


def pytest_collection_finish() -> None:
    """Spares garbage collections the millions of objects that the frameworks, imported by now, keep for good."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real recordings and files of other tools, where they lie beside the checkout."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared data isn't here")
    return folder
