"""Strangers that begin handshakes and go no further: few are answered at a time, and followers get in all the same."""

from __future__ import annotations

import resource
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal
from tests.server.wire import Client, connect
from tests.until import PATIENCE_S, until

from tidelog.replication.feeds import Feeds
from tidelog.server import shaking


def begin(client: Client, number: int) -> None:
    """Send the request of an empty follower with an ID of its own."""
    words = [b"TIDELOG", b"FOLLOW", b"1", b"00" * 16, b"%032x" % (number + 1), b"0", b"0"]
    client.begin(*words, b"00000000", b"-")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small bounds."""
    monkeypatch.setattr(shaking, "WAITING_MAX", 6)
    monkeypatch.setattr(shaking, "SILENT_MAX", 8)


def test_those_that_said_nothing_make_room_and_followers_stay(
    few: None, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.db.xadd("orders", {"n": 0})
    first = pair.follow("first")
    caught_up(pair.db, first)
    feeds = pair.server.replicating.feeding.feeds
    with ExitStack() as stack:
        strangers = []
        for number in range(50):
            stranger = connect(pair.port)
            stack.callback(stranger.close)
            begin(stranger, number)
            assert "CONTINUE" in str(stranger.receive())
            strangers.append(stranger)
        until(lambda: len(feeds) <= 9, "they are not closed")
        for stranger in strangers[:40]:
            assert b"it has said nothing yet, and makes room for others" in stranger.rest()
        second = pair.follow("second")
        pair.db.xadd("orders", {"n": 1})
        equal(pair.db, first)
        equal(pair.db, second)
        assert pair.proxy.count == 2  # neither had to come again
    assert caplog.text.count("have said nothing yet: the oldest are closed") == 1


def test_more_than_may_wait_are_refused_and_cost_no_thread(
    few: None, pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go = threading.Event()
    answered: list[object] = []
    real = Feeds.answer

    def answer(self: Feeds, *args: Any) -> Any:
        answered.append(args)
        assert go.wait(PATIENCE_S)
        return real(self, *args)

    monkeypatch.setattr(Feeds, "answer", answer)
    handshakes = pair.server.replicating.feeding.shaking
    with ExitStack() as stack:
        strangers = [connect(pair.port) for _ in range(12)]
        for number, stranger in enumerate(strangers):
            stack.callback(stranger.close)
            begin(stranger, number)
            if number < 6:
                until(lambda: handshakes.waiting == number + 1)
        for stranger in strangers[6:]:
            assert "REFUSED 6 other handshakes are under way here; ask again" in str(
                stranger.receive()
            )
        assert len(answered) <= shaking.ANSWERED_MAX
        strangers[5].close()  # before its turn
        sessions = pair.server.sessions
        until(lambda: len(sessions) == 11)
        follower = pair.follow()
        until(lambda: pair.proxy.count)  # it waits, too, or is refused and comes again
        go.set()
        for stranger in strangers[:5]:
            assert "CONTINUE" in str(stranger.receive())
        pair.db.xadd("orders", {"n": 0})
        equal(pair.db, follower)
    until(lambda: handshakes.waiting == 0)
    assert caplog.text.count("handshakes of followers are under way: more are refused") == 1


def test_copies_that_nobody_fetches_make_room(few: None, pair: Pair) -> None:
    pair.db.xadd("orders", {"n": 0})
    offerings = pair.server.replicating.feeding.offerings
    with ExitStack() as stack:
        for number in range(20):
            stranger = connect(pair.port)
            stack.callback(stranger.close)
            words = [b"TIDELOG", b"FOLLOW", b"1", b"00" * 16, b"%032x" % (number + 1), b"0"]
            stranger.begin(*words, b"0", b"00000000", b"-", b"COPY")
            assert "RESYNC" in str(stranger.receive())
        until(lambda: len(offerings) <= 8, "they are not closed")


@pytest.mark.slow
def test_two_thousand_at_once(pair: Pair) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    pair.db.xadd("orders", {"n": 0})
    first = pair.follow("first")
    caught_up(pair.db, first)
    client = pair.client()
    before = most = threading.active_count()
    try:
        with ExitStack() as stack:
            strangers = [connect(pair.port) for _ in range(2000)]
            for stranger in strangers:
                stack.callback(stranger.close)
            for number, stranger in enumerate(strangers):
                begin(stranger, number)
            second = pair.follow("second")
            client.xadd("orders", {"n": 1})
            replies = []
            for stranger in strangers:
                replies.append(str(stranger.receive()))
                most = max(most, threading.active_count())
            assert all("CONTINUE" in reply or "ask again" in reply for reply in replies)
            equal(pair.db, first)
            equal(pair.db, second)
            feeds = pair.server.replicating.feeding.feeds
            until(lambda: len(feeds) <= shaking.SILENT_MAX + 2)
            assert client.wait(2, 60_000) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert most - before < 30
