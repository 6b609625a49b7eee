"""Wire: one connection to a server. Sends commands, and receives their replies in order. For threads.

The kernel keeps the time for which a reply is awaited (SO_RCVTIMEO), so that a reply costs one call of the system. With
TLS, which may need several reads for a reply, `poll` keeps it.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Sequence
from typing import Final

from tidelog.aof import errors as aof
from tidelog.aof.frame import BODY_BYTES_MAX
from tidelog.client.starting import readable
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply, status
from tidelog.resp import hints
from tidelog.resp.commands import encoded
from tidelog.resp.replies import UNFINISHED, Malformed, Replies
from tidelog.store.errors import DataError, UnitTooLarge, from_command

RECEIVE_BYTES: Final = 1 << 16
LIMIT_MIN_S: Final = 0.001  # zero would mean no limit
# A limit stays if it is longer than needed by less than this factor and this number of seconds.
SPARE_PART: Final = 1.05
SPARE_S: Final = 0.01
# How a server begins its last reply when it ends a connection for what it read there.
REFUSED: Final = b"ERR Protocol error"
# How the last line of an owner begins that hands over; the server has run nothing that has no reply.
HANDED_OVER: Final = b"HANDOVER "
# Commands that change the connection.
_SESSION: Final = frozenset(
    b"MULTI EXEC DISCARD WATCH UNWATCH SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE MONITOR "
    b"SYNC PSYNC REPLCONF HELLO AUTH RESET QUIT SELECT".split()
)
_SESSION_PARTS: Final = frozenset(
    (b"CLIENT", part)
    for part in b"REPLY TRACKING CACHING NO-TOUCH NO-EVICT SETNAME SETINFO".split()
) | {(b"TIDELOG", b"FOLLOW")}


class Broken(Exception):
    """The connection cannot be used any more.

    Attributes:
        sent: Whether the server may have received the command.
        late: Whether the server is connected but did not answer in time.
    """

    def __init__(self, text: str, *, sent: bool, late: bool = False) -> None:
        super().__init__(text)
        self.sent, self.late = sent, late


class Wire:
    """One connection. One thread at a time uses it; `hang_up` may be called by another.

    db       the database that the connection has selected
    local    the server is on this machine, so that a write to a connection that it has closed fails
    can      capabilities of the server, by their names (TIDELOG CAPABILITIES)
    """

    def __init__(self, link: socket.socket, name: str) -> None:
        link.settimeout(None)
        if link.family != socket.AF_UNIX:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link = link
        self._name = name
        self.local = link.family == socket.AF_UNIX
        self._polls = isinstance(link, ssl.SSLSocket)
        self._limit = 0.0  # of the kernel, in seconds; 0 = none
        self._replies = Replies(status, CommandError)
        # Said when the server hangs up: until it has answered, that its port may want TLS.
        self._closed = hints.closed(None if self.local else hints.URL, tls=self._polls)
        self.db = 0
        self.can: frozenset[bytes] = frozenset()
        self._unread = 0  # replies that nobody waits for

    def call(self, words: Sequence[bytes], seconds: float | None) -> Reply:
        """Run one command; the reply may be a CommandError. `seconds`: for it, None = for ever. Raises Broken."""
        return self.calls((words,), seconds)[0]

    def calls(self, commands: Sequence[Sequence[bytes]], seconds: float | None) -> list[Reply]:
        """Run several commands, sent together. Raises Broken, and UnitTooLarge for an argument that no log can hold."""
        if len(commands) == 1:
            data = encoded(commands[0])
        else:
            data = b"".join(map(encoded, commands))
        if len(data) > BODY_BYTES_MAX:
            check_sizes(commands)
        self._send(data, seconds, whole=len(commands) == 1)
        until = None if seconds is None else time.monotonic() + seconds
        while self._unread:
            self._check_handed_over(self._receive(until))
            self._unread -= 1
        replies: list[Reply] = []
        for _ in commands:
            reply = self._receive(until)
            if type(reply) is CommandError:
                # Of a transaction nothing was run either, since the reply of its EXEC is the last one.
                whole = not replies or bytes(commands[0][0]).upper() == b"MULTI"
                self._check_handed_over(reply, sent=not whole)
            replies.append(reply)
        return replies

    def post(self, words: Sequence[bytes], seconds: float) -> None:
        """Send a command, and do not wait for its reply, which is dropped. Raises Broken."""
        self._send(encoded(words), seconds, whole=True)
        self._unread += 1

    def alive(self) -> bool:
        """Whether the server has not closed the connection, as far as this side knows."""
        try:
            while self._unread and (self._decrypted() or readable(self._link.fileno(), 0)):
                self._receive(time.monotonic())
                self._unread -= 1
            return not readable(self._link.fileno(), 0)
        except (Broken, ValueError):
            return False  # another thread has closed it

    def hang_up(self) -> None:
        """End the connection: a thread that waits for a reply gets Broken."""
        try:
            self._link.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended already

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _decrypted(self) -> bool:
        """Whether TLS has bytes that `select` does not see."""
        return isinstance(self._link, ssl.SSLSocket) and self._link.pending() > 0

    def _send(self, data: bytes, seconds: float | None, *, whole: bool = False) -> None:
        """Send commands. `whole`: it is one, of which the server runs nothing unless it gets all of it."""
        link = self._link
        try:
            if seconds is not None and len(data) > RECEIVE_BYTES:
                link.settimeout(seconds)  # the server may have stopped reading
                try:
                    link.sendall(data)
                finally:
                    link.settimeout(None)
            else:
                link.sendall(data)
        except OSError as error:
            self._check_ended(sent=not whole)
            raise Broken(f"{self._name}: {error}", sent=not whole) from error

    def _check_handed_over(self, reply: Reply, *, sent: bool = False) -> None:
        """Raises Broken for the last line of a server that has handed over. `sent`: it has run other commands."""
        if isinstance(reply, CommandError) and reply.line.startswith(HANDED_OVER):
            raise Broken(f"{self._name} is served by another process now", sent=sent)

    def _check_ended(self, *, sent: bool) -> None:
        """After the server has closed the connection: raises Broken, and ResponseError if it refused what it read.

        sent    it may have run commands that have no reply, unless it says that it has not
        """
        answered = False
        try:
            while True:
                reply = self._receive(time.monotonic())
                self._check_handed_over(reply, sent=sent and answered)
                if self._unread:
                    self._unread -= 1
                else:
                    answered = True
                if not sent and isinstance(reply, CommandError) and reply.line.startswith(REFUSED):
                    raise from_command(reply)
        except Broken as broken:
            if not broken.sent:
                raise
            # it ended for another reason

    def _receive(self, until: float | None) -> Reply:
        replies = self._replies
        while True:
            try:
                reply = replies.take()
            except Malformed as error:
                raise Broken(f"{self._name} does not speak RESP: {error}", sent=True) from error
            if reply is not UNFINISHED:
                return reply
            try:
                if not self._polls:
                    self._limit_to(until)
                elif until is not None and not self._decrypted():
                    left = max(0.0, until - time.monotonic())
                    if not readable(self._link.fileno(), left):
                        raise BlockingIOError
                data = self._link.recv(RECEIVE_BYTES)
            except BlockingIOError:
                raise Broken(f"{self._name} did not answer in time", sent=True, late=True) from None
            except (OSError, ValueError) as error:
                raise Broken(f"{self._name}: {error}", sent=True) from error
            if not data:
                raise Broken(f"{self._name} {self._closed}", sent=True)
            self._closed = hints.CLOSED
            replies.feed(data)

    def _limit_to(self, until: float | None) -> None:
        """Let the next `recv` wait no longer than this, or a little longer."""
        left = 0.0 if until is None else max(LIMIT_MIN_S, until - time.monotonic())
        if left == self._limit or (left and left <= self._limit <= left * SPARE_PART + SPARE_S):
            return
        microseconds = round(left * 1_000_000)
        given = struct.pack("ll", *divmod(microseconds, 1_000_000))
        self._link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, given)
        self._limit = left


def check_sizes(commands: Sequence[Sequence[bytes]]) -> None:
    """Raises UnitTooLarge for an argument that no log can hold: the server might hang up while it is sent."""
    for size in (len(word) for words in commands for word in words):
        if size > BODY_BYTES_MAX:
            raise UnitTooLarge(str(aof.UnitTooLarge(size, BODY_BYTES_MAX)))


def session_free(words: list[bytes]) -> list[bytes]:
    """The words of a command. Raises DataError for one that changes the connection: the next call would find another
    one, or this one with its replies out of order.
    """
    name = words[0].upper()
    if name in _SESSION or (len(words) > 1 and (name, words[1].upper()) in _SESSION_PARTS):
        told = b" ".join(words[: 1 if name in _SESSION else 2]).upper().decode(errors="replace")
        raise DataError(
            f"execute_command does not take {told}, because it changes the connection, and calls of a shared store use "
            "several by turns. Use a pipeline for transactions, and a client of Redis for the rest"
        )
    return words


def checked(reply: Reply) -> Reply:
    """The reply. Raises it if it is a CommandError."""
    if isinstance(reply, CommandError):
        raise reply
    return reply
