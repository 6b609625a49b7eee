"""Nothing but received frames enters a follower's log: every way to write is refused, and reads work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.store.following.leader import follower, following, frames_of, pull, root_of

import tidelog
from tidelog import testing
from tidelog.aof import identity
from tidelog.aof.errors import FollowerLog
from tidelog.engine.api import TABLE, Transaction
from tidelog.engine.errors import CommandError
from tidelog.store.commit.batch import run_exec, run_pipeline, run_unit
from tidelog.store.commit.callers import ThreadCaller
from tidelog.store.commit.landing import READONLY

WRITES = sorted(name for name, found in TABLE.commands.items() if "write" in found.flags)
Way = Callable[[tidelog.Store], Any]


@pytest.fixture
def full(leader: tidelog.Store, copy: tidelog.Store) -> tidelog.Store:
    """A follower with a stream, a group, a string, and a queue with jobs."""
    leader.xgroup_create("s", "g", id="0", mkstream=True)
    leader.xadd_many("s", [{"n": n} for n in range(5)])
    leader.xreadgroup("g", "c", {"s": ">"}, count=2)
    leader.set("a", "1")
    leader.set("soon", "1", px=1)
    queue = leader.queue("q")
    queue.put("one", dedup_id="one")
    queue.put("two")
    assert queue.get(block=0) is not None
    pull(copy, leader)
    return copy


def log_bytes(db: tidelog.Store) -> list[tuple[str, bytes]]:
    directory = root_of(db) / identity.AOF
    return [(path.name, path.read_bytes()) for path in sorted(directory.glob("*.aof"))]


def words(name: bytes) -> list[bytes]:
    found = TABLE.commands[name]
    given = name.split(b"|")
    return [*given, *[b"1"] * (abs(found.arity) - len(given))]


@pytest.mark.parametrize("name", WRITES, ids=lambda name: name.decode())
def test_every_command_that_writes(full: tidelog.Store, name: bytes) -> None:
    before = log_bytes(full), full.digest()
    with pytest.raises(tidelog.ReadOnlyError, match="against a read only replica"):
        full.execute_command(*words(name))
    reply, _ = inside.core(full).command(0, words(name), ThreadCaller)
    assert isinstance(reply, CommandError) and reply.line == READONLY
    assert (log_bytes(full), full.digest()) == before


def execute(db: tidelog.Store, transaction: bool, *steps: Callable[[Any], Any]) -> Any:
    with db.pipeline(transaction=transaction) as pipe:
        for step in steps:
            step(pipe)
        return pipe.execute()


async def on_a_loop(db: tidelog.Store, call: Callable[[Any], Any]) -> Any:
    return await call(tidelog.AsyncStore(inside.core(db), decode=False))


def row(db: tidelog.Store) -> None:
    inside.core(db).add(0, b"s", (b"a", b"b"))


# fmt: off
WAYS: dict[str, Way] = {
    "xadd": lambda db: db.xadd("s", {"a": "b"}),
    "xadd with an id": lambda db: db.xadd("s", {"a": "b"}, id="999999999999999-1"),
    "xadd to another type": lambda db: db.xadd("a", {"a": "b"}),
    "xadd to a new key": lambda db: db.xadd("new", {"a": "b"}),
    "xadd to an expired key": lambda db: db.xadd("soon", {"a": "b"}),
    "xadd_many": lambda db: db.xadd_many("s", [{"a": "b"}] * 3),
    "xadd of many": lambda db: db.xadd_many("s", [{"a": "b"}] * 1000),
    "xreadgroup": lambda db: db.xreadgroup("g", "c", {"s": ">"}),
    "xreadgroup that would block": lambda db: db.xreadgroup("g", "c", {"s": ">"}, block=0),
    "xreadgroup of one's own": lambda db: db.xreadgroup("g", "c", {"s": "0"}),
    "xack of nothing": lambda db: db.xack("s", "g", "1-1"),
    "delete of nothing": lambda db: db.delete("nothing"),
    "set": lambda db: db.set("a", "2"),
    "flushall": lambda db: db.flushall(),
    "pipeline": lambda db: execute(db, False, lambda p: p.set("a", "2")),
    "pipeline of xadds": lambda db: execute(db, False, *[lambda p: p.xadd("s", {"a": "b"})] * 500),
    "transaction": lambda db: execute(db, True, lambda p: p.get("a"), lambda p: p.set("a", "2")),
    "transaction of xadds": lambda db: execute(db, True, *[lambda p: p.xadd("s", {"a": "b"})] * 5),
    "put": lambda db: db.queue("q").put("x"),
    "put of what is there": lambda db: db.queue("q").put("x", dedup_id="one"),
    "put with a timeout": lambda db: db.queue("q").put("x", timeout=1),
    "put in a bounded queue": lambda db: db.queue("q", max_depth=1).put("x"),
    "put_many": lambda db: db.queue("q").put_many(["x"] * 5),
    "get": lambda db: db.queue("q").get(block=0),
    "get that would block": lambda db: db.queue("empty").get(),
    "consume": lambda db: next(iter(db.queue("q").consume())),
    "purge": lambda db: db.queue("q").purge(),
    "subscribe": lambda db: db.queue("new").subscribe(),
    "async xadd": lambda db: asyncio.run(on_a_loop(db, lambda a: a.xadd("s", {"a": "b"}))),
    "async set": lambda db: asyncio.run(on_a_loop(db, lambda a: a.set("a", "2"))),
    "async put": lambda db: asyncio.run(on_a_loop(db, lambda a: a.queue("q").put("x"))),
    "async put_many": lambda db: asyncio.run(on_a_loop(db, lambda a: a.queue("q").put_many(["x"]))),
    "async get": lambda db: asyncio.run(on_a_loop(db, lambda a: a.queue("q").get())),
}
# fmt: on


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_every_way_to_write(full: tidelog.Store, way: Way) -> None:
    before = log_bytes(full), full.digest()
    with pytest.raises(tidelog.ReadOnlyError, match="against a read only replica"):
        way(full)
    assert (log_bytes(full), full.digest()) == before
    assert inside.reloads(full) == 0 and inside.core(full).trouble is None
    assert not inside.waiters(full)


def test_ways_below_the_faces(full: tidelog.Store) -> None:
    core = inside.core(full)
    before = log_bytes(full), full.digest()
    # the log refuses, or the general path if a key has expired meanwhile
    with pytest.raises((tidelog.ReadOnlyError, CommandError), match="read only replica"):
        row(full)
    with pytest.raises(CommandError, match="READONLY"):
        core.add(0, b"a", (b"a", b"b"))
    with pytest.raises(CommandError, match="READONLY"):
        core.decided(0, lambda ctx: None)
    with pytest.raises(CommandError, match="READONLY"):
        run_unit(core, 0, lambda ctx: [[b"SET", b"a", b"2"]])
    with pytest.raises(tidelog.ReadOnlyError):
        core.run(0, lambda ctx: ctx.effects.append((inside_del(), 0, (b"a",))))
    replies, (_, _, wrote) = run_pipeline(
        core, 0, [[b"GET", b"a"], [b"SET", b"a", b"2"], (b"s", (b"a", b"b")), [b"GET", b"a"]]
    )
    assert replies[0] == replies[3] == b"1" and not wrote
    assert replies[1].line == READONLY
    assert isinstance(replies[2], (tidelog.ReadOnlyError, CommandError))  # as `row` above
    with core.lock:
        with pytest.raises(FollowerLog):
            core.log.reserve(0)
        with pytest.raises(FollowerLog):
            core.log.reserve(100)
    core.try_again()
    assert core.log.refusal() is None
    assert (log_bytes(full), full.digest()) == before


def inside_del() -> int:
    from tidelog.engine.api import DEL

    return DEL


def test_exec_of_writes_that_were_queued_before(full: tidelog.Store) -> None:
    core = inside.core(full)
    transaction = Transaction(core.watches)
    for args in ([b"MULTI"], [b"GET", b"a"], [b"SET", b"a", b"2"]):
        core.run(0, transaction.submit, given=(args,))
    with pytest.raises(CommandError) as caught:
        run_exec(core, 0, transaction, [b"EXEC"], core.decide)
    assert caught.value.line == b"EXECABORT Transaction discarded because of: " + READONLY
    assert not transaction.active
    for args in ([b"MULTI"], [b"GET", b"a"]):
        core.run(0, transaction.submit, given=(args,))
    (reply, _), _ = run_exec(core, 0, transaction, [b"EXEC"], core.decide)
    assert reply == [b"1"]


def test_expired_keys_are_hidden_and_not_deleted(tmp_path: Path) -> None:
    clock = testing.Clock()
    with tidelog.open(tmp_path / "l", fsync="no", clock=clock) as leader:
        leader.set("a", "1", ex=10)
        with follower(tmp_path / "c", leader, clock=clock) as copy:
            pull(copy, leader)
            before = log_bytes(copy)
            clock.advance(11)
            for _ in range(3):
                assert copy.get("a") is None
                assert copy.keys() == [] and copy.randomkey() is None
            with copy.pipeline() as pipe:
                pipe.get("a")
                assert pipe.execute() == [None]
            assert log_bytes(copy) == before
            assert following(copy).last[0] == 2


def test_reads_work(full: tidelog.Store) -> None:
    assert full.get("a") == b"1" and full.xlen("s") == 5
    assert len(full.xrange("s")) == 5
    assert full.xpending("s", "g")["pending"] == 2
    assert full.xread({"s": "0"}, block=10)[0][0] == b"s"
    assert full.xread({"s": "$"}, block=10) == []
    with full.pipeline() as pipe:
        pipe.get("a")
        pipe.xlen("s")
        assert pipe.execute() == [b"1", 5]
    queue = full.queue("q")
    stats = queue.stats()
    assert (stats.waiting, sum(stats.in_flight.values())) == (1, 1)
    assert [job.value for job in queue.peek()] == ["two"]
    assert len(queue) == 2 and queue.failures() == []
    assert list(frames_of(root_of(full)))


def test_the_beat_of_leases_writes_nothing(tmp_path: Path, leader: tidelog.Store) -> None:
    """Jobs that the store handed out when it led stay unacknowledged here; their new leader gives them out again."""
    clock = testing.Clock()
    with tidelog.open(tmp_path / "f", fsync="no", clock=clock) as db:
        queue = db.queue("q", retry_after=3)
        queue.put("one")
        job = queue.get()
        assert job is not None
        inside.core(db).roles.follow("leader", 1)  # type: ignore[union-attr]
        before = log_bytes(db)
        clock.advance(2)
        with pytest.raises(tidelog.ReadOnlyError):
            job.ack()
        clock.advance(10)
        assert log_bytes(db) == before
