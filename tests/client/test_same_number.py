"""A delivery that did not count, and the next one of the same job, which has its number: the first harms no second."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import pytest
from tests.client.conftest import Bench
from tests.replication.proxy import Proxy

import tidelog
from tidelog.client.keeper import Keeper
from tidelog.client.link import Link
from tidelog.client.store import SharedStore

OPTIONS: dict[str, Any] = {"retry_after": 60.0, "max_deliveries": 3}


@pytest.fixture
def proxy(bench: Bench) -> Iterator[Proxy]:
    with closing(Proxy(bench.serving.port)) as found:
        yield found


def release_job(client: SharedStore, mails: Any) -> bool:
    job = mails.get("anna", block=0)
    assert job is not None
    return bool(job.release())


def close_consumer(client: SharedStore, mails: Any) -> bool:
    mails.consume("anna", 2, block=0).close()  # before it has taken anything
    consumer = mails.consume("anna", 2, block=0)
    assert next(consumer).ack()
    consumer.close()
    return True


def drop_consumer(client: SharedStore, mails: Any) -> bool:
    assert next(mails.consume("anna", 2, block=0)).ack()
    gc.collect()
    client._keeper.beat()
    return True


@pytest.mark.parametrize("end", [release_job, close_consumer, drop_consumer])
def test_a_release_is_made_once(
    bench: Bench,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[SharedStore, Any], bool],
) -> None:
    """Its reply is lost, and it is repeated when another thread has got the job."""
    monkeypatch.setattr(Keeper, "_start", lambda keeper: True)  # it beats here alone
    inside = bench.db.queue("mails", **OPTIONS)
    with tidelog.connect(f"redis://127.0.0.1:{proxy.port}") as client:
        mails = client.queue("mails", **OPTIONS)
        again: list[Any] = []

        def cut(data: bytes, at: int) -> bytes:
            """Once the job is back, another thread gets it, and then the connection of its RELEASE breaks."""
            now = inside.stats()
            if not taken or now.in_flight or now.waiting != 1:
                return data
            proxy.change = lambda data, at: data
            again.append(mails.get("anna", block=0))
            raise ConnectionResetError

        taken: list[bool] = []
        proxy.change = cut
        mails.put_many(range(1 if end is release_job else 2))
        taken.append(True)
        assert end(client, mails)
        (job,) = again
        assert job is not None and job.deliveries == 1
        assert bench.connect().queue("mails", **OPTIONS).get("bert", block=0) is None
        assert job.ack() and len(mails) == 0


@pytest.mark.parametrize(
    "end", ["goes on", "is closed", "is dropped", "has done a job", "acknowledges", "fails"]
)
def test_a_worker_that_was_stopped_leaves_what_another_thread_got(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The process was stopped before it had confirmed, and beyond its leases, so these deliveries do not count."""
    monkeypatch.setattr(Keeper, "_start", lambda keeper: True)
    client = bench.connect()
    mails = client.queue("mails", **OPTIONS)
    mails.put_many(range(2))
    consumer = mails.consume("anna", 2)
    with monkeypatch.context() as stopped:
        stopped.setattr(Link, "post", lambda *given: None)
        first = next(consumer)
    bench.clock.advance(100)
    client._keeper._renewed[mails._remote, b"anna"] -= 100
    others = mails.consume("anna", 2, block=0)
    jobs = list(islice(others, 2))
    assert [(job.value, job.deliveries) for job in jobs] == [(0, 1), (1, 1)]
    if end == "goes on":
        mails.put(2)
        assert next(consumer).value == 2
    elif end == "is closed":
        consumer.close()
    elif end == "is dropped":
        del consumer
        gc.collect()
        client._keeper.beat()
    elif end == "has done a job":
        with first:
            pass
        client._keeper.beat()
    else:
        assert not (first.ack() if end == "acknowledges" else first.fail())
        assert first.state == "lost"
    assert bench.connect().queue("mails", **OPTIONS).get("bert", block=0) is None
    assert [job.ack() for job in jobs] == [True, True]
