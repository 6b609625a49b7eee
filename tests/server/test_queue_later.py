"""QUEUE and delayed jobs: the commands beside the embedded queue of the same store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis
from tests.server.dial import hang_up
from tests.server.test_queue_commands import Bench, bench

__all__ = ["bench", "hang_up"]


def test_delayed_jobs_are_shown_with_their_times(bench: Bench) -> None:
    bench.queue.put(b"now")
    id = bench.queue.put(b"later", delay=5)
    ((shown, fields, due),) = bench.call("PEEK", "SCHEDULED")
    assert (shown.decode(), fields) == (id, [b"value", b"later"])
    (job,) = bench.queue.peek(scheduled=True)
    assert job.due_at is not None and due == round(job.due_at.timestamp() * 1000)
    assert [fields[1] for _, fields in bench.call("PEEK")] == [b"now"]
    bench.clock.advance(6)
    assert bench.call("PEEK", "SCHEDULED") == []
    assert [fields[1] for _, fields in bench.call("PEEK", "COUNT", 9)] == [b"now", b"later"]
    assert [bench.take()[0][2][1] for _ in range(2)] == [b"now", b"later"]


def test_a_put_names_its_time(bench: Bench) -> None:
    later = bench.call("PUT", b"5", "DELAY", 5000, "HEADERS", 1, "h", "x")
    at = bench.clock.now() + timedelta(seconds=3)
    bench.call("PUT", b"3", "AT", round(at.timestamp() * 1000), "DEDUP", "d")
    first = bench.call("PUT", b"0", "DELAY", 0)
    assert bench.call("PUTMANY", 2, "a", "b", "DELAY", 9000) == 2
    assert bench.call("PUT", b"again", "DEDUP", "d") == bench.call("PEEK", "SCHEDULED")[0][0]
    assert [job.value for job in bench.queue.peek(scheduled=True)] == [b"3", b"5", b"a", b"b"]
    assert bench.call("PEEK")[0][0] == first
    bench.clock.advance(10)
    taken = bench.take("w", "COUNT", 9)
    assert [row[1] for _, _, row in taken] == [b"0", b"3", b"5", b"a", b"b"]
    assert taken[2][2][2:] == [b"header.h", b"x", b"origin", later]


def test_a_job_expires(bench: Bench) -> None:
    bench.call("PUT", b"a", "TTL", 1000)
    bench.call("PUT", b"b", "TTL", 1000, "DELAY", 5000)
    bench.call("PUTMANY", 1, "c", "TTL", 1000)
    bench.clock.advance(2)
    assert bench.take() is None
    bench.clock.advance(5)
    assert bench.take() is None
    assert [job.reason for job in bench.queue.dead] == ["expired"] * 3


def test_a_delayed_job_is_cancelled_or_moved(bench: Bench) -> None:
    one, two = (bench.call("PUT", value, "DELAY", 5000) for value in "ab")
    assert bench.call("CANCEL", one) == 1
    assert bench.call("CANCEL", one) == 0
    assert bench.call("MOVE", one, "DELAY", 1) == 0
    assert bench.call("MOVE", two, "DELAY", 60_000) == 1
    bench.clock.advance(10)
    assert bench.take() is None
    assert bench.call("MOVE", two, "AT", 0) == 1
    ((_, _, row),) = bench.take()
    assert row[1] == b"b"
    assert bench.call("CANCEL", two) == 1  # it runs
    assert bench.call("CANCEL", two) == 0


def test_a_numbered_write_of_a_delayed_job_happens_once(bench: Bench) -> None:
    put = ("PUT", b"v", "DELAY", 5000, "ONCE", "lane", 1)
    id = bench.call(*put)
    assert bench.call(*put) == id == bench.call("PEEK", "SCHEDULED")[0][0]
    many = ("PUTMANY", 2, "a", "b", "DELAY", 5000, "ONCE", "lane", 2)
    assert bench.call(*many) == bench.call(*many) == 2
    move = ("MOVE", id, "DELAY", 9000, "ONCE", "lane", 3)
    assert bench.call(*move) == bench.call(*move) == 1
    cancel = ("CANCEL", id, "ONCE", "lane", 4)
    assert bench.call(*cancel) == bench.call(*cancel) == 1
    assert [row[1] for _, row, _ in bench.call("PEEK", "SCHEDULED")] == [b"a", b"b"]


def test_a_finished_job_puts_a_delayed_one(bench: Bench) -> None:
    bench.call("PUT", b"v")
    ((id, count, _),) = bench.take()
    put = ("q", b"next", "DELAY", 5000, "TTL", 1000)
    assert bench.call("DONEAND", "w", id, count, 1, len(put), *put) == 1
    (job,) = bench.queue.peek(scheduled=True)
    assert job.value == b"next"
    bench.clock.advance(5.5)
    assert bench.take()[0][2][1] == b"next"


def test_schedules(bench: Bench) -> None:
    run = bench.client.execute_command
    added = as_dict(run("QUEUE", "SCHEDULE", "ADD", "poll", "q", b"v", "EVERY", 60_000))
    assert added[b"every_ms"] == 60_000 and added[b"cron"] is None and added[b"paused"] == 0
    added = as_dict(
        run("QUEUE", "SCHEDULE", "ADD", "nightly", "q", b"\xff", "CRON", "0 3 * * *",
            "TZ", "Europe/Berlin", "CATCHUP", "NONE")
    )  # fmt: skip
    assert (added[b"tz"], added[b"catch_up"], added[b"value"]) == (
        *(b"Europe/Berlin", b"none", b"\xff"),
    )
    listed = [as_dict(found) for found in run("QUEUE", "SCHEDULES")]
    assert [found[b"name"] for found in listed] == [b"nightly", b"poll"]
    assert [found.name for found in bench.db.schedules.list()] == ["nightly", "poll"]
    assert bench.take() is None
    bench.clock.advance(61)
    assert bench.take()[0][2][1] == b"v"
    assert run("QUEUE", "SCHEDULE", "PAUSE", "poll") == 1
    assert run("QUEUE", "SCHEDULE", "PAUSE", "none") == 0
    assert as_dict(run("QUEUE", "SCHEDULES")[1])[b"next_ms"] is None
    assert run("QUEUE", "SCHEDULE", "RESUME", "poll") == 1
    remove = ("QUEUE", "SCHEDULE", "REMOVE", "poll", "ONCE", "lane", 1)
    assert run(*remove) == run(*remove) == 1
    assert run("QUEUE", "SCHEDULE", "REMOVE", "poll") == 0


@pytest.mark.parametrize(
    "words",
    [
        ("PUT", "q", "v", "DELAY", 1, "AT", 1),
        ("PUT", "q", "v", "DELAY", -1),
        ("PUT", "q", "v", "DELAY", 1 << 60),
        ("PUT", "q", "v", "AT", 1 << 62),
        ("PUT", "q", "v", "TTL", 0),
        ("PUT", "q", "v", "DELAY"),
        ("MOVE", "q", "1-1", "TTL", 5),
        ("MOVE", "q", "x", "DELAY", 5),
        ("CANCEL", "q", "x"),
        ("SCHEDULE", "ADD", "n", "q", "v"),
        ("SCHEDULE", "ADD", "n", "q", "v", "EVERY", 1),
        ("SCHEDULE", "ADD", "n", "q", "v", "CRON", "x"),
        ("SCHEDULE", "ADD", "n", "q", "v", "CRON", "0 0 31 2 *"),
        ("SCHEDULE", "ADD", "n", "q", "v", "CRON", "0 3 * * *", "TZ", "Nowhere/City"),
        ("SCHEDULE", "ADD", "n", "q", "v", "EVERY", 5000, "CATCHUP", "SOME"),
        ("SCHEDULE", "ADD", "n", "q"),
        ("SCHEDULE", "ADD", b"\xff", "q", "v", "EVERY", 5000),
        ("SCHEDULE", "SKIP", "n"),
        ("SCHEDULE", "PAUSE", "n", "EVERY", 5000),
    ],
)
def test_bad_words_change_nothing(bench: Bench, words: tuple[Any, ...]) -> None:
    with pytest.raises(redis.ResponseError) as caught:
        bench.client.execute_command("QUEUE", *words)
    assert "internal" not in str(caught.value)
    assert list(bench.db.keys("*")) == []


def test_a_schedule_needs_the_right_to_put(bench: Bench) -> None:
    run = bench.client.execute_command
    run("ACL", "SETUSER", "ann", "on", "nopass", "+@all", "~q", "resetchannels")
    run("AUTH", "ann", "x")
    add = ("QUEUE", "SCHEDULE", "ADD", "n", "q", "v", "EVERY", 5000)
    with pytest.raises(redis.exceptions.NoPermissionError):
        run(*add)
    other: Any = bench.running.client()
    other.execute_command("ACL", "SETUSER", "ann", "~tidelog:schedules")
    run(*add)
    with pytest.raises(redis.exceptions.NoPermissionError):
        run("QUEUE", "SCHEDULE", "ADD", "n", "other", "v", "EVERY", 5000)


def as_dict(pairs: list[Any]) -> dict[bytes, Any]:
    return dict(zip(pairs[::2], pairs[1::2], strict=True))
