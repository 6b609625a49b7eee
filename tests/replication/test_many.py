"""Many clients at once: followers of one leader, and questions that each cost a process."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
from tests import inside
from tests.replication.conftest import Pair
from tests.server.wire import connect
from tests.until import until

import tidelog
from tidelog.replication.verify import FrameEnd, written
from tidelog.server.commands import replication
from tidelog.store.commit.core import Core


def test_twenty_followers_and_one_that_reads_nothing(pair: Pair) -> None:
    pair.db.xadd("orders", {"n": 0})
    deaf = connect(pair.port)
    words = [b"TIDELOG", b"FOLLOW", b"1", b"00" * 16, b"11" * 16, b"0", b"0", b"00000000", b"-"]
    deaf.begin(*words)
    with ExitStack() as stack:
        url = f"tidelog://127.0.0.1:{pair.port}"
        copies = [
            stack.enter_context(tidelog.follow(pair.root / f"copy{n}", url, fsync="no"))
            for n in range(20)
        ]
        until(lambda: len(pair.server.replicating.feeding.feeds) == 21)
        client = pair.client()
        for number in range(100):
            client.xadd("orders", {"n": number, "pad": "x" * 20_000}, maxlen=10)
        assert client.wait(20, 60_000) == 20
        end = written(inside.core(pair.db))
        for copy in copies:
            assert written(inside.core(copy)) == end  # the checksum covers every frame before it
    deaf.close()


def test_one_digest_at_a_time(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has gone before its turn costs no process."""
    pair.db.xadd("orders", {"n": 1})
    core = inside.core(pair.db)
    place = written(core)
    go, now, begun = threading.Semaphore(0), threading.Semaphore(1), 0

    def answer(core: Core, asked: FrameEnd) -> bytes:
        nonlocal begun
        assert now.acquire(blocking=False), "two at a time"
        begun += 1
        assert go.acquire(timeout=60)
        now.release()
        return b"+DIGEST 1 x"

    monkeypatch.setattr(replication, "answer", answer)
    clients = [connect(pair.port) for _ in range(6)]
    for client in clients:
        client.begin(*place.words())
    until(lambda: begun == 1)
    sessions = pair.server.sessions
    until(lambda: len(sessions) == 6)
    for client in clients[3:]:
        client.close()
    until(lambda: len(sessions) == 3)
    for done in range(1, 4):
        until(lambda: begun == done)
        go.release()
    for client in clients[:3]:
        assert b"DIGEST" in str(client.receive()).encode()
        client.close()
    assert begun == 3 and not pair.server.replicating.digesting.locked()
