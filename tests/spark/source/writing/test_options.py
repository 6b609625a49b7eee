"""The options of a write: each mistake is one error that names the option."""

from __future__ import annotations

import pickle

import pytest
from tests.spark.source.writing.conftest import SCHEMA

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.writing import sink
from tidelog.spark.source.writing.options import write_options

URL = {"url": "redis://localhost:1/0"}


# fmt: off
@pytest.mark.parametrize("options, text", [
    ({}, "option url is missing: give the address of a served store or of Redis, such as redis://HOST:PORT/DB"),
    ({"url": "http://x"},
     "option url cannot be parsed by redis-py: give redis://HOST:PORT/DB, rediss:// or unix://"),
    ({"url": "redis://:secret@x:port/0"},
     "option url cannot be parsed by redis-py: give redis://HOST:PORT/DB, rediss:// or unix://"),
    ({**URL, "maxlen": "5"},
     "option maxlen is not an option of a write; the options are url, username, password, stream, streamColumn, "
     "idColumn, chunkRows, timeoutSeconds, retrySeconds, jobId, txnAppId, txnVersion"),
    ({**URL, "stream": "a", "streamColumn": "b"},
     "option streamColumn cannot be used together with the option stream, which writes all rows to one stream"),
    ({**URL, "stream": ""}, "option stream is empty"),
    ({**URL, "jobId": "a b"}, "option jobId must not contain white space"),
    ({**URL, "chunkRows": "0"}, "option chunkRows is '0', but must be a number from 1 to 100000"),
    ({**URL, "chunkRows": "many"}, "option chunkRows is 'many', but must be a number from 1 to 100000"),
    ({**URL, "timeoutSeconds": "0"}, "option timeoutSeconds is '0', but must be a number of seconds above 0"),
    ({**URL, "retrySeconds": "-1"}, "option retrySeconds is '-1', but must be a number of seconds of 0 or more"),
    ({**URL, "timeoutSeconds": "nan"}, "option timeoutSeconds is 'nan', but must be a number of seconds above 0"),
])
# fmt: on
def test_a_wrong_option_is_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(TidelogSparkError) as raised:
        write_options(options, streaming=False)
    assert str(raised.value) == f"[TIDELOG_OPTION] {text}"


def test_names_come_in_lower_case() -> None:
    found = write_options({**URL, "chunkrows": "5", "IDCOLUMN": "id"}, streaming=False)
    assert (found.chunk_rows, found.id_column) == (5, "id")


def test_a_query_has_its_own_id() -> None:
    with pytest.raises(TidelogSparkError, match="jobId is only for batch writes; a streaming query has an ID of"):
        write_options({**URL, "jobid": "x"}, streaming=True)


def test_options_of_spark_itself_pass() -> None:
    write_options({**URL, "checkpointLocation": "x", "queryName": "y"}, streaming=True)


def test_overwriting_is_refused() -> None:
    for plan in (sink.writer, sink.stream_writer):
        with pytest.raises(TidelogSparkError, match="TIDELOG_WRITE_MODE. a write only appends"):
            plan(URL, SCHEMA, True)


def test_errors_show_no_user_and_no_password() -> None:
    found = write_options({"url": "rediss://me:pass@word@host:7000/3"}, streaming=False)
    assert found.place == "rediss://host:7000/3"


def test_a_plan_can_be_pickled() -> None:
    for plan in (sink.writer(URL, SCHEMA, False), sink.stream_writer(URL, SCHEMA, False)):
        again = pickle.loads(pickle.dumps(plan))
        assert again.task.options == plan.task.options and again.task.run == plan.task.run
