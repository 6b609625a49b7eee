"""The keeper: what one queue's refusal, a stop of the process, or the end of the store does to the jobs in hand."""

from __future__ import annotations

import gc
import re
import threading
import time
from typing import Any

import pytest
from tests.client.conftest import Bench
from tests.client.faces.awaited import Awaited
from tests.until import until

import tidelog
from tidelog.client.keeper import Keeper
from tidelog.client.link import Link
from tidelog.client.pooled import Pooled
from tidelog.client.wire import Broken
from tidelog.jobs.verbs.verb import Safe
from tidelog.jobs.work import drops

OPTIONS: dict[str, Any] = {"retry_after": 8.0}


@pytest.fixture(params=["threads", "asyncio"])
def store(request: pytest.FixtureRequest, bench: Bench) -> Any:
    """A client of either face, called as if it were for threads."""
    return bench.connect() if request.param == "threads" else bench.awaited()


def plain(face: Any) -> Any:
    """The object behind a face for asyncio: the one for threads, where there is one."""
    if not isinstance(face, Awaited):
        return face
    found = vars(face.it)
    return found.get("_store") or found.get("_consumer") or face.it


def test_a_refusal_for_one_queue_stops_no_other_ones_renewals(bench: Bench, store: Any) -> None:
    broken, sound = store.queue("broken", **OPTIONS), store.queue("sound", **OPTIONS)
    for queue in (broken, sound):
        queue.put_many(range(2))
    first = next(broken.consume("anna", batch=2))
    held = next(sound.consume("anna"))
    bench.db.delete("broken")
    bench.db.set("broken", "a string")
    with first:
        pass  # its acknowledgement is gathered, and the server refuses it
    for _ in range(5):
        assert plain(store)._keeper.beat(at_once=True) is not None
        bench.clock.advance(3)
    assert bench.db.queue("sound", **OPTIONS).get("bert", block=0).value == 1  # type: ignore[union-attr]
    assert bench.db.queue("sound", **OPTIONS).get("bert", block=0) is None
    assert held.ack()


def test_closing_waits_for_acknowledgements_under_way(
    bench: Bench, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mails = store.queue("mails", **OPTIONS)
    mails.put_many(range(3))
    consumer = mails.consume("anna", batch=3)
    for _ in range(3):
        with next(consumer):
            pass
    writes, go = threading.Event(), threading.Event()
    call = Link.call

    def slow(link: Link, words: Any, *args: Any, **given: Any) -> Any:
        if not callable(words) and words[1] == b"DONE" and not writes.is_set():
            writes.set()  # in a beat, of this thread or of the keeper's own
            assert go.wait(60)
        return call(link, words, *args, **given)

    monkeypatch.setattr(Link, "call", slow)
    beating = threading.Thread(target=plain(store)._keeper.beat)
    beating.start()
    assert writes.wait(60)
    closing = threading.Thread(target=store.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive(), "it did not wait"
    go.set()
    closing.join(60)
    beating.join(60)
    assert len(bench.db.queue("mails")) == 0


@pytest.mark.parametrize("first", ["the consumer", "the keeper"])
def test_a_process_that_was_stopped_does_not_go_on_with_what_it_lost(
    bench: Bench, store: Any, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it goes on, any of its threads may run first."""
    mails = store.queue("mails", **OPTIONS)
    mails.put_many(range(4))
    consumer = mails.consume("anna", batch=4, block=0)
    held = next(consumer)
    beat = Keeper.beat
    # the process is stopped
    monkeypatch.setattr(Keeper, "beat", lambda keeper, at_once=False: None)
    bench.clock.advance(16)
    other = bench.connect().queue("mails", **OPTIONS)
    # they were lost, and come one by one
    took = [job for job in (other.get("bert", block=0) for _ in range(3)) if job and job.ack()]
    assert [job.value for job in took] == [0, 1, 2]
    # and goes on
    monkeypatch.setattr(Keeper, "beat", beat)
    keeper = plain(store)._keeper
    keeper._renewed[plain(consumer)._worked] -= 16
    if first == "the keeper":
        keeper.beat()
    assert [(job.value, job.ack()) for job in consumer] == [(3, True)]
    assert not held.ack()
    assert all(job.ack() for job in took)
    assert len(mails) == 0


@pytest.mark.parametrize("safe", list(Safe))
def test_a_write_that_another_thread_ends_has_an_unknown_outcome(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, safe: Safe
) -> None:
    link = bench.connect()._link
    pooled = link.take()

    def ended(self: Link, pooled: Pooled, *args: Any) -> Any:
        pooled.hang_up()
        raise Broken("it was hung up", sent=True)

    monkeypatch.setattr(Link, "_try", ended)
    kind = tidelog.Unreachable if safe is Safe.READ else tidelog.OutcomeUnknown
    with pytest.raises(kind):
        link.call([b"SET", b"k", b"v"], safe, pooled=pooled)
    link.give_back(pooled)


def test_a_renewal_that_came_late_is_told(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    mails = store.queue("mails", **OPTIONS)
    mails.put("first")
    job = mails.get("anna", block=0)
    assert job is not None
    keeper = plain(store)._keeper
    keeper.beat(at_once=True)
    assert "renewed its leases" not in caplog.text
    keeper._renewed[plain(job)._lease.terms.worked] -= 16
    keeper.beat()
    assert "queue mails: worker anna renewed its leases only after 16." in caplog.text
    assert job.ack()


def test_a_late_renewal_is_told_with_the_time_that_the_one_before_took(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = bench.connect()
    queues = [store.queue(name, retry_after=0.6) for name in ("mails", "pictures")]
    for queue in queues:
        queue.put(1)
    jobs = [queue.get("anna", block=0) for queue in queues]
    call = Link.call

    def away(link: Link, words: Any, *args: Any, **given: Any) -> Any:
        if words[1] == b"RENEW":
            threading.Event().wait(1.0)
        return call(link, words, *args, **given)

    monkeypatch.setattr(Link, "call", away)
    store._keeper.beat(at_once=True)
    seconds = re.findall(r"renewed its leases only after ([0-9.]+) s", caplog.text)
    assert seconds and min(map(float, seconds)) >= queues[0]._remote.lease_s
    assert all(job is not None and job.ack() for job in jobs)


def test_a_drop_is_told_of_once_by_its_worker_and_not_by_the_server(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drops, "_told", set[str]())
    store = bench.connect()
    jobs = store.queue("dropped")
    jobs.put_many(range(3))
    ids = [job.id for job in jobs.consume("anna", block=0)]
    gc.collect()
    store._keeper.beat()
    said = [r for r in caplog.records if "without an end" in r.getMessage()]
    assert len(said) == 1 and said[0].getMessage().startswith("queue dropped: ")
    assert said[0].__dict__["job"] in ids
    drops._told.clear()  # as in the process of the server
    bench.db.close()
    assert caplog.text.count("without an end") == 1


def test_a_lane_that_nobody_owns_is_gone(bench: Bench, store: Any) -> None:
    """An interrupt struck behind `take`, or a pipeline that watches was dropped."""
    for _ in range(3):
        pipeline = store.pipeline()
        pipeline.watch("k")
    link = plain(store)._link
    pooled = link.take()
    del pipeline, pooled
    # The thread that worked for the last call may still be on its way out, and hold it.
    until(lambda: gc.collect() >= 0 and len(link._busy) == 0, "a connection is still there")
    until(lambda: len(bench.serving.server.sessions) <= 2)  # type: ignore[union-attr]
    assert store.get("k") is None


def away(bench: Bench, kind: str) -> Any:
    """A client that waits two seconds for its server, and starts none."""
    options: dict[str, Any] = {"timeout": 2.0, "start": False}
    if kind == "threads":
        return bench.connect(**options)
    return bench.awaited(**options)


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_closing_tries_a_server_that_is_away_once(bench: Bench, kind: str) -> None:
    store = away(bench, kind)
    consumers = []
    for name in "abcde":
        queue = store.queue(name, **OPTIONS)
        queue.put_many(range(3))
        consumer = queue.consume("anna", batch=3)
        with next(consumer):
            pass  # gathered; the others are unseen
        consumers.append(consumer)
    bench.serving.close()
    began = time.monotonic()
    store.close(drain=60)
    # A beat and one call may wait for two seconds each; the nine others do not.
    assert time.monotonic() - began < 9


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_closing_waits_for_no_job_whose_lease_ended_while_the_server_is_away(
    bench: Bench, kind: str
) -> None:
    store = away(bench, kind)
    queue = store.queue("mails", retry_after=0.3)
    queue.put("a")
    held, end = threading.Event(), threading.Event()
    jobs: list[Any] = []

    def work() -> None:
        jobs.append(queue.get("anna", block=0))
        held.set()
        end.wait(120)

    thread = threading.Thread(target=work)
    thread.start()
    assert held.wait(60)
    bench.serving.close()
    began = time.monotonic()
    store.close(drain=60)
    assert time.monotonic() - began < 30
    end.set()
    thread.join()
