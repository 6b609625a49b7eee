"""QUEUE TAKE with CONFIRM: a delivery that no handler saw is no delivery."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import redis
from tests import inside
from tests.server.conftest import Running, Start
from tests.until import parked, until

import tidelog
from tidelog import testing
from tidelog.aof.errors import NoSpace
from tidelog.aof.log import Log
from tidelog.server import jobs

# One delivery is one too many: a job that was counted for nothing is dead.
WORDS = ("RETRYAFTER", 8000, "MAXDELIVERIES", 1)


class Bench:
    """A server over a store whose clock stands still, with one job of the queue `q`."""

    def __init__(self, start: Start) -> None:
        self.clock = testing.Clock()
        self.running: Running = start(clock=self.clock)
        self.db = self.running.db
        self.client: Any = self.running.client()
        self.other: Any = self.running.client()
        self.id = self.call("PUT", b"v")

    def call(self, verb: str, *args: Any, client: Any = None) -> Any:
        return (client or self.client).execute_command("QUEUE", verb, "q", *args, *WORDS)

    def take(self, *more: Any, client: Any = None) -> Any:
        return self.call("TAKE", "w", "CONFIRM", "t", *more, client=client)

    def hang_up(self) -> None:
        """End the first client's connection, and wait until the server knows."""
        held = self.running.server.sessions
        before = len(held)
        self.client.connection_pool.disconnect()
        until(lambda: len(held) < before, "the server keeps the connection")

    def given(self) -> list[Any]:
        """[ID, deliveries, row] of the job, for another worker."""
        return [[self.id, 1, [b"value", b"v"]]]

    def lent(self) -> int:
        """How many jobs the server knows to be in clients' hands."""
        return len(self.running.server.desk._held)


@pytest.fixture
def bench(start: Start) -> Bench:
    return Bench(start)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server does not wait after the end of a connection."""
    monkeypatch.setattr(jobs, "GRACE_S", 0.0)


def test_an_unconfirmed_job_goes_back_uncounted_when_its_connection_ends(
    bench: Bench, at_once: None
) -> None:
    assert bench.take() == bench.given()
    bench.hang_up()
    until(lambda: bench.lent() == 0)
    assert bench.call("TAKE", "v", client=bench.other) == bench.given()


@pytest.mark.parametrize("by", ["CONFIRM", "RENEW", "EXTEND"])
def test_a_confirmed_job_counts(bench: Bench, at_once: None, by: str) -> None:
    assert bench.take() == bench.given()
    assert bench.call(by, "w", bench.id, 1, *((1,) if by == "EXTEND" else ()))
    bench.hang_up()
    assert bench.call("TAKE", "v", client=bench.other) is None
    bench.clock.advance(8)
    assert bench.call("TAKE", "v", client=bench.other) is None
    assert bench.call("LEN", client=bench.other) == 0  # dead: it was delivered once
    assert bench.other.execute_command("QUEUE", "DEAD", "q", "COUNT") == 1


def test_one_job_confirms_all_of_its_call(bench: Bench, at_once: None) -> None:
    second = bench.call("PUT", b"w")
    assert [id for id, _, _ in bench.take("COUNT", 2)] == [bench.id, second]
    assert bench.call("CONFIRM", "w", second, 1) == 1
    bench.hang_up()
    assert bench.call("TAKE", "v", client=bench.other) is None
    until(lambda: bench.lent() == 0)
    assert bench.db.queue("q").stats().in_flight == {"w": 2}


def test_a_worker_that_renews_over_another_connection_keeps_its_jobs(bench: Bench) -> None:
    assert bench.take() == bench.given()
    bench.hang_up()
    assert bench.call("RENEW", "w", bench.id, 1, client=bench.other) == [bench.id]
    # they are the other connection's now
    (lent,) = bench.running.server.desk._held.values()
    assert (lent.unconfirmed, lent.orphaned) == (False, False)
    assert bench.call("DONE", "w", bench.id, 1, client=bench.other) == 1
    assert (bench.call("LEN", client=bench.other), bench.lent()) == (0, 0)


def test_a_settling_over_another_connection_confirms(bench: Bench) -> None:
    second = bench.call("PUT", b"w")
    bench.take("COUNT", 2)
    bench.hang_up()
    assert bench.call("DONE", "w", bench.id, 1, client=bench.other) == 1
    assert bench.call("TAKE", "v", client=bench.other) is None
    assert bench.call("RETRY", "w", second, 1, "error", client=bench.other) == 1
    assert bench.other.execute_command("QUEUE", "DEAD", "q", "COUNT") == 1


def test_a_connection_that_takes_others_gives_back_what_is_unconfirmed(bench: Bench) -> None:
    assert bench.take() == bench.given()
    assert bench.take() == bench.given()
    assert bench.call("CONFIRM", "w", bench.id, 1) == 1
    assert bench.take() is None


@pytest.mark.parametrize("handed", [False, True])
def test_a_stop_of_the_server_counts_no_unconfirmed_job(
    bench: Bench, start: Start, handed: bool
) -> None:
    assert bench.take() == bench.given()
    if handed:
        bench.hang_up()
    bench.running.serving.close()
    bench.db.close()
    with tidelog.open(bench.running.root, clock=bench.clock) as db:
        job = db.queue("q", codec="bytes", max_deliveries=1).get(block=0)
        assert job is not None and job.deliveries == 1
        job.ack()


def test_a_job_whose_lease_ends_before_a_handler_began_is_given_uncounted(bench: Bench) -> None:
    assert bench.take("HEARTBEAT", 1000) == bench.given()
    bench.clock.advance(10)
    for worker in "v", "u":  # also the second one that is stuck
        given = bench.call("TAKE", worker, "HEARTBEAT", 1000, "CONFIRM", "t2", client=bench.other)
        assert given == bench.given()
        bench.clock.advance(10)
    assert bench.call("TAKE", "x", client=bench.other) == bench.given()
    assert bench.call("CONFIRM", "w", bench.id, 1) == 0
    assert bench.call("RENEW", "w", bench.id, 1) == []
    assert (
        bench.call("RETRY", "w", bench.id, 1, "error") == bench.call("DONE", "w", bench.id, 1) == 0
    )
    bench.hang_up()
    assert bench.call("DONE", "x", bench.id, 1, client=bench.other) == 1
    assert bench.other.execute_command("QUEUE", "DEAD", "q", "COUNT") == 0


@pytest.mark.parametrize("one", [True, False], ids=["one process", "two processes"])
def test_workers_of_one_name_are_told_apart(bench: Bench, at_once: None, one: bool) -> None:
    for client, name in (bench.client, b"p1"), (bench.other, b"p1" if one else b"p2"):
        client.execute_command("TIDELOG", "CAPABILITIES", name)
    assert bench.take("HEARTBEAT", 1000) == bench.given()
    bench.clock.advance(10)
    assert bench.take("HEARTBEAT", 1000, client=bench.other) == bench.given()
    assert bench.call("CONFIRM", "w", bench.id, 1) == 0
    if not one:  # the connections of one process may all speak for it
        assert bench.call("RENEW", "w", bench.id, 1) == []
        assert bench.call("DROP", "w", bench.id, 1) == bench.call("DONE", "w", bench.id, 1) == 0
        assert bench.call("RETRY", "w", bench.id, 1, "error") == 0
    bench.hang_up()  # which gives nothing back
    assert bench.call("TAKE", "v", client=bench.running.client()) is None
    assert bench.call("CONFIRM", "w", bench.id, 1, client=bench.other) == 1
    assert bench.call("DONE", "w", bench.id, 1, client=bench.other) == 1


def test_of_a_call_of_which_others_have_a_job_the_worker_keeps_the_rest(bench: Bench) -> None:
    second = bench.call("PUT", b"w")
    bench.take("COUNT", 2, "HEARTBEAT", 1000)
    bench.clock.advance(10)
    assert bench.call("TAKE", "v", client=bench.other) == bench.given()
    assert bench.call("CONFIRM", "w", bench.id, 1) == 0
    assert bench.call("RENEW", "w", bench.id, 1, second, 1) == [second]
    assert bench.call("TAKE", "u", client=bench.other) is None
    assert bench.call("DONE", "w", bench.id, 1, second, 1) == 1
    assert bench.call("DONE", "v", bench.id, 1, client=bench.other) == 1


def test_a_late_worker_keeps_a_job_that_nobody_else_has(bench: Bench) -> None:
    assert bench.take("HEARTBEAT", 1000) == bench.given()
    bench.clock.advance(10)
    assert bench.call("CONFIRM", "w", bench.id, 1) == 1
    assert bench.call("RENEW", "w", bench.id, 1) == [bench.id]
    assert bench.call("TAKE", "v", client=bench.other) is None
    assert bench.call("DONE", "w", bench.id, 1) == 1


def test_a_confirmed_job_whose_lease_ends_counts(bench: Bench) -> None:
    assert bench.take("HEARTBEAT", 1000) == bench.given()
    assert bench.call("CONFIRM", "w", bench.id, 1) == 1
    bench.clock.advance(10)
    assert bench.call("TAKE", "v", client=bench.other) is None
    assert bench.other.execute_command("QUEUE", "DEAD", "q", "COUNT") == 1


def test_an_unseen_job_that_is_too_old_was_not_delivered(bench: Bench) -> None:
    bench.call("DONE", "w", bench.take()[0][0], 1)
    id = bench.call("PUT", b"w", "TTL", 5000)
    assert bench.take("HEARTBEAT", 1000)[0][:2] == [id, 1]
    bench.clock.advance(10)
    assert bench.call("TAKE", "v", client=bench.other) is None
    ((_, fields),) = bench.other.xrange("q:dead")
    assert fields[b"deliveries"] == b"0" and b"expired" in fields[b"reason"]


def test_an_embedded_worker_gets_an_unseen_job_uncounted(bench: Bench) -> None:
    assert bench.take("HEARTBEAT", 1000) == bench.given()
    bench.clock.advance(10)
    job = bench.db.queue("q", codec="bytes", retry_after=8, max_deliveries=1).get("v", block=0)
    assert job is not None and job.deliveries == 1
    assert bench.call("CONFIRM", "w", bench.id, 1) == bench.call("DONE", "w", bench.id, 1) == 0
    assert job.ack()


def test_a_suspect_that_no_handler_saw_is_a_suspect_still(bench: Bench) -> None:
    words = [*WORDS[:-1], 3]
    take = ["QUEUE", "TAKE", "q", "w", "HEARTBEAT", 1000]
    second = bench.call("PUT", b"w")
    bench.client.execute_command(*take, *words)
    bench.clock.advance(10)
    given = bench.other.execute_command(*take, "CONFIRM", "t", *words)
    assert [each[:2] for each in given] == [[bench.id, 2]]  # it may have killed its process
    bench.clock.advance(10)
    third: Any = bench.running.client()
    given = third.execute_command(*take, "COUNT", 2, *words)
    assert [each[:2] for each in given] == [[bench.id, 2]]  # alone
    assert bench.call("TAKE", "v", client=bench.running.client())[0][0] == second


def test_a_take_that_fails_leaves_the_unseen_job_where_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench.take("HEARTBEAT", 1000) == bench.given()
    bench.clock.advance(10)

    def full(log: Log, nbytes: int) -> None:
        raise NoSpace(Path("log.aof"), nbytes)

    with monkeypatch.context() as patch:
        patch.setattr(Log, "reserve", full)
        inside.log(bench.db).room = -1  # so that everyone asks
        with pytest.raises(redis.ResponseError, match="disk"):
            bench.call("TAKE", "v", client=bench.other)
    bench.clock.advance(3)
    assert bench.call("TAKE", "v", client=bench.other) == bench.given()


def test_an_unblocked_call_ends(bench: Bench) -> None:
    bench.call("DONE", "w", bench.take()[0][0], 1)
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(bench.take("BLOCK", 0)))
    waiting.start()
    parked(bench.db)
    assert bench.call("UNBLOCK", "other", client=bench.other) == 0
    assert bench.call("UNBLOCK", "t", client=bench.other) == 1
    waiting.join(60)
    assert got == [None]
    assert not bench.running.server.desk.parked


def test_an_unblocked_call_that_comes_later_does_not_wait(bench: Bench) -> None:
    assert bench.call("UNBLOCK", "t", client=bench.other) == 0
    assert bench.take("BLOCK", 0) == bench.given()
    bench.call("DONE", "w", bench.id, 1)
    assert bench.call("UNBLOCK", "t", client=bench.other) == 0
    assert bench.take("BLOCK", 0) is None
    assert bench.take() is None


def test_tokens_that_nobody_uses_are_forgotten(bench: Bench) -> None:
    for number in range(jobs.UNBLOCKED_MAX + 10):
        bench.call("UNBLOCK", str(number))
    assert len(bench.running.server.desk._unblocked) == jobs.UNBLOCKED_MAX


def after_a_restart(bench: Bench, start: Start) -> Running:
    """The server ends while a handler has the job, and its worker does not come back within the lease."""
    bench.take()
    assert bench.call("CONFIRM", "w", bench.id, 1) == 1
    bench.running.serving.close()
    bench.db.close()
    bench.clock.advance(8)
    running = start(bench.running.root, clock=bench.clock)
    bench.clock.advance(8)
    return running


def test_a_job_of_an_earlier_server_is_delivered_once_more(bench: Bench, start: Start) -> None:
    """It does not log who confirmed, so it cannot tell whether a handler began."""
    running = after_a_restart(bench, start)
    client: Any = running.client()
    assert bench.take(client=client) == [[bench.id, 2, [b"value", b"v"]]]
    assert bench.call("CONFIRM", "w", bench.id, 2, client=client) == 1
    client.connection_pool.disconnect()
    until(lambda: not running.server.desk._held)
    bench.clock.advance(8)
    assert bench.take(client=client) is None
    assert client.execute_command("QUEUE", "DEAD", "q", "COUNT") == 1


def test_others_count_it(bench: Bench, start: Start) -> None:
    """A client that does not confirm, and a worker of an embedded queue."""
    running = after_a_restart(bench, start)
    queue = running.db.queue("q", codec="bytes", max_deliveries=1, retry_after=8)
    assert queue.get(block=0) is None
    assert bench.call("TAKE", "v", client=running.client()) is None
    assert queue.dead.count() == 1


def test_a_user_needs_the_key(bench: Bench) -> None:
    bench.client.execute_command("ACL", "SETUSER", "ann", "on", "nopass", "~a*", "+@all")
    client: Any = bench.running.client(username="ann", password="x")
    for words in (("CONFIRM", "q", "w", bench.id, 1), ("UNBLOCK", "q", "t")):
        with pytest.raises(Exception, match="No permissions to access a key|NOPERM"):
            client.execute_command("QUEUE", *words)
    assert client.execute_command("TIDELOG", "CAPABILITIES") == [
        b"cancel",
        b"confirm",
        b"dedup",
        b"find",
        b"handover",
        b"hangs",
        b"job",
        b"limit",
        b"pause",
        b"progress",
        b"release",
        b"remove",
        b"retry",
        b"workers",
        b"fsync:everysec",
    ]
