"""Series: the numbers of a client's writes are out of reach for every other client, and outlive what empties a
store.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from tests.oracle.wire import Form, encode, is_error
from tests.server.conftest import Running, Start
from tests.server.dial import dial, hang_up  # noqa: F401  # a fixture
from tests.server.wire import calls

import tidelog
from tidelog.server.handlers import COMMANDS
from tidelog.server.wire.requests import Limits, Requests

ROOT = b"tidelog:once:"
RELEASE = (  # the script of redis-py's Lock that deletes a key
    redis.lock.Lock.LUA_RELEASE_SCRIPT
)


class Site(NamedTuple):
    """A server, the client of its default user, and that of `u`, who may use the keys `a*`."""

    running: Running
    all: Any
    u: Any

    @property
    def series(self) -> dict[bytes, Any]:
        """The series of the store, by what follows ROOT."""
        db: Any = self.running.db
        return {key[len(ROOT) :]: db.get(key) for key in db.keys(ROOT + b"*")}

    def once(self, who: Any, series: str | bytes, number: int, *words: Any) -> Any:
        return who.execute_command("TIDELOG", "ONCE", series, number, *words)


@pytest.fixture
def site(server: Running) -> Site:
    some: Any = server.client()
    rules = ("on", ">pw", "resetchannels", "~a*", "+@all", "-@admin", "-@dangerous")
    some.execute_command("ACL", "SETUSER", "u", *rules)
    return Site(server, some, server.client(username="u", password="pw"))


def test_a_series_belongs_to_the_user_who_opened_it(site: Site) -> None:
    first = site.once(site.all, "x", 1, "XADD", "orders", "*", "n", "1")
    assert site.once(site.u, "x", 1, "INCR", "a") == 1  # no reply of the other's write
    assert site.once(site.u, "x", 2, "INCR", "a") == 2
    second = site.once(site.all, "x", 2, "XADD", "orders", "*", "n", "2")
    assert [id for id, _ in site.all.xrange("orders")] == [first, second]
    assert site.once(site.u, "x", 2, "INCR", "a") == 2
    assert set(site.series) == {b"x", b"u\0x"}


def test_queue_commands_keep_their_series_apart(site: Site) -> None:
    for name, who in (("b", site.all), ("a", site.u)):
        put = ("QUEUE", "PUT", name, "v", "ONCE", "x", 1)
        id = who.execute_command(*put)
        assert who.execute_command(*put) == id
        many = ("QUEUE", "PUTMANY", name, 2, "v", "w", "DELAY", 5000, "ONCE", "x", 2)
        assert who.execute_command(*many) == who.execute_command(*many) == 2
        assert site.running.db.queue(name).stats().scheduled == 2
    assert set(site.series) == {b"x", b"u\0x"}


def test_no_series_is_named_like_that_of_another_user(site: Site) -> None:
    for series in (b"u\0x", b"", b"x" * 65):
        with pytest.raises(redis.ResponseError, match="1 to 64 bytes, and no NUL"):
            site.once(site.all, series, 1, "INCR", "a")


def test_a_series_of_an_earlier_version_is_taken_over(site: Site) -> None:
    site.running.db.set(ROOT + b"x", b"7 :3\r\n", px=60_000)
    assert site.once(site.all, "x", 7, "INCR", "n") == 3
    assert site.once(site.all, "x", 8, "INCR", "n") == 1


# --- no command names one


def refuses(reply: Form) -> bool:
    """Whether a reply says that no client may use the key."""
    return is_error(reply) and b"NOPERM no client may use the key 'tidelog:once" in reply[1]


def _forms(name: bytes, key: bytes) -> Iterator[list[bytes]]:
    """A command with the key in every place, in some lengths."""
    words = name.split(b"|")
    arity = abs(COMMANDS.table.commands[name].arity)
    for extra in range(4):
        yield words + [key] * (arity - len(words) + extra)
    if name in (b"xread", b"xreadgroup"):
        group = [b"GROUP", b"g", b"c"] if name == b"xreadgroup" else []
        yield [*words, *group, b"COUNT", b"1", b"STREAMS", b"a", key, b"0", b"0"]
    if name in (b"eval", b"evalsha"):
        yield [*words, RELEASE.encode(), b"1", key, b"token"]
    if name == b"queue|doneand":
        yield [*words, b"a", b"w", b"1-1", b"1", b"1", b"2", key, b"v"]
    if name == b"queue|schedule":
        yield [*words, b"ADD", b"s", key, b"v", b"EVERY", b"1000"]
    if name == b"debug":
        yield [*words, b"OBJECT", key]
        yield [*words, b"DIGEST-VALUE", b"a", key]
    if name == b"tidelog|once":
        yield [*words, b"other", b"1", b"SET", key, b"v"]
        yield [*words, b"other", b"1", b"RENAME", b"a", key]


# They end the session or the server, pause it, have several replies, or change what later commands may do.
_LEFT_OUT = frozenset(
    b"quit reset shutdown monitor sync psync replconf tidelog|follow failover replicaof slaveof client|kill "
    b"client|pause client|reply subscribe psubscribe ssubscribe multi exec acl|deluser acl|setuser config|set save "
    b"unsubscribe punsubscribe sunsubscribe auth hello tidelog|verify tidelog|snapshot bgsave bgrewriteaof".split()
)


def test_no_command_reaches_a_series(start: Start) -> None:
    """Every command, with its name wherever a key can stand."""
    running = start(enable_debug_command="yes")
    some: Any = running.client()
    some.execute_command("TIDELOG", "ONCE", "x", 1, "SET", "kept", "v")
    some.set("a", "token")
    running.db.set(ROOT + b"x", b"1 $6\r\nsecret\r\n", px=60_000)
    before = running.db.get(ROOT + b"x")
    client = dial(running.port)
    refused = set()
    for name in sorted(COMMANDS.table.commands.keys() - _LEFT_OUT):
        for words in _forms(name, ROOT + b"x"):
            reply = client.call(*words)
            assert "secret" not in repr(reply), words
            if refuses(reply):
                refused.add(name)
    assert running.db.get(ROOT + b"x") == before
    assert running.db.keys(ROOT + b"*") == [ROOT + b"x"]
    keyed = {name for name, found in COMMANDS.table.commands.items() if found.first_key}
    keyed -= {name for name in keyed if "pubsub" in COMMANDS.table.commands[name].flags}
    also = b"xread xreadgroup eval evalsha debug queue|schedule tidelog|once".split()
    assert refused == (keyed | set(also)) - _LEFT_OUT


def test_the_name_is_found_however_it_comes(site: Site) -> None:
    whole = encode([b"GET", ROOT + b"x"])
    for at in range(1, len(whole)):
        parser = Requests(Limits())
        assert [*parser.feed(whole[:at]), *parser.feed(whole[at:])] == [[b"GET", ROOT + b"x"]]
        assert parser.marked, at
    parser = Requests(Limits())
    for at in range(len(whole)):
        parser.feed(whole[at : at + 1])
    assert parser.marked
    client = dial(site.running.port)
    client.raw(b'GET "\\x74idelog:once:x"\r\nGET tidelog:once:x\r\n' + whole * 3)
    assert all(refuses(client.receive()) for _ in range(5))


def test_many_clients_that_write_at_once_reach_none(site: Site) -> None:
    """Plain XADDs of many clients take a path of their own."""
    clients = [dial(site.running.port) for _ in range(12)]
    for number, client in enumerate(clients):
        key = ROOT + b"x" if number % 2 else b"s"
        client.raw(encode([b"XADD", key, b"*", b"f", b"v"]))
    assert [refuses(client.receive()) for client in clients] == [False, True] * 6
    assert site.series == {}


def test_a_transaction_that_names_one_is_discarded(site: Site) -> None:
    client = dial(site.running.port)
    told = calls(client, "MULTI", "SET k v", "GET tidelog:once:x", "EXEC")
    assert [form[0] for form in told] == ["+", "+", "-", "-"]
    assert not site.all.exists("k")


def test_a_queue_whose_other_keys_would_be_series_is_refused(site: Site) -> None:
    for words in (("PUT", "tidelog:once", "v"), ("DEAD", "tidelog:once", "COUNT")):
        with pytest.raises(redis.exceptions.NoPermissionError, match="no client may use"):
            site.all.execute_command("QUEUE", *words)


def test_lists_and_events_leave_them_out(site: Site) -> None:
    site.all.config_set("notify-keyspace-events", "KEA")
    listener = site.all.pubsub(ignore_subscribe_messages=True)
    listener.psubscribe("*")
    assert listener.get_message(timeout=10) is None  # the confirmation
    site.once(site.all, "x", 1, "SET", "a", "v")
    told = {listener.get_message(timeout=10)["channel"] for _ in range(2)}
    assert told == {b"__keyspace@0__:a", b"__keyevent@0__:set"}
    site.all.publish("end", "")
    assert listener.get_message(timeout=10)["channel"] == b"end"
    listener.close()
    pipe = site.all.pipeline()  # EXEC
    for ask in (site.all, pipe):
        for words in (("KEYS", "*"), ("SCAN", 0), ("RANDOMKEY",)):
            ask.execute_command(*words)
    assert pipe.execute() == [[b"a"], (0, [b"a"]), b"a"]
    assert site.all.keys("*") == [b"a"] and list(site.all.scan_iter()) == [b"a"]
    site.all.delete("a")
    assert site.all.keys("*") == [] and site.all.randomkey() is None
    assert set(site.series) == {b"x"}


# --- what empties a database


@pytest.mark.parametrize("words", [("FLUSHALL",), ("FLUSHDB",), ("SWAPDB", 0, 1)])
def test_a_series_outlives_what_empties_its_database(
    start: Start, tmp_path: Path, words: tuple[Any, ...]
) -> None:
    """Also if it is only in the checkpoint, after a restart, and through the log behind it."""
    running = start(root=tmp_path / "s")
    some: Any = running.client()
    put = ("QUEUE", "PUT", "q", "v", "ONCE", "x", 1)
    id = some.execute_command(*put)
    some.execute_command("SELECT", 1)
    other = some.execute_command("TIDELOG", "ONCE", "y", 1, "INCR", "n")
    some.execute_command("SELECT", 0)
    running.db.checkpoint()
    running.serving.close()
    running.db.close()
    running = start(root=tmp_path / "s")
    some = running.client()
    some.execute_command(*words)
    series = _series(running.db)
    assert [set(each) for each in series] == [{ROOT + b"x"}, {ROOT + b"y"}]
    assert all(0 < ttl <= 3_600_000 for each in series for ttl in each.values())
    assert some.execute_command(*put) == id
    some.execute_command("SELECT", 1)
    assert some.execute_command("TIDELOG", "ONCE", "y", 1, "INCR", "n") == other
    digest = running.db.digest()
    running.serving.close()
    running.db.close()
    with tidelog.open(tmp_path / "s") as again:
        assert again.digest() == digest
        assert again.xlen("q") == 0


def _series(db: tidelog.Store) -> list[dict[bytes, int]]:
    """The series of the first two databases, with the time that each has left."""
    found = []
    for number in (0, 1):
        one: Any = db.db(number)
        found.append({key: one.pttl(key) for key in one.keys(ROOT + b"*")})
    return found


def test_a_follower_has_the_series_that_its_leader_kept(start: Start) -> None:
    leader, follower = start(), start()
    some: Any = leader.client()
    some.execute_command("TIDELOG", "ONCE", "x", 1, "SET", "a", "v")
    other: Any = follower.client()
    other.execute_command("REPLICAOF", "127.0.0.1", leader.port)
    some.flushall()
    assert some.execute_command("WAIT", 1, 10_000) == 1
    assert follower.db.keys("*") == [ROOT + b"x"]
    assert follower.db.digest() == leader.db.digest()


def test_a_user_of_few_keys_can_ask_for_a_level(site: Site) -> None:
    url = f"redis://u:pw@127.0.0.1:{site.running.port}"
    with tidelog.connect(url) as store:
        assert store.at("fsynced").incr("a") == 1
    assert site.running.db.get("a") == b"1"
