"""Random sessions of the whole table of commands, beside a real 8.2 and a real 7.0: the same replies.

Both servers stand at one time, which the test moves, and begin each session with the same data. A reply is compared as
the wire has it, in RESP2 and RESP3; what is no proper request is compared as bytes. `named` says what may
differ, and why.
AS_REDIS_SEED picks the first seed; each difference is told with its seed.
"""

from __future__ import annotations

import os
import random
import re
import socket
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from tests.oracle.server import (
    EIGHT,
    SEVEN,
    Clock,
    RedisServer,
    Release,
    eight_is_not_here,
)
from tests.oracle.wire import encode
from tests.rounds import some_slow_and_soak
from tests.server.conftest import Running, Start
from tests.server.protocol.named import NAMED, Node, name_of
from tests.server.protocol.words import SENT, Command, chunks, prelude, wire
from tests.server.real_redis import real_redis

from tidelog import testing
from tidelog.server.handlers import COMMANDS

SEED: Final = int(os.environ.get("AS_REDIS_SEED", "1"))
START_MS: Final = 1_800_000_000_000
PATIENCE_S: Final = 60.0  # a server that is silent for so long hangs
FOUND_MAX: Final = 20  # differences, after which a test ends
# Padding for a half-finished request, then a command that every state answers.
END: Final = b"\r\n" * 3000 + b"PING\r\nRESET\r\nECHO the-end\r\n"
END_TOLD: Final = b"$7\r\nthe-end\r\n"
SILENCE_S: Final = 1.0  # an unfinished request, to which neither server says anything
# Commands that no session has -> why.
LEFT_OUT: Final = {
    "xnack xcfgset xidmprecord": "no server at hand has them",
    "monitor sync psync replconf": "the server goes on to send without being asked",
    "debug save bgsave bgrewriteaof slaveof waitaof memory|stats memory|malloc-stats": "about the process or its disk",
    "eval script|load": "its script would have to be one of those that are built in",
}


# The facts about the server in a reply to HELLO.
_HELLO: Final = re.compile(
    rb"(\$7\r\nversion\r\n|\$2\r\nid\r\n|\$7\r\nmodules\r\n)"
    rb"(?:\$\d+\r\n[^\r]+|:\d+|\*0|\*1\r\n[*%][84]\r\n.*?args\r\n\*0)",
    re.DOTALL,
)


# Replies to UNSUBSCRIBE and PUNSUBSCRIBE without names: their order is that of a table of hashes.
_LEFT: Final = re.compile(
    rb"(?:[*>]3\r\n\$1[02]\r\np?unsubscribe\r\n\$\d+\r\n[^\r]*\r\n:\d+\r\n){2,}"
)


def _sorted(left: re.Match[bytes]) -> bytes:
    """The names in order, and behind them the counts as they came."""
    lines = left[0].split(b"\r\n")
    return repr((sorted(lines[4::6]), lines[5::6])).encode()


class Unfinished(Exception):
    """The bytes end inside a reply."""


def decoded(data: bytes, at: int) -> tuple[Node, int]:
    """The reply of RESP2 or RESP3 at `at`, as (kind, content), and where it ends."""
    end = data.find(b"\r\n", at)
    if end < 0:
        raise Unfinished
    kind, text, at = data[at : at + 1], data[at + 1 : end], end + 2
    if kind in b"$=!":
        size = int(text)
        if size < 0:
            return (kind, None), at
        if len(data) < at + size + 2:
            raise Unfinished
        return (kind, data[at : at + size]), at + size + 2
    if kind in b"*~>%|":
        count = int(text) * (2 if kind in b"%|" else 1)
        if count < 0:
            return (kind, None), at
        items = []
        for _ in range(count):
            item, at = decoded(data, at)
            items.append(item)
        return (kind, items), at
    assert kind in b"+-:_,#(", data[at - 40 : at + 40]
    return (kind, text), at


class Side:
    """One connection to one server."""

    def __init__(self, place: RedisServer | int) -> None:
        self._place = place
        self.begin()

    def begin(self) -> None:
        place = self._place
        if isinstance(place, int):
            self.link = socket.create_connection(("127.0.0.1", place), PATIENCE_S)
        else:
            self.link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.link.settimeout(PATIENCE_S)
            self.link.connect(str(place.socket))
        self.got = b""
        self.closed = False

    def send(self, data: bytes) -> None:
        try:
            self.link.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.closed = True

    def receive(self, count: int) -> list[Node]:
        """The next replies; fewer if the server closes the connection."""
        replies: list[Node] = []
        self.seen = replies
        at = 0
        while len(replies) < count and not self.closed:
            try:
                node, at = decoded(self.got, at)
                replies.append(node)
            except Unfinished:
                try:
                    piece = self.link.recv(1 << 17)
                except ConnectionResetError:
                    piece = b""
                self.closed = not piece
                self.got = self.got[at:] + piece
                at = 0
        self.got = self.got[at:]
        return replies

    def until_the_end(self, patience_s: float) -> bytes:
        """All that comes until END, or until the server closes the connection, or says nothing for so long."""
        got = b""
        self.link.settimeout(patience_s)
        resets = 0
        while not got.endswith(END_TOLD):
            try:
                piece = self.link.recv(1 << 17)
            except (
                ConnectionResetError
            ):  # it closed before it read all; what it sent is still to be had
                resets += 1
                if resets == 1:
                    continue
                break
            except TimeoutError:
                break
            if not piece:
                break
            got += piece
        self.closed = True
        return got

    def close(self) -> None:
        self.link.close()


class Difference(AssertionError):
    """A reply that no row names."""


class Pair:
    """Our server and a real one, with a connection to each."""

    def __init__(
        self,
        running: Running,
        clock: testing.Clock,
        server: RedisServer,
        their_clock: Clock,
        release: Release,
    ) -> None:
        self.release = release
        self._clock, self._their_clock = clock, their_clock
        self.now = START_MS
        self.compared = 0
        self.used: Counter[str] = Counter()
        self.found: list[str] = []  # differences that no row names
        self.sides = [Side(running.port), Side(server)]
        self.advance(0)

    def advance(self, ms: int) -> None:
        self.now += ms
        self._their_clock.set(self.now)
        self._clock.advance(ms / 1000)

    def session(self, seed: int) -> None:
        """Raises Difference."""
        self.advance(1000)
        r = random.Random(seed)
        for side in self.sides:
            if side.closed:
                side.close()
                side.begin()
            self._prepare(side)
        sent: list[Command] = []
        queued: list[Command] = []
        for chunk in chunks(r, self.release, self.now):
            self.advance(r.choice((0, 1, 3)))
            data = b"".join(map(encode, chunk))
            for side in self.sides:
                side.send(data)
            try:
                ours, theirs = (side.receive(len(chunk)) for side in self.sides)
            except TimeoutError:
                raise Difference(
                    f"seed {seed}: {[len(side.seen) for side in self.sides]} silent in {chunk}"
                ) from None
            for args, mine, other in zip(chunk, ours, theirs):
                sent.append(args)
                self.compared += 1
                self._compare(seed, sent, args, mine, other, queued)
            if len(ours) != len(theirs) or self.sides[0].closed != self.sides[1].closed:
                raise Difference(f"seed {seed}: {len(ours)} and {len(theirs)} replies to {chunk}")
            if self.sides[0].closed:
                return

    def _prepare(self, side: Side) -> None:
        commands = prelude()
        side.send(b"".join(map(encode, commands)))
        assert len(side.receive(len(commands))) == len(commands)

    def wire(self, seed: int) -> None:
        """Bytes of a client that knows no better, to the end of what it sends."""
        self.advance(1000)
        data = wire(random.Random(seed), self.release) + END
        replies: list[bytes] = []
        patience_s = SILENCE_S
        for side in self.sides:
            side.close()
            side.begin()
            # By itself: behind a FLUSHALL an 8.2 tells of a bad request only when more comes.
            self._prepare(side)
            side.send(data)
            got = side.until_the_end(patience_s)
            if got.endswith(END_TOLD):
                patience_s = PATIENCE_S
            replies.append(_LEFT.sub(_sorted, _HELLO.sub(rb"\1", got)))
        ours, theirs = replies
        if ours != theirs:
            at = len(os.path.commonprefix(replies))
            begin = max(at - 80, 0)
            self.found.append(
                f"seed {seed}, {self.release.version}, wire {data[: -len(END)]!r}\n"
                f"  ours   {ours[begin : at + 90]!r}\n  theirs {theirs[begin : at + 90]!r}"
            )

    def _compare(
        self,
        seed: int,
        sent: list[Command],
        args: Command,
        mine: Node,
        other: Node,
        queued: list[Command],
    ) -> None:
        if mine == (b"+", b"QUEUED") == other:
            queued.append(args)
            return
        name = args[0].upper()
        if name == b"EXEC" and isinstance(mine[1], list) and isinstance(other[1], list):
            each, queued[:] = list(queued), []
            if len(each) >= len(mine[1]) == len(other[1]):
                for one, inner, outer in zip(each[len(each) - len(mine[1]) :], mine[1], other[1]):
                    self._one(seed, sent, one, inner, outer)
                return
        if name in (b"EXEC", b"DISCARD", b"RESET") and not (
            mine[0] == b"-" and b"wrong number" in mine[1]
        ):
            queued.clear()
        self._one(seed, sent, args, mine, other)

    def _one(self, seed: int, sent: list[Command], args: Command, mine: Node, other: Node) -> None:
        if mine == other:
            return
        name = name_of(args)
        for named in NAMED:
            if self.release in named.releases and named.says(name, mine, other):
                self.used[named.row] += 1
                return
        self.found.append(
            f"seed {seed}, {self.release.version}, command {len(sent)}: {args}\n  ours   {mine}\n  theirs {other}"
        )

    def close(self) -> None:
        for side in self.sides:
            side.close()


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=START_MS))


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("commands", some_slow_and_soak(1_200, 20_000, 500_000))
@pytest.mark.parametrize("release", [EIGHT, SEVEN], ids=["8.2", "7.0"])
def test_random_sessions_are_answered_alike(
    release: Release, commands: int, start: Start, clock: testing.Clock
) -> None:
    reason = eight_is_not_here() if release is EIGHT else None
    if reason is not None:
        pytest.skip(f"not run: {reason}")
    with real_redis(release) as (server, their_clock):
        their_clock.set(START_MS)
        pair = Pair(start(clock=clock), clock, server, their_clock, release)
        seed = SEED
        while pair.compared < commands and len(pair.found) < FOUND_MAX:
            pair.session(seed)
            pair.wire(seed)
            seed += 1
        pair.close()
    print(
        f"{pair.compared} commands, seeds {SEED} to {seed - 1}; differences with a name: {dict(pair.used)}"
    )
    assert not pair.found, "\n".join(pair.found)


def test_each_named_difference_is_a_row_of_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/differences.md").read_text()
    cells = {line.split(" | ")[0].removeprefix("| ") for line in page.splitlines()}
    assert {named.row for named in NAMED} <= cells


def test_sessions_have_every_command() -> None:
    """Of those that a real server has, too."""
    sent = {
        name_of(args)
        for seed in range(200)
        for chunk in chunks(random.Random(seed), EIGHT, START_MS)
        for args in chunk
    }
    sent |= {part.split()[0].lower() for part in SENT if part.strip()} | {b"client|reply"}
    table = COMMANDS.table
    known = {
        name for name in table.commands if name.partition(b"|")[0] not in (b"queue", b"tidelog")
    }
    left_out = {word.encode() for words in LEFT_OUT for word in words.split()}
    assert known - sent - table.containers == left_out
