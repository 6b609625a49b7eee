"""QUEUE RESULT, and QUEUE DONE with a result: the commands beside the embedded queue of the same store."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import redis
from tests.server.dial import dial, hang_up
from tests.server.test_queue_commands import Bench, bench
from tests.until import parked

import tidelog

__all__ = ["bench", "hang_up"]


def test_a_result_is_left_and_found(bench: Bench) -> None:
    id = bench.call("PUT", b"v")
    assert bench.call("RESULT", id) is None
    bench.take()
    assert bench.call("DONE", "w", id, 1, "RESULT", b"\x00r", "RESULTTTL", 5000) == 1
    assert bench.call("DONE", "w", id, 1, "RESULT", b"other") == 0
    assert bench.call("RESULT", id) == [b"DONE", b"\x00r"]
    assert bench.queue.result(id.decode(), 0) == b"\x00r"
    bench.clock.advance(6)
    assert bench.call("RESULT", id) == [b"NONE"]


def test_a_dead_job_and_one_without_a_result(bench: Bench) -> None:
    bad, plain = bench.call("PUT", b"bad"), bench.call("PUT", b"plain")
    bench.take("w", "COUNT", 2)
    bench.call("FAIL", "w", bad, 1, "broken")
    bench.call("DONE", "w", plain, 1)
    ((dead, _),) = bench.client.execute_command("QUEUE", "DEAD", "q", "LIST")
    assert bench.call("RESULT", bad, "BLOCK", 0) == [b"DEAD", dead, b"broken"]
    assert bench.call("RESULT", plain, "BLOCK", 0) == [b"NONE"]


def test_a_job_that_has_another_id_now(bench: Bench) -> None:
    first = bench.call("PUT", b"v", "DELAY", 5000)
    assert bench.call("RESULT", first) is None
    bench.clock.advance(6)
    ((now, *_),) = bench.take()
    assert now != first and bench.call("RESULT", first) is None
    assert bench.call("DONE", "w", now, 1) == 1
    assert bench.call("RESULT", first) == bench.call("RESULT", first, "BLOCK", 0) == [b"NONE"]


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_client_waits(bench: Bench, protocol: int) -> None:
    id = bench.call("PUT", b"v")
    other: Any = bench.running.client(protocol=protocol)
    found: list[Any] = []
    words = ("QUEUE", "RESULT", "q", id, "BLOCK")
    thread = threading.Thread(target=lambda: found.append(other.execute_command(*words, 0)))
    thread.start()
    parked(bench.db)
    bench.take()
    bench.call("DONE", "w", id, 1, "RESULT", b"r")
    thread.join()
    assert found == [[b"DONE", b"r"]]


def test_the_wait_ends_in_time(bench: Bench) -> None:
    id = bench.call("PUT", b"v")
    other: Any = bench.running.client()
    found: list[Any] = []
    words = ("QUEUE", "RESULT", "q", id, "BLOCK", 3000)
    thread = threading.Thread(target=lambda: found.append(other.execute_command(*words)))
    thread.start()
    parked(bench.db)
    bench.clock.advance(4)
    thread.join()
    assert found == [None]


def test_a_client_that_hangs_up_waits_no_more(bench: Bench) -> None:
    id = bench.call("PUT", b"v")
    client = dial(bench.running.port)
    client.begin(b"QUEUE", b"RESULT", b"q", id, b"BLOCK", b"0")
    parked(bench.db)
    client.close()
    parked(bench.db, 0)


def test_words_that_do_not_fit(bench: Bench) -> None:
    one, two = bench.call("PUT", b"1"), bench.call("PUT", b"2")
    bench.take("w", "COUNT", 2)
    for words in (
        (one, 1, two, 1, "RESULT", b"r"),
        (one, 1, "RESULTTTL", 5),
        (one, 1, "RESULT", b"r", "ONCE", "lane", 1),
    ):
        with pytest.raises(redis.ResponseError, match="RESULT is for one job"):
            bench.call("DONE", "w", *words)
    for ttl, said in (("0", "greater than 0"), (1 << 62, "out of range")):
        with pytest.raises(redis.ResponseError, match=said):
            bench.call("DONE", "w", one, 1, "RESULT", b"r", "RESULTTTL", ttl)
    with pytest.raises(redis.ResponseError, match="Invalid stream ID"):
        bench.call("RESULT", "x")
    assert bench.call("DONE", "w", one, 1, two, 1) == 2


def test_a_shared_queue(bench: Bench) -> None:
    with tidelog.connect(f"redis://127.0.0.1:{bench.running.port}") as store:
        queue: Any = store.queue("q")
        handle = queue.put({"n": 1})
        assert isinstance(handle, tidelog.Handle)
        with pytest.raises(tidelog.ResultLate):
            handle.result(0)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(handle.result()))
        thread.start()
        parked(bench.db)
        job = queue.get(block=0)
        with pytest.raises(tidelog.EncodeError):
            job.ack(result={1})
        assert job.ack(result=None, ttl=60)
        thread.join()
        assert found == [None] and handle.result(0) is None
        bad, plain = queue.put("bad"), queue.put("plain")
        queue.get(block=0).fail("no")
        queue.get(block=0).ack()
        with pytest.raises(tidelog.JobFailed, match="no") as failed:
            bad.result()
        assert queue.dead.get(failed.value.dead_id).original_id == bad
        with pytest.raises(tidelog.NoResult):
            plain.result()
        assert queue.run(lambda job: 5, workers=1, block=0, results=True) == 0
