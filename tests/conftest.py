"""What holds for all tests."""

import gc
import random
import signal
from zlib import crc32

import pytest
from hypothesis import settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--new-seeds",
        action="store_true",
        help="draw new random cases; without it, every run of a test tries the same ones",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs with SIGINT ignored, and children inherit that: Ctrl-C tests would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.register_profile("same cases", derandomize=True)
    if not config.getoption("--new-seeds"):
        settings.load_profile("same cases")


def pytest_collection_finish() -> None:
    # Many tests ask for a full collection, which visits every object. It need not visit the modules of all tests.
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Tests draw their seeds from the global generator. A verdict must depend on the code, not on the day it is tried.
    if not item.config.getoption("--new-seeds"):
        random.seed(crc32(item.nodeid.encode()))
