"""A worker of a queue on a server under test: it puts jobs, takes them and ends them by QUEUE commands.

It lives longer than its connections. A write that may be repeated has a number (ONCE), and is sent again on the next
connection if its reply was lost, so it happens once. A DONE without a number is fenced by the delivery instead: when
such a job comes again, the old delivery must no longer count. The store gives the IDs of jobs, so a job is known by its
value, which no other job has.
"""

from __future__ import annotations

import random
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from tidelog.crash.client import READ_BYTES, BadReply, Command, replies, taken
from tidelog.crash.model import Contents
from tidelog.crash.oracle import Fault, Kind
from tidelog.resp.commands import encoded
from tidelog.resp.replies import UNFINISHED

WORKER: Final = b"ann"
ONCE_KEY: Final = b"tidelog:once:"
RESULT: Final = b"kept"
# for each one that it is told to send: the other clients send theirs without waiting
COMMANDS: Final = 8

Told = Callable[[Any], None]


class Worker:
    """One worker, which has at most one command under way.

    put        values that it put, by whether the reply came
    done       values of jobs whose DONE was answered
    perhaps    values of jobs whose DONE may have been lost
    """

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.put: dict[bytes, bool] = {}
        self.done: set[bytes] = set()
        self.perhaps: set[bytes] = set()
        self._queue = name.encode()
        self._log = self._queue + b":log"
        self._lane = b"lane of " + self._queue
        self._rng = rng
        self._number = 0  # of the last write with a number
        self._values = 0  # that it has made
        self._held: dict[bytes, tuple[int, bytes]] = {}  # job -> (deliveries, value)
        self._before: dict[bytes, int] = {}  # job of a lost connection -> its delivery there
        self._late: deque[tuple[bytes, int]] = deque()  # deliveries that no longer count
        self._begins = True
        self._left = 0  # commands to send
        self._flight: tuple[Command, Told, bool] | None = (
            None  # (command, its reply's taker, to be sent again)
        )
        self._socket: socket.socket | None = None
        self._replies = replies()

    def owns(self, key: bytes) -> bool:
        """Whether a key is one of its queue, its stream or its lane."""
        return key.startswith(self._queue) or key == ONCE_KEY + self._lane

    @property
    def waits(self) -> bool:
        """Whether replies are to come."""
        return self._flight is not None

    def connect(self, port: int, seconds: float) -> None:
        """Connect to a server of this machine. Raises OSError."""
        self._replies = replies()
        self._left = 0
        self._begins = True
        self._before.update({job_id: count for job_id, (count, _) in self._held.items()})
        self._held.clear()
        self._late.clear()
        self._socket = socket.create_connection(("127.0.0.1", port), seconds)

    def disconnect(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        assert self._socket is not None
        return self._socket.fileno()

    def send(self, commands: int) -> None:
        """Send some commands for each of these, each behind the reply to the one before; first the one whose reply was
        lost. Raises OSError.
        """
        self._left += COMMANDS * commands
        if self._flight is not None and not self._flight[2]:
            self._flight = None
        if self._flight is not None:
            self._write(self._flight[0])
        else:
            self._next()

    def receive(self) -> bool:
        """Read what has come. False if the server has gone. Raises BadReply, OSError."""
        assert self._socket is not None
        data = self._socket.recv(READ_BYTES)
        self._replies.feed(data)
        while self._flight is not None and (reply := taken(self._replies)) is not UNFINISHED:
            _, told, _ = self._flight
            self._flight = None
            told(reply)
            if self._left:
                self._next()
        return bool(data)

    # --- commands

    def _next(self) -> None:
        self._left -= 1
        command, told, again = self._draw()
        self._flight = command, told, again
        self._write(command)

    def _write(self, command: Command) -> None:
        assert self._socket is not None
        self._socket.sendall(encoded(command))

    def _draw(self) -> tuple[Command, Told, bool]:
        way = self._rng.random()
        if self._late:
            return self._done_late(*self._late.popleft())
        if self._begins or way < 0.2:
            return self._take()
        if way < 0.35:
            return self._put([self._value()])
        if way < 0.42:
            return self._put([self._value() for _ in range(self._rng.randint(2, 5))])
        if way < 0.5 or not self._held:
            return self._add()
        job_id = next(iter(self._held))
        count, value = self._held.pop(job_id)
        fence = (self._queue, WORKER, job_id, b"%d" % count)
        if way < 0.56:
            return (b"QUEUE", b"RETRY", *fence, b"no", b"DELAY", b"0"), self._one, False
        if way < 0.62:
            return (b"QUEUE", b"RELEASE", *fence), self._one, False
        return self._done(fence, value, way)

    def _value(self) -> bytes:
        self._values += 1
        return b"%b job %d" % (self._queue, self._values)

    def _once(self) -> tuple[bytes, bytes]:
        self._number += 1
        return self._lane, b"%d" % self._number

    def _put(self, values: list[bytes]) -> tuple[Command, Told, bool]:
        self.put.update(dict.fromkeys(values, False))

        def told(reply: Any) -> None:
            if len(values) > 1 and reply != len(values):
                raise BadReply(f"a put of {len(values)} jobs was answered by {reply!r}")
            self.put.update(dict.fromkeys(values, True))

        if len(values) == 1:
            return (b"QUEUE", b"PUT", self._queue, values[0], b"ONCE", *self._once()), told, True
        count = b"%d" % len(values)
        return (
            (b"QUEUE", b"PUTMANY", self._queue, count, *values, b"ONCE", *self._once()),
            told,
            True,
        )

    def _add(self) -> tuple[Command, Told, bool]:
        """Add an entry to its stream, once."""
        value = self._value()
        self.put[value] = False
        command = (b"TIDELOG", b"ONCE", *self._once(), b"XADD", self._log, b"*", b"value", value)
        return command, lambda reply: self.put.update({value: True}), True

    def _take(self) -> tuple[Command, Told, bool]:
        history = (b"HISTORY",) if self._begins else ()
        self._begins = False
        count = b"%d" % self._rng.randint(1, 3)
        command = (b"QUEUE", b"TAKE", self._queue, WORKER, b"COUNT", count, *history)
        return command, self._taken, False

    def _taken(self, reply: Any) -> None:
        for job_id, count, row in reply or ():
            value = row[1]
            if value in self.done or value not in self.put:
                raise BadReply(f"job {job_id!r} came, and {value!r} was done or never put")
            self.perhaps.discard(value)
            self._held[job_id] = count, value
            before = self._before.pop(job_id, None)
            if before is not None:
                self._late.append((job_id, before))

    def _done_late(self, job_id: bytes, count: int) -> tuple[Command, Told, bool]:
        """End a job by a delivery that was before the present one, or that is it if the delivery never counted."""
        now = self._held.get(job_id)
        if now is None or now[0] <= count:
            return self._take()

        def told(reply: Any) -> None:
            if reply:
                raise BadReply(f"job {job_id!r} was done by delivery {count}, and {now} has it")

        return (
            (b"QUEUE", b"DONE", self._queue, WORKER, job_id, b"%d" % count),
            told,
            False,
        )

    def _done(self, fence: Command, value: bytes, way: float) -> tuple[Command, Told, bool]:
        self.perhaps.add(value)

        def told(reply: Any) -> None:
            self._one(reply)
            self.perhaps.discard(value)
            self.done.add(value)

        if way < 0.76:
            return (b"QUEUE", b"DONE", *fence, b"ONCE", *self._once()), told, True
        self._before[fence[2]] = int(fence[3])
        result = (b"RESULT", RESULT) if way < 0.88 else ()
        return (b"QUEUE", b"DONE", *fence, *result), told, False

    def _one(self, reply: Any) -> None:
        if reply != 1:
            raise BadReply(f"the worker held its job, and was answered {reply!r}")

    # --- afterwards

    def judge(self, contents: Contents) -> Fault | None:
        """Compare what a store has with what was answered."""
        found = [*values_of(contents, self._queue), *values_of(contents, self._log)]
        found += values_of(contents, self._queue + b":dead")
        there = set(found)
        for value in there:
            if found.count(value) > 1:
                return Fault(
                    Kind.WRONG, f"{self.name}: {value!r} is there {found.count(value)} times"
                )
        for strange, words in (
            (there - self.put.keys(), "was never put"),
            (there & self.done, "is done, and is there again"),
        ):
            if strange:
                return Fault(Kind.WRONG, f"{self.name}: {min(strange)!r} {words}")
        kept = {value for value, answered in self.put.items() if answered}
        lost = kept - there - self.done - self.perhaps
        return Fault(Kind.LOST, f"{self.name}: {min(lost)!r} is lost") if lost else None


def values_of(contents: Contents, key: bytes) -> Iterable[bytes]:
    """The values of the entries of a stream."""
    stream = contents.get(key)
    return [] if stream is None else [row[1] for _, row in stream[0]]
