"""Workloads through the server: a real socket, one turn of the grammar sent and answered at a time."""

from __future__ import annotations

from tests.guard.commands import MANY, Turns, line
from tests.guard.world import World
from tests.oracle.grammar import Command
from tests.oracle.wire import Form
from tests.server.wire import Client, connect
from tests.until import until

import tidelog


class Clients:
    """Connections to one server. After every change of the clock what has expired goes at once, as the server's own
    timer would see to it at a moment that no test can choose."""

    def __init__(self, world: World, db: tidelog.Store, port: int) -> None:
        self.world, self.db, self.port = world, db, port
        self.links = [connect(port) for _ in range(3)]

    def send(self, link: Client, given: list[Command]) -> None:
        replies = link.pipeline(given)
        for args, form in zip(given, replies, strict=True):
            self.world.told(line(args), form)

    def close(self) -> None:
        for link in self.links:
            link.close()


def turns(world: World, fsync: str, count: int) -> None:
    """Random commands of three clients, one by one or a turn at once."""
    drawn = Turns(world)
    done = 0
    with world.open(fsync=fsync) as db, tidelog.serve(db, port=0, hz=1) as serving:
        clients = Clients(world, db, serving.port)
        try:
            while done < count:
                given = [args for args in drawn.next() if args[0] != MANY]
                db.ping()
                link = world.r.choice(clients.links)
                if world.r.random() < 0.5 and sum(map(len, (b"".join(a) for a in given))) < 8000:
                    clients.send(link, given)
                else:
                    for args in given:
                        clients.send(link, [args])
                done += len(given)
            world.look(db)
        finally:
            clients.close()
        world.copy()


class Readers:
    """Clients that block. A reply counts once it is here, and is told in the order of the clients."""

    def __init__(self, world: World, db: tidelog.Store, port: int, count: int) -> None:
        self.world, self.db = world, db
        self.links = [connect(port) for _ in range(count)]
        self.waiting: dict[int, str] = {}
        self.answers: dict[int, list[Form]] = {}

    def blocked(self) -> int:
        count: int = self.db.info()["blocked_clients"]
        return count

    def answered(self) -> int:
        """How many of those that wait have their reply."""
        for number in self.waiting:
            if number not in self.answers:
                forms = self.links[number].arrived()
                if forms:
                    self.answers[number] = forms
        return len(self.answers)

    def begin(self, number: int, args: Command) -> None:
        """Send a read, and return once it blocks or is answered."""
        count = self.blocked()
        self.waiting[number] = f"{number}: {line(args)}"
        self.links[number].begin(*args)
        until(lambda: self.blocked() == count + 1 or self.answered(), "it neither blocks nor ends")
        self.settle()

    def settle(self) -> None:
        """Take the replies of all that do not block any more."""
        until(lambda: self.answered() == len(self.waiting) - self.blocked(), "a reply is missing")
        for number in sorted(self.answers):
            self.world.told(self.waiting.pop(number), self.answers.pop(number))

    def close(self) -> None:
        for link in self.links:
            link.close()


def blocked(world: World, fsync: str, steps: int) -> None:
    """Clients that block, served by the writes of another."""
    r = world.r
    with world.open(fsync=fsync) as db, tidelog.serve(db, port=0, hz=1) as serving:
        writer = connect(serving.port)
        readers = Readers(world, db, serving.port, 5)
        try:
            for key in (b"a", b"b"):
                writer.call(b"XGROUP", b"CREATE", key, b"g", b"$", b"MKSTREAM")
            for step in range(steps):
                world.clock.advance(0.003)
                free = [n for n in range(len(readers.links)) if n not in readers.waiting]
                key = r.choice((b"a", b"b"))
                if free and r.random() < 0.6:
                    number = r.choice(free)
                    group = [b"GROUP", b"g", b"c%d" % number, b"COUNT", b"%d" % r.randrange(1, 4)]
                    if r.random() < 0.5:
                        args = [b"XREADGROUP", *group, b"BLOCK", b"0", b"STREAMS", key, b">"]
                    else:
                        args = [b"XREAD", b"BLOCK", b"0", b"STREAMS", key, b"$"]
                    readers.begin(number, args)
                    continue
                given = [
                    [b"XADD", r.choice((b"a", b"b")), b"*", b"step", b"%d" % step]
                    for _ in range(r.choice((1, 1, 2, 5)))
                ]
                if r.random() < 0.3:
                    given = [[b"MULTI"], *given, [b"EXEC"]]
                for sent, form in zip(given, writer.pipeline(given), strict=True):
                    world.told(line(sent), form)
                readers.settle()
            world.look(db)
        finally:
            writer.close()
            readers.close()
        world.copy()
