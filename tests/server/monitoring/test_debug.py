"""DEBUG over sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests import inside
from tests.oracle.wire import Form, encode, error
from tests.server.checkpointed import folded
from tests.server.conftest import Running, Start
from tests.server.real_redis import Raw, real_redis
from tests.server.wire import Client, calls, connect
from tests.until import until

import tidelog
from tidelog.store.commit.core import Core

OK = ("+", b"OK")
NOT_ALLOWED = error(
    b'ERR DEBUG command not allowed. If the enable-debug-command option is set to "local", you can run it from a local '
    b"connection, otherwise you need to set this option in the configuration file, and then restart the server."
)
SOMETHING = (
    *("XADD a 1-1 f v", "XADD a 2-1 f v", "XADD a 3-1 f w", "XDEL a 2-1"),
    *("XGROUP CREATE a g 0", "XREADGROUP GROUP g c COUNT 1 STREAMS a >"),
    *(
        "XGROUP CREATECONSUMER a g idle",
        "SET s text",
        "SET e 1 PX 100000",
        "SELECT 3",
        "SET n 12",
        "SELECT 0",
    ),
)


@pytest.fixture
def running(start: Start) -> Running:
    return start(enable_debug_command="yes")


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    with closing(connect(running.port)) as client:
        yield client


def digest(client: Client) -> Form:
    return calls(client, "DEBUG DIGEST")[0]


# --- who may


def test_it_is_refused_unless_it_is_allowed(server: Running) -> None:
    with closing(connect(server.port)) as client:
        assert calls(client, "DEBUG SLEEP 0", "DEBUG HELP", "DEBUG nonsense") == [NOT_ALLOWED] * 3
        assert calls(client, "DEBUG")[0][1].startswith(b"ERR wrong number of arguments")
        assert calls(client, "CONFIG SET enable-debug-command yes")[0][0] == "-"
        assert calls(client, "DEBUG SLEEP 0") == [NOT_ALLOWED]


def test_local_connections(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    running = start(enable_debug_command="local")
    with closing(connect(running.port)) as client:
        assert calls(client, "DEBUG SLEEP 0") == [OK]
        (session,) = running.server.sessions.values()
        for addr in ("192.0.2.1:55", "127.0.0.10.example:1", "[2001:db8::1]:55"):
            monkeypatch.setattr(session.connection, "addr", addr)
            assert calls(client, "DEBUG SLEEP 0") == [NOT_ALLOWED]
        monkeypatch.setattr(session.connection, "addr", "[::1]:55")
        assert calls(client, "DEBUG SLEEP 0") == [OK]


# --- memory anew


def test_reload_and_loadaof_rebuild_memory_and_nothing_changes(
    running: Running, client: Client
) -> None:
    calls(client, *SOMETHING)
    before = digest(client)
    full = calls(client, "XINFO STREAM a FULL", "XPENDING a g - + 10", "PTTL e")
    core = inside.core(running.db)
    for command, folds in (
        ("LOADAOF", False),
        ("RELOAD NOSAVE", False),
        ("RELOAD", True),
        ("LOADAOF", True),
    ):
        state = core.state
        assert calls(client, f"DEBUG {command}") == [OK]
        assert core.state is not state
        assert (folded(running) > 0) is folds
        assert digest(client) == before
        again = calls(client, "XINFO STREAM a FULL", "XPENDING a g - + 10", "PTTL e")
        assert _without_times(again[0]) == _without_times(full[0])
        assert 0 < again[2] <= full[2]
        calls(client, "XADD b * x y", "DEL b")
        assert digest(client) == before


def _without_times(form: Form) -> Form:
    """Seen-times are not logged, and how much memory a node takes is not told."""
    if not isinstance(form, list):
        return form
    return [
        _without_times(each)
        for at, each in enumerate(form)
        if at == 0 or form[at - 1] != b"seen-time"
    ]


def test_what_is_only_in_memory_is_gone(running: Running, client: Client) -> None:
    calls(client, "SET s text")
    with inside.lock(running.db):
        inside.databases(running.db)[0].keys[b"s"] = b"never logged"
    assert calls(client, "GET s", "DEBUG LOADAOF", "GET s") == [b"never logged", OK, b"text"]


def test_watched_keys_count_as_touched_and_blocked_readers_stay(
    running: Running, client: Client
) -> None:
    with closing(connect(running.port)) as reader:
        calls(reader, "SET s 1", "WATCH s")
        assert calls(client, "DEBUG RELOAD") == [OK]
        assert calls(reader, "MULTI", "GET s", "EXEC")[-1] == ("*-1",)
        reader.begin(*b"XREAD BLOCK 0 STREAMS a $".split())
        until(lambda: running.server.blocked == 1)
        assert calls(client, "DEBUG RELOAD", "XADD a 1-1 x y") == [OK, b"1-1"]
        assert reader.receive() == [[b"a", [[b"1-1", [b"x", b"y"]]]]]


def test_others_wait_for_it_and_none_is_lost(running: Running, client: Client) -> None:
    with closing(connect(running.port)) as other:
        for number in range(1, 21):
            client.begin(b"DEBUG", b"RELOAD")
            other.send(
                [[b"XADD", b"a", b"%d-%d" % (number, each), b"x", b"y"] for each in range(1, 51)]
            )
            assert client.receive() == OK
            assert [other.receive() for _ in range(50)][-1] == b"%d-50" % number
    assert calls(client, "XLEN a", "DEBUG LOADAOF", "XLEN a") == [1000, OK, 1000]


def test_a_load_that_fails_is_told(
    running: Running, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(core: Core) -> None:
        raise tidelog.StorePoisoned("no")

    monkeypatch.setattr(Core, "mend", fails)
    reload, load = calls(client, "DEBUG RELOAD", "DEBUG LOADAOF")
    assert load == error(b"ERR Error trying to load the AOF files, check server logs.")
    assert reload[0] == "-"
    monkeypatch.undo()
    assert calls(client, "SET s 1", "GET s") == [OK, b"1"]


def test_options_of_reload(client: Client) -> None:
    unknown = error(b"ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.")
    assert calls(client, "DEBUG RELOAD foo", "DEBUG RELOAD NOSAVE foo") == [unknown] * 2
    for reply in calls(client, "DEBUG RELOAD NOFLUSH", "DEBUG RELOAD NOSAVE NOFLUSH MERGE"):
        assert reply[1].startswith(b"ERR DEBUG RELOAD with NOFLUSH or MERGE is not supported")


# --- digests


def test_a_digest_is_of_the_state_and_not_of_its_history(client: Client) -> None:
    empty = digest(client)
    assert empty == ("+", b"0" * 40)
    calls(client, "SET a 1", "SET b 2")
    one = digest(client)
    calls(client, "FLUSHALL", "SET b 3", "SET a 1", "SET b 2")
    assert digest(client) == one != empty
    assert len(one[1]) == 40 and int(one[1], 16)
    calls(client, "SELECT 1", "SET a 1")
    assert digest(client) != one
    calls(client, "FLUSHALL")
    assert digest(client) == empty


def test_the_digest_of_a_value(client: Client) -> None:
    calls(client, *SOMETHING, "COPY a copy", "SET t text")
    (found,) = calls(client, "DEBUG DIGEST-VALUE a copy s t e nothing")
    a, copy, s, t, e, nothing = (line for _, line in found)
    assert a == copy and s == t and len({a, s, e, nothing}) == 4
    assert nothing == b"0" * 40 and all(len(each) == 40 for each in found[0][1:])
    calls(client, "XACK a g 1-1")
    (again,) = calls(client, "DEBUG DIGEST-VALUE a copy")
    assert again[0] != found[0] and again[1] == found[1]
    assert calls(client, "DEBUG DIGEST-VALUE") == [[]]
    calls(client, "DEBUG RELOAD")
    assert calls(client, "DEBUG DIGEST-VALUE a copy") == [again]


# --- the rest


def test_sleep_stops_the_server(running: Running, client: Client) -> None:
    with closing(connect(running.port)) as other:
        calls(other, "PING")
        began = time.monotonic()
        session = running.server.sessions[calls(client, "CLIENT ID")[0]]
        client.begin(b"DEBUG", b"SLEEP", b"0.15")
        until(lambda: session.last_command.startswith(b"debug"))
        assert calls(other, "PING") == [("+", b"PONG")]
        assert time.monotonic() - began >= 0.15
        assert client.receive() == OK
    assert calls(client, "DEBUG SLEEP -1", "DEBUG SLEEP x", "DEBUG SLEEP 0.001s") == [OK] * 3
    assert calls(client, "DEBUG SLEEP 1e300", "DEBUG SLEEP 1e400")[0][0] == "-"


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_aof_flush_sleep_delays_what_is_written(start: Start, fsync: str) -> None:
    running = start(enable_debug_command="yes", fsync=fsync)
    with closing(connect(running.port)) as client:
        assert calls(client, "DEBUG AOF-FLUSH-SLEEP 600000") == [OK]
        for command, late in (("XADD a * x y", True), ("XLEN a", False)):
            assert (_quickest(client, command) >= 0.6) is late
        assert calls(client, "DEBUG AOF-FLUSH-SLEEP 0") == [OK]
        assert _quickest(client, "XADD a * x y") < 0.6


def _quickest(client: Client, command: str) -> float:
    """Seconds that a command takes: of three tries, since a busy machine makes any of them slow."""
    times = []
    for _ in range(3):
        began = time.monotonic()
        calls(client, command)
        times.append(time.monotonic() - began)
    return min(times)


def test_active_expiry_cannot_be_switched_off(client: Client) -> None:
    off, on = calls(client, "DEBUG SET-ACTIVE-EXPIRE 0", "DEBUG SET-ACTIVE-EXPIRE 1")
    assert off[1].startswith(b"ERR DEBUG SET-ACTIVE-EXPIRE 0 is not supported") and on == OK


def test_object(client: Client) -> None:
    calls(client, *SOMETHING)
    a, s, n, nothing = calls(
        client, "DEBUG OBJECT a", "DEBUG OBJECT s", "DEBUG OBJECT e", "DEBUG OBJECT nothing"
    )
    assert nothing == error(b"ERR no such key")
    for (kind, line), encoding in zip((a, s, n), (b"stream", b"embstr", b"int"), strict=True):
        assert kind == "+" and line.startswith(b"Value at:0x")
        facts = dict(word.split(b":") for word in line.split()[1:])
        assert facts[b"encoding"] == encoding
        assert facts[b"refcount"] == b"1" and int(facts[b"serializedlength"]) > 0
        assert facts[b"lru_seconds_idle"] == b"0"
    assert b"serializedlength:4 " in s[1]


def test_help_names_what_there_is(client: Client) -> None:
    (lines,) = calls(client, "DEBUG HELP")
    assert all(kind == "+" for kind, _ in lines)
    text = b"\n".join(line for _, line in lines)
    for name in b"SLEEP RELOAD LOADAOF DIGEST DIGEST-VALUE OBJECT AOF-FLUSH-SLEEP".split():
        assert name in text


def test_debug_in_a_transaction(client: Client) -> None:
    words = ("MULTI", "SET s 1", "DEBUG SLEEP 0", "DEBUG LOADAOF", "GET s", "EXEC")
    assert calls(client, *words)[-1] == [OK, OK, OK, b"1"]


SAME = (
    *(
        "nonsense",
        "jmap",
        "jmap x",
        "sleep",
        "sleep 0 1",
        "sleep 0",
        "sleep x",
        "digest x",
        "digest",
    ),
    *("digest-value", "digest-value nokey", "reload foo", "reload", "reload nosave"),
    *("set-active-expire", "set-active-expire 1", "object", "object nokey", "object a b", "help x"),
    *("aof-flush-sleep", "aof-flush-sleep 0", "aof-flush-sleep x", "aof-flush-sleep 0 1"),
)


def test_errors_and_replies_are_those_of_redis(client: Client) -> None:
    with real_redis() as (oracle, _), Raw(oracle) as theirs:
        theirs.ask(encode([b"FLUSHALL"]))
        for text in SAME:
            data = encode([b"DEBUG", *text.encode().split()])
            expected = theirs.ask(data)
            client.raw(data)
            assert _render(client.receive()) == expected, text


def _render(form: Form) -> bytes:
    if isinstance(form, list):
        return b"*%d\r\n" % len(form) + b"".join(map(_render, form))
    kind, line = form
    return b"%b%b\r\n" % (kind.encode(), line)
