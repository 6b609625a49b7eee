"""QUEUE: the commands of the durable queue, beside the embedded queue of the same store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from tests.oracle.wire import NULL_ARRAY
from tests.server.conftest import Running, Start
from tests.server.dial import dial, hang_up
from tests.until import parked, until

import tidelog
from tidelog import testing
from tidelog.jobs.verbs.stats import MORE

__all__ = ["hang_up"]
OPTIONS: dict[str, Any] = {"retry_after": 8.0, "max_deliveries": 2}
WORDS = ("RETRYAFTER", 8000, "MAXDELIVERIES", 2)


class Bench:
    """A server over a store whose clock stands still, a client, and the embedded queue `q` with the same options."""

    def __init__(self, start: Start) -> None:
        self.clock = testing.Clock()
        self.running: Running = start(clock=self.clock)
        self.db = self.running.db
        self.client: Any = self.running.client()
        self.queue = self.db.queue("q", codec="bytes", **OPTIONS)

    def call(self, verb: str, *args: Any) -> Any:
        """A subcommand with the options of `queue`."""
        return self.client.execute_command("QUEUE", verb, "q", *args, *WORDS)

    def take(self, worker: str = "w", *more: Any) -> Any:
        return self.call("TAKE", worker, *more)

    def hang_up(self) -> None:
        """End the client's connection, and wait until the server knows."""
        held = self.running.server.sessions
        before = len(held)
        self.client.connection_pool.disconnect()
        until(lambda: len(held) < before, "the server keeps the connection")


@pytest.fixture
def bench(start: Start) -> Bench:
    return Bench(start)


def test_a_job_put_and_done(bench: Bench) -> None:
    id = bench.call("PUT", b"v", "HEADERS", 1, "trace", "a1")
    assert bench.call("LEN") == 1
    assert bench.call("PEEK") == [[id, [b"value", b"v", b"header.trace", b"a1"]]]
    assert bench.take() == [[id, 1, [b"value", b"v", b"header.trace", b"a1"]]]
    assert bench.take() is None
    assert bench.call("DONE", "w", id, 2) == 0  # another delivery's number
    assert bench.call("DONE", "other", id, 1) == 0
    assert bench.call("DONE", "w", id, 1) == 1
    assert bench.call("DONE", "w", id, 1) == 0
    assert bench.call("LEN") == 0
    assert bench.db.xlen("q") == 0


def test_several_jobs_at_once(bench: Bench) -> None:
    assert bench.call("PUTMANY", 3, "a", "b", "c") == 3
    taken = bench.take("w", "COUNT", 2)
    assert [row[1] for _, _, row in taken] == [b"a", b"b"]
    (a, _, _), (b, _, _) = taken
    assert bench.call("DONE", "w", a, 1, b, 1, "9-9", 1) == 2
    assert bench.call("LEN") == 1


def test_the_embedded_queue_and_the_commands_are_one_queue(bench: Bench) -> None:
    bench.queue.put(b"1")
    bench.call("PUT", b"2")
    ((id, _, row),) = bench.take()
    assert row == [b"value", b"1"]
    job = bench.queue.get("local", block=0)
    assert job is not None and job.value == b"2"
    assert bench.queue.get("local", block=0) is None
    assert bench.queue.stats().in_flight == {"local": 1, "w": 1}
    assert bench.call("DONE", "local", job.id, 1) == 1
    assert job.ack() is False  # it is done
    assert bench.call("DONE", "w", id, 1) == 1


def test_a_dedup_id(bench: Bench) -> None:
    first = bench.call("PUT", b"v", "DEDUP", "d")
    assert bench.call("PUT", b"w", "DEDUP", "d") == first
    assert bench.queue.put(b"x", dedup_id="d").encode() == first
    assert bench.call("LEN") == 1


def test_a_failed_job_is_tried_again_and_dies(bench: Bench) -> None:
    id = bench.call("PUT", b"v", "HEADERS", 1, "k", "t")
    bench.take()
    assert bench.call("RETRY", "w", id, 1, "boom", "TRACE", "line 1", "DELAY", 5000) == 1
    assert bench.take() is None
    bench.clock.advance(5)
    assert bench.take("v") == [[id, 2, [b"value", b"v", b"header.k", b"t"]]]
    assert bench.call("RETRY", "v", id, 2, "bang") == 1
    assert bench.call("LEN") == 0
    (job,) = bench.queue.dead
    assert (job.original_id.encode(), job.workers, job.raw) == (id, ["w", "v"], b"v")
    assert [(f.error, f.traceback) for f in job.errors] == [("boom", "line 1"), ("bang", "")]
    assert bench.call("FAILURES", "JOB", id)[0][2:] == [b"v", 2, b"bang", b""]
    assert bench.client.execute_command("QUEUE", "DEAD", "q", "COUNT") == 1
    ((dead, row),) = bench.client.execute_command("QUEUE", "DEAD", "q", "LIST")
    assert dead.decode() == job.id and row[:2] == [b"value", b"v"]
    assert bench.client.execute_command("QUEUE", "DEAD", "q", "REDRIVE", dead, "1-1") == 1
    ((again, count, _),) = bench.take()
    assert count == 1
    assert bench.call("FAIL", "w", again, 1, "no") == 1
    ((dead, _),) = bench.client.execute_command("QUEUE", "DEAD", "q", "LIST", "-", 10)
    assert bench.client.execute_command("QUEUE", "DEAD", "q", "PURGE", dead) == 1
    assert bench.client.execute_command("QUEUE", "DEAD", "q", "COUNT") == 0


def test_release_and_extend(bench: Bench) -> None:
    id = bench.call("PUT", b"v")
    bench.take()
    assert bench.call("RELEASE", "w", id, 1) == 1
    assert bench.take("v")[0][1] == 1  # the delivery did not count
    assert bench.call("EXTEND", "v", id, 1, 60_000) == 1
    bench.hang_up()
    bench.clock.advance(50)
    assert bench.take("u") is None
    bench.clock.advance(11)
    assert bench.take("u")[0][:2] == [id, 2]
    assert bench.call("RELEASE", "v", id, 1) == bench.call("EXTEND", "v", id, 1, 1000) == 0


def test_jobs_live_while_the_connection_lives(bench: Bench) -> None:
    id = bench.call("PUT", b"v")
    bench.take()
    for _ in range(5):
        bench.clock.advance(8)
        assert bench.queue.get("other", block=0) is None
    bench.hang_up()
    bench.clock.advance(5)
    # At most 8/3 s have passed since the last renewal.
    assert bench.queue.get("other", block=0) is None
    bench.clock.advance(3.1)
    job = bench.queue.get("other", block=0)
    assert job is not None and (job.id.encode(), job.deliveries) == (id, 2)
    assert bench.call("DONE", "w", id, 1) == 0
    assert job.ack()


def test_a_worker_that_returns_gets_its_jobs_at_once(bench: Bench) -> None:
    id = bench.call("PUT", b"v")
    bench.take("w", "HISTORY")
    bench.hang_up()
    assert bench.take("w") is None
    assert bench.take("other", "HISTORY") is None
    assert bench.take("w", "HISTORY")[0][:2] == [id, 2]
    assert bench.take("w", "HISTORY") is None  # it has it


def test_a_worker_that_returns_gets_its_jobs_of_all_priorities(bench: Bench) -> None:
    low = bench.call("PUT", b"low")
    also = bench.call("PUT", b"also low")
    assert bench.take("w", "COUNT", 2)
    bench.hang_up()
    high = bench.call("PUT", b"high", "PRIORITY", 9)
    first = bench.take("w", "HISTORY")
    assert first[0][:2] == [high, 1]
    assert bench.call("DONE", "w", high, 1) == 1
    # It begins once, and gets them all. They were lost with their process, so each runs alone.
    assert bench.take("w")[0][:2] == [low, 2]
    assert bench.take("w") is None
    assert bench.call("DONE", "w", low, 2) == 1
    assert bench.take("w")[0][:2] == [also, 2]
    assert bench.take("w") is None
    # After that it is no more than a worker.
    bench.hang_up()
    assert bench.take("w") is None


def test_a_worker_that_sends_no_heartbeat_loses_its_jobs(bench: Bench) -> None:
    id = bench.call("PUT", b"v")
    bench.take("w", "HEARTBEAT", 4000)
    for _ in range(5):
        bench.clock.advance(3)
        assert bench.call("RENEW", "w", id, 1) == [id]
    assert bench.take("v") is None
    bench.clock.advance(4)  # from here on it is not renewed
    bench.clock.advance(8)
    assert bench.take("v")[0][:2] == [id, 2]
    assert bench.call("RENEW", "w", id, 1) == []
    assert bench.call("DONE", "w", id, 1) == 0


def test_a_time_limit_is_not_renewed(bench: Bench) -> None:
    id = bench.call("PUT", b"v")
    bench.take("w", "LIMIT", 3000, "HEARTBEAT", 2000)
    bench.clock.advance(1.5)
    assert bench.call("RENEW", "w", id, 1) == [id]
    bench.clock.advance(1.5)
    assert bench.call("RENEW", "w", id, 1) == [id]  # it still has the job, but not for longer
    for _ in range(6):
        bench.clock.advance(1.5)
        bench.call("RENEW", "w", id, 1)
    assert bench.take("v")[0][:2] == [id, 2]


@pytest.mark.parametrize("verb", ["DONE", "RELEASE"])
def test_what_another_worker_says_of_a_job_changes_nothing(bench: Bench, verb: str) -> None:
    """Not even its limit of time: after that the job comes back, however often it is renewed."""
    id = bench.call("PUT", b"v")
    bench.take("w", "LIMIT", 3000, "HEARTBEAT", 2000)
    assert bench.call(verb, "v", id, 1) == 0
    for _ in range(8):
        bench.clock.advance(1.5)
        bench.call("RENEW", "w", id, 1)
    assert bench.take("v")[0][:2] == [id, 2]


def test_a_dropped_job_waits_for_the_end_of_its_lease(bench: Bench) -> None:
    id = bench.call("PUT", b"v")
    bench.take()
    assert bench.call("DROP", "w", id, 1) == 1
    assert bench.call("DROP", "w", id, 1) == 0
    assert bench.take("w", "HISTORY") is None
    bench.clock.advance(8.1)
    assert bench.take("w")[0][:2] == [id, 2]


def test_a_worker_goes_on_after_a_restart_of_the_server(bench: Bench, start: Start) -> None:
    id = bench.call("PUT", b"v")
    bench.take()
    bench.running.serving.close()
    bench.db.close()
    again = start(root=bench.running.root, clock=bench.clock)
    client: Any = again.client()
    renewed = client.execute_command("QUEUE", "RENEW", "q", "w", id, 1, *WORDS)
    assert renewed == [id]
    queue = again.db.queue("q", codec="bytes", **OPTIONS)
    for _ in range(5):
        bench.clock.advance(8)
        assert queue.get("other", block=0) is None
    assert client.execute_command("QUEUE", "DONE", "q", "w", id, 1, *WORDS) == 1


def test_a_parked_worker_is_woken(bench: Bench) -> None:
    worker = dial(bench.running.port)
    worker.begin(b"QUEUE", b"TAKE", b"q", b"w", b"BLOCK", b"0")
    parked(bench.db)
    id = bench.queue.put(b"v").encode()
    assert worker.receive() == [[id, 1, [b"value", b"v"]]]


def test_a_parked_worker_gives_up(bench: Bench) -> None:
    bench.call("SUBSCRIBE")
    worker = dial(bench.running.port)
    worker.begin(b"QUEUE", b"TAKE", b"q", b"w", b"BLOCK", b"5000")
    parked(bench.db)
    bench.clock.advance(5)
    assert worker.receive() == NULL_ARRAY


def test_a_parked_worker_wakes_when_a_pause_is_over(bench: Bench) -> None:
    id = bench.call("PUT", b"v")
    bench.take()
    bench.call("RETRY", "w", id, 1, "boom", "DELAY", 3000)
    worker = dial(bench.running.port)
    worker.begin(b"QUEUE", b"TAKE", b"q", b"v", b"BLOCK", b"0", b"RETRYAFTER", b"8000")
    parked(bench.db)
    bench.clock.advance(3)
    assert worker.receive() == [[id, 2, [b"value", b"v"]]]


def test_a_worker_that_hangs_up_while_it_waits_takes_nothing(bench: Bench) -> None:
    bench.call("SUBSCRIBE")
    worker = dial(bench.running.port)
    worker.begin(b"QUEUE", b"TAKE", b"q", b"w", b"BLOCK", b"0")
    parked(bench.db)
    worker.close()
    parked(bench.db, 0)
    bench.call("PUT", b"v")
    assert bench.take()[0][1] == 1


def test_client_unblock_ends_a_take(bench: Bench) -> None:
    bench.call("SUBSCRIBE")
    worker = dial(bench.running.port)
    me = worker.call(b"CLIENT", b"ID")
    for how in (b"TIMEOUT", b"ERROR"):
        worker.begin(b"QUEUE", b"TAKE", b"q", b"w", b"BLOCK", b"0")
        parked(bench.db)
        assert bench.client.execute_command("CLIENT", "UNBLOCK", me, how) == 1
        reply = worker.receive()
        assert reply == NULL_ARRAY if how == b"TIMEOUT" else b"UNBLOCKED" in reply[1]


def test_a_full_queue(bench: Bench) -> None:
    def put(*more: Any) -> Any:
        return bench.client.execute_command("QUEUE", "PUT", "q", "v", "MAXDEPTH", 1, *more)

    id = put()
    with pytest.raises(redis.ResponseError, match="QUEUEFULL queue 'q' is full"):
        put()
    putter = dial(bench.running.port)
    putter.begin(b"QUEUE", b"PUT", b"q", b"w", b"MAXDEPTH", b"1", b"BLOCK", b"9000")
    server = bench.running.server
    until(lambda: any(session.waits for session in list(server.sessions.values())))
    bench.take()
    bench.call("DONE", "w", id, 1)
    assert isinstance(putter.receive(), bytes)
    putter.begin(b"QUEUE", b"PUTMANY", b"q", b"1", b"w", b"MAXDEPTH", b"1", b"BLOCK", b"9000")
    until(lambda: any(session.waits for session in list(server.sessions.values())))
    bench.clock.advance(9)
    assert b"QUEUEFULL" in putter.receive()[1]
    many = ("PUTMANY", "q", 3, "a", "b", "c", "MAXDEPTH", 3)
    assert bench.client.execute_command("QUEUE", *many) == 2


def test_done_and_put_are_one_unit(bench: Bench) -> None:
    id = bench.call("PUT", b"v")
    bench.take()
    puts = (3, "r", "x", "DEDUP"), (2, "s", "y")
    with pytest.raises(redis.ResponseError, match="syntax"):
        bench.call("DONEAND", "w", id, 1, 2, *puts[0], *puts[1])
    assert bench.call("DONEAND", "w", id, 1, 2, 4, "r", "x", "DEDUP", "d", *puts[1]) == 1
    assert [bench.db.xlen(name) for name in ("q", "r", "s")] == [0, 1, 1]
    assert bench.call("DONEAND", "w", id, 1, 1, 2, "r", "z") == 0
    assert bench.db.xlen("r") == 1


def test_a_numbered_write_is_done_once(bench: Bench, start: Start) -> None:
    call = bench.client.execute_command

    def again(*words: Any) -> Any:
        first = call("QUEUE", *words)
        assert call("QUEUE", *words) == first
        return first

    id = again("PUT", "q", "v", "ONCE", "lane", 1)
    again("PUT", "q", "w", "MAXDEPTH", 9, "ONCE", "lane", 2)
    again("PUTMANY", "q", 2, "x", "y", "ONCE", "lane", 3)
    # The stored reply, whatever repeats the number.
    assert call("QUEUE", "PUT", "q", "v", "DEDUP", "d", "ONCE", "lane", 3) == 2
    assert bench.call("LEN") == 4
    bench.take()
    assert again("DONE", "q", "w", id, 1, "ONCE", "lane", 4) == 1
    assert bench.call("LEN") == 3
    with pytest.raises(
        redis.ResponseError,
        match="write 4 came after write 3 of this lane",
    ):
        call("QUEUE", "PUT", "q", "v", "ONCE", "lane", 3)
    bench.running.serving.close()
    bench.db.close()
    client: Any = start(root=bench.running.root, clock=bench.clock).client()
    assert client.execute_command("QUEUE", "DONE", "q", "w", id, 1, "ONCE", "lane", 4) == 1
    bench.clock.advance(3601)
    assert client.keys("tidelog:once:*") == []


def test_a_word_once_may_be_the_value_of_another_option(bench: Bench) -> None:
    """Also when the same words with a number behind them have come before."""
    call = bench.client.execute_command
    odd = ("ONCE", "CODEC", 1, "GROUP", "ONCE")  # the group has this name
    first = call("QUEUE", "PUT", "q", "v", *odd, "CODEC", "json")
    assert call("QUEUE", "PUT", "q", "v", *odd, "CODEC", "json") == first
    assert call("QUEUE", "PUT", "q", "w", *odd, "KEEP", 5) == first  # its number is 1, too
    assert bench.call("LEN") == 1
    call("QUEUE", "PUT", "q", "x", "GROUP", "g", "ONCE", "lane", 1)
    call("QUEUE", "PUT", "q", "x", "GROUP", "g", "once", "lane", 2)
    call("QUEUE", "PUT", "q", "x", "GROUP", "g", "ONCE", "lane", 3)
    with pytest.raises(redis.ResponseError, match="syntax error"):
        call("QUEUE", "PUT", "q", "x", "GROUP", "g", "ONCE")
    with pytest.raises(redis.ResponseError, match="not an integer"):
        call("QUEUE", "PUT", "q", "x", "GROUP", "g", "ONCE", "lane", "x")
    id = call("QUEUE", "PUT", "q", "x", "HEADERS", 2, "a", "b", "ONCE", "c")
    assert [job for job, _ in bench.call("PEEK", "COUNT", 10)][-1] == id
    assert bench.call("LEN") == 5


def test_options_are_told_apart_by_command_queue_and_database(bench: Bench) -> None:
    call = bench.client.execute_command
    for _ in range(2):
        call("QUEUE", "PUT", "q", "v", "CODEC", "json")
        call("QUEUE", "PUT", "r", "v", "CODEC", "json")
        assert call("QUEUE", "TAKE", "r", "w", "CODEC", "json")[0][2] == [b"value", b"v"]
    call("SELECT", 1)
    call("QUEUE", "PUT", "q", "v", "CODEC", "json")
    assert call("QUEUE", "LEN", "q") == 1
    call("SELECT", 0)
    assert (call("QUEUE", "LEN", "q"), call("QUEUE", "LEN", "r")) == (2, 2)


def test_a_numbered_command_is_done_once(bench: Bench) -> None:
    def once(number: int, *words: Any) -> Any:
        return bench.client.execute_command("TIDELOG", "ONCE", "lane", number, *words)

    bench.db.xadd("tidelog:once:stream", {"a": 1})
    with pytest.raises(redis.ResponseError, match="holds another type"):
        bench.client.execute_command("TIDELOG", "ONCE", "stream", 1, "INCR", "n")
    assert once(1, "INCR", "n") == once(1, "INCR", "n") == 1
    id = once(2, "XADD", "s", "*", "f", "v")
    assert once(2, "XADD", "s", "*", "f", "v") == id
    assert bench.db.xlen("s") == 1
    assert once(3, "SET", "n", "x") == once(3, "SET", "n", "x") == b"OK"
    with pytest.raises(redis.ResponseError, match="not an integer"):
        once(4, "INCR", "n")
    assert once(4, "SET", "n", "7")  # the refused command took no number
    for words in (("GET", "n"), ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"), ("PING",)):
        with pytest.raises(redis.ResponseError, match="cannot be numbered"):
            once(6, *words)
    with pytest.raises(redis.ResponseError, match="unknown command"):
        once(6, "NONSENSE")
    bench.db.xgroup_create("s", "g", id="0")
    bench.db.xadd("s", {"f": "v" * 5000})
    ids = [id for id, _ in bench.db.xrange("s")]
    bench.db.xreadgroup("g", "c", {"s": ">"})
    claim = ("XCLAIM", "s", "g", "d", 0, *ids)
    assert len(once(7, *claim)) == 2
    with pytest.raises(redis.ResponseError, match="too long to be kept"):
        once(7, *claim)


def test_a_numbered_command_needs_the_rights_of_the_command(bench: Bench) -> None:
    bench.client.execute_command("ACL", "SETUSER", "ann", "on", ">pw", "~a", "+tidelog", "+incr")
    ann: Any = bench.running.client(username="ann", password="pw")
    assert ann.execute_command("TIDELOG", "ONCE", "lane", 1, "INCR", "a") == 1
    for words in (("INCR", "b"), ("SET", "a", "x")):
        with pytest.raises(redis.ResponseError, match="(?i)no permissions"):
            ann.execute_command("TIDELOG", "ONCE", "lane", 2, *words)


def test_stats_are_those_of_the_embedded_queue(bench: Bench) -> None:
    bench.call("PUTMANY", 3, "a", "b", "c")
    bench.take()
    bench.clock.advance(2)
    flat = bench.call("STATS", "MORE")
    found = dict(zip(flat[::2], flat[1::2], strict=True))
    said = bench.queue.stats().as_dict()
    plain = bench.call("STATS")
    more = [name.encode() for name in MORE]
    assert not {*more} & {*plain[::2]} and plain[::2] + more == flat[::2], "as version 0.1 knows it"
    assert found.pop(b"in_flight") == [b"w", 1] and said.pop("in_flight") == {"w": 1}
    assert found.pop(b"by_priority") == [b"0", 2] and said.pop("by_priority") == {0: 2}
    shown: dict[bytes, Callable[[Any], Any]] = {b"oldest_seconds": float, b"put_per_second": float}
    shown[b"done_per_second"] = float
    for name, value in said.items():
        key = name.encode()
        got = found[key]
        assert value == (got.decode() if isinstance(got, bytes) and key not in shown else got) or (
            value == shown[key](got)
        ), name


def test_lists_and_purges(bench: Bench) -> None:
    bench.call("PUTMANY", 3, "a", "b", "c")
    bench.take()
    assert bench.client.execute_command("QUEUE", "LIST") == [[b"q", b"workers"]]
    assert bench.call("PURGE") == [2, 0]
    assert bench.call("LEN") == 1


def test_keep(bench: Bench) -> None:
    keep = ("KEEP", 1)
    id = bench.call("PUT", b"v")
    bench.take("w", *keep)
    assert bench.call("DONE", "w", id, 1, *keep) == 1
    assert bench.db.xlen("q") == 1 and bench.call("LEN") == 0
    other = bench.db.queue("q", codec="bytes", keep=timedelta(hours=1))
    assert other.stats().kept == 1


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("TAKE q w COUNT 0", "COUNT must be between"),
        ("TAKE q w COUNT x", "not an integer"),
        ("TAKE q w BLOCK -1", "timeout is negative"),
        ("TAKE q w HEARTBEAT 0", "HEARTBEAT must be greater"),
        ("TAKE q w FOO", "syntax error"),
        ("TAKE q w RETRYAFTER 0", "retry_after must be more than 0"),
        ("TAKE q:dead w", "must not end in"),
        ("PUT q", "wrong number of arguments"),
        ("PUT q v HEADERS 2 a b", "syntax error"),
        ("PUT q v HEADERS -1", "syntax error"),
        ("PUT q v ONCE l", "syntax error"),
        ("PUTMANY q 3 a", "number of values"),
        ("DONE q w x 1", "needs its ID"),
        ("DONE q w 1-1 1 2-2", "syntax error"),
        ("EXTEND q w 1-1 1 0", "seconds must be more than 0"),
        ("DEAD q WHAT", "syntax error"),
        ("NONSENSE q", "unknown subcommand"),
        ("LEN string", "another type is there"),
    ],
)
def test_bad_input(bench: Bench, words: str, error: str) -> None:
    bench.db.set("string", "x")
    before = bench.db.digest()
    if words == "LEN string":
        words, error = "TAKE string w", "WRONGTYPE"
    with pytest.raises(redis.ResponseError, match=error):
        bench.client.execute_command("QUEUE", *words.split())
    assert bench.db.digest() == before


def test_a_user_needs_the_key_of_each_queue(bench: Bench) -> None:
    call = bench.client.execute_command
    call("ACL", "SETUSER", "ann", "on", ">pw", "~q", "+queue")
    ann: Any = bench.running.client(username="ann", password="pw")
    ann.execute_command("QUEUE", "PUT", "q", "v")
    ((id, _, _),) = ann.execute_command("QUEUE", "TAKE", "q", "w")
    with pytest.raises(redis.ResponseError, match="No permissions to access a key"):
        ann.execute_command("QUEUE", "PUT", "r", "v")
    with pytest.raises(redis.ResponseError, match="No permissions to access a key"):
        ann.execute_command("QUEUE", "DONEAND", "q", "w", id, 1, 1, 2, "r", "v")
    assert ann.execute_command("QUEUE", "DONE", "q", "w", id, 1) == 1


def test_not_in_a_transaction_and_not_on_a_follower(bench: Bench) -> None:
    pipe: Any = bench.client.pipeline()
    pipe.execute_command("QUEUE", "PUT", "q", "v")
    with pytest.raises(redis.ResponseError, match="not allowed inside a transaction"):
        pipe.execute()


def test_resp3(bench: Bench) -> None:
    client: Any = bench.running.client(protocol=3)
    client.execute_command("QUEUE", "PUT", "q", "v")
    found = client.execute_command("QUEUE", "STATS", "q")
    assert found[b"depth"] == 1 and found[b"in_flight"] == {}
    assert client.execute_command("QUEUE", "HELP")[0].startswith(b"QUEUE <subcommand>")


def test_stopping_the_store_ends_a_take(start: Start) -> None:
    running = start()
    running.db.queue("q").subscribe()
    worker = dial(running.port)
    worker.begin(b"QUEUE", b"TAKE", b"q", b"w", b"BLOCK", b"0")
    parked(running.db)
    running.db.close()
    assert b"clos" in worker.rest()
    with pytest.raises(tidelog.StoreClosed):
        running.db.ping()
