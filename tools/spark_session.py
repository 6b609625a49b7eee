"""The Spark session of one command. Only the command prints: what Java and Spark print is read if they fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final

from tidelog.spark.errors import SPARK_FAILED, TidelogSparkError, from_spark, reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The lines in which Spark says why it could not start: an exception's text, or an error in its log.
_FAULT: Final = re.compile(r"(?:Exception|Error): (.+)| ERROR \S+ (.+)")


@contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """A session, stopped afterwards unless it ran before. Spark's errors become TidelogSparkErrors of one line."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        with translated():
            yield running
        return
    with TemporaryFile() as printed:
        spark = _started(master, printed)
        try:
            with translated():
                yield spark
        finally:
            with suppress(Exception):  # the JVM may be dead; its error is on its way already
                spark.stop()


def _started(master: str, printed: IO[bytes]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    # here: it loads pyspark
    from tidelog.spark.session import started

    try:
        return started(master, {}, printed)
    except (PySparkException, Py4JError) as error:
        printed.seek(0)
        faults = _FAULT.findall(printed.read().decode(errors="replace"))
        why = next(filter(None, faults[0])) if faults else reason(str(error))
        raise TidelogSparkError(
            SPARK_FAILED, f"Spark did not start with --master {master}: {why}"
        ) from error


@contextmanager
def translated() -> Iterator[None]:
    """Raise Spark's errors as TidelogSparkErrors."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise from_spark(str(error)) from error
