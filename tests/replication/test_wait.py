"""WAIT beside its followers: what it costs them, an ACK that comes at once, a client that leaves at once."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up
from tests.until import until

from tidelog.aof.log import Log
from tidelog.replication.feed import Feed
from tidelog.replication.protocol import FROM_LEADER, Ack, Beat, Frames, Messages
from tidelog.server.commands.follow import _Sink
from tidelog.store.acks import Acks


def packed(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words
    )


@pytest.mark.parametrize(
    "words, reply", [(("WAIT", "1", "20000"), 1), (("WAITAOF", "0", "1", "20000"), [0, 1])]
)
def test_a_write_and_the_question_how_far_followers_are_leave_together(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], reply: Any
) -> None:
    follower = pair.follow()
    client = pair.client()
    client.xadd("orders", {"n": 1})
    caught_up(pair.db, follower)
    writes: list[bytes] = []
    write: Callable[[_Sink, bytes], None] = _Sink.write

    def recorded(sink: _Sink, data: bytes) -> None:
        writes.append(data)
        write(sink, data)

    monkeypatch.setattr(_Sink, "write", recorded)
    for n in range(2):
        writes.clear()
        pipeline = client.pipeline(transaction=False)
        pipeline.xadd("orders", {"n": n})
        pipeline.execute_command(*words)
        confirmed = pipeline.execute()[1]
        assert confirmed == reply or confirmed[1] == reply[1]
        messages = Messages(FROM_LEADER)
        messages.put(writes[0])
        assert {type(message) for message in messages} == {Beat, Frames}


def test_an_ack_that_comes_at_once_ends_the_wait(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = pair.follow()
    client = pair.client()
    client.xadd("orders", {"n": 1})
    caught_up(pair.db, follower)
    assert client.execute_command("WAITAOF", "0", "1", "20000")[1] == 1  # no ACK is to come
    monkeypatch.setattr(Feed, "ask", lambda feed: None)  # and none is asked for
    count, forgotten = Acks.count, False
    feeds = pair.server.replicating.feeding.feeds

    def before_the_ack(acks: Acks, log: Log, lsn: int, fsynced: bool) -> int:
        """At the first look, the ACK is the next thing that the loop reads."""
        nonlocal forgotten
        if not forgotten:
            forgotten = True
            (link,) = feeds
            ack, link.feed.acked_lsn = Ack(link.feed.acked_lsn, link.feed.fsynced_lsn), 0
            loop = pair.server.loop
            loop.call_soon(feeds.received, link, ack.pack(), loop.time())
        return count(acks, log, lsn, fsynced)

    monkeypatch.setattr(Acks, "count", before_the_ack)
    before = client.time()[0]
    assert client.wait(1, 60_000) == 1
    assert client.time()[0] - before < 10 and forgotten


@pytest.mark.parametrize("words", [("WAIT", "1", "0"), ("WAITAOF", "1", "1", "0")])
def test_a_client_that_leaves_at_once_is_not_waited_for(pair: Pair, words: tuple[str, ...]) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", pair.port)) as client:
            client.sendall(packed("XADD", "orders", "*", "n", "1") + packed(*words))
    server = pair.server
    until(lambda: not server.sessions)
    assert server.blocked == 0
    until(lambda: not server.core.acks._awaited)
