"""SLOWLOG beside a real redis-server 7.0: which commands it keeps, how they are cut, and what it hides."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.oracle.wire import Connection
from tests.server.conftest import Running, Start
from tests.server.dial import dial, hang_up  # noqa: F401  # a fixture
from tests.server.real_redis import as_of_8, real_redis

WORDS = [b"k%d" % number for number in range(40)]
# fmt: off
KEPT: list[list[bytes]] = [
    [b"PING"],
    [b"DEL", *WORDS], [b"DEL", *WORDS[:31]], [b"DEL", *WORDS[:32]],
    [b"SET", b"k", b"x" * 128], [b"SET", b"k", b"x" * 129], [b"SET", b"k", b"x" * 5000],
    [b"NoSuch"], [b"GET"], [b"XLEN", b"k"],
    [b"AUTH", b"secret"], [b"AUTH", b"user", b"secret"],
    [b"HELLO", b"2", b"AUTH", b"u", b"secret"], [b"HELLO", b"2", b"SETNAME", b"auth", b"AUTH", b"u", b"secret"],
    [b"ACL", b"SETUSER", b"bob", b"on", b">secret"], [b"ACL", b"DELUSER", b"bob"],
    [b"CONFIG", b"SET", b"requirepass", b""], [b"CONFIG", b"SET", b"maxclients", b"90", b"RequirePass", b""],
    [b"WAIT", b"0", b"1"],
    [b"CLIENT", b"SETNAME", b"me"], [b"ECHO", b"\x00\xff"],
]
REPLIES = [
    "SLOWLOG", "SLOWLOG GET -2", "SLOWLOG GET x", "SLOWLOG GET 1 2", "SLOWLOG get 1 2", "SLOWLOG LEN x", "SLOWLOG NO",
    "SLOWLOG RESET", "SLOWLOG RESET x", "SLOWLOG HELP", "SLOWLOG HELP x",
]
# fmt: on


@pytest.fixture(scope="module")
def seven() -> Iterator[Connection]:
    with real_redis() as (server, _):
        connection = server.connect()
        yield connection
        connection.close()


def kept(client: Connection) -> list[list[bytes]]:
    client.call(b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0")
    client.call(b"SLOWLOG", b"RESET")
    for words in KEPT:
        client.call(*words)
    entries = client.call(b"SLOWLOG", b"GET", b"-1")
    client.call(b"CONFIG", b"SET", b"slowlog-log-slower-than", b"-1")
    assert [entry[0] for entry in entries] == list(range(entries[0][0], entries[-1][0] - 1, -1))
    return [entry[3] for entry in entries]


def test_the_same_commands_are_kept(server: Running, seven: Connection) -> None:
    assert kept(dial(server.port)) == kept(seven)


@pytest.mark.parametrize("line", REPLIES)
def test_replies(server: Running, seven: Connection, line: str) -> None:
    words = line.encode().split()
    assert dial(server.port).call(*words) == as_of_8(seven.call(*words))


def test_an_entry(server: Running) -> None:
    with server.client(client_name="me") as client:
        client.config_set("slowlog-log-slower-than", 0)
        client.slowlog_reset()
        client.xtrim("s", maxlen=1)
        client.config_set("slowlog-log-slower-than", 1_000_000)
        assert client.slowlog_len() >= 2
        address = client.client_info()["addr"]
        found = next(e for e in client.slowlog_get() if e["command"].startswith(b"XTRIM"))
    assert found["command"].startswith(b"XTRIM s MAXLEN") and found["client_name"] == b"me"
    assert found["client_address"] == address.encode()
    assert 0 < found["duration"] < 10_000_000 and found["start_time"] > 1_700_000_000


def test_only_what_is_slow_is_kept(start: Start) -> None:
    running = start(slowlog_max_len=2)
    with running.client() as client:
        client.ping()
        assert client.slowlog_len() == 0
        client.config_set("slowlog-log-slower-than", 0)
        for _ in range(5):
            client.ping()
        assert client.slowlog_len() == 2
        client.config_set("slowlog-max-len", 1)
        assert client.slowlog_len() == 1


def test_of_a_transaction_its_commands_are_kept(start: Start) -> None:
    client = dial(start(slowlog_log_slower_than=0, enable_debug_command="yes").port)
    client.call(b"SLOWLOG", b"RESET")
    for words in (b"MULTI", b"SET k v", b"CLIENT ID", b"AUTH secret word", b"EXEC", b"PING"):
        client.call(*words.split())
    found = [entry[3] for entry in client.call(b"SLOWLOG", b"GET", b"6")]
    assert found == [
        [b"PING"],
        [b"AUTH", b"(redacted)", b"(redacted)"],
        [b"CLIENT", b"ID"],
        [b"SET", b"k", b"v"],
        [b"MULTI"],
        [b"SLOWLOG", b"RESET"],
    ]


def test_what_a_command_waits_for_is_not_slow(start: Start) -> None:
    client = dial(start(slowlog_log_slower_than=20_000, latency_monitor_threshold=20).port)
    assert client.call(b"WAIT", b"1", b"50") == 0
    assert client.call(b"WAITAOF", b"0", b"1", b"50") == [1, 0]
    assert client.call(b"SLOWLOG", b"LEN") == 0
    assert client.call(b"LATENCY", b"LATEST") == []
