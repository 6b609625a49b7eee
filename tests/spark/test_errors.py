"""The error of workers: its text, and the way through pickle."""

from __future__ import annotations

import pickle

from tidelog.spark.errors import TidelogSparkError


def test_the_text_begins_with_the_code() -> None:
    error = TidelogSparkError("TIDELOG_NO_JAVA", "there is no Java")
    assert str(error) == "[TIDELOG_NO_JAVA] there is no Java"


def test_it_can_be_pickled() -> None:
    error = TidelogSparkError("TIDELOG_NO_JAVA", "there is no Java")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is TidelogSparkError
    assert (again.code, again.message, str(again)) == (error.code, error.message, str(error))
