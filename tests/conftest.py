"""Settings for all tests, and fixtures that several folders use."""

from __future__ import annotations

import gc
import logging
import random
import signal
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from tests import exempted, walks
from tests.gate import costly, left, report, sampled, slow
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
    parser.addoption(
        "--slow-seconds",
        type=float,
        help="of the slow tests, run those whose turn it is: as many as take these seconds in one process",
    )
    report.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs with SIGINT ignored, and children inherit that: Ctrl-C tests would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # How long an example takes is no verdict: the machine may be busy with something else.
    patient: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile("new cases", **patient)
    settings.register_profile("same cases", derandomize=True, **patient)
    settings.load_profile("new cases" if config.getoption("--new-seeds") else "same cases")
    report.pytest_configure(config)
    left.pytest_configure(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Compile the modules of the tests once: the assertions of all are rewritten, which takes twenty seconds.

    Each worker collects all tests. So each first imports a share of the files, and finds the others compiled.
    """
    config = session.config
    found = getattr(config, "workerinput", None)
    if found is not None and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        number, count = int(found["workerid"].removeprefix("gw")), found["workercount"]
        files = sorted((config.rootpath / "tests").rglob("test_*.py"))
        for path in files[number::count]:
            with suppress(Exception, pytest.skip.Exception):  # the collection tells
                import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))
    return (yield)


# First: `-m` chooses by the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark costly tests and combinations of parameters as slow, and leave out the slow tests whose turn it is not."""
    costly.mark(items)
    sampled.mark(items)
    seconds = config.getoption("--slow-seconds")
    if seconds is not None:
        choice = slow.of_this_turn(seconds)
        out = [item for item in items if not choice.runs(item.nodeid)]
        items[:] = [item for item in items if choice.runs(item.nodeid)]
        config.hook.pytest_deselected(items=out)


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """A report travels from a worker of xdist as UTF-8, so what a test printed and logged must be that."""
    made: Any = yield
    made.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in made.sections
    ]
    return made


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say which tests did not run, for want of rights to mount or because others had their turn: none silently."""
    for line in exempted.lines(terminalreporter.stats.get("skipped", ())):
        terminalreporter.line(line)
    if (seconds := config.getoption("--slow-seconds")) is not None:
        for line in slow.told(slow.of_this_turn(seconds)):
            terminalreporter.line(line)


class OneSparkSession(LoadScopeScheduling):  # type: ignore[misc]
    """As `--dist loadgroup`, which does nothing with xdist 3.8 and pytest 9.2: pytest no longer reads what xdist sets.

    Tests of files that use the Spark session run in one process, each other test wherever there is time.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if uses_spark(nodeid.partition("::")[0]) else nodeid

    def remove_node(self, node: Any) -> str | None:
        """Give the tests of a process that died to the others, but the one in which it died: that one has failed.

        xdist runs it again in another process, which may die as well, or make it pass.
        """
        left = self.assigned_work.pop(node)
        died_in: str | None = next(
            (each for group in left.values() for each, done in group.items() if not done), None
        )
        for scope, group in left.items():
            if died_in in group:
                group[died_in] = True
            if not all(group.values()):
                self.workqueue[scope] = group
        for other in self.assigned_work:
            self._reschedule(other)
        return died_in

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


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """The scratch directory of a crash bench, which leaves nothing in it."""
    made = tmp_path / "room"
    made.mkdir()
    yield made
    assert [*made.iterdir()] == []


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
