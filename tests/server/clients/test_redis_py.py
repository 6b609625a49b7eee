"""redis-py 8: what every stream method returns, sync and asyncio, RESP2 and RESP3, decoded or not, in both shapes.

Against redis-server 7.0: the same random calls on both, on one clock, the same values with the same types, errors
included; `clients.known` has the differences of 8.8. Methods newer than 7.0: against the store itself, embedded,
whose methods are redis-py's. Then the rest of what a program calls: connections, transactions, pub/sub, CLIENT,
CONFIG, INFO.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from tests.oracle.server import RedisServer
from tests.rounds import some_and_all
from tests.server.clients.calls import Calls
from tests.server.clients.faces import MODES, Call, Embedded, Face, Failed, Mode, call, typed
from tests.server.clients.known import Sides
from tests.server.clients.real import Clocks, clocked_redis, real_redis
from tests.server.conftest import Start
from tests.until import until

import tidelog

SEED = 20_240_607
# Of the modes, `make test` has four in which each value of each part occurs twice.
every_mode = pytest.mark.parametrize(
    "mode",
    [
        mode if n in (0, 5, 10, 15) else pytest.param(mode, marks=pytest.mark.slow)
        for n, mode in enumerate(MODES)
    ],
    ids=str,
)
# in each of the 16 modes; all of them are 2,560
some_calls = pytest.mark.parametrize("calls", some_and_all(60, 160))


@pytest.fixture(scope="module")
def oracle() -> Iterator[tuple[RedisServer, Clocks]]:
    with clocked_redis() as both:
        yield both


def faces(start: Start, oracle: tuple[RedisServer, Clocks], mode: Mode) -> tuple[Face, Face]:
    """tidelog and an empty redis-server on one clock."""
    server, clocks = oracle
    theirs = Face(mode, unix_socket_path=str(server.socket))
    theirs.do("flushall")
    return Face(mode, port=start(clock=clocks.ours, fsync="no").port), theirs


def differential(sides: Sides, clocks: Clocks, seed: int, calls: int) -> None:
    print(f"seed {seed}")
    draw = Calls(seed, newer=False)
    history: list[str] = []
    for number in range(calls):
        clocks.advance(draw.r.choice((0, 0, 1, 7, 100)))
        if draw.chance(0.08):
            batch = [each for each in (draw.call() for _ in range(6)) if apart(each)]
            transaction = draw.chance(0.5)
            history.append(f"{'MULTI' if transaction else 'pipeline'} {', '.join(map(str, batch))}")
            found, wanted = sides.pipeline(batch, transaction)
        else:
            one = draw.call()
            history.append(str(one))
            found, wanted = sides.make(one)
            draw.learn(one, found)
        if typed(found) != typed(wanted):
            shown = "\n".join(history[-40:])
            pytest.fail(f"seed {seed}, call {number}: {found!r}\nfor {wanted!r} after\n{shown}")


def apart(each: Call) -> bool:
    """Whether both versions return the same for it, and do the same to groups."""
    return each.name not in (
        *("xreadgroup", "xclaim", "xautoclaim", "xgroup_create", "xgroup_setid"),
        *("xinfo_stream", "xinfo_groups", "xinfo_consumers"),
    )


@every_mode
@some_calls
def test_stream_methods(
    start: Start, oracle: tuple[RedisServer, Clocks], mode: Mode, calls: int
) -> None:
    ours, theirs = faces(start, oracle, mode)
    with ours, theirs:
        seed = SEED + MODES.index(mode)
        differential(Sides(ours, theirs), oracle[1], seed, calls)


@pytest.mark.soak
@pytest.mark.parametrize("round", range(8))
def test_many_more_stream_methods(
    start: Start, oracle: tuple[RedisServer, Clocks], round: int
) -> None:
    seed = random.randrange(1 << 32)
    mode = MODES[seed % len(MODES)]
    ours, theirs = faces(start, oracle, mode)
    with ours, theirs:
        differential(Sides(ours, theirs), oracle[1], seed, 10_000)


# --- what is newer than 7.0


def as_in(mode: Mode, each: Call, value: Any) -> Any:
    """The value of a store's method in the shape that redis-py gives it in this mode."""
    if isinstance(value, Failed):
        return value
    if each.name in ("xread", "xreadgroup") and not mode.legacy:
        return dict(value)
    if each.name in ("xread", "xreadgroup") and mode.protocol == 3:
        return {key: [entries] for key, entries in value}
    if each.name == "xinfo_stream" and each.options.get("full") and mode.protocol == 3:
        for group in value[
            "groups"
        ]:  # their consumers stay as they came, maps with keys that are bytes
            group["consumers"] = [
                {key if mode.decode else key.encode(): item for key, item in consumer.items()}
                for consumer in group["consumers"]
            ]
    return value


def newer_differential(
    start: Start, clocks: Clocks, place: Path, mode: Mode, seed: int, calls: int
) -> None:
    print(f"seed {seed}")
    draw = Calls(seed, newer=True)
    history: list[str] = []
    options: Any = {"clock": clocks.ours, "fsync": "no"}
    with (
        Face(mode, port=start(**options).port) as face,
        tidelog.open(place / "embedded", decode_responses=mode.decode, **options) as store,
    ):
        embedded = Embedded(store)
        for number in range(calls):
            clocks.advance(draw.r.choice((0, 0, 1, 7, 100)))
            one = draw.call()
            history.append(str(one))
            found = face.do(one.name, *one.args, **one.options)
            wanted = as_in(mode, one, embedded.do(one.name, *one.args, **one.options))
            draw.learn(one, found)
            if typed(found) != typed(wanted):
                shown = "\n".join(history[-40:])
                pytest.fail(f"seed {seed}, call {number}: {found!r}\nfor {wanted!r} after\n{shown}")


@every_mode
@some_calls
def test_newer_stream_methods(
    start: Start, oracle: tuple[RedisServer, Clocks], tmp_path: Path, mode: Mode, calls: int
) -> None:
    seed = SEED + 100 + MODES.index(mode)
    newer_differential(start, oracle[1], tmp_path, mode, seed, calls)


@pytest.mark.soak
@pytest.mark.parametrize("round", range(8))
def test_many_more_newer_stream_methods(
    start: Start, oracle: tuple[RedisServer, Clocks], tmp_path: Path, round: int
) -> None:
    seed = random.randrange(1 << 32)
    newer_differential(start, oracle[1], tmp_path, MODES[seed % len(MODES)], seed, 5_000)


# --- everything else that a program calls


Look = Callable[[Any], Any]


def whole(value: Any) -> Any:
    return value


class Checked(NamedTuple):
    """A call, and what of its value is compared."""

    call: Call
    look: Look = whole


def c(name: str, *args: Any, **options: Any) -> Checked:
    return Checked(call(name, *args, **options))


def kinds(value: Any) -> Any:
    """The types in a value, for those whose contents are a server's own."""
    if isinstance(value, dict):
        return {key: kinds(item) for key, item in value.items()}
    return value if isinstance(value, Failed) else type(value)


def kind(value: Any) -> Any:
    return value if isinstance(value, Failed) else type(value).__name__


def some(*names: str) -> Look:
    """These items of a dict, or of each dict of a list."""

    def look(value: Any) -> Any:
        if isinstance(value, list):
            return [look(each) for each in value]
        return (
            {each: value.get(each, "missing") for each in names}
            if isinstance(value, dict)
            else value
        )

    return look


def some_kinds(*names: str) -> Look:
    """The types of these items."""
    return lambda value: kinds(some(*names)(value))


def count(value: Any) -> Any:
    return value if isinstance(value, Failed) else len(value)


def ordered(value: Any) -> Any:
    if isinstance(value, Failed):
        return value
    return dict(sorted(value.items())) if isinstance(value, dict) else sorted(value)


def truth(value: Any) -> Any:
    return value if isinstance(value, Failed) else (type(value), bool(value))


def described(value: Any) -> Any:
    """Name, arity and keys of COMMAND INFO; later versions added to the rest."""
    return [one[:2] + one[3:6] for one in value] if isinstance(value, list) else value


INFO_SERVER = (
    "redis_mode",
    "os",
    "arch_bits",
    "process_id",
    "run_id",
    "tcp_port",
    "uptime_in_seconds",
)
INFO_CLIENTS = ("connected_clients", "blocked_clients", "maxclients")
INFO_STATS = (
    "total_connections_received",
    "total_commands_processed",
    "expired_keys",
    "evicted_keys",
)
INFO_PERSISTENCE = ("loading", "aof_enabled", "rdb_bgsave_in_progress", "rdb_last_save_time")
CLIENT = ("db", "flags", "multi", "sub", "psub", "resp", "user", "cmd")

ROWS = [
    # connections
    c("ping"),
    c("echo", "h\u00e4"),
    Checked(call("time"), kinds),
    c("execute_command", "PING", "hello"),
    c("execute_command", "NOSUCH", "a"),
    c("execute_command", "GET"),
    c("execute_command", "SELECT", 99),
    c("execute_command", "SELECT", "x"),
    c("auth", "wrong"),
    c("auth", "wrong", username="nobody"),
    c("dbsize"),
    c("flushdb"),
    c("flushall", asynchronous=True),
    # strings and keys beside streams
    c("set", "k", "v", ex=100),
    c("get", "k"),
    c("get", "none"),
    c("incr", "n"),
    c("incr", "k"),
    c("mset", {"a": 1, "b": 2}),
    c("mget", "a", "none", "b"),
    c("type", "k"),
    c("exists", "k", "none"),
    c("ttl", "k"),
    c("persist", "k"),
    c("expire", "none", 1),
    c("rename", "none", "x"),
    c("copy", "k", "k2"),
    c("move", "k2", 3),
    c("swapdb", 3, 4),
    Checked(call("keys"), ordered),
    Checked(call("scan", 0, count=100), lambda value: (value[0], sorted(value[1]))),
    c("scan", "x"),
    Checked(call("randomkey"), kind),
    c("object", "encoding", "k"),
    Checked(call("object", "idletime", "k"), kinds),
    Checked(call("memory_usage", "k"), kind),
    c("delete", "k", "a", "b", "none"),
    c("randomkey"),
    c("unlink", "n"),
    # CLIENT
    c("client_setname", "worker-1"),
    c("client_getname"),
    c("client_setname", "two words"),
    Checked(call("client_id"), kind),
    Checked(call("client_info"), some(*CLIENT, "name")),
    Checked(call("client_list"), some(*CLIENT, "name")),
    c("client_list", _type="replica"),
    c("client_list", _type="nosuch"),
    Checked(call("client_list", client_id=[999_999]), count),
    c("client_kill", "127.0.0.1:1"),
    c("client_kill_filter", _id=999_999),
    c("client_kill_filter", user="nobody"),
    c("client_kill_filter", skipme=True, _type="normal"),
    c("client_unblock", 999_999),
    c("client_unblock", 999_999, error=True),
    c("client_no_evict", "ON"),
    c("client_no_evict", "x"),
    c("client_pause", 1),
    c("client_unpause"),
    c("client_getredir"),
    c("client_trackinginfo"),
    c("client_reply", "ON"),
    # CONFIG
    c("config_get", "appendfsync"),
    Checked(call("config_get", "stream-node-max-*"), ordered),
    Checked(call("config_get", "maxmemory", "maxmemory-policy", "nosuch"), ordered),
    c("config_get", "nosuch"),
    c("config_set", "stream-node-max-entries", 50),
    c("config_set", "slowlog-max-len", 64, "slowlog-log-slower-than", 5000),
    Checked(call("config_get", "slowlog-*"), ordered),
    c("config_get", "stream-node-max-entries"),
    c("config_set", "stream-node-max-entries", 100),
    c("config_set", "nosuch", 1),
    c("config_set", "stream-node-max-entries", "x"),
    c("config_set", "appendfsync", "sometimes"),
    c("config_resetstat"),
    # INFO and figures
    Checked(call("info"), some_kinds(*INFO_SERVER, *INFO_CLIENTS, *INFO_STATS, *INFO_PERSISTENCE)),
    Checked(call("info", "server"), some_kinds(*INFO_SERVER)),
    Checked(call("info", "clients"), some(*INFO_CLIENTS[:2])),
    Checked(call("info", "keyspace")),
    Checked(call("info", "replication"), some("role", "connected_slaves")),
    c("info", "nosuch"),
    Checked(call("info", "commandstats"), some_kinds("cmdstat_info", "cmdstat_config|resetstat")),
    Checked(call("memory_stats"), kind),
    Checked(call("execute_command", "MEMORY DOCTOR"), kind),
    Checked(call("slowlog_get"), kind),
    Checked(call("slowlog_len"), kind),
    c("slowlog_reset"),
    c("latency_latest"),
    c("latency_history", "command"),
    c("latency_reset"),
    Checked(call("lastsave"), kind),
    Checked(call("role"), lambda value: [value[0], type(value[1]), value[2]]),
    c("wait", 0, 100),
    Checked(call("lolwut"), kind),
    c("pubsub_channels"),
    c("pubsub_numsub", "a", "b"),
    c("pubsub_numpat"),
    c("publish", "a", "nobody hears it"),
    c("spublish", "a", "nobody hears it"),
    # COMMAND
    Checked(call("command_count"), kind),
    Checked(call("execute_command", "COMMAND INFO", "xadd", "xreadgroup", "get"), described),
    Checked(call("command_list"), truth),
    Checked(call("command_list", module="nosuch"), whole),
    c("command_getkeys", "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", "t", ">", ">"),
    c("command_getkeys", "PING", "x"),
    # users
    c("acl_whoami"),
    Checked(call("acl_users"), whole),
    Checked(call("acl_cat"), lambda value: {"stream", "write", "read"} <= {str(each).strip("b'") for each in value}),
    c("acl_setuser", "ann", enabled=True, passwords=["+secret"], categories=["+@read"], keys=["*"]),
    Checked(call("acl_users"), ordered),
    c("acl_setuser", "ann", enabled=True, categories=["+@nosuch"]),
    Checked(call("acl_getuser", "nobody")),
    c("acl_dryrun", "ann", "get", "k"),
    c("acl_deluser", "ann"),
    c("acl_deluser", "ann"),
    Checked(call("acl_genpass"), lambda value: len(value)),
]  # fmt: skip


@every_mode
def test_everything_else(start: Start, plain_redis: redis.Redis, mode: Mode) -> None:
    failed = []
    port = plain_redis.connection_pool.connection_kwargs["port"]
    plain_redis.flushall()
    plain_redis.connection_pool.disconnect()
    with Face(mode, port=start().port) as ours, Face(mode, port=port) as theirs:
        for each in (ours, theirs):
            each.client.single_connection_client = True
        for row in ROWS:
            one = row.call
            found = row.look(ours.do(one.name, *one.args, **one.options))
            wanted = row.look(theirs.do(one.name, *one.args, **one.options))
            if typed(found) != typed(wanted):
                failed.append(f"{one}: {found!r} for {wanted!r}")
    assert not failed, "\n".join(failed)


@every_mode
def test_transactions(start: Start, oracle: tuple[RedisServer, Clocks], mode: Mode) -> None:
    def program(face: Face) -> list[Any]:
        adds = [call("xadd", "s", {"n": n}, id=f"{n}-1") for n in (1, 2, 2)]
        out = [
            face.pipeline(adds[:2], transaction=True),
            face.pipeline([adds[2], call("xlen", "s")], transaction=True),
            face.pipeline([adds[2], call("xlen", "s")], transaction=True, raising=True),
            face.pipeline([call("xlen", "s"), call("incr", "s")], transaction=False),
            face.pipeline([call("execute_command", "NOSUCH"), call("xlen", "s")], transaction=True),
            face.pipeline([call("xread", {"s": "$"}, block=0), call("xlen", "s")], transaction=True),
            face.pipeline([], transaction=True),
        ]  # fmt: skip
        for disturbed in (False, True):
            out.append(face.outcome(lambda: watching(face, disturbed)))
        return out

    def watching(face: Face, disturbed: bool) -> Any:
        pipe = face.client.pipeline()
        face.result(pipe.watch("s"))
        length = face.result(pipe.xlen("s"))
        if disturbed:
            face.result(face.client.xadd("s", {"n": 9}, id="9-1"))
        pipe.multi()
        pipe.xadd("s", {"length": length}, id="5-1")
        pipe.xlen("s")
        return pipe.execute()

    ours, theirs = faces(start, oracle, mode)
    with ours, theirs:
        assert typed(program(ours)) == typed(program(theirs))


@every_mode
def test_pub_sub(start: Start, oracle: tuple[RedisServer, Clocks], mode: Mode) -> None:
    def program(face: Face) -> list[Any]:
        pubsub = face.client.pubsub()
        run = face.result

        def get() -> Any:
            return run(pubsub.get_message(timeout=30))

        out = []
        run(pubsub.subscribe("news", "other"))
        run(pubsub.psubscribe("n*"))
        out += [get() for _ in range(3)]
        out.append(run(face.client.publish("news", "first")))
        out += [get() for _ in range(2)]
        out.append(run(face.client.publish("never", b"\xc3\xa4")))
        out.append(get())
        out += [run(face.client.pubsub_numsub("news", "none")), run(face.client.pubsub_numpat())]
        run(pubsub.ping("still there"))
        out.append(get())
        run(pubsub.unsubscribe("other"))
        out.append(get())
        run(pubsub.unsubscribe())
        run(pubsub.punsubscribe())
        out += [get() for _ in range(2)]
        run(pubsub.ssubscribe("shard"))
        out.append(run(pubsub.get_message(timeout=30)))
        run(face.client.spublish("shard", "within"))
        out.append(
            run(
                pubsub.get_sharded_message(timeout=30)
                if hasattr(pubsub, "get_sharded_message")
                else get()
            )
        )
        run(pubsub.aclose() if mode.asyncio else pubsub.close())
        return out

    ours, theirs = faces(start, oracle, mode)
    with ours, theirs:
        assert typed(program(ours)) == typed(program(theirs))


class Clients(NamedTuple):
    """Of one side: one that blocks and one that does something meanwhile."""

    waiting: Face
    other: Face


def blocked(
    clients: Clients, name: str, *args: Any, then: Callable[[Face], Any], **options: Any
) -> list[Any]:
    """The result of a blocking call, and of the call that another client made once the first was blocked."""
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.append(clients.waiting.do(name, *args, **options)), daemon=True
    )
    thread.start()
    until(
        lambda: (
            not thread.is_alive() or clients.other.do("info", "clients")["blocked_clients"] == 1
        ),
        "it does not block",
    )
    done = then(clients.other)
    thread.join(60)
    assert not thread.is_alive(), f"{name} still waits"
    return [found[0], done]


def unblock(face: Face, error: bool) -> Any:
    (id,) = [each["id"] for each in face.do("client_list") if "b" in each["flags"]]
    return face.do("client_unblock", id, error=error)


def blocking_program(clients: Clients) -> list[Any]:
    ids = iter(range(1, 100))

    def add(face: Face) -> Any:
        return face.do("xadd", "s", {"a": 1}, id=next(ids))

    def add_at_once(face: Face) -> Any:
        adds = [call("xadd", "s", {"a": n}, id=next(ids)) for n in range(3)]
        return face.pipeline(adds, transaction=True)

    def nothing(face: Face) -> Any:
        return None

    clients.other.do("xgroup_create", "s", "g", mkstream=True)
    clients.other.do("xgroup_create", "t", "g", mkstream=True)
    group = ("xreadgroup", "g", "c", {"s": ">"})
    return [
        blocked(clients, "xread", {"s": "$"}, block=0, then=add),
        blocked(clients, "xread", {"t": "$", "s": "$"}, block=10_000, count=2, then=add_at_once),
        blocked(clients, "xread", {"s": "$"}, block=30, then=nothing),
        blocked(clients, *group, block=0, then=nothing),
        blocked(clients, *group, block=0, then=add),
        blocked(clients, *group, block=30, then=nothing),
        blocked(clients, *group, block=0, noack=True, then=add_at_once),
        blocked(clients, "xread", {"none": "$"}, block=0, then=lambda face: unblock(face, False)),
        blocked(clients, *group, block=0, then=lambda face: unblock(face, True)),
        clients.other.do("xpending", "s", "g"),
    ]


@every_mode
def test_blocking_reads(start: Start, plain_redis: redis.Redis, mode: Mode) -> None:
    plain_redis.flushall()
    port = plain_redis.connection_pool.connection_kwargs["port"]
    values = []
    for each in (start(fsync="no").port, port):
        with Face(mode, port=each) as waiting, Face(mode, port=each) as other:
            values.append(typed(blocking_program(Clients(waiting, other))))
    assert values[0] == values[1]


@pytest.fixture(scope="module")
def plain_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    """A redis-server on the system's clock: its blocked clients time out."""
    with real_redis(tmp_path_factory.mktemp("redis")) as port:
        with redis.Redis(port=port, protocol=2) as client:
            yield client
