"""FAILOVER: each of its steps fails, and the leader takes writes again, or follows. No client hangs meanwhile."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
import redis
from tests.oracle.wire import OK
from tests.replication.conftest import Pair
from tests.replication.test_commands import errors
from tests.replication.test_failover import Two
from tests.server.wire import calls, connect
from tests.store.following.leader import roles
from tests.until import until

import tidelog
from tidelog.replication import protocol
from tidelog.store import role
from tidelog.store.errors import NotStored, StorePoisoned
from tidelog.store.role import Role


@pytest.fixture
def two(pair: Pair) -> Two:
    return Two(pair)


class Faults:
    """The faults from now on.

    threads     names of threads that the system does not start
    refused     how many it has refused
    publish     called with each role before it is published
    published   the same, afterwards
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.threads: set[str] = set()
        self.refused = 0
        self.publish: Callable[[Role], None] = lambda role: None
        self.published: Callable[[Role], None] = lambda role: None
        start, publish = threading.Thread.start, role.publish

        def start_thread(thread: threading.Thread) -> None:
            if thread.name in self.threads:
                self.refused += 1
                raise RuntimeError("can't start new thread")
            start(thread)

        def publish_role(disk: Any, root: Any, new: Role) -> None:
            self.publish(new)
            publish(disk, root, new)
            self.published(new)

        patch.setattr(threading.Thread, "start", start_thread)
        patch.setattr(role, "publish", publish_role)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def failing(kind: str) -> Callable[[Role], None]:
    """A disk that fails while a role of this kind is published."""

    def fail(new: Role) -> None:
        if new.kind == kind:
            raise OSError(errno.EIO, "Input/output error")

    return fail


@contextmanager
def stating(two: Two, *words: object) -> Iterator[threading.Event]:
    """A FAILOVER whose role is on the disk, which its server hears only when the event is set."""
    reached, go = threading.Event(), threading.Event()
    hand_over = roles(two.db).hand_over

    def late(*args: Any) -> int:
        generation = hand_over(*args)
        reached.set()
        assert go.wait(60)
        return generation

    roles(two.db).hand_over = late  # type: ignore[assignment, method-assign]
    two.failover(*words)
    assert reached.wait(60)
    try:
        yield go
    finally:
        go.set()
        del roles(two.db).hand_over


def never_told(two: Two) -> None:
    """The leader leads as before, by itself: it could not ask the follower, which was not told."""
    until(lambda: two.state() == "no-failover", "it does not go back")
    until(lambda: two.db.role().kind == "leader")
    two.client.xadd("orders", {"n": 4})
    two.db.xadd("orders", {"n": 5})
    assert roles(two.copy).declined == 0
    two.pair.proxy.open.set()
    two.led_as_before()


# --- before the follower is told


def test_no_thread_to_state_it(two: Two, faults: Faults) -> None:
    with ThreadPoolExecutor(1) as pool, two.stalled():
        two.failover()
        late = pool.submit(two.pair.client().xadd, "orders", {"n": 9})
        until(lambda: two.pair.server._pause.postponed, "it does not wait")
        faults.threads.add("tidelog-saving")
        two.pair.proxy.open.set()
        assert late.result(60)
    assert faults.refused
    never_told(two)  # while there are no threads


@pytest.mark.parametrize("published", [False, True])
def test_the_disk_does_not_take_the_role(two: Two, faults: Faults, published: bool) -> None:
    """Also if it fails behind the rename: then the file states the role that nobody has heard of."""
    if published:
        faults.published = failing("handing over")
    else:
        faults.publish = failing("handing over")
    two.failover()
    never_told(two)


def test_the_link_breaks_before_the_follower_is_told(two: Two) -> None:
    with stating(two) as go:
        links = two.pair.server.replicating.feeding.feeds
        two.pair.proxy.open.clear()  # the follower cannot be asked
        two.pair.proxy.cut()
        until(lambda: not len(links))
        go.set()
        never_told(two)


def test_abort_while_it_is_stated(two: Two) -> None:
    with stating(two) as go, closing(connect(two.pair.port)) as client:
        assert calls(client, "FAILOVER ABORT", "FAILOVER ABORT") == [OK, OK]
        assert errors(client, "FAILOVER", "REPLICAOF NO ONE") == [
            b"ERR FAILOVER already in progress.",
            b"ERR REPLICAOF not allowed while failing over.",
        ]
        go.set()
        never_told(two)


def test_the_disk_is_late(two: Two) -> None:
    with stating(two, "TIMEOUT", 200) as go:
        handing = two.pair.server.replicating.handing
        until(lambda: handing.state.value == "withdrawn")
        go.set()
        never_told(two)


def test_the_server_stops_while_it_is_stated(two: Two) -> None:
    two.client.config_set("shutdown-timeout", 0)
    with stating(two) as go, ThreadPoolExecutor(1) as pool:
        closed = pool.submit(two.pair.serving.close)
        until(lambda: two.pair.server.replicating.handing._stopped)
        go.set()
        closed.result(60)
    until(lambda: two.db.role().kind == "leader" and two.db.role().reason)
    two.db.xadd("orders", {"n": 8})


# --- on the way back


def test_no_thread_to_take_it_back(two: Two, faults: Faults) -> None:
    with stating(two) as go:
        faults.threads.add("tidelog-saving")
        two.client.execute_command("FAILOVER", "ABORT")
        go.set()
        two.pair.client().xadd("orders", {"n": 3})
    assert faults.refused
    faults.threads.clear()  # the follower connects again
    never_told(two)


@pytest.mark.parametrize("refused", ["no thread", "nothing"])
def test_a_write_that_comes_while_it_is_stated_waits(
    two: Two, faults: Faults, refused: str
) -> None:
    """REPLICA states the new role already, but a client is told neither that nor of the way back."""
    with ThreadPoolExecutor(1) as pool, stating(two) as go:
        until(lambda: two.pair.server.replicating.following, "the server has not taken the role")
        late = pool.submit(two.pair.client().xadd, "orders", {"n": 3})
        until(lambda: two.pair.server._pause.postponed, "it does not wait")
        if refused == "no thread":
            faults.threads.add("tidelog-saving")
        two.client.execute_command("FAILOVER", "ABORT")
        go.set()
        assert late.result(60)
    faults.threads.clear()  # the follower connects again
    never_told(two)


def test_the_disk_does_not_take_the_old_role_back(two: Two, faults: Faults) -> None:
    """Clients get an error instead of waiting for the disk, and the leader tries again."""
    with stating(two) as go:
        two.client.execute_command("FAILOVER", "ABORT")
        faults.publish = failing("leader")
        go.set()
    with pytest.raises(redis.ReadOnlyError):
        two.pair.client().xadd("orders", {"n": 9})
    assert two.client.execute_command("FAILOVER", "ABORT") == b"OK"
    faults.publish = lambda new: None
    never_told(two)


def test_the_store_is_not_released_at_once(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    release, fails = roles(two.db).release, [NotStored("the log cannot be read now")] * 2

    def fail() -> None:
        if fails:
            raise fails.pop()
        release()

    monkeypatch.setattr(roles(two.db), "release", fail)
    with two.stalled():
        two.failover()
        assert two.client.execute_command("FAILOVER", "ABORT") == b"OK"
        with pytest.raises(redis.ReadOnlyError):
            two.pair.client().xadd("orders", {"n": 9})
    never_told(two)
    assert not fails


def test_a_poisoned_store_holds_no_client(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise StorePoisoned("a sync of the log failed")

    with two.stalled():
        two.failover()
        monkeypatch.setattr(roles(two.db), "release", fail)
        assert two.client.execute_command("FAILOVER", "ABORT") == b"OK"
        assert two.state() == "no-failover"
        with pytest.raises(redis.ReadOnlyError):
            two.pair.client().xadd("orders", {"n": 9})


# --- once the follower is told


def test_the_connection_refuses_what_tells_the_follower(two: Two) -> None:
    (link,) = two.pair.server.replicating.feeding.feeds
    write, promote = link.sink.write, protocol.HEAD.pack(12, protocol.PROMOTE)

    def fail(data: bytes) -> None:
        if data.startswith(promote):
            raise RuntimeError("the handler is closed")
        write(data)

    link.sink.write = fail  # type: ignore[method-assign]
    two.failover()
    until(lambda: roles(two.copy).declined, "the leader does not ask")
    two.led_as_before()


def test_the_follower_gets_no_thread_to_lead(two: Two, faults: Faults) -> None:
    faults.threads.add("tidelog-resync")
    two.failover()
    until(lambda: faults.refused, "it is not told")
    faults.threads.clear()
    two.led_as_before()


def test_no_thread_to_follow_the_new_leader(two: Two, faults: Faults) -> None:
    with two.told() as go:
        faults.threads.add("tidelog-saving")
        go.set()
        until(lambda: faults.refused)
        faults.threads.clear()  # it asks the new leader, whose server needs threads
    two.led_by_copy()


def test_the_disk_does_not_take_the_role_of_a_follower(two: Two, faults: Faults) -> None:
    with two.told() as go:
        faults.publish = failing("follower")
        go.set()
        until(lambda: two.copy.role().kind == "leader")
        with pytest.raises(tidelog.ReadOnlyError):
            two.db.xadd("orders", {"n": 8})
        faults.publish = lambda new: None
    two.led_by_copy()
