"""Sessions that are `plain` take shorter ways; what they answer, leave behind and count is what the others do.

The same random script goes to two servers over stores of one clock. On the second every session has said CLIENT
NO-TOUCH ON: it changes no reply, and keeps a session from being plain.
"""

from __future__ import annotations

import random
import re
from contextlib import closing

import pytest
from tests.oracle.wire import Form, encode
from tests.server.conftest import Running, Start
from tests.server.wire import connect
from tests.until import until

from tidelog.testing import Clock

CONSUMERS = 4
STEPS = 60


class Side:
    """One server, a producer and some consumers; what each of them got."""

    def __init__(self, running: Running, plain: bool) -> None:
        self.running = running
        self.clients = [connect(running.port) for _ in range(CONSUMERS + 1)]
        self.barrier = connect(running.port)
        self.got: list[list[Form]] = [[] for _ in self.clients]
        self.sent = [0] * len(self.clients)
        for client in [*self.clients, self.barrier]:
            client.call(b"PING")
        if not plain:
            for client in self.clients:
                client.call(b"CLIENT", b"NO-TOUCH", b"ON")
        self.sessions = list(running.server.sessions.values())
        assert [session.plain for session in self.sessions] == [plain] * len(self.clients) + [True]

    def send(self, number: int, commands: list[list[bytes]]) -> None:
        """Send commands in one write. Then all have run, and a client that is not blocked has every reply."""
        self.clients[number].raw(b"".join(map(encode, commands)))
        self.sent[number] += len(commands)
        for _ in range(
            2
        ):  # who is woken goes on in the turn after that of the command that woke it
            self.barrier.call(b"PING")
        until(
            lambda: all(self.blocked(n) or self.answered(n) == s for n, s in enumerate(self.sent))
        )

    def blocked(self, number: int) -> bool:
        """Whether a client waits for messages."""
        return self.sessions[number].blocked is not None

    def answered(self, number: int) -> int:
        """How many replies one client has got by now."""
        self.got[number] += self.clients[number].arrived()
        return len(self.got[number])

    def counted(self) -> dict[bytes, tuple[int, int, int]]:
        """Calls of each command, how many failed, how many were rejected."""
        rows = self.running.server.stats.by_command()
        return {
            name: (row.calls, row.failed, row.rejected)
            for name, row in rows.items()
            if name not in (b"ping", b"client|no-touch")
        }

    def close(self) -> None:
        for client in [*self.clients, self.barrier]:
            client.close()


class Script:
    """Random commands of a producer and of consumers who read on and on."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def produce(self) -> list[list[bytes]]:
        pick = self.random
        commands = []
        for _ in range(pick.choice((1, 1, 2, 5, 20))):
            which = pick.random()
            if which < 0.8:
                value = b"x" * pick.choice((0, 3, 200))
                fields = [b"f", value] * pick.choice((1, 2, 40))
                commands.append([pick.choice((b"XADD", b"xadd", b"Xadd")), b"s", b"*", *fields])
            else:
                commands.append(
                    pick.choice(
                        (
                            b"XADD s 0-0 a b",
                            b"XADD s * a",
                            b"XADD text * a b",
                            b"XADD s MAXLEN 50 * a b",
                            b"XLEN s",
                            b"SET text 1",
                            b"XADD s",
                            b"NOSUCH",
                            b"XDEL s 0-1",
                        )
                    ).split()
                )
        return commands

    def consume(self, number: int, last: Form) -> list[list[bytes]]:
        pick = self.random
        ids = sorted(set(re.findall(rb"\d{10,}-\d+", repr(last).encode())))
        commands = [[b"XACK", b"s", b"g", *ids]] if ids and pick.random() < 0.9 else []
        if pick.random() < 0.05:
            commands.append(b"XPENDING s g".split())
        count = pick.choice((b"10", b"10", b"10", b"2"))
        read = b"XREADGROUP GROUP g c%d COUNT %b BLOCK 0 STREAMS s >" % (number, count)
        return [*commands, read.split()]


@pytest.mark.parametrize("fsync", ["everysec", "always", "no"])
@pytest.mark.parametrize("seed", range(4))
def test_a_plain_session_is_as_any(start: Start, seed: int, fsync: str) -> None:
    clock = Clock()
    sides = [Side(start(clock=clock, fsync=fsync), plain) for plain in (True, False)]
    script = Script(seed)

    def send(number: int, commands: list[list[bytes]]) -> None:
        for side in sides:
            side.send(number, commands)

    send(0, [b"XGROUP CREATE s g $ MKSTREAM".split()])
    for _ in range(STEPS):
        number = script.random.choice((0, *range(CONSUMERS + 1)))
        if number == 0:
            send(0, script.produce())
        elif not sides[0].blocked(number):
            send(number, script.consume(number, sides[0].got[number][-1:]))
        clock.advance(0.001)
    assert sides[0].got == sides[1].got
    assert sum(map(len, sides[0].got)) > STEPS
    assert sides[0].counted() == sides[1].counted()
    assert sides[0].running.db.digest() == sides[1].running.db.digest()
    for side in sides:
        side.close()


def test_the_last_command_is_told(server: Running) -> None:
    with closing(connect(server.port)) as client, closing(connect(server.port)) as other:
        for command in ("XADD s * a b", "XLEN s", "XADD s * a b"):
            client.call(*command.encode().split())
            name = command.partition(" ")[0].lower().encode()
            assert b"cmd=%b " % name in other.call(b"CLIENT", b"LIST").splitlines()[0]
