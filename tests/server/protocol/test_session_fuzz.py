"""Random sessions. How their bytes were cut into pieces, and who else was there, changes no reply.

Connections are driven without sockets, by a transport of ours, in one event loop with the store's clock stood still:
so what is sent in one turn of the loop, and what in the next, is the test's to say, and a session that goes wrong goes
wrong again with the same seed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests import inside
from tests.oracle.grammar import Grammar8
from tests.oracle.wire import decode, encode
from tests.rounds import some_and_all
from tests.until import WaitRanOut

import tidelog
import tidelog.testing
from tidelog.disk.simulated import SimulatedDisk
from tidelog.server.config.config import Config
from tidelog.server.connection import Connection
from tidelog.server.handlers import COMMANDS
from tidelog.server.server import Server

Command = list[bytes]

PATIENCE_S: Final = 60.0  # a server that is not done after so long hangs
PAIR_SESSIONS: Final = (
    40  # sessions of one pair of stores, so that what ACL or CONFIG changed goes away again
)


# --- a server without sockets


class Line(asyncio.Transport):
    """One client: what it sent and the server has not taken, what the server sent."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._closing = False
        self._reading = True
        self._server = server
        self.got = bytearray()
        self.sending = bytearray()
        self.lost = False
        self.ends = False  # the server has closed it
        self.connection = Connection(server, "tcp")
        self.connection.connection_made(self)

    # what a connection asks of its transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 40000), "sockname": ("127.0.0.1", 6379)}.get(name)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: Any) -> None:
        assert not self.lost, "written to a connection that is lost"
        self.got += data

    def pause_reading(self) -> None:
        assert self._reading
        self._reading = False

    def resume_reading(self) -> None:
        assert not self._reading
        self._reading = True
        self._server.loop.call_soon(self.deliver, len(self.sending))

    def close(self) -> None:
        self.ends = True
        self.hang_up()

    def abort(self) -> None:
        self.close()

    def _gone(self) -> None:
        if not self.lost:
            self.lost = True
            self.connection.connection_lost(None)

    # what its client does

    def deliver(self, nbytes: int) -> None:
        """A part of the bytes that were sent arrives, if it is read."""
        if nbytes and self._reading and not self._closing:
            piece = bytes(self.sending[:nbytes])
            del self.sending[:nbytes]
            if piece:
                self.connection.data_received(piece)
        elif self._closing:
            self.sending.clear()

    def hang_up(self) -> None:
        """The client is gone."""
        if not self._closing:
            self._closing = True
            self._server.loop.call_soon(self._gone)


class World:
    """A store and its server, and who is connected."""

    def __init__(self, db: tidelog.Store, **options: Any) -> None:
        self.db = db
        config = Config()
        config.start({"port": 0, "enable_debug_command": "yes", **options}, fsync=db.fsync)
        core = inside.core(db)
        config.place(core.root)
        self.server = Server(core, config, core.root)
        self.lines: list[Line] = []

    def dial(self) -> Line:
        line = Line(self.server)
        self.lines.append(line)
        return line

    def restless(self) -> str:
        """The work that is still under way; empty: nothing will happen unless a client does something."""
        server = self.server
        if server.turns.under_way:
            return "a turn"
        if server.turns.withholding:
            return "replies that are held"
        if server.pubsub._woken:
            return "events"
        for line in self.lines:
            connection, session = line.connection, line.connection.session
            if line._closing:
                if not line.lost:
                    return "a connection that closes"
                continue
            if connection.out or connection.withheld:
                return f"replies of client {session.id}"
            if line.sending and line._reading:
                return f"bytes of client {session.id}"
            if session.busy:
                blocked = session.blocked
                if blocked is not None and not blocked.owner.done:
                    continue
                call: Any = session._call
                if call is not None and not getattr(call, "_lacks_disk", False):
                    now = inside.core(self.db).monotonic()
                    if call.deadline is None or now < call.deadline:
                        continue  # it waits for followers or records, and its clock stands still
                return f"client {session.id}, busy with {session.last_command!r}"
            if connection.queue:
                return f"commands of client {session.id}"
        return ""

    async def rest(self) -> None:
        """Until nothing is under way."""
        until = time.monotonic() + PATIENCE_S
        quiet = turns = 0
        while quiet < 3:
            turns += 1
            await asyncio.sleep(0 if turns < 100 else 0.001)  # a thread, a disk, WAIT
            why = self.restless()
            quiet = 0 if why else quiet + 1
            if time.monotonic() >= until:
                raise WaitRanOut(f"the server hangs: {why}")

    async def hang_up(self) -> None:
        for line in self.lines:
            line.hang_up()
        await self.rest()
        assert not self.server.sessions
        assert self.server.blocked == 0
        assert not self.server.turns.withholding
        self.lines.clear()

    def close(self) -> None:
        self.server.pubsub.close()
        self.db.close()


class Complaints(logging.Handler):
    """Everything that a log of the server or of asyncio holds at ERROR."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    """There have been none when the test ends."""
    handler = Complaints()
    names = ("tidelog.server", "tidelog", "asyncio")
    for name in names:
        logging.getLogger(name).addHandler(handler)
    yield handler
    for name in names:
        logging.getLogger(name).removeHandler(handler)
    assert not handler.said, handler.said[0]


def run(work: Callable[[], Any], complaints: Complaints) -> None:
    """Run a coroutine function in a loop of its own; what goes wrong in a callback is a complaint."""

    async def watched() -> None:
        def went_wrong(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            complaints.said.append(f"{context.get('message')}: {context.get('exception')!r}")

        asyncio.get_running_loop().set_exception_handler(went_wrong)
        await work()

    asyncio.run(watched())


# --- what they send

KEYS: Final = (b"s", b"t", b"u{1}", b"x", b"y", b"absent")
CHANNELS: Final = (b"c", b"d", b"__keyspace@0__:s", b"__keyevent@0__:xadd", b"")
WORDS: Final = (
    *(b"0", b"1", b"2", b"3", b"-1", b"7", b"100", b"s", b"t", b"x", b"g", b"alice", b"", b"*", b"$", b">", b"-", b"+"),
    *(b"1-1", b"5-1", b"0-0", b"bob", b"default", b"pw", b"on", b"off", b"yes", b"no", b"HELP", b"COUNT", b"BLOCK"),
    *(b"STREAMS", b"GROUP", b"abc", b"\xff\x00", b"1.5", b"9223372036854775807", b"9223372036854775808"),
)  # fmt: skip
# Their replies tell of this process, of chance, of real time, or of how units lie in the log.
VARYING: Final = frozenset(
    b"info client|list client|info memory|stats memory|doctor memory|malloc-stats memory|purge memory|usage randomkey "
    b"latency|histogram latency|history latency|latest slowlog|get slowlog|len acl|genpass acl|log role "
    b"lastsave save bgsave bgrewriteaof shutdown client|pause debug waitaof lolwut config|set config|get "
    b"config|rewrite object|freq monitor client|kill acl|setuser acl|deluser wait command command|docs "
    b"object|idletime latency|reset acl|list acl|getuser "
    b"tidelog|status tidelog|snapshot tidelog|token tidelog|waitfor tidelog|digest tidelog|verify "
    b"queue|stats queue|take queue|retry".split()
)
ALL: Final = sorted(set(COMMANDS.table.commands) | set(COMMANDS.handlers))
ORDINARY: Final = [name for name in ALL if name not in VARYING]
OPTIONS: Final = (
    (b"notify-keyspace-events", (b"KEA", b"", b"Kt", b"Q")),
    (b"stream-node-max-entries", (b"3", b"100", b"-1")),
    (b"appendfsync", (b"always", b"everysec", b"no", b"never")),
    (b"slowlog-log-slower-than", (b"0", b"-1", b"10000")),
    (b"requirepass", (b"", b"", b"", b"pw")),
    (b"timeout", (b"0", b"x")),
    (b"nonsense", (b"1",)),
)
BLOCKING: Final = frozenset((b"XREAD", b"XREADGROUP", b"WAIT", b"WAITAOF"))
GARBAGE: Final = (
    b"*x\r\n", b"*1\r\n$x\r\n", b"*2\r\n:1\r\n", b'SET "a\r\n', b"*1\r\n$-1\r\n", b"*2147483648\r\n",
    b"*1\r\n$536870913\r\n", b"\r\n", b"*0\r\n", b"*-1\r\n", b"   \r\n", b"\n", b"PING\n", b"\x00\r\n",
)  # fmt: skip


class Draw:
    """Draws commands of the whole table."""

    def __init__(self, pick: random.Random) -> None:
        self.pick = pick
        self.streams = Grammar8(pick)

    def pipeline(self, alone: bool) -> bytes:
        """Commands sent at once. Unless the client is alone nothing follows one that may block: whose turn it is then,
        that of the one who is woken or that of the one who woke it, is a matter of when bytes arrive.
        """
        pick = self.pick
        roll = pick.random()
        if roll < 0.05:
            key = pick.choice((b"s", b"t"))
            commands = [
                [b"XADD", key, b"*", b"f", b"%d" % n] for n in range(pick.choice((2, 3, 5, 60)))
            ]
            commands += [self.command() for _ in range(pick.randrange(3))]
        elif roll < 0.2:
            commands = self.transaction()
        else:
            commands = [self.command() for _ in range(pick.choice((1, 1, 1, 2, 3, 6, 12)))]
        if not alone:
            for at, args in enumerate(commands):
                if args[0] in BLOCKING:
                    del commands[at + 1 :]
                    break
        data = b"".join(map(self.encoded, commands))
        self.commands = len(commands)
        if pick.random() < 0.02:
            data += pick.choice(GARBAGE)
            blocks = not alone and commands[-1][0] in BLOCKING
            if pick.random() < 0.5 and not blocks:
                data += encode(self.command())
        return data

    def encoded(self, args: Command) -> bytes:
        """Now and then as an inline command, where that is the same."""
        if self.pick.random() < 0.1 and all(arg.isalnum() and arg.isascii() for arg in args):
            return b" ".join(args) + self.pick.choice((b"\r\n", b"\n"))
        return encode(args)

    def command(self) -> Command:
        pick = self.pick
        roll = pick.random()
        if roll < 0.3:
            return self.stream()
        if roll < 0.4:
            return [
                b"XADD",
                pick.choice((b"s", b"t")),
                b"*",
                b"f",
                b"v",
                *([b"w"] * pick.choice((0, 0, 0, 1, 2))),
            ]
        if roll < 0.55:
            return self.any()
        return pick.choice(
            (self.blocking, self.blocking, self.client, self.subscription, self.session, self.waiting, self.admin)
        )()  # fmt: skip

    def stream(self) -> Command:
        """A command of the engine, good or bad."""
        while True:
            args = self.streams.command()
            name = args[0].upper()
            if name in (b"CONFIG", b"RANDOMKEY") or args[:2] == [b"OBJECT", b"FREQ"]:
                continue
            if name in (b"XREAD", b"XREADGROUP") and b"BLOCK" in [arg.upper() for arg in args]:
                continue  # see `blocking`
            return args

    def any(self) -> Command:
        """Any command with any words."""
        pick = self.pick
        name = pick.choice(ORDINARY)
        command = COMMANDS.table.commands[name]
        words = name.split(b"|")
        least = abs(command.arity)
        count = least if pick.random() < 0.8 else pick.randrange(max(1, least - 1), least + 4)
        args = words + [pick.choice(WORDS) for _ in range(count - len(words))]
        if command.first_key and len(args) > command.first_key and pick.random() < 0.8:
            args[command.first_key] = pick.choice(KEYS)
        if pick.random() < 0.2:
            args[0] = args[0].swapcase()
        if name in (b"xread", b"xreadgroup") and any(arg.upper() == b"BLOCK" for arg in args):
            return [b"PING"]
        return args

    def blocking(self) -> Command:
        pick = self.pick
        block = pick.choice((b"0", b"0", b"1", b"5", b"100", b"-1", b"x", b"9007199254740993"))
        keys = [pick.choice((b"s", b"t", b"x")) for _ in range(pick.choice((1, 1, 2)))]
        if pick.random() < 0.5:
            return [
                b"XREAD",
                b"BLOCK",
                block,
                b"STREAMS",
                *keys,
                *[pick.choice((b"$", b"$", b"0"))] * len(keys),
            ]
        group = pick.choice((b"g", b"g", b"h"))
        options = [b"NOACK"] if pick.random() < 0.2 else []
        return [
            b"XREADGROUP",
            b"GROUP",
            group,
            b"alice",
            b"BLOCK",
            block,
            *options,
            b"STREAMS",
            *keys,
            *[b">"] * len(keys),
        ]

    def transaction(self) -> list[Command]:
        pick = self.pick
        commands: list[Command] = []
        if pick.random() < 0.4:
            commands.append([b"WATCH", pick.choice(KEYS)])
        commands.append([b"MULTI"])
        commands += [self.command() for _ in range(pick.randrange(5))]
        if pick.random() < 0.9:
            commands.append([pick.choice((b"EXEC", b"EXEC", b"EXEC", b"DISCARD"))])
        return commands

    def client(self) -> Command:
        pick = self.pick
        return pick.choice(
            (
                [b"CLIENT", b"REPLY", pick.choice((b"ON", b"ON", b"OFF", b"SKIP", b"x"))],
                [b"CLIENT", b"SETNAME", pick.choice((b"", b"n", b"a b"))],
                [b"CLIENT", b"GETNAME"],
                [b"CLIENT", b"ID"],
                [
                    b"CLIENT",
                    b"UNBLOCK",
                    b"%d" % pick.randrange(1, 60),
                    pick.choice((b"ERROR", b"TIMEOUT")),
                ],
                [b"CLIENT", b"KILL", b"ID", b"%d" % pick.randrange(1, 60)],
                [b"CLIENT", b"KILL", b"TYPE", b"pubsub"],
            )
        )

    def subscription(self) -> Command:
        pick = self.pick
        names = [pick.choice(CHANNELS) for _ in range(pick.choice((1, 1, 2)))]
        return pick.choice(
            (
                [b"SUBSCRIBE", *names],
                [b"PSUBSCRIBE", pick.choice((b"*", b"c*", b"__key*"))],
                [b"SSUBSCRIBE", names[0]],
                [b"UNSUBSCRIBE", *names],
                [b"UNSUBSCRIBE"],
                [b"PUNSUBSCRIBE"],
                [b"SUNSUBSCRIBE"],
                [b"PUBLISH", names[0], b"hello"],
                [b"PUBLISH", names[0], b"hello"],
                [b"SPUBLISH", names[0], b"hello"],
                [b"PING"],
                [b"PING", b"p"],
            )
        )

    def session(self) -> Command:
        pick = self.pick
        return pick.choice(
            (
                [b"HELLO", pick.choice((b"2", b"3", b"3", b"4", b"x"))],
                [b"HELLO"],
                [b"HELLO", b"3", b"AUTH", b"bob", b"pw"],
                [b"RESET"],
                [b"SELECT", pick.choice((b"0", b"0", b"1", b"15", b"16", b"x"))],
                [b"AUTH", b"bob", b"pw"],
                [b"AUTH", b"pw"],
                [b"MONITOR"] if pick.random() < 0.2 else [b"UNWATCH"],
                [b"QUIT"] if pick.random() < 0.3 else [b"PING"],
                [b"DISCARD"],
                [b"EXEC"],
                [b"MULTI"],
                [b"SWAPDB", b"0", b"1"],
                [b"FLUSHALL"] if pick.random() < 0.1 else [b"ECHO", b"e"],
                [b"nonsense", b"x"],
                [b"ping", b"a", b"b"],
            )
        )  # fmt: skip

    def waiting(self) -> Command:
        pick = self.pick
        return pick.choice(
            (
                [b"WAIT", pick.choice((b"0", b"0", b"1", b"x")), b"1"],
                [b"WAIT", b"-1", b"0"],
                [b"WAITAOF", b"1", b"0", b"0"],
            )
        )

    def admin(self) -> Command:
        pick = self.pick
        option, values = pick.choice(OPTIONS)
        user = pick.choice((b"bob", b"bob", b"bob", b"eve"))
        return pick.choice(
            (
                [b"CONFIG", b"SET", option, pick.choice(values)],
                [b"CONFIG", b"GET", option],
                [b"ACL", b"SETUSER", user, b"on", b">pw", b"~*", pick.choice((b"+@all", b"+@read", b"-xadd", b"+x|y"))],
                [b"ACL", b"DELUSER", user],
                [b"ACL", b"WHOAMI"],
                [b"DEBUG", pick.choice((b"LOADAOF", b"DIGEST", b"HELP", b"x"))] if pick.random() < 0.1 else [b"TIME"],
                [b"SHUTDOWN", pick.choice((b"ABORT", b"x"))],
                [b"COMMAND", b"COUNT"],
            )
        )  # fmt: skip


# --- whole and in pieces


def apart(got: bytes | bytearray) -> tuple[list[bytes], list[bytes]]:
    """The replies that a client got, and the pushes of RESP3. A push leaves at the end of a turn, so its place among
    the replies depends on the turns in which the bytes arrived.
    """
    data = bytes(got)
    replies: list[bytes] = []
    pushes: list[bytes] = []
    at = 0
    while at < len(data):
        end = end_of(data, at)
        (pushes if data[at] == ord(">") else replies).append(data[at:end])
        at = end
    return replies, pushes


def end_of(data: bytes, at: int) -> int:
    """Where the RESP value that begins at `at` ends; the end of the data if it is cut off."""
    stop = data.find(b"\r\n", at)
    if stop < 0:
        return len(data)
    kind, count, end = data[at : at + 1], data[at + 1 : stop], stop + 2
    if kind in b"$=!" and count.isdigit():
        return min(len(data), end + int(count) + 2)
    if kind in b"*>~%" and count.isdigit():
        for _ in range(int(count) * (2 if kind == b"%" else 1)):
            end = end_of(data, end) if end < len(data) else end
    return end


class Pair:
    """Two servers that are told the same: `whole` gets what a client sends in one piece, `torn` in many."""

    def __init__(self, root: Path, pick: random.Random) -> None:
        self.pick = pick
        fsync = pick.choice(("no", "everysec", "always"))
        self.clocks = tidelog.testing.Clock(), tidelog.testing.Clock()
        self.worlds = [
            World(tidelog.open(root / name, fsync=fsync, clock=clock), shutdown_timeout=1)
            for name, clock in zip(("whole", "torn"), self.clocks)
        ]
        self.draw = Draw(pick)
        self.sent: list[tuple[int, bytes]] = []

    async def session(self) -> int:
        """One session of a few clients. How many commands it had."""
        pick = self.pick
        clients = pick.choice((1, 2, 3))
        whole, torn = self.worlds
        lines = [[world.dial() for _ in range(clients)] for world in self.worlds]
        self.sent = []
        commands = 0
        for _ in range(pick.randrange(2, 9)):
            if pick.random() < 0.15:
                seconds = pick.choice((0.001, 0.01, 0.2, 3))
                self.sent.append((-1, b"%f" % seconds))
                for clock in self.clocks:
                    clock.advance(seconds)
            else:
                which = pick.randrange(clients)
                if clients > 1 and lines[0][which].connection.session.busy:
                    continue
                data = self.draw.pipeline(clients == 1)
                commands += self.draw.commands
                self.sent.append((which, data))
                for line in (lines[0][which], lines[1][which]):
                    line.sending += data
                lines[0][which].deliver(len(data))
                await self._tear(lines[1][which])
            for world in self.worlds:
                await world.rest()
            for one, other in zip(*lines):
                assert apart(one.got) == apart(other.got), self._told(one, other)
                assert one.ends == other.ends, self._told(one, other)
                assert b"internal error" not in one.got, self._told(one, other)
        if pick.random() < 0.02:
            assert whole.db.digest() == torn.db.digest(), self._told(lines[0][0], lines[1][0])
        for world in self.worlds:
            await world.hang_up()
        return commands

    async def _tear(self, line: Line) -> None:
        pick = self.pick
        longest = pick.choice((1, 1, 3, 20, 200, 5000))
        turn = pick.choice((0.0, 0.05, 0.5, 1.0))
        while line.sending:
            line.deliver(pick.randint(1, longest))
            if pick.random() < turn or not line._reading:
                await asyncio.sleep(0)
                if not line._reading:
                    break  # `resume_reading` delivers the rest

    def _told(self, one: Line, other: Line) -> str:
        sent = "\n".join(f"  {which}: {data!r}" for which, data in self.sent)
        return f"sent:\n{sent}\nwhole ({one.ends}): {bytes(one.got)!r}\ntorn ({other.ends}): {bytes(other.got)!r}"

    def end(self) -> None:
        """The same state; and the log holds it."""
        digests = [world.db.digest() for world in self.worlds]
        roots = [inside.core(world.db).root for world in self.worlds]
        for world in self.worlds:
            world.close()
        assert digests[0] == digests[1]
        for root, clock, digest in zip(roots, self.clocks, digests):
            with tidelog.open(root, clock=clock) as again:
                assert again.digest() == digest


def fuzz(root: Path, seed: int, sessions: int, commands: int, complaints: Complaints) -> None:
    print(f"seed {seed}")
    pick = random.Random(seed)
    done = ran = 0

    async def work() -> None:
        nonlocal done, ran
        number = 0
        while done < sessions or ran < commands:
            number += 1
            pair_seed = pick.getrandbits(32)
            (root / str(number)).mkdir()
            pair = Pair(root / str(number), random.Random(pair_seed))
            for at in range(PAIR_SESSIONS):
                try:
                    ran += await pair.session()
                except BaseException as error:
                    error.add_note(f"seed {seed}, pair {number} ({pair_seed}), session {at}")
                    raise
                assert not complaints.said, (
                    f"seed {seed}, pair {number}: {complaints.said[0]}\n{pair.sent}"
                )
                done += 1
            pair.end()

    run(work, complaints)
    print(f"{done} sessions, {ran} commands")


@pytest.mark.parametrize("sessions", some_and_all(80, 400))
def test_pieces_change_nothing(tmp_path: Path, complaints: Complaints, sessions: int) -> None:
    fuzz(tmp_path, random.randrange(1 << 32), sessions, 0, complaints)


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_pieces_change_nothing_many(tmp_path: Path, complaints: Complaints) -> None:
    fuzz(tmp_path, random.randrange(1 << 32), 20_000, 200_000, complaints)


# --- many at once


class Disk:
    """A disk whose syncs hang now and then, and that fails for a while."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.open = threading.Event()
        self.open.set()
        self.fails: dict[str, int] = {}
        disk.before = self

    def __call__(self, operation: str, path: Path) -> None:
        if operation == "fdatasync":
            self.open.wait(0.3)  # not for ever: memory may be rebuilt in the loop's thread
        if operation in self.fails:
            raise OSError(self.fails[operation], "injected", str(path))


FAILURES: Final[tuple[dict[str, int], ...]] = (
    {"fdatasync": errno.EIO},
    {"append": errno.EIO, "write": errno.EIO},
    dict.fromkeys(("create", "fill", "rename", "mkdir"), errno.ENOSPC),
)


class Crowd:
    """Clients of one server that all act in the same turns, beside a thread of the store's owner. Each command has one
    reply, and ECHO tells whose it is.

    failing    the disk fails for a while: then a connection may end with an error, but none may hang
    """

    def __init__(self, seed: int, failing: bool) -> None:
        self.pick = pick = random.Random(seed)
        self.failing = failing
        self.simulated = SimulatedDisk(seed)
        fsync = pick.choice(("always", "always", "everysec", "no"))
        self.db = tidelog.open("/db", fsync=fsync, disk=self.simulated)
        inside.log(self.db).slowest_s = pick.choice((0.0, 0.1))  # who syncs under `always`
        self.disk = Disk(self.simulated)
        self.world = World(self.db)
        self.lines = [self.world.dial() for _ in range(pick.randrange(2, 8))]
        self.sent: list[list[Command]] = [[] for _ in self.lines]
        self.gone: set[int] = set()
        self.half_closed: set[int] = set()
        self.stopped = threading.Event()

    def owner(self) -> None:
        while not self.stopped.wait(0.002):
            try:
                self.db.xadd("s", {"owner": "1"})
            except tidelog.TidelogError:
                pass

    def commands(self, which: int) -> list[Command]:
        pick = self.pick
        commands: list[Command] = []
        for _ in range(pick.choice((1, 1, 2, 3, 8, 40))):
            number = len(self.sent[which]) + len(commands)
            roll = pick.random()
            if roll < 0.4:
                commands.append([b"XADD", b"s", b"*", b"a", b"%d" % which])
            elif roll < 0.7:
                commands.append([b"ECHO", b"%d-%d" % (which, number)])
            elif roll < 0.73:
                commands += [
                    b"MULTI".split(),
                    b"XADD s * a 1".split(),
                    b"PUBLISH c m".split(),
                    b"EXEC".split(),
                ]
            elif roll < 0.76:
                who = pick.randrange(1, len(self.lines) + 1)
                commands.append(
                    [b"CLIENT", b"UNBLOCK", b"%d" % who, pick.choice((b"ERROR", b"TIMEOUT"))]
                )
            else:
                commands.append(pick.choice(OTHERS).split())
        return commands

    async def act(self) -> None:
        pick = self.pick
        fails_at = pick.randrange(5, 60) if self.failing else -1
        for step in range(pick.randrange(10, 80)):
            if step == fails_at:
                self.disk.fails = pick.choice(FAILURES)
            elif step == fails_at + 6:
                self.disk.fails = {}
            which = pick.randrange(len(self.lines))
            if which in self.gone or which in self.half_closed:
                continue
            line = self.lines[which]
            commands = self.commands(which)
            self.sent[which] += commands
            line.sending += b"".join(map(encode, commands))
            while line.sending and line._reading and not line._closing:
                line.deliver(pick.choice((1 << 20, 1 << 20, 50, 7)))
                if pick.random() < 0.3:
                    await asyncio.sleep(0)
            roll = pick.random()
            if roll < 0.015:
                self.disk.open.clear()
            elif roll > 0.7:
                self.disk.open.set()
            if roll > 0.98:
                self.gone.add(which)
                line.hang_up()
            elif roll > 0.96:
                self.half_closed.add(which)
                if not line.connection.eof_received():
                    line.close()
            if 0.3 < roll < 0.5:
                await asyncio.sleep(pick.choice((0, 0, 0.001, 0.003)))

    async def settle(self) -> None:
        """The disk is well again; until everybody has everything, who is blocked being woken."""
        self.disk.open.set()
        self.disk.fails = {}
        until = time.monotonic() + PATIENCE_S
        quiet = 0
        while quiet < 5:
            await asyncio.sleep(0.001)
            why = self.world.restless()
            for line in self.lines:
                session = line.connection.session
                if not line._closing and session.blocked is not None:
                    session.unblock(None)
                    why = "a client that is blocked"
            quiet = 0 if why else quiet + 1
            if time.monotonic() >= until:
                raise WaitRanOut(f"the server hangs: {why}")

    def look(self) -> None:
        """As many replies as commands, in their order."""
        for which, line in enumerate(self.lines):
            replies: list[Any] = []
            at = 0
            while at < len(line.got):
                reply, at = decode(line.got, at)
                replies.append(reply)
            for reply in replies:
                if isinstance(reply, tuple) and reply[0] == "-":
                    assert b"internal error" not in reply[1]
                    assert self.failing or reply[1].startswith(ORDINARY_ERRORS), reply
            cut = which in self.gone or (line.ends and (self.failing or which in self.half_closed))
            assert cut or len(replies) == len(self.sent[which]), f"client {which + 1}"
            for args, reply in zip(self.sent[which], replies):
                if args[0] == b"ECHO" and not isinstance(reply, tuple):
                    assert reply == args[1], f"client {which + 1}"

    async def run(self) -> None:
        thread = threading.Thread(target=self.owner, daemon=True)
        if self.pick.random() < 0.5:
            thread.start()
        await self.act()
        self.stopped.set()
        if thread.ident is not None:
            self.disk.open.set()
            thread.join()
        await self.settle()
        self.look()
        await self.world.hang_up()
        digest: str | None = None
        try:
            digest = self.db.digest()
        except tidelog.StorePoisoned:
            assert self.failing
        try:
            self.world.close()
        except tidelog.StorePoisoned:
            assert self.failing
            digest = None
        self.simulated.before = None
        if digest is not None:
            with tidelog.open("/db", disk=self.simulated) as again:
                assert again.digest() == digest


BROKEN: Final = ("the log could not be written", "DEBUG RELOAD could not rebuild memory")
ORDINARY_ERRORS: Final = (b"NOGROUP", b"UNBLOCKED", b"BUSYGROUP")
OTHERS: Final = (
    *(b"XREADGROUP GROUP g c BLOCK 3 STREAMS s >", b"XREAD BLOCK 2 STREAMS q $", b"XREAD BLOCK 0 STREAMS q $"),
    *(b"XADD q * a 1", b"XLEN s", b"WAIT 1 2", b"WAITAOF 1 0 5", b"WAITAOF 0 0 0", b"SET k v PX 2", b"FLUSHALL"),
    *(b"CLIENT PAUSE 1 WRITE", b"CLIENT PAUSE 5 ALL", b"CLIENT UNPAUSE", b"DEBUG LOADAOF", b"DEBUG DIGEST"),
    *(b"CONFIG SET appendfsync always", b"CONFIG SET appendfsync everysec", b"CONFIG SET appendfsync no"),
    *(b"XGROUP CREATE s g 0 MKSTREAM", b"PUBLISH c m", b"XTRIM s MAXLEN 50"),
)  # fmt: skip


def crowds(seed: int, rounds: int, failing: bool, complaints: Complaints) -> None:
    print(f"seed {seed}")

    async def work() -> None:
        for number in range(rounds):
            try:
                await Crowd(seed + number, failing).run()
            except BaseException as error:
                error.add_note(f"seed {seed + number}")
                raise
            if failing:  # what a disk did wrong is said, and nothing else
                complaints.said = [said for said in complaints.said if not said.startswith(BROKEN)]
            assert not complaints.said, f"seed {seed + number}: {complaints.said[0]}"

    run(work, complaints)


@pytest.mark.parametrize("rounds", some_and_all(10, 50))
@pytest.mark.parametrize("failing", [False, True])
def test_crowds(complaints: Complaints, failing: bool, rounds: int) -> None:
    crowds(random.randrange(1 << 32), rounds, failing, complaints)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("failing", [False, True])
def test_crowds_many(complaints: Complaints, failing: bool) -> None:
    crowds(random.randrange(1 << 32), 1_500, failing, complaints)
