"""One Spark session for the whole run. It takes 5 to 25 seconds to start, and each query 0.3 to 0.5.

A test that asks for `spark` goes into one xdist group, so that one process runs all of them, with one JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# C1 alone compiles faster and runs bulk work 2.5 times slower: good for tests, and for nothing else.
TEST_CONF = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    # Not in pytest_collection_modifyitems: xdist reads the groups there first.
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session at local[2]."""
    try:
        java_home()
    except TidelogSparkError as missing:
        pytest.fail(f"{missing}\n`make test` installs it: .ci/prepare java", pytrace=False)
    # a test run without these tests does not load PySpark
    from tidelog.spark.session import session

    place: Path = tmp_path_factory.mktemp("spark")
    places = {
        "spark.local.dir": str(place / "local"),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }
    running = session("local[2]", **TEST_CONF, **places)
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that a test runs without Spark says at once that nothing is new."""
    from tidelog.spark.source.log import stream

    monkeypatch.setattr(stream, "_WAIT_S", 0.0)
