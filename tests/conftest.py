"""What holds for all tests."""

import gc
import random
import signal
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling


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


class OneSparkSession(LoadScopeScheduling):  # type: ignore[misc]
    """As `--dist loadgroup`, which does nothing with xdist 3.8 and pytest 9.2: pytest no longer reads what xdist sets.

    Tests of files that use the Spark session run in one process, each other test wherever there is time.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if uses_spark(nodeid.partition("::")[0]) else nodeid


@cache
def uses_spark(file: str) -> bool:
    path = Path(__file__).parents[1] / file
    return file.startswith("tests/spark/") and "spark: SparkSession" in path.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return OneSparkSession(config, log) if config.getoption("dist") == "loadgroup" else None
