"""The transport for kombu: messages are jobs, acknowledged, given back and delivered again."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection, Exchange, Queue
from tests.client.conftest import Bench, bench  # noqa: F401  # a fixture
from tests.until import until

import tidelog.integrations.kombu as transport

LETTERS = Exchange("letters", "topic")
MAIL = Queue("mail", LETTERS, routing_key="mail.*")
BILLS = Queue("bills", LETTERS, routing_key="bills.#")


@pytest.fixture
def connect(bench: Bench) -> Iterator[Any]:  # noqa: F811
    made: list[Connection] = []

    def connection(**options: Any) -> Connection:
        found = Connection(f"tidelog:///{bench.root}", transport_options=options)
        made.append(found)
        return found

    yield connection
    for one in made:
        one.release()


def take(connection: Any, queue: Any = MAIL, count: int = 1) -> list[Any]:
    """Messages that a consumer got, not acknowledged."""
    found: list[Any] = []
    with connection.Consumer(queue, callbacks=[lambda body, message: found.append(message)]):
        while len(found) < count:
            connection.drain_events(timeout=60)
    return found


def publish(connection: Any, body: Any, key: str = "mail.ann", **options: Any) -> None:
    with connection.Producer() as producer:
        producer.publish(body, exchange=LETTERS, routing_key=key, declare=[MAIL, BILLS], **options)


def test_messages_go_to_the_queues_that_are_bound(connect: Any, bench: Bench) -> None:  # noqa: F811
    one, two = connect(), connect()
    publish(one, {"to": "ann"}, headers={"trace": "ü"})
    publish(one, b"\xff\x00", "bills.2026.11", content_type="application/octet-stream")
    (mail,), (bill,) = take(two, MAIL), take(two, BILLS)
    assert (mail.payload, mail.headers["trace"]) == ({"to": "ann"}, "ü")
    assert bytes(bill.body) == b"\xff\x00"
    assert not mail.delivery_info["redelivered"]
    assert bench.db.queue("mail").stats().in_flight and len(bench.db.queue("mail")) == 1
    mail.ack()
    bill.ack()
    assert len(bench.db.queue("mail")) == len(bench.db.queue("bills")) == 0


def test_rejected_messages_go_back_or_away(connect: Any, bench: Bench) -> None:  # noqa: F811
    one = connect()
    publish(one, 1)
    (message,) = take(one)
    message.requeue()
    (again,) = take(one)
    assert again.payload == 1
    again.reject()
    assert len(bench.db.queue("mail")) == 0


def test_a_connection_that_ends_gives_back_what_it_had(connect: Any, bench: Bench) -> None:  # noqa: F811
    one, two = connect(), connect()
    for n in range(3):
        publish(one, n)
    held = take(one, count=3)
    held[1].ack()
    one.release()
    stats = bench.db.queue("mail").stats()
    assert (stats.waiting, stats.in_flight) == (2, {})
    assert sorted(message.payload for message in take(two, count=2)) == [0, 2]


def test_prefetch_bounds_the_messages_in_hand(connect: Any, bench: Bench) -> None:  # noqa: F811
    one = connect()
    for n in range(5):
        publish(one, n)
    found: list[Any] = []
    with one.Consumer(
        MAIL, callbacks=[lambda body, message: found.append(message)], prefetch_count=2
    ):
        for _ in range(2):
            one.drain_events(timeout=60)
        with pytest.raises(socket.timeout):
            one.drain_events(timeout=0.01)
        assert len(found) == 2 and len(bench.db.queue("mail")) == 5
        found[0].ack()
        one.drain_events(timeout=60)
        assert len(found) == 3


def test_no_acknowledgements(connect: Any, bench: Bench) -> None:  # noqa: F811
    one = connect()
    publish(one, 1)
    publish(one, 2)
    with one.SimpleQueue(MAIL, no_ack=True) as queue:
        assert queue.get(timeout=60).payload == 1
        assert queue.qsize() == 1
        assert queue.clear() == 1
        assert len(bench.db.queue("mail")) == 0
        with pytest.raises(queue.Empty):
            queue.get(block=False)
    with one.channel() as channel:
        publish(one, 3)
        assert MAIL(channel).get(no_ack=True).payload == 3
        assert MAIL(channel).get() is None
        assert len(bench.db.queue("mail")) == 0


def test_options_of_the_queue(connect: Any, bench: Bench) -> None:  # noqa: F811
    one = connect(max_depth=1, worker="anna", group="g")
    publish(one, 1)
    (message,) = take(one)
    assert bench.db.queue("mail", "g").stats().in_flight == {"anna": 1}
    message.ack()


def test_a_job_that_is_no_message_is_dead(connect: Any, bench: Bench) -> None:  # noqa: F811
    one = connect()
    publish(one, 1)
    queue = bench.db.queue("mail", codec="bytes")
    for value in (b"no JSON", b"[]", json.dumps({"properties": {}}).encode()):
        queue.put(value)
    publish(one, 2)
    assert [message.payload for message in take(one, count=2)] == [1, 2]
    assert queue.dead.count() == 3


def test_two_queues_and_the_version(connect: Any) -> None:
    one = connect()
    publish(one, 1)
    publish(one, 2, "bills.x")
    found: list[Any] = []
    with one.Consumer([MAIL, BILLS], callbacks=[lambda body, message: found.append(body)]):
        while len(found) < 2:
            one.drain_events(timeout=60)
    assert sorted(found) == [1, 2]
    assert one.transport.driver_version()
    assert transport.Transport.driver_type == "tidelog"


def test_messages_are_cancelled_by_their_correlation_id(
    connect: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    one, two = connect(), connect()
    queue, told = bench.db.queue("mail"), list[str]()
    for name in ("a", "b"):
        publish(one, f"b of {name}", correlation_id=name)
    cancel = one.default_channel.connection.cancel
    assert cancel("mail", "b") and not cancel("mail", "b") and not cancel("mail", "c")
    assert len(queue) == 1
    two.ensure_connection()
    monkeypatch.setattr(two.transport, "cancelled", told.append)
    (message,) = take(two)
    assert message.payload == "b of a" and cancel("mail", "a")
    until(lambda: told == ["a"], "the connection that has the message is not told")
    message.ack()
    assert len(queue) == 0 and queue.find(state="cancelled").jobs
