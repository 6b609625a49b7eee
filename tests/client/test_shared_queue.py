"""The queue of a shared store, beside the embedded queue of the same store, on a clock that stands still."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import threading
from datetime import timedelta
from typing import Any

import pytest
from tests.client.conftest import Bench
from tests.until import parked, until

import tidelog
from tidelog.client.keeper import Keeper
from tidelog.client.queue import SharedQueue
from tidelog.client.wire import Broken, Wire

OPTIONS: dict[str, Any] = {"retry_after": 8.0, "max_deliveries": 2}


class Two:
    """A bench with the same queue in two clients, which are two processes to the server, and embedded."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.clock = bench, bench.clock
        self.one, self.two = (bench.connect().queue("q", **OPTIONS) for _ in range(2))
        self.local = bench.db.queue("q", **OPTIONS)

    def beat(self, queue: SharedQueue) -> None:
        """Do a round of the keeper's thread now."""
        queue._remote.keeper.beat(at_once=True)


@pytest.fixture
def two(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Two:
    """Without the keepers' threads, which beat by the real clock: leases are renewed by `beat` alone."""
    monkeypatch.setattr(Keeper, "_start", lambda keeper: True)
    return Two(bench)


def take(queue: Any, worker: str | None = None) -> Any:
    job = queue.get(worker, block=0)
    assert job is not None
    return job


def test_one_puts_and_the_other_works(two: Two) -> None:
    id = two.one.put({"n": 1}, headers={"trace": "ü"})
    assert len(two.one) == len(two.two) == len(two.local) == 1
    (waiting,) = two.two.peek()
    assert (waiting.id, waiting.value, waiting.headers) == (id, {"n": 1}, {"trace": "ü"})
    with take(two.two) as job:
        assert (job.id, job.value, job.headers, job.deliveries) == (id, {"n": 1}, {"trace": "ü"}, 1)
        assert job.origin is None and job.enqueued_at == waiting.enqueued_at
        assert two.one.get(block=0) is None
    assert job.state == "acked" and len(two.one) == 0
    assert job.ack() and not job.nack()


def test_an_acknowledgement_whose_outcome_is_unknown(
    two: Two, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`ack` raises; at the end of a block the worker is warned, and goes on."""
    two.one.put_many(range(2))
    calls = Wire.calls

    def broken(wire: Wire, commands: Any, seconds: float | None) -> Any:
        found = calls(wire, commands, seconds)
        if commands[0][1] == b"DONE":
            monkeypatch.setattr(Wire, "calls", calls)
            raise Broken("cut", sent=True)  # the server has done it
        return found

    job = take(two.one)
    monkeypatch.setattr(Wire, "calls", broken)
    with pytest.raises(tidelog.OutcomeUnknown, match="cut"):
        job.ack()
    job = take(two.one)
    monkeypatch.setattr(Wire, "calls", broken)
    with job:
        pass
    assert job.state == "lost" and "perhaps its acknowledgement was not stored" in caplog.text
    assert len(two.one) == 0


def test_an_acknowledgement_that_did_not_arrive_is_repeated(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.one.put(1)
    calls = Wire.calls

    def broken(wire: Wire, commands: Any, seconds: float | None) -> Any:
        monkeypatch.setattr(Wire, "calls", calls)
        raise Broken("cut", sent=True)

    job = take(two.one)
    monkeypatch.setattr(Wire, "calls", broken)
    assert job.ack() and len(two.one) == 0


def test_an_interrupt_while_finished_jobs_are_written_loses_none(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.one.put_many(range(4))
    consumer = two.one.consume("w", 4, block=0)
    for _, job in zip(range(4), consumer):
        with job:
            pass
    call = two.one._remote.link.call

    def interrupted(words: list[bytes], *args: Any, **options: Any) -> Any:
        if b"DONE" in words:
            raise KeyboardInterrupt
        return call(words, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(two.one._remote.link, "call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.close()
    assert len(two.one) == 4
    two.beat(two.one)
    assert len(two.one) == 0


def test_many_at_once(two: Two) -> None:
    assert two.one.put_many(range(2500)) == 2500
    seen = []
    with two.two.consume(batch=100, block=0) as jobs:
        for job in jobs:
            with job:
                seen.append(job.value)
    assert seen == list(range(2500))
    assert len(two.one) == 0


def test_jobs_that_were_not_handed_out_go_back(two: Two) -> None:
    two.one.put_many(range(5))
    consumer = two.two.consume(batch=5, block=0)
    with next(consumer):
        pass
    consumer.close()
    consumer.close()
    assert two.one.stats().waiting == 4
    assert [job.deliveries for job in two.local.consume(block=0)] == [1, 1, 1, 1]


def test_a_dedup_id_and_a_bound(two: Two) -> None:
    assert two.one.put(1, dedup_id="d") == two.two.put(2, dedup_id="d")
    bounded = two.bench.connect().queue("q", max_depth=1)
    with pytest.raises(tidelog.QueueFull, match="is full"):
        bounded.put(3, timeout=0)
    with pytest.raises(tidelog.QueueFull) as caught:
        bounded.put_many([1, 2], timeout=0)
    assert caught.value.stored == 0
    done = threading.Thread(target=lambda: bounded.put(4))
    done.start()
    server = two.bench.serving.server
    assert server is not None
    until(lambda: server.blocked, "the putter does not wait")
    take(two.two).ack()
    done.join(60)
    assert [job.value for job in two.one.peek()] == [4]


def test_failures_retries_and_dead_jobs(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    id = two.one.put("v", headers={"k": "t"})
    with caplog.at_level(logging.ERROR, "tidelog.queue"), take(two.one, "a"):
        raise ValueError("boom")
    assert "failed at delivery 1" in caplog.text
    assert two.one.get(block=0) is None
    two.clock.advance(3600)
    job = take(two.two, "b")
    assert job.deliveries == 2 and job.nack("bang")
    (failure, first) = two.one.failures(id)
    assert (failure.error, failure.worker, first.error) == ("bang", "b", "ValueError: boom")
    assert "raise ValueError" in first.traceback
    (dead,) = two.two.dead
    (same,) = two.local.dead
    assert (dead.id, dead.raw, dead.errors, dead.codec) == (same.id, same.raw, same.errors, "json")
    assert dead.value == "v" and two.one.dead.get(dead.id).original_id == id
    assert two.one.dead.get("9-9") is None
    assert two.one.dead.redrive(dry_run=True) == 1
    assert two.one.dead.redrive() == 1
    again = take(two.two)
    assert again.origin == id and again.fail("no")
    assert [job.reason for job in two.one.dead.list(where=lambda job: True)] == ["no"]
    assert two.one.dead.purge(older_than=timedelta(hours=2)) == 0
    assert two.one.dead.purge() == 1 and len(two.one.dead) == 0


def test_release_extend_and_done_and(two: Two) -> None:
    two.one.put(1)
    job = take(two.one)
    assert job.release() and job.state == "given"
    job = take(two.two)
    assert job.deliveries == 1 and job.extend(60)
    other = two.one.store.queue("r")
    with pytest.raises(tidelog.DataError, match="own store"):
        job.done_and(other.new("x"))
    other = two.two.store.queue("r", max_depth=1)
    with pytest.raises(tidelog.QueueFull, match="you still hold the job"):
        job.done_and(other.new("x"), other.new("y"))
    assert job.done_and(other.new("x", headers={"a": "b"}, dedup_id="d"))
    assert [(w.value, w.headers) for w in other.peek()] == [("x", {"a": "b"})]
    assert len(two.one) == 0


def test_a_worker_keeps_its_jobs_as_long_as_it_lives(two: Two) -> None:
    two.one.put(1)
    job = take(two.one)
    for _ in range(10):
        two.clock.advance(4)
        two.beat(two.one)
        assert two.two.get(block=0) is None
    assert job.ack()


def test_the_jobs_of_a_process_that_ended_come_back(two: Two) -> None:
    two.one.put(1)
    two.one.put(2)
    first, second = take(two.one, "a"), take(two.one, "b")
    server = two.bench.serving.server
    assert server is not None
    assert two.one.store.close() == 0  # both are in the hands of the caller
    kept = len(two.two.store._link._free)
    until(lambda: len(server.sessions) == kept, "the server keeps the connections")
    assert take(two.two, "a").id == first.id  # a worker of the name gets it at once
    assert two.two.get("c", block=0) is None
    two.clock.advance(8.1)
    two.beat(two.two)
    assert take(two.two, "c").id == second.id
    with pytest.raises(tidelog.StoreClosed):
        first.ack()


def test_a_process_that_is_stopped_loses_its_jobs(two: Two) -> None:
    id = two.one.put(1)
    job = take(two.one)
    two.clock.advance(6)  # without a heartbeat
    two.clock.advance(8.1)
    late = take(two.two)
    assert (late.id, late.deliveries) == (id, 2)
    assert job.ack() is False and job.state == "lost"
    assert late.ack()


def test_a_dropped_job_waits_for_the_end_of_its_lease(two: Two) -> None:
    two.one.put(1)
    job = take(two.one)
    del job
    gc.collect()
    two.beat(two.one)
    server = two.bench.serving.server
    assert server is not None and not server.desk._held  # its process lives, and the server knows
    assert two.one.get(block=0) is None
    two.clock.advance(8.1)
    assert take(two.two).deliveries == 2


def test_a_time_limit(two: Two) -> None:
    two.one.put(1)
    job = next(two.one.consume(block=0, time_limit=5))
    for _ in range(4):
        two.clock.advance(4)
        two.beat(two.one)
    assert take(two.two).deliveries == 2
    assert job.ack() is False


@pytest.mark.parametrize("answers", [True, False])
def test_the_end_of_an_older_delivery_leaves_the_newer_one(two: Two, answers: bool) -> None:
    """A worker gets a job again after its time limit. Then it answers for the first delivery, or drops that."""
    two.one.put(1)
    old = next(two.one.consume("anna", block=0, time_limit=5))
    for _ in range(4):
        two.clock.advance(4)
        two.beat(two.one)
    new = take(two.one, "anna")
    assert new.deliveries == 2
    if answers:
        assert old.ack() is False
    del old
    gc.collect()
    for _ in range(5):
        two.beat(two.one)
        two.clock.advance(4)
        assert two.two.get(block=0) is None
    assert new.ack()


def test_a_worker_goes_on_when_the_server_is_replaced(two: Two) -> None:
    two.one.put(1)
    job = take(two.one)
    two.bench.restart()
    two.beat(two.one)
    for _ in range(5):
        two.clock.advance(4)
        two.beat(two.one)
        assert two.two.get(block=0) is None
    assert job.ack()
    assert len(two.two) == 0


def test_a_connection_that_breaks_renews_the_leases(two: Two) -> None:
    """The keeper does not wait until the next renewal is due: the new server knows of no job."""
    two.one.put(1)
    job = take(two.one)
    two.bench.restart()
    server = two.bench.serving.server
    assert server is not None and not server.desk._held
    assert len(two.one) == 1  # this call finds the connection broken
    two.one._remote.keeper.beat()
    assert len(server.desk._held) == 1
    assert job.ack()


def test_a_value_that_cannot_be_decoded_is_dead(two: Two) -> None:
    two.bench.db.xadd("q", {"value": "{"})
    two.one.put("good")
    assert take(two.one).value == "good"
    assert "cannot decode" in two.one.dead.list()[0].reason


def test_waiting_workers_and_closing(two: Two) -> None:
    got: list[Any] = []

    working = two.one.consume()

    def work() -> None:
        for job in working:
            with job:
                got.append(job.value)

    consumer = two.two.consume("w")
    waiting = threading.Thread(target=lambda: got.extend(consumer))
    worker = threading.Thread(target=work)
    waiting.start()
    parked(two.bench.db, 1)
    consumer.close()
    waiting.join(60)
    assert not waiting.is_alive() and got == []
    worker.start()
    parked(two.bench.db, 1)
    two.two.put(7)
    until(lambda: got == [7] and len(two.two) == 0)
    working.close()
    worker.join(60)


def test_figures(two: Two) -> None:
    two.one.put_many([1, 2, 3])
    job = take(two.one, "w")
    two.clock.advance(2)
    found, same = two.two.stats(), two.local.stats()
    assert found.in_flight == same.in_flight == {"w": 1}
    assert (found.depth, found.waiting, found.oldest_seconds) == (3, 2, same.oldest_seconds)
    assert two.one.purge() == 2
    assert job.ack() and len(two.one) == 0


def test_groups(two: Two) -> None:
    mine = two.one.store.queue("q", group="audit")
    mine.subscribe()
    two.one.subscribe()
    two.one.put(1)
    assert take(mine).ack() and take(two.one).ack()
    assert two.bench.db.xlen("q") == 0


def test_bad_input(two: Two) -> None:
    with pytest.raises(tidelog.EncodeError):
        two.one.put(object())
    with pytest.raises(tidelog.EncodeError) as caught:
        two.one.put_many([1, 2, object()])
    assert caught.value.stored == 2
    for call in (
        lambda: two.one.put_many("text"),
        lambda: two.one.consume(batch=0),
        lambda: two.one.consume("", block=0),
        lambda: two.one.get(block=-1),
        lambda: two.one.peek(0),
        lambda: two.one.put(1, dedup_id=""),
        lambda: two.one.dead.get("x"),
        lambda: two.one.store.queue("a:dead"),
    ):
        with pytest.raises(tidelog.DataError):
            call()
    with pytest.raises(TypeError):
        pickle.dumps(two.one)
    with pytest.raises(TypeError):
        pickle.dumps(take(two.one))


def test_opening_a_shared_queue(two: Two) -> None:
    with tidelog.queue(two.bench.root, "q", shared=True) as queue:
        queue.put(1)
        assert len(two.one) == 1
    assert queue.store.closed
    with pytest.raises(tidelog.DataError, match="clock"):
        tidelog.queue(two.bench.root, "q", shared=True, clock=two.clock)


def test_a_child_of_a_fork_settles_a_job(two: Two) -> None:
    """Another thread of the parent may have held a lock at the moment of the fork."""
    two.one.put(1)
    job = take(two.one)
    keeper, link = two.one._remote.keeper, two.one._remote.link
    with keeper._lock, link._lock:
        child = os.fork()
        if not child:
            try:
                os._exit(0 if job.ack() and two.one.put(2) else 1)
            finally:
                os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert [waiting.value for waiting in two.one.peek()] == [2]
    assert job.ack() is False


def test_without_a_thread_jobs_are_taken_and_the_next_one_tries_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue = bench.connect().queue("q", **OPTIONS)
    queue.put_many(range(4))
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name == "tidelog-shared":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        first, second = take(queue), take(queue)
    assert caplog.text.count("could not be started: can't start new thread") == 1
    third = take(queue)
    renewed = threading.Event()
    call = queue._remote.link.call

    def noted(words: list[bytes], *args: Any, **options: Any) -> Any:
        found = call(words, *args, **options)
        if b"RENEW" in words and threading.current_thread().name == "tidelog-shared":
            renewed.set()
        return found

    monkeypatch.setattr(queue._remote.link, "call", noted)
    monkeypatch.setattr(queue._remote, "renew_s", 0.0)
    queue._remote.keeper._bell.ring()
    assert renewed.wait(60)
    assert [job.ack() for job in (first, second, third)] == [True] * 3
