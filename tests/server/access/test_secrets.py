"""A user of one pattern learns nothing of other keys: every command, list, metric and page, with secrets all around."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from tests.server.conftest import Start
from tests.server.console.browsing import PASSWORD, Site, failing
from tests.server.dial import dial, hang_up  # noqa: F401  # a fixture
from tests.server.wire import Client

from tidelog.server.handlers import COMMANDS

SECRET = "s3cr3t"
# The second is a name that can be guessed, with a secret behind it.
NAMES = ("secret-of-a:s3cr3t", "other:plain")
# The user may call all but what administers the server: an administrator can take every right.
RULES = ("on", f">{PASSWORD}", "resetchannels", "&a*", "~a*", "+@all", "-@admin")
# They end the session, leave replies out or have several, or take away what the others are to find.
_LEFT_OUT = frozenset(
    b"quit reset client|reply subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe multi exec auth "
    b"hello select swapdb flushall flushdb".split()
)


def plant(site: Site) -> Client:
    """Secrets in every place that holds something of a user: the client that goes on holding some."""
    db: Any = site.db
    some: Any = site.running.client()
    some.config_set("slowlog-log-slower-than", 0)
    some.config_set("notify-keyspace-events", "KEA")
    some.client_setname(SECRET)
    for number in (0, 1):
        one = db.db(number)
        for name in NAMES:
            one.set(f"{name}:string", SECRET)
            one.xadd(f"{name}:stream", {SECRET: SECRET})
            one.xgroup_create(f"{name}:stream", SECRET, id="0")
            one.xreadgroup(SECRET, SECRET, {f"{name}:stream": ">"}, count=1)
            queue = one.queue(f"{name}:queue")
            queue.put(SECRET, headers={SECRET: SECRET}, key=SECRET, delay=60)
            one.schedule(f"{name}:schedule", every=3600, queue=f"{name}:queue", value=SECRET)
            failing(one, 2, f"{name}:failing")
        one.queue("apples").put("mine")
        one.set("a", "mine")
    some.execute_command("TIDELOG", "ONCE", "x", 1, "SET", NAMES[1], SECRET, "GET")
    again = ("SET", NAMES[1], SECRET, "GET")  # its reply, which the series keeps, is the secret
    some.execute_command("TIDELOG", "ONCE", "x", 2, *again)
    site.user("on", f">{SECRET}", f"~{SECRET}*", "+@all", name=SECRET)
    client = dial(site.running.port)
    client.call(b"CLIENT", b"SETNAME", SECRET.encode())
    for word in (b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE"):
        client.call(word, b"channel-" + SECRET.encode())
    return client


@pytest.fixture
def site(start: Start) -> Site:
    found = Site(start, metrics_user="anna", enable_debug_command="yes")
    plant(found)
    found.user(*RULES)
    return found


@pytest.fixture
def anna(site: Site) -> Client:
    client = dial(site.running.port)
    assert client.call(b"AUTH", b"anna", PASSWORD.encode()) == ("+", b"OK")
    return client


def forms(name: bytes) -> Iterator[list[bytes]]:
    """A command, with words that it may take in every place: her own key, the others' keys, and patterns."""
    words = name.split(b"|")
    arity = abs(COMMANDS.table.commands[name].arity)
    others = [f"{NAMES[1]}:{kind}".encode() for kind in ("string", "stream", "queue", "failing")]
    for word in (b"*", b"0", b"1", b"a", b"x", b"apples", NAMES[1].encode(), *others):
        for extra in range(3):
            yield words + [word] * (arity - len(words) + extra)
    for other in others:
        yield from (
            [*words, b"a", other],
            [*words, other, b"a"],
            [*words, other, b"-", b"+"],
            [*words, other, b"COUNT", b"9"],
            [*words, b"COUNT", b"9", b"STREAMS", other, b"0"],
            [*words, b"STREAMS", b"a", other, b"0", b"0"],
            [*words, b"x", b"9", b"GET", other],
            [*words, b"x", b"1", b"SET", b"a", b"mine"],
            [*words, b"x", b"2", b"SET", other, b"mine", b"GET"],
        )


LISTS = (
    *("KEYS *", "SCAN 0 COUNT 1000", "SCAN 0 COUNT 1000 TYPE stream", "RANDOMKEY", "DBSIZE"),
    *("PUBSUB CHANNELS", "PUBSUB CHANNELS *", "PUBSUB SHARDCHANNELS", "PUBSUB NUMPAT"),
    *("QUEUE LIST", "QUEUE SCHEDULES", "INFO everything", "MEMORY STATS", "MEMORY DOCTOR"),
    *("COMMAND", "COMMAND DOCS", "COMMAND LIST", "CLIENT INFO", "CLIENT LIST", "SLOWLOG GET"),
    *("ACL LIST", "ACL LOG", "ACL WHOAMI", "CONFIG GET *", "MONITOR", "TIDELOG STATUS", "ROLE"),
)


def test_no_command_shows_a_secret(site: Site, anna: Client) -> None:
    for db in (b"0", b"1"):
        anna.call(b"SELECT", db)
        for line in LISTS:
            words = line.encode().split()
            assert SECRET not in repr(anna.call(*words)), line
            told = anna.pipeline([[b"MULTI"], words, [b"EXEC"]])
            assert SECRET not in repr(told), line
    anna.call(b"SELECT", b"0")
    for name in sorted(COMMANDS.table.commands.keys() - _LEFT_OUT):
        some = list(forms(name))
        for words, told in zip(some, anna.pipeline(some), strict=True):
            assert SECRET not in repr(told), words


def test_random_keys_are_her_own(anna: Client) -> None:
    own = {b"a", b"apples"}
    found = {anna.call(b"RANDOMKEY") for _ in range(100)}
    assert found and {name for name in found if isinstance(name, bytes)} <= own
    told = anna.pipeline([[b"MULTI"], *[[b"RANDOMKEY"]] * 100, [b"EXEC"]])[-1]
    assert isinstance(told, list) and set(map(str, told)) <= set(map(str, own))


def test_her_own_are_listed(site: Site, anna: Client) -> None:
    her: Any = site.running.client(username="anna", password=PASSWORD)
    assert sorted(her.keys("*")) == sorted(her.scan_iter()) == [b"a", b"apples"]
    assert her.execute_command("QUEUE", "LIST") == [[b"apples", b"workers"]]
    assert her.execute_command("QUEUE", "SCHEDULES") == []
    site.db.schedule("hers", every=3600, queue="apples", value="mine")
    assert [each[1] for each in her.execute_command("QUEUE", "SCHEDULES")] == [b"hers"]
    assert her.pubsub_channels() == []
    listener = her.pubsub()
    listener.subscribe("a-channel")
    assert listener.get_message(timeout=10)["type"] == "subscribe"
    assert her.pubsub_channels() == [b"a-channel"]
    listener.close()


def test_a_key_that_she_may_only_write_is_listed_without_its_value(site: Site) -> None:
    site.user(*RULES, "resetkeys", f"%W~{NAMES[1]}*")
    her: Any = site.running.client(username="anna", password=PASSWORD)
    assert f"{NAMES[1]}:string".encode() in her.keys("*")
    with pytest.raises(redis.ResponseError, match="No permissions to access a key"):
        her.get(f"{NAMES[1]}:string")
    assert her.execute_command("QUEUE", "SCHEDULES") == []
    site.user(*RULES, "resetkeys", f"%R~{NAMES[1]}*")
    assert len(her.execute_command("QUEUE", "SCHEDULES")) == 1


def test_metrics_show_what_their_user_may_see(site: Site) -> None:
    for path in ("/metrics", "/health"):
        body = site.send("GET", path).body.decode()
        assert SECRET not in body and NAMES[1] not in body
    assert 'stream="apples"' in site.send("GET", "/metrics").body.decode()


def test_metrics_of_the_default_user_show_all(start: Start) -> None:
    site = Site(start)
    site.db.xadd("orders", {"n": 1})
    assert 'stream="orders"' in site.send("GET", "/metrics").body.decode()
    site.user("resetkeys", "~a*", name="default")
    assert 'stream="orders"' not in site.send("GET", "/metrics").body.decode()


def test_the_console_shows_her_own(site: Site) -> None:
    assert site.sign_in().status == 200
    shown = [site.look(name, db=db) for name in ("queues", "streams", "overview") for db in "01"]
    for other in (f"{NAMES[1]}:queue", f"{NAMES[1]}:stream", "apples"):
        for name in ("queue", "stream"):
            shown.append(site.look(name, db="0", key=other, group="workers"))
            shown.append(site.look(name, db="0", key=other, group="workers", before="1-1"))
    shown.append(site.look("session"))
    assert not [answer for answer in shown if SECRET in answer.body.decode()]
    assert b"apples" in shown[0].body
