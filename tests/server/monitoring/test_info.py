"""INFO, MEMORY, LATENCY and LOLWUT: the fields of redis-server 7.0, with values that are true here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.oracle.wire import Connection, encode
from tests.server.conftest import Running, Start
from tests.server.dial import dial, hang_up  # noqa: F401  # a fixture
from tests.server.real_redis import as_of_8, real_redis
from tests.until import until

import tidelog
from tidelog.server.monitoring.memory import human

# Fields of Redis 7.0 that are not here: what they count does not exist, or is not counted.
LEFT_OUT = {
    "Server": {"atomicvar_api"},
    "Memory": {
        "used_memory_lua_human", "used_memory_vm_total", "used_memory_vm_total_human", "used_memory_scripts_human",
    },
    "Persistence": {"rdb_saves", "aof_rewrites", "aof_rewrites_consecutive_failures"},
    "Stats": {
        "expired_stale_perc", "expired_time_cap_reached_count", "expire_cycle_cpu_milliseconds",
        "keyspace_hits", "keyspace_misses", "total_active_defrag_time", "current_active_defrag_time",
        "total_reads_processed", "total_writes_processed", "io_threaded_reads_processed",
        "io_threaded_writes_processed", "reply_buffer_shrinks", "reply_buffer_expands",
    },
}  # fmt: skip
REPLIES = """
INFO nosuch
INFO cluster modules
INFO CLUSTER cluster
INFO modules
LATENCY
LATENCY NOSUCH
LATENCY HISTORY
LATENCY HISTORY foo
LATENCY LATEST
LATENCY LATEST x
LATENCY RESET
LATENCY RESET foo bar
LATENCY HISTOGRAM nosuch
LATENCY HISTOGRAM config
MEMORY DOCTOR x
MEMORY PURGE
MEMORY PURGE x
MEMORY STATS x
MEMORY MALLOC-STATS x
MEMORY HELP
MEMORY NOSUCH
LOLWUT VERSION abc
""".strip().splitlines()


@pytest.fixture(scope="module")
def seven() -> Iterator[Connection]:
    with real_redis() as (server, _):
        connection = server.connect()
        yield connection
        connection.close()


def sections(client: Connection, *words: bytes) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    text = client.call(b"INFO", *words).decode()
    for block in text.split("\r\n\r\n"):
        head, *lines = block.removesuffix("\r\n").split("\r\n")
        assert head.startswith("# ")
        found[head[2:]] = dict(line.split(":", 1) for line in lines)
    return found


def fields(client: Connection, *words: bytes) -> dict[str, str]:
    return {k: v for section in sections(client, *words).values() for k, v in section.items()}


@pytest.mark.parametrize("line", REPLIES)
def test_replies(server: Running, seven: Connection, line: str) -> None:
    words = line.encode().split()
    assert dial(server.port).call(*words) == as_of_8(seven.call(*words))


def test_every_field_of_redis_is_there(server: Running, seven: Connection) -> None:
    client = dial(server.port)
    for words in ([], [b"all"], [b"everything"], [b"default", b"commandstats"]):
        ours, theirs = sections(client, *words), sections(seven, *words)
        assert [name for name in ours if name != "Tidelog"] == list(theirs)
        for name, there in theirs.items():
            if name in ("Commandstats", "Errorstats", "Latencystats", "Keyspace"):
                continue
            assert set(there) - set(ours[name]) == LEFT_OUT.get(name, set())
            both = [field for field in ours[name] if field in there]
            assert both == [field for field in there if field in ours[name]], "another order"


def test_the_server(server: Running) -> None:
    found = fields(dial(server.port), b"server")
    assert found["redis_version"] == "8.8.0" and found["redis_mode"] == "standalone"
    assert found["process_id"] == str(os.getpid()) and found["tcp_port"] == str(server.port)
    assert len(found["run_id"]) == 40 and 0 <= int(found["uptime_in_seconds"]) < 60
    assert found["listener0"] == f"name=tcp,bind=127.0.0.1,port={server.port}"


def test_clients(server: Running) -> None:
    client, reader, grouped, watching, listening = (dial(server.port) for _ in range(5))
    client.call(b"XGROUP", b"CREATE", b"g1", b"g", b"$", b"MKSTREAM")
    reader.begin(b"XREAD", b"BLOCK", b"60000", b"STREAMS", b"a", b"b", b"$", b"$")
    grouped.begin(b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"0", b"STREAMS", b"g1", b">")
    watching.call(b"WATCH", b"x", b"y")
    listening.call(b"SUBSCRIBE", b"c")
    until(lambda: fields(client, b"clients")["blocked_clients"] == "2")
    found = fields(client, b"clients")
    said = {
        "connected_clients": "5", "pubsub_clients": "1", "watching_clients": "1", "total_watched_keys": "2",
        "clients_in_timeout_table": "1", "total_blocking_keys": "3", "total_blocking_keys_on_nokey": "1",
        "maxclients": str(server.server.clients_max),
    }  # fmt: skip
    assert {name: found[name] for name in said} == said
    assert fields(client, b"stats")["pubsub_channels"] == "1"


def test_memory(server: Running) -> None:
    client = dial(server.port)
    found = fields(client, b"memory")
    used, resident, peak = (int(found[f"used_memory{name}"]) for name in ("", "_rss", "_peak"))
    assert 5 << 20 < used <= resident <= peak < 2 << 30
    assert found["used_memory_human"] == human(used)
    assert int(found["total_system_memory"]) > resident
    client.call(b"SET", b"big", b"x" * (64 << 20))
    after = fields(client, b"memory")
    assert int(after["used_memory"]) > used + (50 << 20)
    assert int(after["used_memory_dataset"]) > int(found["used_memory_dataset"]) + (50 << 20)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.00K"),
        (1536, "1.50K"),
        (1 << 20, "1.00M"),
        (5 << 40, "5.00T"),
    ],
)
def test_sizes_for_people(nbytes: int, text: str) -> None:
    assert human(nbytes) == text


def test_persistence(server: Running) -> None:
    client = dial(server.port)
    for number in range(3):
        client.call(b"XADD", b"s", b"%d-1" % (number + 1), b"a", b"1")
    found = fields(client, b"persistence")
    assert found["loading"] == "0" and found["aof_enabled"] == "1"
    assert int(found["rdb_changes_since_last_save"]) >= 3
    assert int(found["aof_current_size"]) > 0
    before = int(found["rdb_last_save_time"])
    assert client.call(b"SAVE") == ("+", b"OK")
    found = fields(client, b"persistence")
    assert found["rdb_changes_since_last_save"] == found["aof_current_size"] == "0"
    assert int(found["rdb_last_save_time"]) >= before
    assert found["rdb_last_bgsave_status"] == found["aof_last_write_status"] == "ok"


def test_stats(server: Running) -> None:
    client = dial(server.port)
    before = fields(client, b"stats")
    for _ in range(10):
        client.call(b"XLEN", b"s")
    client.call(b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", b"s", b">")
    client.call(b"XLEN")
    client.call(b"NOSUCH")
    found = fields(client, b"all")

    def grown(name: str) -> int:
        return int(found[name]) - int(before[name])

    assert grown("total_commands_processed") == 12  # INFO itself is counted when it is through
    assert grown("total_error_replies") == 3
    assert grown("total_net_input_bytes") > 300 and grown("total_net_output_bytes") > 40
    assert found["errorstat_NOGROUP"] == "count=1" and found["errorstat_ERR"] == "count=2"
    assert found["cmdstat_xlen"].startswith("calls=10,usec=")
    assert found["cmdstat_xlen"].endswith(",failed_calls=0")
    assert found["cmdstat_xreadgroup"].endswith(",rejected_calls=0,failed_calls=1")
    p50, p99, p999 = (
        float(part.split("=")[1]) for part in found["latency_percentiles_usec_xlen"].split(",")
    )
    assert 0 < p50 <= p99 <= p999
    assert client.call(b"CONFIG", b"RESETSTAT") == ("+", b"OK")
    found = fields(client, b"all")
    assert "cmdstat_xlen" not in found and found["total_error_replies"] == "0"


def test_rates(server: Running) -> None:
    client = dial(server.port)

    def busy() -> bool:
        client.pipeline([[b"PING"]] * 100)
        found = fields(client, b"stats")
        operations = int(found["instantaneous_ops_per_sec"])
        return operations > 100 and float(found["instantaneous_input_kbps"]) > 1

    until(busy)


def test_keyspace_and_the_rest(server: Running) -> None:
    client = dial(server.port)
    assert sections(client, b"keyspace")["Keyspace"] == {}
    client.call(b"SET", b"gone", b"1", b"PX", b"1")
    until(lambda: fields(client, b"stats")["expired_keys"] == "1")
    client.call(b"SET", b"a", b"1", b"EX", b"100")
    client.call(b"XADD", b"s", b"*", b"a", b"1")
    client.call(b"SELECT", b"9")
    client.call(b"SET", b"a", b"1")
    found = sections(client)
    assert found["Keyspace"] == {
        "db0": "keys=2,expires=1,avg_ttl=0",
        "db9": "keys=1,expires=0,avg_ttl=0",
    }
    assert (
        found["Replication"]["role"] == "master" and found["Replication"]["connected_slaves"] == "0"
    )
    assert float(found["CPU"]["used_cpu_user"]) > 0
    assert found["Cluster"] == {"cluster_enabled": "0"}


def test_our_own_section(start: Start) -> None:
    running = start(fsync="always")
    client = dial(running.port)
    client.call(b"XADD", b"s", b"*", b"a", b"1")
    found = fields(client, b"tidelog")
    assert found["tidelog_version"] == tidelog.__version__ and found["fsync"] == "always"
    assert found["path"] == str(running.root)
    assert int(found["next_lsn"]) - 1 == int(found["written_lsn"]) == int(found["synced_lsn"])
    assert found["unsynced_bytes"] == "0" and found["failure"] == ""
    info: dict[str, Any] = running.db.info()
    for name in (
        "checkpoint_lsn",
        "bytes_since_checkpoint",
        "changes_since_checkpoint",
        "incarnation",
        "epoch",
    ):
        assert found[name] == str(info[name]), name


def test_verbatim_and_redis_py(server: Running) -> None:
    client = dial(server.port)
    asks = ([b"HELLO", b"3"], [b"PING"], [b"INFO", b"cluster"], [b"LOLWUT"], [b"QUIT"])
    client.raw(b"".join(map(encode, asks)))
    assert client.rest().partition(b"+PONG\r\n")[2] == (
        b"=34\r\ntxt:# Cluster\r\ncluster_enabled:0\r\n\r\n=21\r\ntxt:Redis ver. 8.8.0\n\r\n+OK\r\n"
    )
    for protocol in (2, 3):
        with server.client(protocol=protocol) as each:
            found = each.info()
            assert found["redis_version"] == "8.8.0" and found["connected_clients"] >= 1
            assert each.memory_stats()["keys.count"] == 0
            assert each.memory_purge()
            assert b"Stats not supported" in bytes(each.memory_malloc_stats())
            assert each.lolwut() in (b"Redis ver. 8.8.0\n", "Redis ver. 8.8.0\n")


def test_memory_stats_and_doctor(server: Running, seven: Connection) -> None:
    client = dial(server.port)
    ours, theirs = (each.call(b"MEMORY", b"STATS") for each in (client, seven))
    assert ours[::2] == theirs[::2]
    assert client.call(b"MEMORY", b"DOCTOR") == seven.call(b"MEMORY", b"DOCTOR")
    client.call(b"SET", b"big", b"x" * (32 << 20))
    assert client.call(b"MEMORY", b"DOCTOR") != seven.call(b"MEMORY", b"DOCTOR")


def test_latency(server: Running) -> None:
    client = dial(server.port)
    client.pipeline([[b"XLEN", b"s"]] * 50)
    client.call(b"CLIENT", b"ID")
    reply = client.call(b"LATENCY", b"HISTOGRAM", b"XLEN", b"client")
    assert reply[::2] == [b"xlen", b"client|id"]
    (_, calls, _, histogram) = reply[1]
    assert calls == 50 == histogram[-1] and histogram[1::2] == sorted(histogram[1::2])
    assert b"xlen" in client.call(b"LATENCY", b"HISTOGRAM")
    client.call(b"CONFIG", b"SET", b"latency-monitor-threshold", b"1")
    for batch in range(40):
        client.pipeline([[b"SET", b"%d" % (batch * 500 + n), b"x"] for n in range(500)])
    client.call(b"KEYS", b"nosuch*")
    events = {row[0]: row[1:] for row in client.call(b"LATENCY", b"LATEST")}
    at, latest, worst = events[b"command"]
    assert abs(at - time.time()) < 60 and 1 <= latest <= worst
    assert client.call(b"LATENCY", b"HISTORY", b"command")[-1] == [at, latest]
    client.call(b"CONFIG", b"SET", b"latency-monitor-threshold", b"0")
    assert client.call(b"LATENCY", b"RESET", b"command", b"nothing") == 1
    client.call(b"LATENCY", b"RESET")
    assert client.call(b"LATENCY", b"LATEST") == []
