"""A shared store has the methods and the replies of an opened one."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.client.conftest import Bench
from tests.until import parked, until

import tidelog
from tidelog.api.methods import Methods
from tidelog.client.store import SharedStore

# Runs on both faces, one after the other; the keys of the second have another prefix. IDs are given, so replies are
# equal.
Steps = Callable[[Any, str], list[Any]]


def strings(db: Any, k: str) -> list[Any]:
    return [
        *(db.set(k, "v"), db.get(k), db.append(k, "w"), db.strlen(k), db.set(k, "x", nx=True)),
        *(db.set(k, "y", get=True), db.getdel(k), db.get(k), db.incr(k, 5), db.exists(k, k)),
        *(db.expire(k, 100), db.ttl(k), db.persist(k), db.type(k), db.delete(k), k in db),
    ]


def streams(db: Any, k: str) -> list[Any]:
    db.xgroup_create(k, "g", id="0", mkstream=True)
    found = [
        db.xadd(k, {"a": 1, "b": "ü"}, id="1-1"),
        db.xadd(k, {"c": b"\xff"} if not db._decode else {"c": "x"}, id="2-0"),
        db.xrange(k),
        db.xrevrange(k, count=1),
        db.xrange(k, "5", "6"),
        [entries for _, entries in db.xread({k: "0"})],
        db.xread({k: "9-9"}),
        [entries for _, entries in db.xreadgroup("g", "c", {k: ">"}, count=1)],
        db.xpending(k, "g"),
        db.xclaim(k, "g", "d", 0, ["1-1"]),
        db.xclaim(k, "g", "d", 0, ["1-1"], justid=True),
        db.xclaim(k, "g", "d", 0, ["7-7"]),
        db.xautoclaim(k, "g", "e", 0),
        db.xautoclaim(k, "g", "e", 0, justid=True),
        [row["message_id"] for row in db.xpending_range(k, "g", "-", "+", 10)],
        db.xdel(k, "1-1"),
        [entries for _, entries in db.xreadgroup("g", "e", {k: "0"})],
        db.xack(k, "g", "1-1"),
        db.xlen(k),
        db.xinfo_stream(k),
        db.xinfo_stream(k, full=True)["entries"],
        [group["name"] for group in db.xinfo_groups(k)],
        db.xtrim(k, maxlen=0),
    ]
    return found


def keys(db: Any, k: str) -> list[Any]:
    db.mset({k: 1})
    return [
        db.rename(k, f"{k}2"),
        len(db.keys(f"{k}*")),
        len(list(db.scan_iter(f"{k}*"))),
        db.copy(f"{k}2", k),
        db.db(1).get(k),
        db.execute_command("EXISTS", k),
        db.execute_command("XRANGE", f"{k}3", "-", "+"),
        db.ping(),
    ]


def pipelines(db: Any, k: str) -> list[Any]:
    with db.pipeline() as pipe:
        first = pipe.incr(k).xadd(f"{k}s", {"a": 1}, id="1-1").xrange(f"{k}s").execute()
    with db.pipeline(transaction=False) as pipe:
        second = pipe.get(k).xread({f"{k}s": "9"}).execute()
    with db.pipeline() as pipe:
        pipe.set(k, "x").incr(k)
        third = [type(each).__name__ for each in pipe.execute(raise_on_error=False)]

    def twice(pipe: Any) -> None:
        value = int(pipe.get(f"{k}n") or 0)
        pipe.multi()
        pipe.set(f"{k}n", value + 1)

    done = db.transaction(twice, f"{k}n")
    with db.pipeline() as pipe, pytest.raises(tidelog.WatchError):
        pipe.watch(f"{k}n")
        db.incr(f"{k}n")
        pipe.multi()
        pipe.set(f"{k}n", "lost")
        pipe.execute()
    return [first, second, third, done, db.get(f"{k}n")]


@pytest.mark.parametrize("decode", [False, True], ids=["bytes", "str"])
@pytest.mark.parametrize("steps", [strings, streams, keys, pipelines])
def test_replies_are_those_of_an_opened_store(bench: Bench, steps: Steps, decode: bool) -> None:
    shared = bench.connect(decode_responses=decode)
    embedded = tidelog.Store(bench.db._core, decode=decode)
    assert steps(shared, "k") == steps(embedded, "l")


def test_it_has_every_command(bench: Bench) -> None:
    shared = bench.connect()
    commands = [name for name, _ in inspect.getmembers(Methods, inspect.isfunction)]
    assert all(callable(getattr(shared, name)) for name in commands if not name.startswith("_"))
    with pytest.raises(AttributeError, match="queue"):
        getattr(shared, "lpush")


def test_errors_are_those_of_an_opened_store(bench: Bench) -> None:
    shared = bench.connect()
    bench.db.set("s", "x")
    for db in (shared, bench.db):
        with pytest.raises(tidelog.ResponseError, match="wrong kind of value") as caught:
            db.xadd("s", {"a": 1})
        assert caught.value.code == "WRONGTYPE"
        with pytest.raises(tidelog.ResponseError, match="not an integer"):
            db.incr("s")
        with pytest.raises(tidelog.DataError):
            db.xadd("t", {})
        with pytest.raises(tidelog.ResponseError, match="unknown command"):
            db.execute_command("NONSENSE")
        with pytest.raises(tidelog.DataError, match="no database"):
            db.db(16)


def test_many_entries_are_one_unit(bench: Bench) -> None:
    shared = bench.connect()
    found = shared.xadd_many("s", ({"n": n} for n in range(5)))
    assert list(found) == [id for id, _ in bench.db.xrange("s")]
    assert list(shared.xadd_many("s", [])) == []


def test_a_read_that_blocks(bench: Bench) -> None:
    shared = bench.connect()
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.extend(shared.xread({"s": "$"}, block=0)))
    thread.start()
    parked(bench.db)
    id = shared.xadd("s", {"a": 1})
    thread.join(60)
    assert got == [[b"s", [(id, {b"a": b"1"})]]]


def test_levels(bench: Bench) -> None:
    shared = bench.connect()
    assert shared.fsync == "everysec"
    shared.at("fsynced").set("k", "v")
    log = bench.db._core.log
    assert log.synced_lsn == log.written_lsn
    shared.set("k", "w")
    shared.barrier()
    assert log.synced_lsn == log.written_lsn
    caught: list[BaseException] = []

    def write() -> None:
        try:
            shared.at("replicated", timeout=0.05).set("k", "x")
        except tidelog.TidelogError as error:
            caught.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    server = bench.serving.server
    assert server is not None
    until(lambda: server.blocked)
    bench.clock.advance(5)
    thread.join(60)
    assert isinstance(caught[0], tidelog.NotReplicated)
    assert bench.db.get("k") == b"x"
    with pytest.raises(tidelog.DataError):
        shared.at("nonsense")
    shared.fsync = "no"
    assert bench.db.fsync == "no"


def test_a_closed_one(bench: Bench) -> None:
    shared = bench.connect()
    shared.close()
    shared.close()
    assert shared.closed
    with pytest.raises(tidelog.StoreClosed):
        shared.get("k")
    with pytest.raises(TypeError, match="connect"):
        pickle.dumps(shared)
    assert bench.db.ping()


def test_closing_ends_a_call_that_waits(bench: Bench) -> None:
    shared = bench.connect()
    caught: list[BaseException] = []

    def read() -> None:
        try:
            shared.xread({"s": "$"}, block=0)
        except tidelog.TidelogError as error:
            caught.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    parked(bench.db)
    shared.close()
    thread.join(60)
    assert isinstance(caught[0], tidelog.StoreClosed)


def test_urls_reach_the_same_store(bench: Bench) -> None:
    bench.serving.close()
    bench.serving = tidelog.serve(
        bench.db, port=0, unixsocket=str(bench.root / "x"), requirepass="pw"
    )
    bench._stack.callback(bench.serving.close)
    bench.db.db(2).set("k", "v")
    port = bench.serving.port
    for url in (f"redis://:pw@127.0.0.1:{port}/2", f"redis://default:pw@localhost:{port}/2",
                f"unix://:pw@{bench.root}/x?db=2"):  # fmt: skip
        with tidelog.connect(url) as db:
            assert db.get("k") == b"v"
    with tidelog.connect([f"redis://:pw@127.0.0.1:{port}/2", "redis://127.0.0.1:1"]) as db:
        assert db.get("k") == b"v"
    with pytest.raises(tidelog.ResponseError, match="Authentication required"):
        tidelog.connect(f"redis://127.0.0.1:{port}")
    with tidelog.connect(bench.root) as db:  # the same user needs no password
        assert db.db(2).get("k") == b"v"


def test_a_queue_at_a_url_is_shared(bench: Bench) -> None:
    bench.serving.close()
    bench.serving = tidelog.serve(bench.db, port=0)
    bench._stack.callback(bench.serving.close)
    url = f"redis://127.0.0.1:{bench.serving.port}"
    with tidelog.queue(url, "mails") as mails:
        assert isinstance(mails, tidelog.SharedQueue)
        mails.put("ann")

    async def take() -> Any:
        async with tidelog.aqueue(url, "mails") as mails:
            assert isinstance(mails, tidelog.AsyncSharedQueue)
            job: Any = await mails.get(block=0)
            await job.ack()
            return job.value

    assert asyncio.run(take()) == "ann"


@pytest.mark.parametrize("url", ["redis://127.0.0.1:6379", "http://x", "s3://bucket/snapshot"])
def test_open_takes_no_url(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for read_only in (False, True):
        with pytest.raises(tidelog.DataError, match="is a URL, and open takes the path"):
            tidelog.open(url, read_only=read_only)
    if not url.startswith("redis"):
        with pytest.raises(tidelog.DataError, match="the scheme of a URL must be one of redis"):
            tidelog.queue(url, "mails")
    assert [*tmp_path.iterdir()] == []


def test_it_follows_the_leader(tmp_path: Path) -> None:
    with ExitStack() as stack:
        ports = []
        for name in "ab":
            db = stack.enter_context(tidelog.open(tmp_path / name, fsync="no"))
            ports.append(stack.enter_context(tidelog.serve(db, port=0)).port)
        one, two = (redis.Redis(port=port, protocol=2) for port in ports)
        stack.callback(one.close)
        stack.callback(two.close)
        two.execute_command("REPLICAOF", "127.0.0.1", ports[0])  # type: ignore[no-untyped-call]
        urls: list[Any] = [f"redis://127.0.0.1:{port}" for port in reversed(ports)]
        shared = stack.enter_context(tidelog.connect(urls))
        assert shared.set("k", "v") and one.get("k") == b"v"

        def arrived() -> bool:
            try:
                return bool(two.get("k") == b"v")
            except redis.BusyLoadingError:
                return False  # the first copy is being loaded

        until(arrived, "the follower does not get it")
        two.execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]
        one.execute_command("REPLICAOF", "127.0.0.1", ports[1])  # type: ignore[no-untyped-call]
        assert shared.set("k", "w") and two.get("k") == b"w"


def test_a_snapshot_of_the_server(bench: Bench) -> None:
    shared = bench.connect()
    shared.set("k", "v")
    made = shared.snapshot()
    assert made.path.parent == bench.root / "snapshots"
    with tidelog.open(made.path, read_only=True) as db:
        assert db.get("k") == b"v"


def test_leaving_a_view_does_not_disconnect(bench: Bench) -> None:
    with bench.connect() as shared:
        with shared.db(1) as other, shared.at("fsynced") as third:
            assert other.ping() and third.ping()
        assert shared.ping() and not shared.closed
    assert shared.closed


def test_methods_of_an_opened_store_that_it_lacks(bench: Bench) -> None:
    """Each has an error with advice, and `dir` does not list it."""
    shared: Any = bench.connect()
    for face in (shared, tidelog.AsyncSharedStore(shared)):
        for name in ("verify", "receipts", "refresh", "role", "digest"):
            assert name not in dir(face)
            with pytest.raises(AttributeError, match=f"has no '{name}': .*"):
                getattr(face, name)
    with pytest.raises(AttributeError, match="run `tidelog verify PATH`"):
        _ = shared.verify
    with pytest.raises(AttributeError, match="a Redis client with the server"):
        _ = shared.publish


@pytest.mark.parametrize(
    "where",
    ["", "a\0b", "http://x", "redis://", "redis://h:x", "redis://h/16", "redis://h/x", "unix://",
     [], ["redis://h", "path"], 7],
)  # fmt: skip
def test_bad_addresses(where: Any) -> None:
    with pytest.raises(tidelog.DataError):
        tidelog.connect(where)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(tidelog.Unreachable, match="refused"):
        tidelog.connect("redis://127.0.0.1:1", timeout=0.05)


def test_it_is_what_connect_says(bench: Bench) -> None:
    assert isinstance(bench.connect(), SharedStore)
