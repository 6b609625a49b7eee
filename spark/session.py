"""A Spark session on this machine, set up so that the sources work at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tidelog.spark import register
from tidelog.spark.environment import environment
from tidelog.spark.java import java_home

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LOGGING: Final = "log4j2.configurationFile"
DEFAULTS: Final = {
    "spark.app.name": "tidelog",
    "spark.sql.session.timeZone": "UTC",  # times in a store are UTC; Spark would show them in the machine's zone
    "spark.ui.showConsoleProgress": "false",
}
# For a master that runs in this process: Spark listens only on loopback addresses. G1, Java's default collector, takes
# 10 to 25% more processor time.
LOCAL_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    JAVA_OPTIONS: "-XX:+UseParallelGC",
    "spark.ui.enabled": "false",
}


def session(master: str = "local[*]", **conf: str | int | bool) -> SparkSession:
    """Start a Spark session, or return the running one, with the data source `tidelog` registered.

    Args:
        master: Spark's master. "local[*]" runs in this machine's processes, one task for each core.
        conf: Settings of Spark by their names: `**{"spark.sql.shuffle.partitions": 8}`. They override our own: UTC,
            loopback addresses, no web interface, no progress bar, only errors in the log.

    Raises:
        TidelogSparkError: TIDELOG_NO_JAVA. The text says what to install.
        ValueError: A setting's name does not begin with "spark.".
    """
    return started(master, conf)


def started(
    master: str, conf: Mapping[str, str | int | bool], java_stderr: IO[bytes] | None = None
) -> SparkSession:
    """As `session`. `java_stderr` receives what Java and the workers of a local master print to standard error."""
    for name in conf:
        if not name.startswith("spark."):
            raise ValueError(f"{name}: the name of a Spark setting must begin with 'spark.'")
    local = master.startswith("local")
    settings = {**DEFAULTS, **(LOCAL_DEFAULTS if local else {}), **conf}
    java_options = str(settings.get(JAVA_OPTIONS, ""))
    if LOGGING not in java_options:
        file = Path(__file__).with_name("log4j2.properties")
        settings[JAVA_OPTIONS] = f'{java_options} "-D{LOGGING}={file.as_uri()}"'.lstrip()
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with environment(_variables(local)):  # Spark reads them only once, when it starts
        if java_stderr is not None and SparkContext._gateway is None:
            given = SparkConf().setMaster(master).setAll([(k, str(v)) for k, v in settings.items()])
            java = launch_gateway(given, {"stderr": java_stderr})  # type: ignore[no-untyped-call]
            SparkContext(conf=given, gateway=java)  # the builder finds it
        spark = builder.getOrCreate()
    register(spark)
    return spark


def _variables(local: bool) -> dict[str, str]:
    """Environment variables to start Spark with. Those that the user has set are left out."""
    # otherwise workers run the first `python3` on PATH
    variables = {"PYSPARK_PYTHON": sys.executable}
    if local:
        # Otherwise Spark warns if this machine's host name is not a loopback address.
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"
    variables = {name: value for name, value in variables.items() if name not in os.environ}
    if SparkSession.getActiveSession() is None:
        home = java_home()
        if home is not None:
            variables["JAVA_HOME"] = home
    return variables
