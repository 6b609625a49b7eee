"""Clients that block, side by side with a real redis-server: the same replies, to the same clients, in the same order.

A random script drives six connections to each server. After each command both sides are settled: a PING on a further
connection has been answered, so a client that was woken before has its reply. IDs are explicit, waits endless: nothing
depends on a clock. BLOCKING_SEED picks the seed; it is printed when a script fails.

7.0 serves a woken client in place where 7.2 runs its command again (spec 10.1), so the scripts keep to what both must
agree on: groups are waited for on one key, a transaction only adds, and nothing empties a stream without removing it.
The errors of a wait that ends because its key or group is gone have other words since 7.2; they are compared as one.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import time
from collections.abc import Iterator

import pytest
from tests.oracle.server import Clock, OracleMissing, RedisServer, directory
from tests.oracle.wire import Form
from tests.rounds import rest_slow, slow_and_soak
from tests.server.conftest import Running, Start
from tests.server.wire import Client, calls, connect
from tests.until import until

from tidelog import testing

SEED = int(os.environ.get("BLOCKING_SEED", "1"))
CLIENTS = 6
# A stream with the entry 1-1, as DUMP has it.
PAYLOAD = bytes.fromhex(
    "130110000000000000000100000000000000011d1d0000000a00010100010101816602000102010001000181760204"
    "01ff0101010101000001000a00ff55ab626ac035db"
)
STEPS = 120


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    place = directory()
    try:
        try:
            clock = Clock(place)
            clock.set(1_800_000_000_000)
            found = RedisServer(place, clock, "blocking")
        except OracleMissing as missing:
            pytest.fail(str(missing), pytrace=False)
        yield found
        found.close()
    finally:
        shutil.rmtree(place)


class Side:
    """One server and its clients."""

    def __init__(self, open_: object) -> None:
        self._open = open_
        self.clients = [self.new() for _ in range(CLIENTS)]
        self.ids = [client.call(b"CLIENT", b"ID") for client in self.clients]
        self.barrier = self.new()

    def new(self) -> Client:
        return self._open()  # type: ignore[operator,no-any-return]

    def replace(self, number: int) -> None:
        """A client goes away, blocked or not, and another comes."""
        self.clients[number].close()
        self.barrier.call(b"PING")
        self.clients[number] = self.new()
        self.ids[number] = self.clients[number].call(b"CLIENT", b"ID")

    def settled(self) -> list[tuple[int, Form]]:
        """The replies that have come to clients since, by client."""
        for _ in range(2):  # the first may share a turn of the server with what it is to come after
            self.barrier.call(b"PING")
        return [(n, ended(form)) for n, c in enumerate(self.clients) for form in c.arrived()]

    def close(self) -> None:
        for client in [*self.clients, self.barrier]:
            client.close()


class Script:
    """Random commands that block, wake, delete, rename and destroy."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.last = 0
        # 7.0 does not look at the other keys of a woken XREAD, which may hold another type, or more, by then.
        self.many_keys = seed % 2 == 0

    def key(self) -> bytes:
        return self.random.choice((b"a", b"b", b"c"))

    def next_id(self) -> bytes:
        self.last += self.random.choice((1, 1, 1, 5))
        return b"%d-1" % self.last

    def command(self) -> list[list[bytes]]:
        """One command, or several that are sent together."""
        pick, key = self.random, self.key()
        group = pick.choice((b"g", b"h"))
        which = pick.random()
        if which < 0.30:
            return [self.read(group)]
        if which < 0.55:
            return [[b"XADD", key, self.next_id(), b"f", b"v"]]
        if which < 0.63:
            inside = [[b"XADD", key, self.next_id(), b"f", b"v"] for _ in range(pick.randint(1, 4))]
            return [[b"MULTI"], *inside, [b"EXEC"]]
        return self.change(group)

    def read(self, group: bytes) -> list[bytes]:
        pick = self.random
        plain = pick.random() < 0.35
        keys = pick.sample(
            (b"a", b"b", b"c"), pick.choice((1, 1, 2, 3)) if plain and self.many_keys else 1
        )
        count = [b"COUNT", b"%d" % pick.randint(1, 3)] if pick.random() < 0.5 else []
        if plain:
            ids = [pick.choice((b"$", b"0", b"%d-1" % self.last)) for _ in keys]
            return [b"XREAD", *count, b"BLOCK", b"0", b"STREAMS", *keys, *ids]
        noack = [b"NOACK"] if pick.random() < 0.1 else []
        consumer = pick.choice((b"one", b"two"))
        words = [b"XREADGROUP", b"GROUP", group, consumer, *count, b"BLOCK", b"0", *noack]
        return [*words, b"STREAMS", *keys, *([b">"] * len(keys))]

    def change(self, group: bytes) -> list[list[bytes]]:
        pick, key, other = self.random, self.key(), self.key()
        create = [b"XGROUP", b"CREATE", key, group, pick.choice((b"0", b"$")), b"MKSTREAM"]
        options: list[list[list[bytes]]] = [
            [create],
            [create],
            [create],
            [[b"XADD", key, self.next_id(), b"f", b"v"]],
            [[b"XGROUP", b"DESTROY", key, group]],
            [[b"DEL", key]],
            [[b"RENAME", key, other]],
            [[b"COPY", key, other, b"REPLACE"]],
            [[b"RESTORE", key, b"0", PAYLOAD, b"REPLACE"]],
            [[b"MOVE", key, b"1"]],
            [[b"XTRIM", key, b"MAXLEN", b"1"]],
            [[b"PEXPIREAT", key, b"1"]],
        ]
        if not self.many_keys:
            options += [[[b"SET", key, b"string"]], [[b"SWAPDB", b"0", b"1"]]]
        return pick.choice(options)


def ended(form: Form) -> Form:
    """A wait that ended because its key or group is gone or another, in the words of either release (spec 10.3)."""
    if isinstance(form, tuple) and form[0] == "-":
        code = form[1].split()[0]
        if (
            code in (b"NOGROUP", b"UNBLOCKED", b"WRONGTYPE")
            and b"via CLIENT UNBLOCK" not in form[1]
        ):
            return ("-", b"gone")
    return form


def run(seed: int, ours: Side, theirs: Side) -> None:
    script = Script(seed)
    pick = random.Random(seed + 1)
    blocked: set[int] = set()
    reads: dict[int, list[list[bytes]]] = {}  # the last of each client: who reads once reads on
    for step in range(STEPS):
        free = [n for n in range(CLIENTS) if n not in blocked]
        what: object
        waits: int | None = None
        chance = pick.random()
        if blocked and (chance < 0.05 or not free):
            number = pick.choice(sorted(blocked))
            how = pick.choice(([], [b"TIMEOUT"], [b"ERROR"]))
            what = ("unblock", number, how)
            for side in (ours, theirs):
                told = side.barrier.call(b"CLIENT", b"UNBLOCK", b"%d" % side.ids[number], *how)
                assert told == 1, (seed, step, what)
        elif chance < 0.08:
            number = pick.randrange(CLIENTS)
            what = ("replace", number)
            blocked.discard(number)
            for side in (ours, theirs):
                side.replace(number)
        else:
            number = pick.choice(free)
            commands = script.command()
            if number in reads and pick.random() < 0.3:
                commands = reads[number]
            if commands[0][0].startswith(b"XREAD"):
                reads[number] = commands
            what = (number, commands)
            waits = number
            for side in (ours, theirs):
                side.clients[number].send(commands)
        mine, other = ours.settled(), theirs.settled()
        assert mine == other, (seed, step, what)
        answered = {n for n, _ in mine}
        blocked -= answered
        if waits is not None and waits not in answered:
            blocked.add(waits)


@pytest.mark.parametrize("seed", rest_slow(range(SEED, SEED + 25), 8))
def test_the_same_clients_are_served(start: Start, redis_server: RedisServer, seed: int) -> None:
    print(f"BLOCKING_SEED={seed}")
    run_once(start, redis_server, seed)


@pytest.mark.parametrize("count", slow_and_soak(250, 600))
def test_many_scripts(start: Start, redis_server: RedisServer, count: int) -> None:
    first = SEED + 1000
    running = start()
    for seed in range(first, first + count):
        run_once(start, redis_server, seed, running.port)


def run_once(start: Start, redis_server: RedisServer, seed: int, port: int | None = None) -> None:
    port = port or start().port

    def their_own() -> Client:
        link = redis_server.connect()._link
        assert isinstance(link, socket.socket)
        return Client(link)

    ours, theirs = Side(lambda: connect(port)), Side(their_own)
    for side in (ours, theirs):
        side.barrier.call(b"FLUSHALL")
    try:
        run(seed, ours, theirs)
    finally:
        ours.close()
        theirs.close()


LONG = 60_000  # milliseconds: a read with this timeout is only ever served


@pytest.mark.parametrize(
    "waits", [(LONG, 60, LONG, 150), (60, 250, 60), (0, 60, 150), (150, 0, 150, 60)]
)
def test_each_wait_ends_in_its_own_time(start: Start, waits: tuple[int, ...]) -> None:
    """A timer outlives the read it was set for: the next one ends neither with it nor later than it was to."""
    running = start()
    consumer, producer = connect(running.port), connect(running.port)
    producer.call(b"XGROUP", b"CREATE", b"s", b"g", b"0", b"MKSTREAM")
    for wait in waits:
        read = [b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"%d" % wait, b"STREAMS", b"s", b">"]
        for _ in range(3):  # served
            serve(running, consumer, producer, read)
        if wait in (0, LONG):
            continue
        began = time.monotonic()
        assert consumer.call(*read) == ("*-1",)
        assert wait - 5 <= (time.monotonic() - began) * 1000 < wait + LONG / 2
    consumer.close()
    producer.close()


def serve(running: Running, consumer: Client, producer: Client, read: list[bytes]) -> None:
    """Send a read, and an entry for it once it is blocked. On a slow machine its time may be up before that."""
    while True:
        consumer.begin(*read)
        replies: list[Form] = []

        def begun() -> bool:
            replies.extend(consumer.arrived())
            return bool(replies) or running.server.blocked == 1

        until(begun)
        if not replies:
            break
        assert replies == [("*-1",)]
    producer.call(b"XADD", b"s", b"*", b"f", b"v")
    if consumer.receive() == ("*-1",):
        assert consumer.call(*read) != ("*-1",)


def test_a_read_that_is_sent_again_is_the_same_read(start: Start) -> None:
    """Over another database, an unblocking, a timeout and another command; and nothing of a reply is kept."""
    clock = testing.Clock()
    running = start(clock=clock)
    consumer, producer = connect(running.port), connect(running.port)
    for db in (0, 1):
        calls(producer, f"SELECT {db}", "XGROUP CREATE s g 0 MKSTREAM")
    read = [b"XREADGROUP", b"GROUP", b"g", b"c", b"BLOCK", b"200", b"STREAMS", b"s", b">"]
    number = consumer.call(b"CLIENT", b"ID")

    def served(db: int) -> None:
        consumer.begin(*read)
        blocked(running, 1)
        _, id_ = calls(producer, f"SELECT {db}", "XADD s * f v")
        assert consumer.receive() == [[b"s", [[id_, [b"f", b"v"]]]]]
        blocked(running, 0)

    served(0)
    (session,) = [each for each in list(running.server.sessions.values()) if each.id == number]
    assert session._kept is not None and session._kept.owner.answer is None
    served(0)
    consumer.call(b"SELECT", b"1")
    served(1)
    consumer.begin(*read)
    blocked(running, 1)
    clock.advance(0.2)
    assert consumer.receive() == ("*-1",)
    consumer.begin(*read)
    blocked(running, 1)
    assert producer.call(b"CLIENT", b"UNBLOCK", b"%d" % number, b"ERROR") == 1
    assert consumer.receive()[1].startswith(b"UNBLOCKED")
    served(1)
    calls(producer, "SELECT 1", "XADD s * f w")
    assert consumer.call(*read)[0][1][0][1] == [b"f", b"w"]
    calls(producer, "SELECT 1", "XGROUP DESTROY s g")
    assert consumer.call(*read)[1].startswith(b"NOGROUP")
    calls(producer, "SELECT 1", "SET s string")
    assert consumer.call(*read)[1].startswith(b"WRONGTYPE")
    consumer.close()
    producer.close()


def blocked(running: Running, count: int) -> None:
    """Until `count` clients are blocked."""
    until(lambda: running.server.blocked == count)
