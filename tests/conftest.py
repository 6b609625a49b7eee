"""Settings for all tests, and fixtures that several folders use."""

from __future__ import annotations

import gc
import logging
import random
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from tests import exempted, walks
from xdist.scheduler import LoadScopeScheduling

from tidelog.snapshot import walk

if TYPE_CHECKING:
    from tests.snapshot.buckets import Bucket


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--new-seeds",
        action="store_true",
        help="draw new random cases; without it, every run of a test tries the same ones",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs with SIGINT ignored, and children inherit that: Ctrl-C tests would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # How long an example takes is no verdict: the machine may be busy with something else.
    patient: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile("new cases", **patient)
    settings.register_profile("same cases", derandomize=True, **patient)
    settings.load_profile("new cases" if config.getoption("--new-seeds") else "same cases")


files_begun: set[Path] = set()


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Many tests ask for a full collection, which visits every object. It need not visit the modules of all tests,
    # nor the libraries that earlier files loaded: pyspark, moto and pyarrow together are some million objects.
    if item.path not in files_begun:
        files_begun.add(item.path)
        gc.collect()
        gc.freeze()
    # Tests draw their seeds from the global generator. A verdict must depend on the code, not on the day it is tried.
    if not item.config.getoption("--new-seeds"):
        random.seed(crc32(item.nodeid.encode()))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say which tests did not run because this machine may not mount anything: none is left out silently."""
    for line in exempted.lines(terminalreporter.stats.get("skipped", ())):
        terminalreporter.line(line)


class OneSparkSession(LoadScopeScheduling):  # type: ignore[misc]
    """As `--dist loadgroup`, which does nothing with xdist 3.8 and pytest 9.2: pytest no longer reads what xdist sets.

    Tests of files that use the Spark session run in one process, each other test wherever there is time.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if uses_spark(nodeid.partition("::")[0]) else nodeid

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a group of tests that are done: xdist counts all groups of a process after each test."""
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        group = self.assigned_work[node][scope]
        group[nodeid] = True
        if all(group.values()):
            del self.assigned_work[node][scope]
        self._reschedule(node)


@cache
def uses_spark(file: str) -> bool:
    if not file.startswith("tests/spark/"):
        return False
    text = (Path(__file__).parents[1] / file).read_text()
    return "spark: SparkSession" in text or "tables: Tables" in text


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return OneSparkSession(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture(scope="session", autouse=True)
def quick_walks() -> Iterator[None]:
    """Walks are forked, not started: see tests/walks.py."""
    server = walks.Server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "start_child", server.start_child)
        yield
    server.close()


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """The settings of the package's loggers, put back: the crash bench and the server change them for a process."""
    kept = [logging.getLogger(name) for name in ("tidelog", "tidelog.queue", "tidelog.server")]
    before = [(each.level, each.propagate, each.disabled, [*each.handlers]) for each in kept]
    yield
    for each, (level, propagate, disabled, handlers) in zip(kept, before, strict=True):
        each.setLevel(level)
        each.propagate, each.disabled = propagate, disabled
        each.handlers[:] = handlers


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Of a server of S3."""
    from tests.s3 import served  # here: it takes a second to load moto

    with served() as found:
        yield found


@pytest.fixture
def bucket(
    endpoint: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Bucket:
    """A bucket of the test's own, on that server."""
    from tests.snapshot.buckets import bucket_of  # here: it takes a while to load pyarrow

    return bucket_of(endpoint, request, monkeypatch)
