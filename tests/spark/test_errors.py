"""The error of workers: its text, and the way through pickle."""

from __future__ import annotations

import pickle

from tidelog.spark.errors import TidelogSparkError, from_spark


def test_the_text_begins_with_the_code() -> None:
    error = TidelogSparkError("TIDELOG_NO_JAVA", "there is no Java")
    assert str(error) == "[TIDELOG_NO_JAVA] there is no Java"


def test_it_can_be_pickled() -> None:
    error = TidelogSparkError("TIDELOG_NO_JAVA", "there is no Java")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is TidelogSparkError
    assert (again.code, again.message, str(again)) == (error.code, error.message, str(error))


def test_what_spark_says_is_told_in_one_line() -> None:
    text = (
        "An exception was thrown from the Python worker. Please see the stack trace below.\n"
        "Traceback (most recent call last):\n"
        '  File "read.py", line 1, in read\n'
        "tidelog.spark.errors.TidelogSparkError: [TIDELOG_DAMAGED] data.mdb: a wrong byte\n"
        "\n\tat org.apache.spark.Something.scala\n"
    )
    error = from_spark(text)
    assert (error.code, error.message) == ("TIDELOG_DAMAGED", "data.mdb: a wrong byte")
    error = from_spark("\n[PATH_NOT_FOUND] Path does not exist. SQLSTATE: 42K03\n\tat java\n")
    assert error.message == "Spark failed: [PATH_NOT_FOUND] Path does not exist. SQLSTATE: 42K03"
    assert from_spark("").message == "Spark failed: no reason given"
    java = "An error occurred while calling o1.x.\n: java.lang.IllegalStateException: it is stopped\n\tat a.b(C.java)"
    assert (
        from_spark(java).message == "Spark failed: java.lang.IllegalStateException: it is stopped"
    )
