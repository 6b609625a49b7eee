"""A client of a server under test: it sends pipelines of commands, and knows by the replies what it was promised.

It uses keys of its own and IDs of its choice. So its commands are known units of the model (crash/model.py) before
they are sent, whatever other clients do meanwhile.
"""

from __future__ import annotations

import random
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tidelog.crash.errors import BenchError
from tidelog.crash.model import Contents, Model
from tidelog.crash.trace import Unit
from tidelog.resp.commands import encoded
from tidelog.resp.replies import UNFINISHED, Malformed, Replies

GROUP: Final = b"g"
CONSUMER: Final = b"ann"
PAD: Final = bytes(range(65, 91)) * 40
SAVES: Final = 0.1  # the share of checkpoints among the commands of a client that makes them
READ_BYTES: Final = 1 << 16
SYNCED: Final = (b"WAITAOF", b"1", b"0", b"0")

Command = tuple[bytes, ...]


class BadReply(BenchError):
    """The server answered with an error, or not in its protocol."""


def _refused(line: bytes) -> None:
    raise BadReply(f"the server answered -{line.decode(errors='backslashreplace')}")


def replies() -> Replies:
    """The replies of a new connection. To take one raises BadReply if it is an error."""
    return Replies(bytes, _refused)


def taken(come: Replies) -> Any:
    """The next reply, or UNFINISHED. Raises BadReply."""
    try:
        return come.take()
    except Malformed as error:
        raise BadReply(f"the server does not speak RESP: {error}") from None


class Client:
    """One connection after another, to servers of the same store.

    units      sent so far, those that were lost in a crash left out
    answered   number of them that have their replies
    synced     number of them that a reply to WAITAOF has called synced
    changed    called when one of the numbers has grown
    saves      it also has the server make checkpoints
    """

    def __init__(
        self,
        name: str,
        rng: random.Random,
        changed: Callable[[], object] = lambda: None,
        *,
        saves: bool = False,
    ) -> None:
        self.name = name
        self.units: list[Unit] = []
        self.answered = self.synced = 0
        self._key = name.encode()
        self._cursor = self._key + b":cursor"
        self._rng = rng
        self._changed = changed
        self._saves = saves
        self._model = Model()
        self._number = 0  # of the last entry
        self._socket: socket.socket | None = None
        self._replies = replies()
        self._awaited: deque[list[int]] = deque()  # [replies, units, whether it is a WAITAOF]

    @property
    def keys(self) -> tuple[bytes, bytes]:
        """Its keys: a stream and a string."""
        return self._key, self._cursor

    @property
    def waits(self) -> bool:
        """Whether replies are to come."""
        return bool(self._awaited)

    def own(self, contents: Contents) -> Contents:
        """Its part of the contents of a store."""
        return {key: contents[key] for key in self.keys if key in contents}

    def connect(self, port: int, seconds: float) -> None:
        """Connect to a server of this machine. Raises OSError."""
        self._replies = replies()
        self._awaited.clear()
        self._socket = socket.create_connection(("127.0.0.1", port), seconds)

    def disconnect(self) -> None:
        """Close the connection. Its outstanding replies never come."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        assert self._socket is not None
        return self._socket.fileno()

    # --- commands

    def send(self, commands: int, *, ask: bool = False) -> None:
        """Send a pipeline of random commands; with `ask`, a WAITAOF behind them. Raises OSError."""
        assert self._socket is not None
        data = b""
        for _ in range(commands):
            lines, unit = self._draw()
            self.units.append(unit)
            self._model.apply(unit)
            self._awaited.append([len(lines), len(self.units), False])
            data += b"".join(map(encoded, lines))
        if ask:
            self._awaited.append([1, len(self.units), True])
            data += encoded(SYNCED)
        self._changed()
        self._socket.sendall(data)

    def _draw(self) -> tuple[list[Command], Unit]:
        """The commands of one unit."""
        key, rng = self._key, self._rng
        stream = self._model.streams.get(key)
        group = stream.groups.get(GROUP) if stream else None
        if self._saves and rng.random() < SAVES:
            return [(b"SAVE",)], []
        way = rng.random()
        if stream is not None and group is None:
            return [(b"XGROUP", b"CREATE", key, GROUP, b"0")], [["group", key, GROUP]]
        if group is None or way < 0.5:
            return self._add(rng.choice((5, 60, 900)))
        if way < 0.65:
            return self._both(3)
        if way < 0.8:
            return (
                [(b"XREADGROUP", b"GROUP", GROUP, CONSUMER, b"COUNT", b"2", b"STREAMS", key, b">")],
                [["read", key, GROUP, CONSUMER, 2]],
            )
        if way < 0.9 and group.pending:
            first = next(iter(group.pending))
            return [(b"XACK", key, GROUP, first)], [["ack", key, GROUP, [first]]]
        return self._set()

    def _next(self) -> bytes:
        self._number += 1
        return b"%d-1" % self._number

    def _add(self, nbytes: int) -> tuple[list[Command], Unit]:
        entry_id, pad = self._next(), PAD[:nbytes]
        return (
            [(b"XADD", self._key, entry_id, b"pad", pad)],
            [["add", self._key, entry_id, [b"pad", pad]]],
        )

    def _set(self) -> tuple[list[Command], Unit]:
        value = b"%d" % len(self.units)
        return [(b"SET", self._cursor, value)], [["set", self._cursor, value]]

    def _both(self, maxlen: int) -> tuple[list[Command], Unit]:
        added, add = self._add(30)
        was_set, set_ = self._set()
        trim = (b"XTRIM", self._key, b"MAXLEN", b"%d" % maxlen)
        return (
            [(b"MULTI",), *added, *was_set, trim, (b"EXEC",)],
            [*add, *set_, ["trim", self._key, maxlen]],
        )

    # --- replies

    def receive(self) -> bool:
        """Read what has come. False if the server has gone. Raises BadReply, OSError."""
        assert self._socket is not None
        data = self._socket.recv(READ_BYTES)
        self._replies.feed(data)
        while self._awaited and taken(self._replies) is not UNFINISHED:
            awaited = self._awaited[0]
            awaited[0] -= 1
            if awaited[0]:
                continue
            _, units, asked = self._awaited.popleft()
            self.answered = units
            if asked:
                self.synced = units
            self._changed()
        return bool(data)
