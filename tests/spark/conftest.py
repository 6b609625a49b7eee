"""One Spark session for the whole run. It takes 5 to 25 seconds to start, and each query 0.3 to 0.5.

One process of a parallel run has all files with tests that ask for `spark`, so there is one JVM: see `uses_spark`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import uses_spark

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# C1 alone compiles faster and runs bulk work 2.5 times slower: good for tests, and for nothing else.
TEST_CONF = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    # Otherwise each plan becomes Java source, which is compiled for a few rows, and is made anew after each stage.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # A Python process of Spark begins late where the machine has other work.
    "spark.python.authenticate.socketTimeout": "120s",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    file = item.nodeid.partition("::")[0]
    if "spark" in getattr(item, "fixturenames", ()) and not uses_spark(file):
        raise pytest.UsageError(
            f"{file} asks for the Spark session, and uses_spark in tests/conftest.py does not see it: another process "
            "could start a second one"
        )


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
